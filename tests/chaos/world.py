"""Everything that a chaos run is made of: broker, InfluxDB, collector and agents as processes, and proxies and disks between them."""

import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.chaos.clock import Clock
from tests.chaos.counted import Counted
from tests.chaos.disk import Disk
from tests.chaos.judge import Verdict, expected, in_influx, in_ledger, judge
from tests.chaos.proxy import Proxy
from tests.chaos.supervised import Supervised, await_port
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.servers import LOOPBACK, Influx, free_port, mosquitto

BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0", "persistence true")
DEVICES_A_PROCESS = 2
# Generous size of a record with its raw samples in the ledger.
RECORD_KB = 12
DUPLICATES = "edgemeter_collector_duplicates_total"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is sent: `records` in all, by `devices`, `rate_per_s` in all."""

    devices: int
    records: int
    rate_per_s: float

    def of_each(self) -> int:
        """Return how many records each device keeps."""
        return -(-self.records // self.devices)


class World:
    """A broker, an InfluxDB, collectors and agents, with proxies and disks between them, in a `folder` that is gone afterwards.

    Use it as a context.
    """

    def __init__(self, influxd: Path, size: Size, collectors: int = 1) -> None:
        self.size = size
        self.devices = [f"device-{number:02d}" for number in range(size.devices)]
        self.ledger_mb = 64 + size.records * RECORD_KB // 1024
        self.collectors: list[Supervised] = []
        self.counted: list[Counted] = []
        self._influxd = influxd
        self._number_of_collectors = collectors
        self._disks: list[Disk] = []
        self._stack = ExitStack()

    def __enter__(self):
        try:
            self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-chaos-")))
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settle(self, stalled_s: float) -> bool:
        """Wait until everything is delivered and drained; return False when nothing has moved for `stalled_s`."""
        before, moved_s = 0, time.monotonic()
        while time.monotonic() - moved_s < stalled_s:
            drained = self._drained(before)
            if all(agent.has_ended() for agent in self.agents) and drained >= len(expected(self.folder).kept):
                return True
            if drained != before:
                before, moved_s = drained, time.monotonic()
            time.sleep(1)
        return False

    def verdict(self) -> Verdict:
        """End the collectors and return what came of the run."""
        for counted in self.counted:
            counted.stop()
        for collector in self.collectors:
            collector.stop()
        counts, quarantined = in_ledger(self.ledger)
        duplicates = sum(counted.total for counted in self.counted)
        return judge(expected(self.folder), counts, in_influx(self.influx, self.devices), quarantined, duplicates)

    def processes(self) -> list[Supervised]:
        return [self.broker, self.influx_server, *self.collectors, *self.agents]

    def disks(self) -> list[Disk]:
        return [disk for disk in self._disks if disk.can_fill]

    def _drained(self, before: int) -> int:
        """Return how many points InfluxDB holds; what was seen before while it starts anew, which takes longer the more it holds."""
        try:
            rows = self.influx.query("SELECT count(id) FROM run")
        except OSError:
            return before
        return int(rows[0]["count"]) if rows else 0

    def _build(self) -> None:
        self.agents_clock, self.collector_clock = Clock(self.folder / "agents.clock"), Clock(self.folder / "collector.clock")
        self._disk("outboxes", 256)
        self.influx_server = self._start_influx()
        (self.folder / "broker").mkdir()
        server = mosquitto(self.folder / "broker", *BROKER, f"persistence_location {self.folder}/broker/")
        self.broker = self._supervised("mosquitto", server.command)
        await_port(server.port)
        self.agents_net, self.influx_net = self._proxy(server.port), self._proxy(self.influx.port)
        self.collector_nets = [self._proxy(server.port) for _ in range(self._number_of_collectors)]
        self.ledger = self._make_ledger()
        for number, net in enumerate(self.collector_nets):
            self._start_collector(number, net.port)
        self.agents = self._start_agents()

    def _make_ledger(self) -> str:
        return str(self._disk("collector", self.ledger_mb) / "ledger.sqlite")

    def _start_influx(self) -> Supervised:
        (self.folder / "influx").mkdir()
        self.influx = Influx(self._influxd, self.folder / "influx")
        process = self._supervised("influxd", self.influx.command)
        await_port(self.influx.port)
        self.influx.set_up()
        (self.folder / "token").write_text(self.influx.token)
        return process

    def _start_collector(self, number: int, broker_port: int) -> None:
        metrics = f"{LOOPBACK}:{free_port()}"
        influx = f"http://{LOOPBACK}:{self.influx_net.port}?{urlencode({'org': self.influx.org, 'bucket': self.influx.bucket})}"
        command = [*EDGEMETER, "collector", "up", "--broker", f"{LOOPBACK}:{broker_port}", "--ledger", self.ledger, "--metrics", metrics]
        command += ["--influx", influx, "--influx-token-file", str(self.folder / "token")]
        command += ["--group", "chaos"] if self._number_of_collectors > 1 else []
        self.collectors.append(self._supervised(f"collector-{number}", command, self.collector_clock))
        self.counted.append(Counted(f"http://{metrics}/metrics", DUPLICATES))

    def _start_agents(self) -> list[Supervised]:
        """Start the agents in groups, each a process."""
        firsts = range(0, len(self.devices), DEVICES_A_PROCESS)
        shared = [f"{LOOPBACK}:{self.agents_net.port}", str(self.size.of_each()), str(self.size.rate_per_s / len(firsts))]
        agents = []
        for number, first in enumerate(firsts):
            devices = self.devices[first : first + DEVICES_A_PROCESS]
            command = [sys.executable, "-m", "tests.chaos.agents", str(self.folder), *shared, *devices]
            agents.append(self._supervised(f"agents-{number}", command, self.agents_clock))
        return agents

    def _proxy(self, target: int) -> Proxy:
        proxy = Proxy(target)
        proxy.start()
        self._stack.callback(proxy.stop)
        return proxy

    def _supervised(self, name: str, command: list[str], clock: Clock | None = None) -> Supervised:
        process = Supervised(name, command, self.folder / f"{name}.log", clock.environment if clock else None)
        self._stack.callback(process.stop)
        process.start()
        return process

    def _disk(self, name: str, size_mb: int) -> Path:
        disk = Disk(self.folder / name, size_mb)
        self._stack.callback(disk.remove)
        self._disks.append(disk)
        return disk.folder


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def status_of(verdict: Verdict) -> int:
    """Print the verdict, its line of JSON last; return the exit status."""
    for example in verdict.examples:
        print(f"  {example}")
    print(verdict.line())
    return 0 if verdict.holds else 1


def end_by_signal() -> None:
    """Let whoever ends this process leave no server and no mount behind."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))

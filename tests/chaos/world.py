"""Everything that a chaos run is made of: broker, InfluxDB, collector and agents as processes, and proxies and disks between them."""

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
from tests.fixtures.servers import LOOPBACK, Influx, free_port, mosquitto

EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]
BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0", "persistence true")
DEVICES_A_PROCESS = 2
# Of a record with its raw samples in the ledger, generously.
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
    """Use it as a context; everything runs inside and is gone afterwards."""

    def __init__(self, influxd: Path, size: Size, collectors: int = 1) -> None:
        self.size = size
        self.ledger_mb = 64 + size.records * RECORD_KB // 1024
        self.collectors: list[Supervised] = []
        self.counted: list[Counted] = []
        self._collectors = collectors
        self._disks: list[Disk] = []
        self.devices = [f"device-{number:02d}" for number in range(size.devices)]
        self._stack = ExitStack()
        self._influxd = influxd

    def __enter__(self) -> "World":  # noqa: PYI034 - Self needs Python 3.11
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_delivered(self) -> bool:
        """Return whether every agent has ended, its outbox empty."""
        return all(agent.has_ended() for agent in self.agents)

    def settle(self, stalled_s: float) -> bool:
        """Wait until everything is delivered and drained; return False when nothing has moved for `stalled_s`."""
        seen, moved_s = 0, time.monotonic()
        while time.monotonic() - moved_s < stalled_s:
            drained = self._drained(seen)
            if self.is_delivered() and drained >= len(expected(self.folder).kept):
                return True
            if drained != seen:
                seen, moved_s = drained, time.monotonic()
            time.sleep(1)
        return False

    def verdict(self) -> Verdict:
        """End the collector and return what came of the run."""
        for counted in self.counted:
            counted.stop()
        for collector in self.collectors:
            collector.stop()
        ledger, quarantined = in_ledger(self.ledger)
        duplicates = sum(counted.total for counted in self.counted)
        return judge(expected(self.folder), [ledger], in_influx(self.influx, self.devices), quarantined, duplicates)

    def processes(self) -> list[Supervised]:
        """Return every process that is kept running."""
        return [self.broker, self.influx_server, *self.collectors, *self.agents]

    def disks(self) -> list[Disk]:
        """Return the disks that can be filled."""
        return [disk for disk in self._disks if disk.can_fill]

    def _drained(self, seen: int) -> int:
        """Return how many points InfluxDB holds; what was seen before while it starts anew, which takes longer the more it holds."""
        try:
            found = self.influx.query("SELECT count(id) FROM run")
        except OSError:
            return seen
        return int(found[0]["count"]) if found else 0

    def _build(self) -> None:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-chaos-")))
        self.agents_clock, self.collector_clock = Clock(self.folder / "agents.clock"), Clock(self.folder / "collector.clock")
        self._disk("outboxes", 256)
        self._start_servers()
        self.ledger = self._make_ledger()
        self._start_collectors(self._collectors)
        self._start_agents()

    def _make_ledger(self) -> str:
        return str(self._disk("collector", self.ledger_mb) / "ledger.sqlite")

    def _disk(self, name: str, size_mb: int) -> Path:
        disk = Disk(self.folder / name, size_mb)
        self._stack.callback(disk.remove)
        self._disks.append(disk)
        return disk.folder

    def _proxy(self, target: int) -> Proxy:
        proxy = Proxy(target)
        proxy.start()
        self._stack.callback(proxy.stop)
        return proxy

    def _supervised(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> Supervised:
        process = Supervised(name, command, self.folder / f"{name}.log", environment)
        self._stack.callback(process.stop)
        process.start()
        return process

    def _start_servers(self) -> None:
        (self.folder / "influx").mkdir()
        self.influx = Influx(self._influxd, self.folder / "influx")
        self.influx_server = self._supervised("influxd", self.influx.command)
        await_port(self.influx.port)
        self.influx.set_up()
        (self.folder / "broker").mkdir()
        server = mosquitto(self.folder / "broker", *BROKER, f"persistence_location {self.folder}/broker/")
        self.broker = self._supervised("mosquitto", server.command)
        await_port(server.port)
        self.agents_net, self.influx_net = self._proxy(server.port), self._proxy(self.influx.port)
        self.collector_nets = [self._proxy(server.port) for _ in range(self._collectors)]

    def _start_collectors(self, count: int) -> None:
        token = self.folder / "token"
        token.write_text(self.influx.token)
        influx = [
            "--influx",
            f"http://{LOOPBACK}:{self.influx_net.port}?{urlencode({'org': self.influx.org, 'bucket': self.influx.bucket})}",
        ]
        shared = ["--ledger", self.ledger, *influx, "--influx-token-file", str(token), *(["--group", "chaos"] if count > 1 else [])]
        for number, net in enumerate(self.collector_nets):
            metrics = f"{LOOPBACK}:{free_port()}"
            command = [*EDGEMETER, "collector", "up", "--broker", f"{LOOPBACK}:{net.port}", "--metrics", metrics, *shared]
            self.collectors.append(self._supervised(f"collector-{number}", command, self.collector_clock.environment))
            self.counted.append(Counted(f"http://{metrics}/metrics", DUPLICATES))

    def _start_agents(self) -> None:
        groups = [self.devices[first : first + DEVICES_A_PROCESS] for first in range(0, len(self.devices), DEVICES_A_PROCESS)]
        rate = str(self.size.rate_per_s / len(groups))
        command = [sys.executable, "-m", "tests.chaos.agents", str(self.folder), f"{LOOPBACK}:{self.agents_net.port}"]
        self.agents = [
            self._supervised(f"agents-{number}", [*command, str(self.size.of_each()), rate, *group], self.agents_clock.environment)
            for number, group in enumerate(groups)
        ]

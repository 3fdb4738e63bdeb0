"""The parts of a chaos run.

They are broker, InfluxDB, collector and agents as processes, and proxies and disks between them.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from urllib.parse import urlencode

from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.servers import LOOPBACK, Influx, free_port, mosquitto
from tools.chaos.clock import Clock
from tools.chaos.counted import Counted
from tools.chaos.disk import Disk
from tools.chaos.judge import Verdict, expected, in_influx, in_ledger, judge
from tools.chaos.proxy import Proxy
from tools.chaos.supervised import Supervised, await_port

BROKER = (
    "set_tcp_nodelay true",
    "max_inflight_messages 2000",
    "max_queued_messages 0",
    "persistence true",
)
DEVICES_A_PROCESS = 2
# Generous size of a record with its raw samples in the ledger.
RECORD_KB = 12
DUPLICATES = "edgemeter_collector_duplicates_total"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run: `records` in all, by `devices`, `rate_per_s` in all."""

    devices: int
    records: int
    rate_per_s: float

    def of_each(self) -> int:
        """Return how many records each device keeps."""
        return -(-self.records // self.devices)


class Scene:
    """The processes of a run, in a `folder` of its own.

    Use it as a context: all of it is gone afterwards. `_build` starts them.
    """

    ledgers: list[str]
    agents: list[Supervised]

    def __init__(self, influxd: Path, devices: list[str]) -> None:
        self.devices = devices
        self.collectors: list[Supervised] = []
        self.counted: list[Counted] = []
        self._stack = ExitStack()
        self._influxd = influxd

    def __enter__(self):
        try:
            self.folder = Path(
                self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-chaos-"))
            )
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

    def drained(self) -> int:
        """Return how many records InfluxDB holds."""
        rows = self.influx.query("SELECT count(id) FROM run")
        return int(rows[0]["count"]) if rows else 0

    def verdict(self) -> Verdict:
        for counted in self.counted:
            counted.stop()
        for collector in self.collectors:
            collector.stop()
        counts = [in_ledger(ledger) for ledger in self.ledgers]
        duplicates = sum(counted.total for counted in self.counted)
        quarantined = sum(entries for _, entries in counts)
        return judge(
            expected(self.folder),
            [ids for ids, _ in counts],
            in_influx(self.influx, self.devices),
            quarantined,
            duplicates,
        )

    def _build(self) -> None:
        raise NotImplementedError

    def _proxy(self, target: int) -> Proxy:
        proxy = Proxy(target)
        proxy.start()
        self._stack.callback(proxy.stop)
        return proxy

    def _supervised(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> Supervised:
        process = Supervised(name, command, self.folder / f"{name}.log", environment)
        self._stack.callback(process.stop)
        process.start()
        return process

    def _start_influx(self) -> Supervised:
        (self.folder / "influx").mkdir()
        self.influx = Influx(self._influxd, self.folder / "influx")
        process = self._supervised("influxd", self.influx.command)
        await_port(self.influx.port)
        self.influx.set_up()
        (self.folder / "token").write_text(self.influx.token)
        return process

    def _collector(
        self,
        number: int,
        broker: int,
        ledger: str,
        influx: int,
        metrics: str,
        options: Sequence[str],
        clock: Clock | None = None,
    ) -> Supervised:
        """Start a collector of the broker and the InfluxDB at these ports."""
        query = urlencode({"org": self.influx.org, "bucket": self.influx.bucket})
        address = f"http://{LOOPBACK}:{influx}?{query}"
        command = [
            *EDGEMETER,
            "collector",
            "up",
            "--broker",
            f"{LOOPBACK}:{broker}",
            "--ledger",
            ledger,
            "--metrics",
            metrics,
        ]
        command += [
            "--influx",
            address,
            "--influx-token-file",
            str(self.folder / "token"),
            *options,
        ]
        return self._supervised(
            f"collector-{number}", command, clock.environment if clock else None
        )

    def _start_agents(
        self,
        ports: Sequence[int],
        devices_a_process: int,
        of_each: int,
        rate_per_s: float,
        clock: Clock | None = None,
    ) -> list[Supervised]:
        """Start the agents in groups, which take the brokers at `ports` in turn."""
        groups = [
            self.devices[first : first + devices_a_process]
            for first in range(0, len(self.devices), devices_a_process)
        ]
        shared = [str(of_each), str(rate_per_s / len(groups))]
        agents = []
        for number, (group, port) in enumerate(zip(groups, cycle(ports), strict=False)):
            command = [
                sys.executable,
                "-m",
                "tools.chaos.agents",
                str(self.folder),
                f"{LOOPBACK}:{port}",
                *shared,
                *group,
            ]
            agents.append(
                self._supervised(f"agents-{number}", command, clock.environment if clock else None)
            )
        return agents


class World(Scene):
    """A broker, an InfluxDB, collectors and agents, with proxies and disks between them."""

    def __init__(self, influxd: Path, size: Size, collectors: int = 1) -> None:
        super().__init__(influxd, [f"device-{number:02d}" for number in range(size.devices)])
        self.size = size
        self.ledger_mb = 64 + size.records * RECORD_KB // 1024
        self._collectors = collectors
        self._disks: list[Disk] = []

    def settle(self, stalled_s: float) -> bool:
        """Wait until everything is delivered and drained.

        Returns: False when nothing has moved for `stalled_s`.
        """
        before, moved_s = 0, time.monotonic()
        while time.monotonic() - moved_s < stalled_s:
            drained = self._drained(before)
            if self.is_delivered() and drained >= len(expected(self.folder).kept):
                return True
            if drained != before:
                before, moved_s = drained, time.monotonic()
            time.sleep(1)
        return False

    def processes(self) -> list[Supervised]:
        """Return every process that is kept running."""
        return [self.broker, self.influx_server, *self.collectors, *self.agents]

    def disks(self) -> list[Disk]:
        return [disk for disk in self._disks if disk.can_fill]

    def _drained(self, before: int) -> int:
        """Return how many points InfluxDB holds.

        While it starts anew, which takes longer the more it holds, that is the number seen before.
        """
        try:
            return self.drained()
        except OSError:
            return before

    def _build(self) -> None:
        self.agents_clock, self.collector_clock = (
            Clock(self.folder / "agents.clock"),
            Clock(self.folder / "collector.clock"),
        )
        self._disk("outboxes", 256)
        self.influx_server = self._start_influx()
        (self.folder / "broker").mkdir()
        server = mosquitto(
            self.folder / "broker", *BROKER, f"persistence_location {self.folder}/broker/"
        )
        self.broker = self._supervised("mosquitto", server.command)
        await_port(server.port)
        self.agents_net, self.influx_net = self._proxy(server.port), self._proxy(self.influx.port)
        self.collector_nets = [self._proxy(server.port) for _ in range(self._collectors)]
        ledger = self._make_ledger()
        self.ledgers = [ledger]
        for number, net in enumerate(self.collector_nets):
            metrics = f"{LOOPBACK}:{free_port()}"
            options = ("--group", "chaos") if self._collectors > 1 else ()
            self.collectors.append(
                self._collector(
                    number,
                    net.port,
                    ledger,
                    self.influx_net.port,
                    metrics,
                    options,
                    self.collector_clock,
                )
            )
            self.counted.append(Counted(f"http://{metrics}/metrics", DUPLICATES))
        self.agents = self._start_agents(
            [self.agents_net.port],
            DEVICES_A_PROCESS,
            self.size.of_each(),
            self.size.rate_per_s,
            self.agents_clock,
        )

    def _make_ledger(self) -> str:
        return str(self._disk("collector", self.ledger_mb) / "ledger.sqlite")

    def _disk(self, name: str, size_mb: int) -> Path:
        disk = Disk(self.folder / name, size_mb)
        self._stack.callback(disk.remove)
        self._disks.append(disk)
        return disk.folder


def say(text: str) -> None:
    """Print a line to standard error at once."""
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

"""`make bench ARGS=shared-ledger`: the highest rates of one collector on SQLite beside those of collectors on one PostgreSQL, in pairs.

Each of a pair starts everything anew: mosquitto, the server, the collectors. The publisher costs next to nothing.
"""

import os
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psutil

from tests import requirements
from tests.benchmarks import flood
from tests.benchmarks.comparison import Comparison, LeftOutError, Line, at_least, compared, figure
from tests.benchmarks.delivery import RECORDS_A_BATCH
from tests.benchmarks.flood import send
from tests.benchmarks.interleaving import in_turn
from tests.chaos.world import EDGEMETER
from tests.fixtures.postgresql import Postgresql
from tests.fixtures.servers import LOOPBACK, mosquitto

BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0")
UP_WITHIN_S = 60.0
# Of a pair: records sent one a message (five times as many in batches), how many pairs, and in what time.
RECORDS, SECONDS = 20_000, 150.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Who receives: so many collectors on one ledger."""

    name: str
    collectors: int
    is_shared: bool


SETTINGS = (
    Setting("SQLite, 1 collector", 1, is_shared=False),
    Setting("PostgreSQL, 1 collector", 1, is_shared=True),
    Setting("PostgreSQL, 3 collectors", 3, is_shared=True),
)


class Deployment:
    """Broker, ledger and collectors, running."""

    def __init__(self, setting: Setting, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.servers: list[Postgresql] = []
        self.broker = mosquitto(folder, *BROKER)
        self.broker.start()
        stack.callback(self.broker.kill)
        ledger = self._shared() if setting.is_shared else str(folder / "ledger" / "ledger.sqlite")
        (folder / "ledger").mkdir()
        self.collectors = [self._collector(number, ledger, setting) for number in range(setting.collectors)]

    def processor_s(self) -> tuple[float, float, float]:
        """Return the seconds of processor that collectors, database and broker have taken."""
        assert self.broker.process is not None
        return (
            sum(map(_own_s, self.collectors)),
            sum(_family_s(server) for server in self.servers),
            _own_s(psutil.Process(self.broker.process.pid)),
        )

    def await_validated(self) -> None:
        """Return when a file has validated what it has stored; a server has before."""
        if not self.servers:
            with closing(sqlite3.connect(self._folder / "ledger" / "ledger.sqlite")) as ledger:
                while ledger.execute("SELECT 1 FROM unchecked LIMIT 1").fetchone() is not None:
                    time.sleep(0.02)

    def _shared(self) -> str:
        server = Postgresql()
        self._stack.callback(server.close)
        server.start()
        server.sql("CREATE DATABASE edgemeter")
        self.servers.append(server)
        address = server.address("edgemeter")
        subprocess.run([*EDGEMETER, "collector", "init-ledger", "--ledger", address], check=True, capture_output=True, timeout=120)
        return address

    def _collector(self, number: int, ledger: str, setting: Setting) -> psutil.Process:
        group = ["--group", "collectors"] if setting.collectors > 1 else []
        command = [*EDGEMETER, "collector", "up", "--broker", f"{LOOPBACK}:{self.broker.port}", "--ledger", ledger, *group]
        log = (self._folder / f"collector-{number}.log").open("w")
        environment = os.environ | {"EDGEMETER_HOME": str(self._folder / "home")}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._stack.callback(_end, process)
        deadline = time.monotonic() + UP_WITHIN_S
        while "receiving from" not in (text := Path(log.name).read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the collector does not start: {text}")
            time.sleep(0.1)
        return psutil.Process(process.pid)


def comparisons() -> Iterator[Comparison]:
    """Yield durable records a second on PostgreSQL beside SQLite's in the same pair, then the processor time of a record in each."""
    if requirements.find("mosquitto") is None or requirements.postgresql_folder() is None:
        raise LeftOutError("mosquitto or PostgreSQL is not installed")
    spent_us: dict[str, list[tuple[float, ...]]] = {}

    def rate(setting: Setting, batch: int, *, until: Literal["receipted", "validated"] = "receipted") -> float:
        count = RECORDS * (5 if batch > 1 else 1)
        with _deployed(setting) as deployment:
            before_s = (*deployment.processor_s(), _ended_s())
            sent = send(flood.Settings(deployment.broker.port, count, batch, devices=1000))
            assert sent["receipted"] == count, f"{sent['receipted']} of {count} receipted"
            begun_s = time.monotonic()
            if until == "validated":
                deployment.await_validated()
            validating_s = time.monotonic() - begun_s
            after_s = (*deployment.processor_s(), _ended_s())
        name = f"{setting.name}, {batch} a message, {until}"
        spent_us.setdefault(name, []).append(tuple(1e6 * (now - then) / count for now, then in zip(after_s, before_s, strict=True)))
        return count / (float(str(sent["took_s"])) + validating_s)

    for setting, batch, least in ((SETTINGS[1], 1, 0.6), (SETTINGS[2], 1, 1.2), (SETTINGS[1], RECORDS_A_BATCH, 0.6)):
        line = Line(f"shared ledger: durable records/s, {setting.name}, {batch} a message", "records/s", "SQLite", at_least(least))
        yield compared(line, in_turn(partial(rate, setting, batch), partial(rate, SETTINGS[0], batch)), SECONDS)
    # A file validates batches when it has time, after the receipt; a server's writer may remove nothing, and so validates before.
    validated_rate = partial(rate, batch=RECORDS_A_BATCH, until="validated")
    line = Line(f"shared ledger: validated records/s, {SETTINGS[1].name}, {RECORDS_A_BATCH} a message", "records/s", "SQLite")
    yield compared(line, in_turn(partial(validated_rate, SETTINGS[1]), partial(validated_rate, SETTINGS[0])), SECONDS)
    for name, rounds in spent_us.items():
        for part, values in zip(("collectors", "database", "broker", "publisher"), zip(*rounds, strict=True), strict=True):
            if any(values):
                yield figure(f"shared ledger: processor of a record, {name}: {part}", "us", statistics.median(values))


def _ended_s() -> float:
    """Return the processor time of programs that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


@contextmanager
def _deployed(setting: Setting) -> Iterator[Deployment]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-scale-", dir=os.environ.get("EDGEMETER_BENCH_DIR")))
        yield Deployment(setting, stack, Path(folder))


def _family(server: Postgresql) -> list[psutil.Process]:
    assert server.process is not None
    main = psutil.Process(server.process.pid)
    return [main, *main.children(recursive=True)]


def _own_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _family_s(server: Postgresql) -> float:
    family = _family(server)
    ended = family[0].cpu_times()
    # What its back-ends took that have ended since is the server's own.
    return sum(map(_own_s, family)) + float(ended.children_user + ended.children_system)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

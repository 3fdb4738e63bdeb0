"""`python -m tests.benchmarks.scale`: 10,000 simulated devices, one collector on SQLite beside three on one PostgreSQL, in turns.

Each round starts everything anew: mosquitto, the server, the collectors; then `collector load` sends paced records, whose latency is
asked for, and as many as are taken, whose rate is. `make bench ARGS=shared-ledger` takes the highest rates in pairs, by a publisher that
costs next to nothing. Memory is resident, of PostgreSQL without what its processes share; processor time is of
everything but the load generator. Each line is one round; the last is a table of medians.
"""

import argparse
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psutil
from paho.mqtt import subscribe

from tests import requirements
from tests.benchmarks import flood
from tests.benchmarks.comparison import Comparison, LeftOutError, Line, at_least, compared, figure
from tests.benchmarks.delivery import RECORDS_A_BATCH
from tests.benchmarks.flood import send
from tests.benchmarks.interleaving import in_turn
from tests.chaos.world import EDGEMETER
from tests.fixtures.postgresql import Postgresql
from tests.fixtures.servers import LOOPBACK, Server, mosquitto

BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0", "sys_interval 1")
# Between the end of the start of a collector and its first record.
CALM_S = 3.0
UP_WITHIN_S = 60.0
# Of a pair: records sent one a message (five times as many in batches), how many pairs, and in what time.
RECORDS, SECONDS = 20_000, 150.0
# The broker counts anew each second.
SYS_S = 2.5
MB = 1e6


@dataclass(frozen=True, slots=True)
class Setting:
    """Who receives: so many collectors on one ledger; a standby means that COMMIT waits for two disks."""

    name: str
    collectors: int
    is_shared: bool
    has_standby: bool = False


SETTINGS = (
    Setting("SQLite, 1 collector", 1, is_shared=False),
    Setting("PostgreSQL, 1 collector", 1, is_shared=True),
    Setting("PostgreSQL, 3 collectors", 3, is_shared=True),
    Setting("PostgreSQL and standby, 3 collectors", 3, is_shared=True, has_standby=True),
)


@dataclass(frozen=True, slots=True)
class Round:
    """One round. Latencies are at the paced rate, from due to receipt.

    Microseconds of processor are per record of both loads, packets and bytes those that the broker received and sent.
    """

    name: str
    records_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    resent: int
    collectors_mb: float
    database_mb: float
    collectors_us: float
    database_us: float
    broker_us: float
    ledger_bytes_a_record: float
    packets_a_record: float
    broker_bytes_a_record: float
    load_average: float


class Deployment:
    """Broker, ledger and collectors, running."""

    def __init__(self, setting: Setting, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.servers: list[Postgresql] = []
        self.broker = mosquitto(folder, *BROKER)
        self.broker.start()
        stack.callback(self.broker.kill)
        ledger = self._shared(has_standby=setting.has_standby) if setting.is_shared else str(folder / "ledger" / "ledger.sqlite")
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

    def memory_mb(self) -> tuple[float, float]:
        """Return the memory of the collectors, and of the database: what each process has of its own, and what they share once."""
        database = 0.0
        for server in self.servers:
            infos = [process.memory_full_info() for process in _family(server)]
            database += sum(info.pss for info in infos)
        return sum(collector.memory_info().rss for collector in self.collectors) / MB, database / MB

    def ledger_bytes(self) -> int:
        """Return how much of the disk the ledger takes, without the WAL of a server."""
        if self.servers:
            return int(self.servers[0].sql("SELECT pg_database_size(current_database())", "edgemeter"))
        return sum(path.stat().st_size for path in (self._folder / "ledger").iterdir() if not path.name.endswith(".index"))

    def await_validated(self) -> None:
        """Return when a file has validated what it has stored; a server has before."""
        if not self.servers:
            with closing(sqlite3.connect(self._folder / "ledger" / "ledger.sqlite")) as ledger:
                while ledger.execute("SELECT 1 FROM unchecked LIMIT 1").fetchone() is not None:
                    time.sleep(0.02)

    def traffic(self) -> tuple[float, float]:
        """Return how many packets and bytes the broker has received and sent, a second after the last."""
        time.sleep(SYS_S)
        topics = [f"$SYS/broker/{unit}/{way}" for unit in ("messages", "bytes") for way in ("received", "sent")]
        messages = subscribe.simple(topics, hostname=LOOPBACK, port=self.broker.port, msg_count=len(topics))
        values = {message.topic: float(message.payload) for message in messages}
        packets, size_bytes = (sum(value for topic, value in values.items() if f"/{unit}/" in topic) for unit in ("messages", "bytes"))
        return packets, size_bytes

    def _shared(self, *, has_standby: bool) -> str:
        server = Postgresql()
        self._stack.callback(server.close)
        server.start()
        server.sql("CREATE DATABASE edgemeter")
        self.servers.append(server)
        if has_standby:
            standby = server.standby("second")
            self._stack.callback(standby.close)
            standby.start()
            self.servers.append(standby)
            server.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'")
            server.sql("SELECT pg_reload_conf()")
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


def measure(setting: Setting, devices: int, paced_per_s: float, paced_s: float, records: int) -> Round:
    """Return one round of a setting."""
    with _deployed(setting) as deployment:
        time.sleep(CALM_S)
        size_bytes, (packets, traffic_bytes) = deployment.ledger_bytes(), deployment.traffic()
        before_s = deployment.processor_s()
        paced = _load(deployment.broker, devices, ["--rate", str(paced_per_s), "--seconds", str(paced_s)])
        fast = _load(deployment.broker, devices, ["--rate", "1000000", "--records", str(records)])
        taken_s = [after - before for after, before in zip(deployment.processor_s(), before_s, strict=True)]
        sent = paced["receipted"] + fast["receipted"]
        collectors_mb, database_mb = deployment.memory_mb()
        packets_now, traffic_now = deployment.traffic()
        return Round(
            setting.name, fast["records_per_s"], paced["latency_p50_ms"], paced["latency_p99_ms"], paced["resent"] + fast["resent"],
            collectors_mb, database_mb, *(1e6 * used_s / sent for used_s in taken_s),
            (deployment.ledger_bytes() - size_bytes) / sent, (packets_now - packets) / sent, (traffic_now - traffic_bytes) / sent,
            os.getloadavg()[0],
        )  # fmt: skip


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


def _load(broker: Server, devices: int, how: list[str]) -> dict[str, float]:
    command = [*EDGEMETER, "collector", "load", "--broker", f"{LOOPBACK}:{broker.port}", "--devices", str(devices), "--simulate", "crowd"]
    completed = subprocess.run(
        [*command, "--delivery-timeout", "120", "--json", *how], capture_output=True, text=True, check=False, timeout=900
    )
    if completed.returncode:
        raise RuntimeError(f"the load ended with {completed.returncode}: {completed.stderr[-1000:]}")
    load: dict[str, float] = json.loads(completed.stdout)
    return load


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


def _print_medians(rounds: list[Round]) -> None:
    names = list(dict.fromkeys(round_.name for round_ in rounds))
    keys = [key for key in asdict(rounds[0]) if key != "name"]
    print("\n| median of rounds | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for key in keys:
        values = [statistics.median(getattr(round_, key) for round_ in rounds if round_.name == name) for name in names]
        print(f"| {key} | " + " | ".join(f"{value:,.4g}" if value < 1000 else f"{value:,.0f}" for value in values) + " |")


def main() -> int:
    """Measure in turns, and print each round and the medians."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.scale", description="Collectors on SQLite and on PostgreSQL, in turns."
    )
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paced", type=float, default=1000.0, help="records a second, for the latency")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the paced load")
    parser.add_argument("--records", type=int, default=60_000, help="of the load that sends what is taken")
    parser.add_argument("--only", default="", help="settings whose name matches this pattern")
    options = parser.parse_args()
    if requirements.find("mosquitto") is None:
        print("mosquitto is not installed", file=sys.stderr)
        return 2
    rounds: list[Round] = []
    for _ in range(options.rounds):
        for setting in SETTINGS:
            if re.search(options.only, setting.name):
                rounds.append(measure(setting, options.devices, options.paced, options.seconds, options.records))
                print(json.dumps(asdict(rounds[-1])), flush=True)
    _print_medians(rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The drain: records and points a second from a ledger to an InfluxDB 2 on the same cores, beside the same lines ready made.

`all` is the whole record, which `compare` reads back; `figures` the numbers alone; with the power trace each reading is a point too. The
peer posts the lines of the same batches, made before the clock starts, over one kept connection: what no client can be faster than. Both
write the same points to one server again and again, in turns. What influxdb-client itself costs is its CPU time beside the time of the
whole write: a second client of our own could win no more than that. Our processor time a record is that of the drain's threads, the
client's part included and InfluxDB's not.
"""

import http.client
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent.contract import record, record_figures, samples
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.drain import BATCH_CHARACTERS, BATCH_POINTS, Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.sink import open_sink
from tests.benchmarks.comparison import Comparison, LeftOutError, Line, at_least, at_most, compared, figure
from tests.benchmarks.delivery import running
from tests.benchmarks.interleaving import in_turn
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.servers import Influx
from tests.requirements import influxd

# A point of a whole record is five times as large as that of its figures, and a trace is a hundred points.
RECORDS, WHOLE_RECORDS, TRACED_RECORDS = 20_000, 8_000, 2_000
DEVICES = 50
READINGS = 100
COMMIT = 1_000
SECONDS, CLIENT_SECONDS = 18.0, 6.0
GOAL, CLIENT_GOAL = at_least(0.9), at_most(0.1)
CLIENT_RECORDS = 5_000
LIMIT_S = 300


def comparisons() -> Iterator[Comparison]:
    """Yield points a second of figures, of whole records and of records with their power traces, and what the client costs."""
    _program()
    with tempfile.TemporaryDirectory(prefix="edgemeter-bench-") as name:
        folder = Path(name)
        plain, complete, traced = folder / "plain.sqlite", folder / "whole.sqlite", folder / "traced.sqlite"
        _fill(plain, RECORDS, ())
        _fill(complete, WHOLE_RECORDS, ())
        _fill(traced, TRACED_RECORDS, _trace())
        yield from _drained("drain: figures of records", plain, Points("figures"), folder)
        yield from _drained("drain: whole records", complete, Points(), folder)
        yield from _drained("drain: whole records and their power traces", traced, Points(also=frozenset({"power_trace"})), folder)
        yield _client("client: whole records", complete, Points(), folder)


def _client(name: str, ledger: Path, points: Points, folder: Path) -> Comparison:
    """Return the CPU time of a write by influxdb-client beside the time that the same write takes over a bare connection."""
    with SqliteLedger(ledger, "read") as opened:
        lines = [line for _, _, text in islice(opened.texts(), CLIENT_RECORDS) for line in points.lines(text)]
    parts = [lines[start : start + BATCH_POINTS] for start in range(0, len(lines), BATCH_POINTS)]
    with _influx(folder) as server:
        sink = open_sink(InfluxConfig(server.url, server.token, server.org, server.bucket))
        sink.prepare()

        def client_ms() -> float:
            begun = time.process_time()
            for part in parts:
                sink.write(part)
            return 1e3 * (time.process_time() - begun) / len(parts)

        def peer() -> float:
            return 1e3 * _alone(server, lines) / len(parts)

        line = Line(name, "ms a write", "the whole write, over a bare connection", CLIENT_GOAL)
        return compared(line, in_turn(client_ms, peer), CLIENT_SECONDS)


def _program() -> Path:
    if (program := influxd(2)) is None:
        raise LeftOutError("InfluxDB 2 is not installed: set EDGEMETER_INFLUXD to its influxd")
    return program


@contextmanager
def _influx(folder: Path) -> Iterator[Influx]:
    with tempfile.TemporaryDirectory(dir=folder) as server_folder, running(Influx(_program(), Path(server_folder))) as server:
        server.set_up()
        yield server


def _drained(name: str, ledger: Path, points: Points, folder: Path) -> Iterator[Comparison]:
    cpu_us: list[float] = []
    with SqliteLedger(ledger) as opened, _influx(folder) as server:
        lines = [line for _, _, text in opened.texts() for line in points.lines(text)]
        last, records = opened.last_row(), opened.count()
        sink = open_sink(InfluxConfig(server.url, server.token, server.org, server.bucket))
        drain = Drain(ledger, sink, points)

        def our_rate() -> float:
            opened.advance(sink.name, 0)
            begun, begun_cpu = time.perf_counter(), time.process_time()
            drain.wake()
            while drain.has_reached(last):
                time.sleep(0.0005)
            _wait_for(drain, last)
            cpu_us.append(1e6 * (time.process_time() - begun_cpu) / records)
            return len(lines) / (time.perf_counter() - begun)

        drain.start()
        try:
            # From the first time on the bucket is marked, and has the shards and series.
            _wait_for(drain, last)
            pair = in_turn(our_rate, lambda: len(lines) / _alone(server, lines))
            yield compared(Line(name, "points/s", "the same lines, ready made", GOAL), pair, SECONDS, has_processes=True)
        finally:
            drain.stop()
    yield figure(f"{name}: our processor time a record", "us", statistics.median(cpu_us))


def _wait_for(drain: Drain, last: int) -> None:
    deadline = time.perf_counter() + LIMIT_S
    while not drain.has_reached(last):
        if time.perf_counter() > deadline or drain.trouble:
            message = f"not drained: {drain.trouble or 'too slow'}"
            raise RuntimeError(message)
        time.sleep(0.005)


def _alone(server: Influx, lines: Sequence[str]) -> float:
    size = min(BATCH_POINTS, BATCH_CHARACTERS // max(map(len, lines)))
    bodies = ["\n".join(lines[start : start + size]).encode() for start in range(0, len(lines), size)]
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    begun = time.perf_counter()
    for body in bodies:
        connection.request(
            "POST",
            f"/api/v2/write?org={server.org}&bucket={server.bucket}&precision=ns",
            body,
            {"Authorization": f"Token {server.token}"},
        )
        answer = connection.getresponse()
        body_text = answer.read()
        if answer.status != http.client.NO_CONTENT:
            raise RuntimeError(body_text.decode())
    return time.perf_counter() - begun


def _trace() -> tuple[record.Series, ...]:
    chance = np.random.default_rng(1)
    watts, taken_ns = chance.normal(5, 0.25, READINGS).round(3), np.arange(READINGS) * 10_000_000 + chance.integers(0, 99_999, READINGS)
    return samples.pack("power.ina219", "W", watts), samples.pack("power_at.ina219", "ns", taken_ns)


def _fill(path: Path, count: int, trace: tuple[record.Series, ...]) -> None:
    chance = np.random.default_rng(2)
    base = make_record(samples=trace, power_traces=(record_figures.PowerTrace(name="ina219", kind="power"),) if trace else ())
    with SqliteLedger(path) as ledger:
        for start in range(0, count, COMMIT):
            arrivals = []
            for number in range(start, start + COMMIT):
                latency = msgspec.structs.replace(base.latency, p50_ms=12 + chance.random(), p90_ms=13 + chance.random())
                run = msgspec.structs.replace(
                    base, id=f"{number:036d}", device=f"pi-{number % DEVICES}", session=1, seq=number // DEVICES + 1,
                    started_at_ns=STARTED_AT_NS + number * 1_000_000_007, latency=latency, throughput_per_s=80 * chance.random(),
                )  # fmt: skip
                arrivals.append(Arrival(run, record.encode(run), f"edgemeter/v1/lab/{run.device}/result", STARTED_AT_NS))
            ledger.commit(arrivals)

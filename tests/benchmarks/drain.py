"""The drain: points of figures a second from a ledger to an InfluxDB 2 on the same cores, beside the same lines ready made.

The peer posts the lines of the same batches, made before the clock starts, over one kept connection: what no client can be faster than.
Both write the same points to one server again and again, in turns.
"""

import http.client
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import arrived
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.bucket import Bucket
from edgemeter.collector.influx.drain import BATCH_POINTS, Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import point_line
from tests.benchmarks.harness import Comparison, LeftOutError, Line, at_least, compared, in_turn
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.servers import Influx, running
from tests.requirements import influxd

RECORDS = 40_000
DEVICES = 50
COMMIT = 1_000
SECONDS = 30.0
GOAL = at_least(0.85)


def comparisons() -> Iterator[Comparison]:
    """Yield points a second of the figures of records."""
    if (program := influxd()) is None:
        raise LeftOutError("InfluxDB 2 is not installed: set EDGEMETER_INFLUXD to its influxd")
    with tempfile.TemporaryDirectory(prefix="edgemeter-bench-") as name, running(Influx(program, Path(name))) as server:
        path = Path(name) / "ledger.sqlite"
        _fill(path)
        with SqliteLedger(path) as ledger:
            yield _drained(path, ledger, server)


def _drained(path: Path, ledger: SqliteLedger, server: Influx) -> Comparison:
    lines = [point_line(entry.record) for entry in ledger.records()]
    last = ledger.last_row()
    drain = Drain(path, Bucket(InfluxConfig(server.url, server.token, server.org, server.bucket)))

    def our_rate() -> float:
        ledger.advance(drain.sink_name, 0)
        begin_s = time.perf_counter()
        drain.wake()
        while drain.has_reached(last):
            time.sleep(0.0005)
        _wait_for(drain, last)
        return len(lines) / (time.perf_counter() - begin_s)

    drain.start()
    try:
        # From the first time on the bucket has the shards and series.
        _wait_for(drain, last)
        pair = in_turn(our_rate, lambda: len(lines) / _alone(server, lines))
        line = Line("drain: figures of records", "points/s", "the same lines, ready made", GOAL)
        return compared(line, pair, SECONDS, has_processes=True)
    finally:
        drain.stop()


def _wait_for(drain: Drain, last: int) -> None:
    while not drain.has_reached(last):
        assert not drain.trouble, f"not drained: {drain.trouble}"
        time.sleep(0.005)


def _alone(server: Influx, lines: Sequence[str]) -> float:
    bodies = ["\n".join(lines[start : start + BATCH_POINTS]).encode() for start in range(0, len(lines), BATCH_POINTS)]
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


def _fill(path: Path) -> None:
    chance, base = np.random.default_rng(2), make_record()
    with SqliteLedger(path) as ledger:
        for start in range(0, RECORDS, COMMIT):
            arrivals = []
            for number in range(start, start + COMMIT):
                latency = msgspec.structs.replace(base.latency, p50_ms=12 + chance.random(), p90_ms=13 + chance.random())
                run = msgspec.structs.replace(
                    base, id=f"{number:036d}", device=f"pi-{number % DEVICES}", session=1, seq=number // DEVICES + 1,
                    started_at_ns=STARTED_AT_NS + number * 1_000_000_007, latency=latency, throughput_per_s=80 * chance.random(),
                )  # fmt: skip
                arrivals.append(arrived(run, record.encode(run), f"edgemeter/v1/lab/{run.device}/result", STARTED_AT_NS))
            ledger.commit(arrivals)

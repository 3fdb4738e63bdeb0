"""The drain: points of figures a second from a ledger to an InfluxDB 2 on the same cores.

The peer posts the lines of the same batches, made before the clock starts, over one kept
connection: what no client can be faster than. Both write the same points to one server again and
again, in turns.
"""

import http.client
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.bucket import Bucket
from edgemeter.collector.influx.drain import BATCH_POINTS, Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import point_line
from tests.fixtures.draining import draining
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import STARTED_AT_NS, make_latency, make_record
from tests.fixtures.servers import Influx, running
from tests.requirements import influxd
from tools.benchmarks.harness import Comparison, LeftOutError, Line, at_least, compared, in_turn

RECORDS, COMMIT, DEVICES = 40_000, 1_000, 50
SECONDS = 25.0
GOAL = at_least(0.85)


def comparisons() -> Iterator[Comparison]:
    """Yield points a second of the figures of records."""
    if (program := influxd()) is None:
        raise LeftOutError("InfluxDB 2 is not installed: set EDGEMETER_INFLUXD to its influxd")
    with (
        tempfile.TemporaryDirectory(prefix="edgemeter-bench-") as name,
        running(Influx(program, Path(name))) as server,
    ):
        path, chance = Path(name) / "ledger.sqlite", np.random.default_rng(2)
        for start in range(0, RECORDS, COMMIT):
            fill(path, [_run(number, chance) for number in range(start, start + COMMIT)])
        drain = Drain(
            path, Bucket(InfluxConfig(server.url, server.token, server.org, server.bucket))
        )
        with SqliteLedger(path) as ledger, draining(drain):
            lines, last = (
                [point_line(entry.record) for entry in ledger.records()],
                ledger.last_row(),
            )

            def our_rate() -> float:
                ledger.advance(drain.sink_name, 0)
                begin_s = time.perf_counter()
                drain.wake()
                while drain.has_reached(last):
                    time.sleep(0.0005)
                _wait_for(drain, last)
                return len(lines) / (time.perf_counter() - begin_s)

            # From the first time on the bucket has the shards and series.
            _wait_for(drain, last)
            line = Line("drain: figures of records", "points/s", "the same lines, ready made", GOAL)
            yield compared(
                line,
                in_turn(our_rate, lambda: _ready_rate(server, lines)),
                SECONDS,
                has_processes=True,
            )


def _run(number: int, chance: np.random.Generator) -> RunRecord:
    return make_record(
        id=f"{number:036d}", device=f"pi-{number % DEVICES}", session=1, seq=number // DEVICES + 1,
        started_at_ns=STARTED_AT_NS + number * 1_000_000_007, throughput_per_s=80 * chance.random(),
        latency=make_latency(p50_ms=12 + chance.random(), p90_ms=13 + chance.random()),
    )  # fmt: skip


def _wait_for(drain: Drain, last: int) -> None:
    while not drain.has_reached(last):
        assert not drain.trouble, f"not drained: {drain.trouble}"
        time.sleep(0.005)


def _ready_rate(server: Influx, lines: Sequence[str]) -> float:
    bodies = [
        "\n".join(lines[start : start + BATCH_POINTS]).encode()
        for start in range(0, len(lines), BATCH_POINTS)
    ]
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    path, headers = (
        f"/api/v2/write?org={server.org}&bucket={server.bucket}&precision=ns",
        {"Authorization": f"Token {server.token}"},
    )
    begin_s = time.perf_counter()
    for body in bodies:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        assert not answer.read(), "InfluxDB rejects points"
    return len(lines) / (time.perf_counter() - begin_s)

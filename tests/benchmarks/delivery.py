"""Delivery: durable records a second through mosquitto, beside Telegraf with the same broker settings, publisher and records.

Ours is durable when the record is committed to the ledger and the publisher has the receipt; Telegraf's when InfluxDB 2 has the point.
A batch is held against the bare limit of its kind, one loop that commits the same records' JSON to SQLite, a row each; the time from
publishing to the receipt, at a third of the rate that was reached, against one fsync on the ledger's disk.
"""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from tests import requirements
from tests.benchmarks.flood import WINDOW, Settings, Texts, flood, send
from tests.benchmarks.harness import ROOT, Comparison, LeftOutError, Line, at_least, at_most, compared, in_turn
from tests.fixtures.servers import Influx, Server, mosquitto

AnyServer = TypeVar("AnyServer", bound=Server)
BIN = ROOT.parent / "shared" / "bin"
BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0")
SINGLE_RECORDS = 40_000
BATCHED_RECORDS = 100_000
RECORDS_A_BATCH = 100
SECONDS = 26.0
# A pair of 99th percentiles is over so many blocks, some 50 ms each: what others do to the disk meets both.
DELAY_BLOCKS, DELAY_RECORDS, FSYNCS = 12, 250, 100
# Telegraf's; of a bare loop of commits; of one fsync.
SINGLE_GOAL, BATCHED_GOAL, DELAY_GOAL = at_least(2.0), at_least(0.7), at_most(10.0, 3.0)

TELEGRAF = """
[agent]
  interval = "1s"
  flush_interval = "1s"
  metric_batch_size = 5000
  metric_buffer_limit = 500000
  omit_hostname = true
  quiet = true
[[inputs.mqtt_consumer]]
  servers = ["tcp://127.0.0.1:{broker}"]
  topics = ["edgemeter/v1/+/+/result"]
  qos = 1
  persistent_session = true
  client_id = "telegraf"
  max_undelivered_messages = 100000
  data_format = "json_v2"
  [[inputs.mqtt_consumer.json_v2]]
    measurement_name = "run"
    timestamp_path = "started_at_ns"
    timestamp_format = "unix_ns"
{tags}{fields}
[[outputs.influxdb_v2]]
  urls = ["{influx}"]
  token = "{token}"
  organization = "org"
  bucket = "results"
"""
_TAGS = ("device", "fleet", "environment.board", "model.name", "precision", "runtime.name", "scenario")
_FIELDS = {
    "id": "string", "session": "int", "seq": "int", "throughput_per_s": "float", "latency.p50_ms": "float", "latency.p90_ms": "float",
    "energy.gross_mj": "float", "accuracy.value": "float", "memory.peak_mb": "float",
}  # fmt: skip


def comparisons() -> Iterator[Comparison]:
    """Yield records a second beside Telegraf's and beside bare commits, and the delay at a third of that rate beside an fsync."""
    if requirements.find("mosquitto") is None:
        raise LeftOutError("mosquitto is not installed")
    if (BIN / "telegraf").exists() and (BIN / "influxd").exists():
        line = Line("delivery: durable records/s, one a message", "records/s", "Telegraf to InfluxDB", SINGLE_GOAL)
        single = compared(line, in_turn(lambda: _ours(SINGLE_RECORDS, 1), _telegrafs), SECONDS, has_processes=True)
        yield single
        rate_per_s = single.value
    else:
        rate_per_s = _ours(SINGLE_RECORDS, 1)
    line = Line("delivery: durable records/s in batches", "records/s", "one loop that commits their JSON", BATCHED_GOAL)
    yield compared(line, in_turn(lambda: _ours(BATCHED_RECORDS, RECORDS_A_BATCH), _bare_commits), SECONDS, has_processes=True)
    # No rate in the name: it would be another benchmark in every run.
    line = Line("delivery: publish to receipt, p99 at a third of one a message", "ms", "one fsync, p99", DELAY_GOAL)
    with collecting() as (broker, folder):
        blocks = in_turn(lambda: _delays_ms(broker, rate_per_s / 3), lambda: _fsyncs_ms(folder))
        yield compared(line, lambda: _percentiles([blocks() for _ in range(DELAY_BLOCKS)]), SECONDS, has_processes=True)


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """Make a folder beside the project, on its disk: a file system in memory would make a commit free."""
    with tempfile.TemporaryDirectory(prefix="edgemeter-bench-", dir=os.environ.get("EDGEMETER_BENCH_DIR")) as name:
        yield Path(name)


@contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def collecting() -> Iterator[tuple[Server, Path]]:
    """Start a broker and a collector on it; give broker and folder."""
    with folder_on_disk() as folder, running(mosquitto(folder, *BROKER)) as broker:
        command = [sys.executable, "-m", "edgemeter.agent.cli.main", "collector", "up", "--broker", f"127.0.0.1:{broker.port}"]
        command += ["--ledger", str(folder / "ledger.sqlite")]
        collector = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert collector.stderr is not None
        assert collector.stderr.readline().startswith("receiving from")
        try:
            yield broker, folder
        finally:
            collector.send_signal(signal.SIGTERM)
            collector.communicate(timeout=60)


def _ours(count: int, batch: int) -> float:
    with collecting() as (broker, _):
        sent = send(Settings(broker.port, count, batch))
        assert sent["receipted"] == count, f"{sent['receipted']} of {count} receipted"
        return count / float(str(sent["took_s"]))


def _bare_commits() -> float:
    """Return the records a second of a loop that inserts their JSON and commits what one window of the publisher holds."""
    texts = Texts(1)
    ready = [texts.one(number % 50, number // 50 + 1, number) for number in range(BATCHED_RECORDS)]
    with folder_on_disk() as folder, closing(sqlite3.connect(folder / "bare.sqlite", isolation_level=None)) as bare:
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, body BLOB)")
        begun_s = time.monotonic()
        for start in range(0, len(ready), WINDOW):
            bare.execute("BEGIN")
            bare.executemany("INSERT INTO record (body) VALUES (?)", ((text,) for text in ready[start : start + WINDOW]))
            bare.execute("COMMIT")
        return len(ready) / (time.monotonic() - begun_s)


def _percentiles(blocks: Sequence[tuple[list[float], list[float]]]) -> tuple[float, float]:
    delays_ms, fsyncs_ms = (sorted(itertools.chain.from_iterable(values)) for values in zip(*blocks, strict=True))
    return delays_ms[int(len(delays_ms) * 0.99)], fsyncs_ms[int(len(fsyncs_ms) * 0.99)]


def _delays_ms(broker: Server, rate_per_s: float) -> list[float]:
    delays: list[float] = flood(Settings(broker.port, DELAY_RECORDS, rate_per_s=rate_per_s))["delays_ms"]  # type: ignore[assignment]
    assert len(delays) == DELAY_RECORDS
    return delays


def _fsyncs_ms(folder: Path) -> list[float]:
    """Return how long pages appended to a file take, one after the other, until each is on the disk."""
    took_ms = []
    with (folder / "bare").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            begun_ns = time.perf_counter_ns()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took_ms.append((time.perf_counter_ns() - begun_ns) / 1e6)
    return took_ms


def _telegrafs() -> float:
    with folder_on_disk() as folder, running(mosquitto(folder, *BROKER)) as broker, running(Influx(BIN / "influxd", folder)) as influx:
        influx.set_up()
        configuration = folder / "telegraf.conf"
        configuration.write_text(_telegraf_configuration(broker.port, influx))
        telegraf = subprocess.Popen([str(BIN / "telegraf"), "--config", str(configuration)], stderr=subprocess.DEVNULL)
        try:
            time.sleep(2)
            sent = send(Settings(broker.port, SINGLE_RECORDS, awaits_receipts=False))
            return SINGLE_RECORDS / (float(str(sent["took_s"])) + _until_stored(influx, SINGLE_RECORDS))
        finally:
            telegraf.kill()
            telegraf.wait()


def _until_stored(influx: Influx, count: int) -> float:
    """Wait until InfluxDB has all points; return how long that took after the last was published."""
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < 120:
        rows = influx.query("SELECT count(seq) FROM run")
        if rows and int(rows[0]["count"]) >= count:
            return time.monotonic() - begun_s
        time.sleep(0.2)
    message = f"Telegraf: {rows} of {count} points after two minutes"
    raise RuntimeError(message)


def _telegraf_configuration(broker: int, influx: Influx) -> str:
    def entry(table: str, path: str, kind: str = "") -> str:
        typed = f'      type = "{kind}"\n' if kind else ""
        return f'    [[inputs.mqtt_consumer.json_v2.{table}]]\n      path = "{path}"\n      rename = "{path.replace(".", "_")}"\n{typed}'

    tags = "".join(entry("tag", path) for path in _TAGS)
    fields = "".join(entry("field", path, kind) for path, kind in _FIELDS.items())
    return TELEGRAF.format(broker=broker, influx=influx.url, token=influx.token, tags=tags, fields=fields)

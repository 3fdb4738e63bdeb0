"""Delivery: durable records a second through mosquitto, beside Telegraf.

Broker settings, publisher and records are the same. Ours is durable when the record is committed to
the ledger, its figures as columns too, and the publisher has the receipt; Telegraf's when InfluxDB
2 has the point. A batch is held against the bare limit of its kind, one loop that commits the same
records' JSON to SQLite, a row each; the time from publishing to the receipt, at a third of the rate
that was reached, against one fsync on the ledger's disk.
"""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests import requirements
from tests.fixtures.servers import Influx, Server, mosquitto, running
from tools.benchmarks.flood import WINDOW, Settings, Texts, flood, send
from tools.benchmarks.harness import (
    ROOT,
    Comparison,
    LeftOutError,
    Line,
    Pair,
    at_least,
    at_most,
    compared,
    in_turn,
)

# A file system in memory would make a commit free.
DISK = os.environ.get("EDGEMETER_BENCH_DIR")
BIN = ROOT.parent / "shared" / "bin"
BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0")
# Blocks of one to three seconds. Telegraf writes as soon as it has 5,000 points, so it waits for no
# flush.
SINGLE_RECORDS, BATCHED_RECORDS, RECORDS_A_BATCH = 20_000, 50_000, 100
SINGLE_S, BATCHED_S, DELAY_S = 35.0, 25.0, 24.0
# A pair of 99th percentiles is over so many blocks, some 50 ms each: what others do to the disk
# meets both.
DELAY_BLOCKS, DELAY_RECORDS, FSYNCS = 12, 250, 100

TELEGRAF = """
[agent]
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
{entries}
[[outputs.influxdb_v2]]
  urls = ["{influx.url}"]
  token = "{influx.token}"
  organization = "{influx.org}"
  bucket = "{influx.bucket}"
"""
_ENTRY = '[[inputs.mqtt_consumer.json_v2.{table}]]\npath = "{path}"\nrename = "{name}"'
_TAGS = (
    "device",
    "fleet",
    "environment.board",
    "model.name",
    "precision",
    "runtime.name",
    "scenario",
)
_FIELDS = (
    "id", "session", "seq", "throughput_per_s", "latency.p50_ms", "latency.p90_ms",
    "energy.gross_mj", "accuracy.value", "memory.peak_mb",
)  # fmt: skip


def comparisons() -> Iterator[Comparison]:
    """Yield records a second beside Telegraf's and beside bare commits, and the delay.

    The delay is at a third of that rate, beside an fsync.
    """
    if requirements.find("mosquitto") is None:
        raise LeftOutError("mosquitto is not installed")
    with collecting() as (broker, _):
        rate_per_s = _rate_per_s(broker, SINGLE_RECORDS)
        if (BIN / "telegraf").exists() and (BIN / "influxd").exists():
            line = Line(
                "delivery: durable records/s, one a message",
                "records/s",
                "Telegraf to InfluxDB",
                at_least(2.5),
            )
            with _telegraf() as telegraf_rate_per_s:
                pair = in_turn(lambda: _rate_per_s(broker, SINGLE_RECORDS), telegraf_rate_per_s)
                single = compared(line, pair, SINGLE_S, has_processes=True)
            yield single
            rate_per_s = single.value
    texts = Texts(1)
    ready = [texts.one(number % 50, number // 50 + 1, number) for number in range(BATCHED_RECORDS)]
    line = Line(
        "delivery: durable records/s in batches",
        "records/s",
        "one loop that commits their JSON",
        at_least(0.8),
    )
    with collecting() as (broker, _):
        pair = in_turn(
            lambda: _rate_per_s(broker, BATCHED_RECORDS, RECORDS_A_BATCH),
            lambda: _bare_rate_per_s(ready),
        )
        yield compared(line, pair, BATCHED_S, has_processes=True)
    # No rate in the name: it would be another benchmark in every run.
    line = Line(
        "delivery: publish to receipt, p99 at a third of one a message",
        "ms",
        "one fsync, p99",
        at_most(15.0),
    )
    with collecting() as (broker, folder):
        settings = Settings(broker.port, DELAY_RECORDS, rate_per_s=rate_per_s / 3)
        blocks = in_turn(lambda: flood(settings).delays_ms, lambda: _fsyncs_ms(folder))
        # The first block makes the subjects of all devices.
        blocks()
        yield compared(
            line,
            lambda: _percentiles([blocks() for _ in range(DELAY_BLOCKS)]),
            DELAY_S,
            has_processes=True,
        )


@contextmanager
def _broker() -> Iterator[tuple[Server, Path]]:
    """Start a broker; give it and a folder."""
    with tempfile.TemporaryDirectory(prefix="edgemeter-bench-", dir=DISK) as name:
        broker = mosquitto(Path(name), *BROKER)
        broker.start()
        try:
            yield broker, Path(name)
        finally:
            broker.kill()


@contextmanager
def collecting() -> Iterator[tuple[Server, Path]]:
    """Start a broker and a collector on it; give broker and folder."""
    with _broker() as (broker, folder):
        command = [
            sys.executable,
            "-m",
            "edgemeter.agent.cli.main",
            "collector",
            "up",
            "--broker",
            f"127.0.0.1:{broker.port}",
        ]
        command += ["--ledger", str(folder / "ledger.sqlite")]
        collector = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert collector.stderr is not None
        assert collector.stderr.readline().startswith("receiving from")
        try:
            yield broker, folder
        finally:
            collector.send_signal(signal.SIGTERM)
            collector.communicate(timeout=60)


@contextmanager
def _telegraf() -> Iterator[Callable[[], float]]:
    """Start a broker, Telegraf and InfluxDB.

    Gives a function that sends records and returns how many a second InfluxDB had.
    """
    with _broker() as (broker, folder), running(Influx(BIN / "influxd", folder)) as influx:
        entries = [
            _ENTRY.format(table=table, path=path, name=path.replace(".", "_"))
            for table, paths in (("tag", _TAGS), ("field", _FIELDS))
            for path in paths
        ]
        configuration = folder / "telegraf.conf"
        configuration.write_text(
            TELEGRAF.format(broker=broker.port, entries="\n".join(entries), influx=influx)
        )
        telegraf = subprocess.Popen(
            [str(BIN / "telegraf"), "--config", str(configuration)], stderr=subprocess.DEVNULL
        )

        def rate_per_s() -> float:
            count = (
                "SELECT count(seq) FROM run WHERE time >= "  # noqa: S608 - our own names
                f"{time.time_ns() // 1_000_000 * 1_000_000}"
            )
            took_s = send(Settings(broker.port, SINGLE_RECORDS, awaits_receipts=False)).took_s
            sent_s = time.monotonic()
            while not (rows := influx.query(count)) or rows[0]["count"] < SINGLE_RECORDS:
                assert time.monotonic() < sent_s + 120, (
                    f"Telegraf: {rows} of {SINGLE_RECORDS} points after two minutes"
                )
                time.sleep(0.05)
            return SINGLE_RECORDS / (took_s + time.monotonic() - sent_s)

        try:
            time.sleep(2)
            yield rate_per_s
        finally:
            telegraf.kill()
            telegraf.wait()


def _rate_per_s(broker: Server, count: int, batch: int = 1) -> float:
    return count / send(Settings(broker.port, count, batch)).took_s


def _bare_rate_per_s(ready: Sequence[bytes]) -> float:
    """Return the records a second of a loop that inserts their JSON and commits.

    A commit has as many records as one window of the publisher holds.
    """
    with (
        tempfile.TemporaryDirectory(dir=DISK) as name,
        closing(sqlite3.connect(f"{name}/bare.sqlite", isolation_level=None)) as bare,
    ):
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, body BLOB)")
        begin_s = time.monotonic()
        for start in range(0, len(ready), WINDOW):
            bare.execute("BEGIN")
            bare.executemany(
                "INSERT INTO record (body) VALUES (?)",
                ((text,) for text in ready[start : start + WINDOW]),
            )
            bare.execute("COMMIT")
        return len(ready) / (time.monotonic() - begin_s)


def _percentiles(blocks: Sequence[tuple[list[float], list[float]]]) -> Pair:
    delays_ms, fsyncs_ms = (
        sorted(itertools.chain.from_iterable(values)) for values in zip(*blocks, strict=True)
    )
    return delays_ms[int(len(delays_ms) * 0.99)], fsyncs_ms[int(len(fsyncs_ms) * 0.99)]


def _fsyncs_ms(folder: Path) -> list[float]:
    """Return how long pages appended to a file take, one after the other, to be on the disk."""
    took_ms = []
    with (folder / "bare").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            begin_ns = time.perf_counter_ns()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took_ms.append((time.perf_counter_ns() - begin_ns) / 1e6)
    return took_ms

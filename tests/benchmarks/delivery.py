"""Delivery: durable records a second through mosquitto, beside Telegraf with the same broker settings, publisher and records.

Ours is durable when the record is committed to the ledger and the publisher has the receipt; Telegraf's when InfluxDB 2 has the point.
`python -m tests.benchmarks.delivery soak [SECONDS]` watches the collector's memory under 10,000 devices.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.comparison import Comparison, interleaved, this_machine, within
from tests.benchmarks.flood import Settings
from tests.fixtures.servers import Influx, Server, mosquitto

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT.parent / "shared" / "bin"
BROKER = ("set_tcp_nodelay true", "max_inflight_messages 2000", "max_queued_messages 0")
SINGLE_RECORDS = 100_000
BATCHED_RECORDS = 300_000
RECORDS_A_BATCH = 100
ROUNDS = 3
PACED_PER_S = 5000
SOAK_PER_S = 3000
# Until every device was seen several times, and what is looked at when there is time has been looked at once.
SOAK_WARM_UP_S = 60.0
SHORT_SOAK_S = 60.0

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


def comparisons() -> list[Comparison]:
    """Return records a second beside Telegraf's and beside the goal, the delay at 5,000 a second, and whether memory stays flat."""
    if not shutil.which("mosquitto") and not Path("/usr/sbin/mosquitto").exists():
        print("delivery: left out, mosquitto is not installed", file=sys.stderr)
        return []
    done = [_one_a_message()] if (BIN / "telegraf").exists() and (BIN / "influxd").exists() else []
    batched = statistics.median(_ours(BATCHED_RECORDS, RECORDS_A_BATCH) for _ in range(ROUNDS))
    done.append(_at_least("delivery: durable records/s in batches", "records/s", batched, 60_000))
    done.append(within("delivery: publish to receipt, p99 at 5,000/s", "ms", _delay_ms(), 100))
    done.append(_soaked())
    return done


def _one_a_message() -> Comparison:
    paired = interleaved(lambda: _ours(SINGLE_RECORDS, 1), _telegrafs, ROUNDS)
    return Comparison(
        name="delivery: durable records/s, one a message",
        unit="records/s",
        ours=paired.ours,
        peer="Telegraf",
        peer_value=paired.peer,
        ratio=paired.ratio,
        goal="ratio >= 1.2",
        machine=this_machine(),
        met=paired.ratio >= 1.2,
        ratio_low=paired.low,
        ratio_high=paired.high,
        is_sure=not paired.low < 1.2 <= paired.high,
    )


def _at_least(name: str, unit: str, ours: float, goal: float) -> Comparison:
    return Comparison(name, unit, ours, "goal", goal, ours / goal, f">= {goal:g} {unit}", this_machine(), ours >= goal)


@contextmanager
def _folder() -> Iterator[Path]:
    # Beside the project, on its disk: a file system in memory would make a commit free.
    with tempfile.TemporaryDirectory(prefix="edgemeter-bench-", dir=os.environ.get("EDGEMETER_BENCH_DIR")) as name:
        yield Path(name)


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def _collecting(broker: Server, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "collector", "up", "--broker", f"127.0.0.1:{broker.port}"]
    collector = subprocess.Popen([*command, "--ledger", str(folder / "ledger.sqlite")], stderr=subprocess.PIPE, text=True)
    assert collector.stderr is not None
    assert collector.stderr.readline().startswith("receiving from")
    try:
        yield collector
    finally:
        collector.send_signal(signal.SIGTERM)
        collector.communicate(timeout=60)


def _flood(settings: Settings) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.benchmarks.flood", json.dumps(asdict(settings))]
    result: dict[str, object] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout)
    assert result["sent"] == settings.count, f"sent {result['sent']} of {settings.count}"
    return result


def _ours(count: int, batch: int) -> float:
    with _folder() as folder, _running(mosquitto(folder, *BROKER)) as broker, _collecting(broker, folder):
        done = _flood(Settings(broker.port, count, batch))
        assert done["receipted"] == count, f"{done['receipted']} of {count} receipted"
        return count / float(str(done["took_s"]))


def _delay_ms() -> float:
    with _folder() as folder, _running(mosquitto(folder, *BROKER)) as broker, _collecting(broker, folder):
        delays: list[float] = _flood(Settings(broker.port, 50_000, rate_per_s=PACED_PER_S))["delays_ms"]  # type: ignore[assignment]
        assert len(delays) == 50_000
        return delays[int(len(delays) * 0.99)]


def _telegrafs() -> float:
    with _folder() as folder, _running(mosquitto(folder, *BROKER)) as broker:
        influx = Influx(BIN / "influxd", folder)
        with _running(influx):
            influx.set_up()
            configuration = folder / "telegraf.conf"
            configuration.write_text(_telegraf_configuration(broker.port, influx))
            telegraf = subprocess.Popen([str(BIN / "telegraf"), "--config", str(configuration)], stderr=subprocess.DEVNULL)
            try:
                time.sleep(2)
                done = _flood(Settings(broker.port, SINGLE_RECORDS, awaits_receipts=False))
                return SINGLE_RECORDS / (float(str(done["took_s"])) + _until_stored(influx, SINGLE_RECORDS))
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


def soak(seconds: float, devices: int = 10_000) -> list[float]:
    """Return the collector's resident memory in MB after each flood from `devices` devices, until the time is over."""
    rss_mb: list[float] = []
    with _folder() as folder, _running(mosquitto(folder, *BROKER)) as broker, _collecting(broker, folder) as collector:
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < seconds:
            # Several floods, because one prepares all that it sends.
            _flood(Settings(broker.port, 2 * devices, devices=devices, rate_per_s=SOAK_PER_S))
            rss_mb.append(_rss_mb(collector.pid))
            print(f"soak: {time.monotonic() - begun_s:.0f} s, {rss_mb[-1]:.1f} MB", file=sys.stderr)
    return rss_mb


def _soaked() -> Comparison:
    rss_mb = soak(SOAK_WARM_UP_S + SHORT_SOAK_S)
    warm = rss_mb[int(len(rss_mb) * SOAK_WARM_UP_S / (SOAK_WARM_UP_S + SHORT_SOAK_S)) :]
    half = len(warm) // 2
    early, late = max(warm[:half]), max(warm[half:])
    name = f"delivery: memory over {SHORT_SOAK_S:.0f} s with 10,000 devices, once warm, second half beside first"
    return Comparison(name, "MB", late, "first half", early, late / early, "ratio <= 1.1", this_machine(), late <= 1.1 * early)


def _rss_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    if sys.argv[1:2] == ["soak"]:
        print(json.dumps([round(one, 1) for one in soak(float(sys.argv[2]) if len(sys.argv) > 2 else 600)]))
    else:
        for line in comparisons():
            print(f"{line.name}: {line.ours:.5g} {line.unit}, {line.peer} {line.peer_value:.5g}, ratio {line.ratio:.3f}, {line.goal}")

"""Facts about `edgemeter demo`: the whole way on one machine."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.runs.store import open_store
from tests.fixtures.one_file import whole_text
from tests.fixtures.servers import Influx

EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]


def start_demo(folder: Path, *options: object, **environment: str) -> subprocess.Popen[str]:
    """Start the demo in a session of its own, with everything it writes below `folder`."""
    return subprocess.Popen(
        [*EDGEMETER, "demo", "--html", str(folder / "report.html"), "--home", str(folder / "demo"), *map(str, options)],
        env={**os.environ, "EDGEMETER_HOME": str(folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.long
def test_the_demo_measures_delivers_compares_and_reports(tmp_path):
    """Every run is in the ledger, every shipped model is beside the reference, and the page is there."""
    out, err = start_demo(tmp_path, "--json").communicate(timeout=900)
    document = json.loads(out)
    rows = document["rows"]
    assert {row["role"] for row in rows} == {"device", "reference"}
    assert {(row["runtime"], row["precision"]) for row in rows if row["role"] == "device"} >= {
        ("onnx", "fp32"), ("onnx", "int8"), ("litert", "fp32"), ("litert", "int8"),
    }  # fmt: skip
    assert all(row["device"] == "this-machine" and row["accuracy_value"] >= 0.57 for row in rows)
    runs = open_store(str(tmp_path / "demo" / "ledger.sqlite")).contents().runs
    assert f"{len(runs)} records are delivered" in err
    assert sorted(record.seq for record in runs) == list(range(1, len(runs) + 1))
    page = whole_text(tmp_path / "report.html")
    assert all(record.id in page for record in runs)


@pytest.mark.slow
def test_ctrl_c_leaves_no_process(tmp_path):
    """Interrupted while it measures, the demo takes broker, collector, agent and measuring process with it."""
    demo = start_demo(tmp_path)
    try:
        deadline = time.monotonic() + 300
        while not _measures(demo.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        family = psutil.Process(demo.pid).children(recursive=True)
        os.killpg(demo.pid, signal.SIGINT)
        _, err = demo.communicate(timeout=150)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    _, alive = psutil.wait_procs(family, timeout=150)
    assert alive == []


def _measures(pid: int) -> bool:
    """Return whether a process below `pid` is measuring; those that end meanwhile are not asked twice."""
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if "edgemeter.agent.engine.worker" in child.cmdline():
                return True
    return False


@pytest.mark.influx
@pytest.mark.slow
@pytest.mark.long
def test_every_run_of_the_demo_is_in_influxdb_with_the_printed_numbers(influxd, tmp_path):
    """What InfluxQL reads back is what the ledger holds, field by field."""
    server = Influx(influxd, tmp_path)
    server.start()
    try:
        server.set_up()
        demo = start_demo(
            tmp_path, "--influx", f"{server.url}?org={server.org}&bucket={server.bucket}", EDGEMETER_INFLUX_TOKEN=server.token
        )
        out, err = demo.communicate(timeout=900)
        assert demo.returncode == 0, err
        points = {point["id"]: point for point in server.query('SELECT * FROM "run"')}
    finally:
        server.kill()
    with SqliteLedger(tmp_path / "demo" / "ledger.sqlite", "read") as ledger:
        held = [entry.record for entry in ledger.records()]
    assert set(points) == {one.id for one in held}
    for one in held:
        assert _figures(points[one.id]) == _of_record(one)
    assert "InfluxDB" in err
    assert out


FIELDS = ("latency_p50_ms", "latency_p90_ms", "throughput_per_s", "accuracy_value", "memory_peak_mb")


def _figures(point: dict[str, object]) -> tuple[object, ...]:
    return tuple(point[field] for field in FIELDS)


def _of_record(record: record.RunRecord) -> tuple[object, ...]:
    accuracy = record.accuracy.value if record.accuracy else None
    return (record.latency.p50_ms, record.latency.p90_ms, record.throughput_per_s, accuracy, record.memory.peak_mb)

"""Facts about `edgemeter collector demo`: the whole way on one machine."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from edgemeter.collector.runs.store import open_store
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.one_file import whole_text


def start_demo(folder: Path, *options: object) -> subprocess.Popen[str]:
    """Start the demo in a session of its own, with everything it writes below `folder`."""
    return subprocess.Popen(
        [
            *EDGEMETER,
            "collector",
            "demo",
            "--output",
            str(folder / "report.html"),
            "--home",
            str(folder / "demo"),
            *map(str, options),
        ],
        env={**os.environ, "EDGEMETER_HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@dataclass(frozen=True)
class Demonstration:
    """A demo that has ended: its folder, and what it printed."""

    folder: Path
    out: str
    err: str


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """Return the demo, run once with --format json."""
    folder = tmp_path_factory.mktemp("demonstration")
    return Demonstration(folder, *start_demo(folder, "--format", "json").communicate(timeout=900))


@pytest.mark.nightly
def test_the_demo_measures_delivers_compares_and_reports(demonstration):
    """The demo keeps every run, compares the shipped models with the reference, and writes a page.

    The runs are in the ledger.
    """
    folder, err = demonstration.folder, demonstration.err
    rows = json.loads(demonstration.out)["rows"]
    assert {row["role"] for row in rows} == {"device", "reference"}
    assert {(row["runtime"], row["precision"]) for row in rows if row["role"] == "device"} >= {
        ("onnx", "fp32"), ("onnx", "int8"), ("litert", "fp32"), ("litert", "int8"),
    }  # fmt: skip
    assert all(row["device"] == "this-machine" and row["accuracy_value"] >= 0.57 for row in rows)
    runs = open_store(str(folder / "demo" / "ledger.sqlite")).contents().runs
    assert f"{len(runs)} records are delivered" in err
    assert "writing the pages" in err
    assert sorted(record.seq for record in runs) == list(range(1, len(runs) + 1))
    page = whole_text(folder / "report.html")
    assert all(record.id in page for record in runs)
    assert "a simulated fleet of 40 boards next to these runs" in err
    assert "simulated-pi5-07" in whole_text(folder / "report-fleet.html")


@pytest.mark.services
def test_ctrl_c_leaves_no_process(tmp_path):
    """Ctrl-C during a measurement ends the demo and all its processes.

    They are broker, collector, agent and the measuring process.
    """
    demo = start_demo(tmp_path)
    try:
        assert wait_until(lambda: _measures(demo.pid), 60)
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
    """Return whether a process below `pid` is measuring.

    Processes that end meanwhile are not asked twice.
    """
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if "edgemeter.agent.engine.worker" in child.cmdline():
                return True
    return False

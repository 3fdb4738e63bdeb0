"""Tests that deliberate disturbance is detected.

Busy processes beside a run make it disturbed, with the reason and the culprit's name.
"""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgemeter.agent.contract import case_settings, suite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import job
from edgemeter.agent.session import session
from tests.fixtures.collecting import EDGEMETER

pytestmark = pytest.mark.alone

NAME = "edgemeter-hog"
# Ends by itself, whatever becomes of the test.
HOG = (
    f"import time\nopen('/proc/self/comm', 'w').write({NAME!r})\nend = time.monotonic() + 60\n"
    "while time.monotonic() < end: pass"
)


def hog():
    """Start one busy process in a session of its own.

    The scheduler shares cores between sessions first.
    """
    return subprocess.Popen([sys.executable, "-c", HOG], start_new_session=True)


@contextmanager
def hogs(count):
    running = [hog() for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.fixture
def replay(tmp_path):
    document = {
        "format": "edgemeter-replay",
        "schema": 1,
        "latencies_ms": [5.0],
        "inputs": [{"name": "x", "shape": [1, 4], "dtype": "float32"}],
        "outputs": [{"name": "y", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}],
    }
    path = tmp_path / "m.replay.json"
    path.write_text(json.dumps(document))
    return path


def run(model: Path, home: Path, *options: str) -> dict:
    command = [
        *EDGEMETER,
        "run",
        str(model),
        "--repeats",
        "1",
        "--power",
        "none",
        "--format",
        "json",
    ]
    completed = subprocess.run(
        [*command, *options],
        capture_output=True,
        check=True,
        env={**os.environ, "EDGEMETER_HOME": str(home)},
        timeout=600,
    )
    (record,) = json.loads(completed.stdout)["runs"]
    return record


def busiest_of(record: dict) -> str:
    """Return the process that `busy-machine` names; empty if the run did not violate the rule."""
    return next(
        (
            violation["subject"]
            for violation in record["verdict"]["violations"]
            if violation["rule"] == "busy-machine"
        ),
        "",
    )


def test_busy_processes_make_a_run_disturbed_and_are_named(replay, tmp_path):
    """Two busy processes per core make a run disturbed, and are named.

    They run before and during the run; `busy-machine` says how busy the machine was, and because of
    which process.
    """
    with hogs(2 * (os.cpu_count() or 1)):
        record = run(replay, tmp_path / "home", "--mode", "rapid")
    assert record["verdict"]["state"] in ("disturbed", "invalid")
    assert NAME in busiest_of(record), record["verdict"]
    assert (
        next(condition for condition in record["conditions"] if condition["when"] == "during")[
            "other_load_ratio"
        ]
        > 0.4
    )


@pytest.mark.realdata
@pytest.mark.needs(module="ai_edge_litert")
def test_a_real_model_of_a_fifth_of_a_millisecond_is_caught_too(realdata, tmp_path):
    """A real model of a fifth of a millisecond is found to be disturbed too.

    13 ms of timed queries are too short for clock ticks, so the load is taken over a longer time
    that begins before them.
    """
    model = realdata / "models/mobilenet_v1_0.25_128_quant.tflite"
    with hogs(2 * (os.cpu_count() or 1)):
        record = run(model, tmp_path / "home", "--mode", "rapid")
    assert record["verdict"]["state"] in ("disturbed", "invalid")
    assert NAME in busiest_of(record), record["verdict"]


def test_hogs_in_the_second_half_alone_are_caught(replay):
    """Busy processes in the second half alone show in the mean load or the drift."""
    seconds = 4.0
    setting = case_settings.Settings(model=str(replay), mode="rapid", repeats=1, seconds=seconds)
    cases = suite.expand(suite.SuiteFile(name="s", case=[setting]), replay.parent)
    begun = []

    def disturb():
        begun.extend(hog() for _ in range(os.cpu_count() or 1))

    timer = threading.Timer(seconds / 2, disturb)

    def tell(event):
        if isinstance(event, job.Phase) and event.name == "timed":
            timer.start()

    try:
        (record,) = session.measure(cases, session.DeviceIdentity("bench", "lab"), {}, "none", tell)
    finally:
        timer.join()
        for process in begun:
            process.kill()
            process.wait()
    assert isinstance(record, RunRecord), record
    assert begun
    assert record.verdict.state in ("disturbed", "invalid")
    assert "busy-machine" in record.verdict.rules, record.verdict
    during = next(condition for condition in record.conditions if condition.when == "during")
    assert during.other_load_ratio > 0.2


QUIET_RATIO = 0.05
# Time stolen by a hypervisor adds to latency one to one.
STOLEN_RATIO = 0.01
RUNS = 20


def test_a_quiet_machine_gives_valid_runs(replay):
    """At least 19 of 20 rapid runs on a quiet machine are valid.

    There is next to no load beside them; 64 queries must not be disturbed for trivial reasons.
    """
    setting = case_settings.Settings(model=str(replay), mode="rapid", repeats=RUNS)
    cases = suite.expand(suite.SuiteFile(name="s", case=[setting]), replay.parent)
    records = list(
        session.measure(cases, session.DeviceIdentity("bench", "lab"), {}, "none", lambda _: None)
    )
    during = [
        (record, condition)
        for record in records
        for condition in record.conditions
        if condition.when == "during" and condition.other_load_ratio is not None
    ]
    quiet = [
        record
        for record, at in during
        if at.other_load_ratio <= QUIET_RATIO and (at.steal_ratio or 0.0) <= STOLEN_RATIO
    ]
    if len(quiet) < RUNS * 3 // 4:
        pytest.skip(
            f"others or other guests were at work in {RUNS - len(quiet)} of {RUNS} runs: nothing "
            "can be said of quiet"
        )
    violated = [record.verdict.rules for record in quiet if record.verdict.state != "ok"]
    assert len(violated) <= RUNS // 20, violated

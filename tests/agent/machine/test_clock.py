"""Facts about stamps and durations while the wall clock is stepped."""

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from edgemeter.agent.machine import clock
from tests.fixtures.replay_case import replay_model
from tests.fixtures.still_time import stop_time

# Far above what a busy machine takes, far below an hour.
HALF_AN_HOUR_MS = 1_800_000
# A wall clock that goes an hour back every time that it is asked, in every process of the command.
STEPPING = """
    import itertools, time
    _true_ns, _asked = time.time_ns, itertools.count(1)
    time.time_ns = lambda: _true_ns() - next(_asked) * 3_600_000_000_000
    time.time = lambda: time.time_ns() / 1e9
"""


def test_a_stamp_is_by_the_clock_as_it_is_now(monkeypatch):
    """A stamp is right once the clock is, even if it was ten years wrong at the start."""
    stop_time(monkeypatch)
    began_ns = time.monotonic_ns() - 5 * 10**9
    right_ns = time.time_ns() - 5 * 10**9
    assert clock.wall_ns(began_ns) == right_ns
    monkeypatch.setattr(time, "time_ns", lambda: 12 * 10**9)
    assert clock.wall_ns(began_ns) == 7 * 10**9


@pytest.mark.services
def test_a_wall_clock_that_jumps_changes_no_duration(tmp_path):
    """A clock that goes back an hour at every look changes no figure of a run.

    Latencies, windows and the cold start stay the same.
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(STEPPING))
    replay_model(tmp_path, 2.0)
    options = "m.replay.json --repeats 1 --mode rapid --power none --format json"
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "run", *options.split()]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "EDGEMETER_HOME": str(tmp_path)}
    completed = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    (record,) = json.loads(completed.stdout)["runs"]
    latency, windows = record["latency"], record["windows"]
    assert 2.0 <= latency["p50_ms"] < HALF_AN_HOUR_MS
    assert 64 * 2.0 <= windows["timed_end_ns"] / 1e6 < HALF_AN_HOUR_MS
    assert 0 < windows["timed_start_ns"] - record["monotonic_ns"] < HALF_AN_HOUR_MS * 1e6
    assert all(
        0 <= record["cold_start"][name] < HALF_AN_HOUR_MS
        for name in ("process_ms", "load_ms", "first_ms")
    )
    assert record["started_at_ns"] < time.time_ns() - 3600 * 10**9

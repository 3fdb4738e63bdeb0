"""Facts about a run's process that dies: what is reported names the file, and is one line."""

import os
import subprocess
import sys
import threading

import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import isolation
from tests.fixtures.plugin_site import install
from tests.fixtures.replay_case import replay_case, write_replay
from tests.fixtures.run_jobs import hurried, one_case, run_job

# As ExecuTorch does on some garbled programs: a check of the library ends the process, after a line on standard error.
MODULE = """
import os, sys

class Fragile:
    VERSION_OF = "fragile"
    def load(self, model, options):
        print("E check failed: tensor_meta in " + model.name, file=sys.stderr, flush=True)
        os.abort()
    def close(self):
        pass
"""


@pytest.mark.services
def test_a_runtime_that_aborts_while_it_loads_is_one_line_that_names_the_file(tmp_path):
    """Signal, file and remedy, with the library's own last words; no trace."""
    install(tmp_path / "site", "fragile", [(runtimes.ENTRY_POINTS, "fragile", "fragile:Fragile")], MODULE)
    (tmp_path / "garbled.pte").write_bytes(b"\0" * 64)
    completed = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli", "run", "-q", "garbled.pte", "--runtime", "fragile", "--mode", "rapid"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "EDGEMETER_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert completed.returncode == 1
    (line,) = [line for line in completed.stderr.splitlines() if "crashed" in line]
    assert "the runtime fragile crashed (signal 6, SIGABRT) while loading '" in line
    assert "garbled.pte'; the file may be garbled: fetch or export it again; its last output: E check failed: tensor_meta" in line
    assert "Traceback" not in completed.stderr


@pytest.mark.services
def test_a_runtime_that_never_returns_ends_the_run(tmp_path, monkeypatch):
    """Ten minutes after what its part was planned to take, whatever the runtime: a call into a driver may hang as user code may."""
    case = one_case(write_replay(tmp_path, latencies_ms=[1e6]), mode="rapid", seconds=0.0)
    with pytest.raises(MeasurementError, match=r"m.replay.json' was ended after .*'load' took longer than its limit of 0.2 s.*backend"):
        isolation.run_isolated(run_job(case), hurried(monkeypatch, "load"))
    assert isolation.OVERTIME_S == 0.2
    monkeypatch.undo()
    assert isolation.OVERTIME_S == 600.0


@pytest.mark.services
def test_a_run_that_waits_for_others_is_not_ended_meanwhile(tmp_path):
    """Only time in which an answer of its own is due counts: no timer runs while the run waits to meet, however long others take."""
    case = replay_case(tmp_path, "m", 1.0)
    timers = []

    def meet(event):
        timers.append([thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and not thread.finished.is_set()])
        return event.timed or Window(0, 50_000_000)

    isolation.run_isolated(run_job(case, meets=True), lambda _event, _pid: None, meet)
    assert timers == [[], [], []]

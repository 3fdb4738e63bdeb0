"""Boards on this machine with real agents, through kills of whatever runs.

`python -m tools.fleet` is the long one.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.fleet.drill import joined, run_drill

pytestmark = [pytest.mark.mosquitto, pytest.mark.nightly, pytest.mark.needs("unshare")]


def test_a_fleet_loses_and_doubles_nothing_whoever_is_killed(tmp_path):
    """A fleet loses and doubles nothing, whichever of its processes is killed.

    Boards join, measure jobs in waves and are updated; one is revoked.
    """
    outcome = run_drill(tmp_path, 3, 8, 5, print)
    assert not outcome.faults
    assert (outcome.executions, outcome.runs, outcome.updated) == (8, 8, 3)


def test_each_job_is_measured_once_beside_a_second_agent(tmp_path):
    """Each job is measured once, although a copy of the board's card is in use too.

    45 processes are killed: the boards' agents, the copy's, the servers'.
    """
    with joined(tmp_path, 2, 7, print) as drill:
        copied = drill.boards[0].copy()
        copied.start(drill.stack)
        jobs = [drill.order(seconds=number % 3) for number in range(12)]
        drill.killed_until_done(
            jobs, 45, [*drill.servers, copied.agent, *(board.agent for board in drill.boards)]
        )
        drill.judge_measured(jobs, drill.names)
    assert not drill.outcome.faults
    assert (drill.outcome.executions, drill.outcome.runs) == (24, 24)


def test_simulated_boards_join_and_measure_in_waves():
    """As a thousand do, by `python -m tools.fleet.thousand`."""
    command = [sys.executable, "-m", "tools.fleet.thousand", "--boards", "30"]
    completed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert completed.returncode == 0, completed.stdout[-3000:] + completed.stderr[-3000:]

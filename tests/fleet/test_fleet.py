"""Boards on this machine with real agents, through kills of whatever runs; `python -m tests.fleet` is the long one."""

import pytest

from tests.fleet.drill import joined, run_drill

pytestmark = [pytest.mark.mosquitto, pytest.mark.nightly, pytest.mark.needs("unshare")]


def test_a_fleet_loses_and_doubles_nothing_whoever_is_killed(tmp_path):
    outcome = run_drill(tmp_path, 3, 8, 5, print)
    assert not outcome.faults
    assert (outcome.executions, outcome.runs, outcome.updated) == (8, 8, 3)


def test_each_job_is_measured_once_beside_a_second_agent(tmp_path):
    with joined(tmp_path, 2, 7, print) as drill:
        copied = drill.boards[0].copy()
        copied.start(drill.stack)
        jobs = [drill.order(seconds=number % 3) for number in range(12)]
        drill.killed_until_done(jobs, 45, [*drill.servers, copied.agent, *(board.agent for board in drill.boards)])
        drill.judge_measured(jobs, drill.names)
    assert not drill.outcome.faults
    assert (drill.outcome.executions, drill.outcome.runs) == (24, 24)

"""The limit of time of a run's process; how one dies is in tests/end_to_end/test_deaths.py."""

import threading

import pytest

from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import isolation
from tests.fixtures.replay_case import replay_case
from tests.fixtures.run_jobs import run_job


@pytest.mark.services
def test_a_run_that_waits_for_others_is_not_ended_meanwhile(tmp_path):
    """Only time in which an answer of its own is due counts towards the limit.

    No timer runs while the run waits to meet, however long others take.
    """
    case = replay_case(tmp_path, "m", 1.0)
    timers = []

    def meet(event):
        timers.append(
            [
                thread
                for thread in threading.enumerate()
                if isinstance(thread, threading.Timer) and not thread.finished.is_set()
            ]
        )
        return event.timed or Window(0, 50_000_000)

    isolation.run_isolated(run_job(case, meets=True), lambda _event, _pid: None, meet)
    assert timers == [[], [], []]

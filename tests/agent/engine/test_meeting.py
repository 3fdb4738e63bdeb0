"""Facts about runs that meet others.

They concern when the runs begin, for how long they are timed, and what of that lies in the time of
all.
"""

import gc

import numpy as np
import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import closed_loop, job, measure
from edgemeter.agent.engine.scenarios.steady import steady_of
from edgemeter.agent.engine.scenarios.timing import (
    FailedQuery,
    FrameSchedule,
    TimedQueries,
    TimingPlan,
)
from tests.fixtures.played_time import play_time
from tests.fixtures.replay_case import write_replay
from tests.fixtures.run_jobs import brief_case, run_job

MS = 1_000_000


def test_the_length_that_was_agreed_on_alone_ends_the_plan():
    """A run asks for its least time, and for the time that its queries would take."""
    encounters: list[job.Encounter] = []

    def meet(event):
        encounters.append(event)
        return Window(5 * MS, 25 * MS)

    plan, begin_ns = measure.agreed(
        TimingPlan(64, 1.0, 2 * MS, 0, pass_queries=8), closed_loop.seconds, meet
    )
    assert encounters == [job.Encounter(seconds=1.0, queries_s=0.128)]
    assert (plan.queries, plan.seconds, plan.pass_queries, begin_ns) == (1, 0.02, 1, 5 * MS)


def test_nothing_begins_before_its_moment(monkeypatch, tmp_path):
    """The window begins half a second after the agreement and lasts for 0.2 s.

    No query of 2 ms is outside it.
    """
    played = play_time(monkeypatch)
    window = []

    def meet(event):
        if event.timed is None:
            window[:] = [Window(played.now_ns + 500 * MS, played.now_ns + 700 * MS)]
        return window[0]

    case = brief_case(write_replay(tmp_path))
    run = measure.measure(run_job(case), 0, lambda _: None, meet=meet)
    assert window[0].start_ns <= run.timed.start_ns <= window[0].start_ns + MS
    assert run.timed.end_ns <= window[0].end_ns
    assert 90 <= run.latency.count <= 100
    assert gc.isenabled()


def test_only_queries_wholly_within_the_window_count():
    """A query that began before it, or ended after it, is in no figure.

    In an open loop the arrival counts as the begin.
    """
    starts_ns = np.array([0, 10, 20, 30]) * MS
    pauses_ns = np.array([[1, 2], [21, 22]]) * MS
    failures = [FailedQuery("busy", 7, moment * MS, (moment + 1) * MS) for moment in (2, 26, 34)]
    timed = TimedQueries(
        starts_ns,
        np.full(4, 5 * MS),
        0,
        35 * MS,
        pauses_ns=pauses_ns,
        failures=failures,
        numbers=np.arange(4),
    )
    within = timed.within(Window(5 * MS, 34 * MS))
    assert (within.starts_ns.tolist(), within.numbers.tolist()) == ([10 * MS, 20 * MS], [1, 2])
    assert within.failures == failures[1:2]
    assert (within.begin_ns, within.end_ns, within.pauses_ns.tolist()) == (
        5 * MS,
        25 * MS,
        [[21 * MS, 22 * MS]],
    )
    arrivals_ns = starts_ns - 3 * MS
    opened = TimedQueries(starts_ns, np.full(4, 8 * MS), 0, 35 * MS, arrivals_ns)
    assert opened.within(Window(8 * MS, 35 * MS)).arrivals_ns.tolist() == [17 * MS, 27 * MS]
    with pytest.raises(
        MeasurementError,
        match=r"no query lay wholly within the 0\.004 s in which all models were timed",
    ):
        timed.within(Window(11 * MS, 15 * MS))


def test_frames_count_up_to_the_last_one_that_ended_within_the_window():
    """One frame is dropped before the window ends, though it begins after the first arrival.

    Ten come a second, and the third is dropped.
    """
    begin_ns = 1000 * MS
    schedule = FrameSchedule(rate_per_s=10.0, deadline_ns=100 * MS, frames=6)
    arrivals_ns = begin_ns + schedule.arrivals_ns(np.array([0, 1, 3, 4]))
    timed = TimedQueries(
        arrivals_ns,
        np.full(4, 20 * MS),
        begin_ns,
        begin_ns + 600 * MS,
        arrivals_ns,
        2,
        schedule=schedule,
    )
    within = timed.within(Window(begin_ns + 2 * MS, begin_ns + 350 * MS))
    assert (within.schedule.frames, within.unserved, within.begin_ns) == (4, 1, begin_ns)
    assert (steady_of(within).frames, steady_of(within).dropped, steady_of(within).late) == (
        4,
        1,
        0,
    )
    # The last frame has its whole period, as far as the window has it: four frames take 402.67 ms,
    # of which 350 are within.
    assert within.end_ns == begin_ns + 350 * MS
    assert (
        timed.within(Window(begin_ns + 2 * MS, begin_ns + 450 * MS)).end_ns == begin_ns + 450 * MS
    )
    assert (
        timed.within(Window(begin_ns + 2 * MS, begin_ns + 405 * MS)).end_ns
        == begin_ns + 402_666_667
    )

"""Scenario steady: frames of a camera.

They arrive `rate_per_s` a second, whatever happens (`contract.frame_times`).

At most one frame waits for the model. The next frame takes its place, and it is dropped, as a
camera's driver does. A latency counts from the arrival to the answer; an answer after the deadline
is late. Dropped and late frames are missed; a frame that a server does not answer counts as
dropped. If the model waits for a frame, the inputs are copied in before it arrives; if the frame
waits, within its latency. Between frames the process sleeps, so that the energy has its idle share;
the last 0.2 ms are spun.

The timed part is the whole schedule, to the end of the last frame's period, so that each frame has
its share of idle time. Frames that still wait a second, or the deadline, after the schedule are
dropped.
"""

import math

import numpy as np

from edgemeter.agent.contract.frame_times import FrameTimes
from edgemeter.agent.contract.record_figures import Steady
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine.scenarios import timing
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_stage

# By rounding, a rate times a duration may be a frame too many.
WHOLE = 1e-9


def schedule_of(plan: timing.TimingPlan) -> timing.FrameSchedule:
    """Return the schedule: at least `queries` frames, or as many as arrive in `seconds`."""
    rate_per_s = plan.rate_per_s or 1.0
    deadline_ns = round(1e9 / rate_per_s) if plan.deadline_ns is None else plan.deadline_ns
    frames = max(plan.queries, math.ceil(rate_per_s * plan.seconds * (1 - WHOLE)), 1)
    return timing.FrameSchedule(rate_per_s, deadline_ns, frames)


def seconds(plan: timing.TimingPlan) -> float:
    """Return the duration."""
    return schedule_of(plan).length_ns / 1e9


def busy_ratio(timed: timing.TimedQueries, schedule: timing.FrameSchedule) -> tuple[float, float]:
    """Return the share of the time that the calls took, and the share that all frames need.

    It is 1 or more if the model is too slow.

    A frame that waits also needs the time in which its inputs are copied in.
    """
    times = FrameTimes(
        schedule.rate_per_s,
        timed.arrived_ns - timed.begin_ns,
        timed.starts_ns - timed.begin_ns,
        timed.latency_ns,
    )
    copied_ns = np.where(times.arrivals_ns < times.before_ns, times.starts_ns - times.before_ns, 0)
    calls_ns = float(times.service_ns.sum())
    needed_s = (calls_ns + float(copied_ns.sum())) / times.service_ns.size / 1e9
    return calls_ns / max(timed.end_ns - timed.begin_ns, 1), needed_s * schedule.rate_per_s


def schedule_of_record(steady: Steady) -> timing.FrameSchedule:
    """Return the schedule that a record states."""
    return timing.FrameSchedule(steady.rate_per_s, round(steady.deadline_ms * 1e6), steady.frames)


def in_time(schedule: timing.FrameSchedule, arrivals_ns: Times, latency_ns: Times) -> Times:
    """Return the numbers of the frames that were answered by their deadline, int64 [n].

    Arrivals count from the beginning.
    """
    return schedule.numbers(arrivals_ns)[latency_ns <= schedule.deadline_ns]


def missed_between(schedule: timing.FrameSchedule, hits: Times, edges_ns: list[int]) -> list[int]:
    """Return the number of missed frames between each two of these moments.

    The frames counted are those that arrived between them.
    """
    before = np.searchsorted(schedule.arrivals_ns(), edges_ns)
    missed: list[int] = (np.diff(before) - np.diff(np.searchsorted(hits, before))).tolist()
    return missed


def steady_of(timed: timing.TimedQueries) -> Steady | None:
    """Return the counts of the frames of a schedule; None for another load."""
    schedule = timed.schedule
    if schedule is None or timed.arrivals_ns is None:
        return None
    arrivals_ns = timed.arrivals_ns - timed.begin_ns
    answered, hits = arrivals_ns.size, in_time(schedule, arrivals_ns, timed.latency_ns)
    return Steady(
        rate_per_s=schedule.rate_per_s,
        deadline_ms=schedule.deadline_ns / 1e6,
        frames=schedule.frames,
        dropped=schedule.frames - answered,
        late=answered - hits.size,
        missed_ratio=(schedule.frames - hits.size) / schedule.frames,
        jitter=summarise_stage(np.abs(np.diff(timed.latency_ns))),
    )

"""Scenario steady: frames of a camera or a microphone. They arrive `rate_per_s` a second, whatever happens (`contract.frame_times`).

When the model is free, it takes the frame that waits. One waits at most: the next one takes its place, and it is dropped, as a camera's
driver does. A latency counts from the arrival to the answer; an answer after the deadline is late. Frames that
were dropped or late are missed; one that a server does not answer counts as dropped. Inputs of a frame that is awaited are copied in before
it arrives, those of one that waits within its latency. Between frames the process sleeps, so that the energy of the schedule has its idle
share; the last 0.2 ms are spun.

The timed part is the whole schedule, to the end of the last frame's period: each frame has its share of the idle time. A rate that is far
beyond the model ends no later: frames that still wait `DRAIN_NS`, or the deadline, after the schedule are dropped.
"""

import math

import numpy as np

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.contract.frame_times import FrameTimes
from edgemeter.agent.contract.record_figures import Steady
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine.scenarios import timing
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_stage
from edgemeter.agent.engine.scenarios.poisson import LEAD_NS, wait_until

DRAIN_NS = 1_000_000_000
# A rate times a time may be a frame too many by its last digit.
WHOLE = 1e-9


def schedule_of(plan: timing.TimingPlan) -> timing.FrameSchedule:
    """Return the schedule: at least `queries` frames, and as many as arrive in `seconds`."""
    rate_per_s = plan.rate_per_s or 1.0
    deadline_ns = round(1e9 / rate_per_s) if plan.deadline_ns is None else plan.deadline_ns
    frames = max(plan.queries, math.ceil(rate_per_s * plan.seconds * (1 - WHOLE)), 1)
    return timing.FrameSchedule(rate_per_s, deadline_ns, frames)


def seconds(plan: timing.TimingPlan) -> float:
    """Return the duration."""
    return schedule_of(plan).length_ns / 1e9


def run(subject: timing.TimingSubject, plan: timing.TimingPlan) -> timing.TimedQueries:
    """Offer the frames of the schedule and return those that were answered, with their latency from their arrival."""
    schedule = schedule_of(plan)
    due = schedule.arrivals_ns()
    order = range(len(subject.inputs)) if plan.in_order else plan.drawn(len(subject.inputs))
    likely = min(schedule.frames, plan.capacity())
    kept_outputs = timing.KeptOutputs(subject.outputs, likely)
    numbers, starts, ends = timing.Moments(likely), timing.Moments(likely), timing.Moments(likely)
    bind, inputs, clock = subject.bind, subject.inputs, subject.clock
    failures: dict[str, int] = {}
    frame = count = 0
    with timing.no_collection():
        begin = clock() + LEAD_NS
        schedule_end = begin + schedule.length_ns
        give_up = schedule_end + max(DRAIN_NS, schedule.deadline_ns)
        while frame < schedule.frames:
            item = order[frame % len(order)]
            arrival = begin + int(due[frame])
            try:
                call = bind(inputs[item])
                wait_until(arrival, clock, subject.sleep)
                start = clock()
                call()
            except AnswerError as error:
                failures[error.kind] = failures.get(error.kind, 0) + 1
                wait_until(arrival, clock, subject.sleep)
                frame = max(frame + 1, int(np.searchsorted(due, (failed_at := clock()) - begin, side="right")) - 1)
                if frame < schedule.frames and failed_at <= give_up:
                    continue
                # Where none was answered, there is nothing to measure.
                if count == 0:
                    raise
                break
            end = clock()
            if count == len(ends.values):
                for moments in (numbers, starts, ends):
                    moments.grow()
            numbers.values[count] = frame
            starts.values[count] = start
            ends.values[count] = end
            if kept_outputs.wants(count, item):
                kept_outputs.keep(item)
            count += 1
            if end > give_up:
                break
            frame = max(frame + 1, int(np.searchsorted(due, end - begin, side="right")) - 1)
        # The idle time of the last frame.
        if (rest_ns := schedule_end - clock()) > 0:
            subject.sleep(rest_ns / 1e9)
    arrivals = begin + due[numbers.taken(count)]
    finished = ends.taken(count)
    return timing.TimedQueries(
        starts.taken(count), finished - arrivals, kept_outputs.by_input, begin, max(int(finished[-1]), schedule_end), arrivals,
        schedule.frames - count, failures=failures, schedule=schedule,
    )  # fmt: skip


def busy_ratio(timed: timing.TimedQueries, schedule: timing.FrameSchedule) -> tuple[float, float]:
    """Return the share of the time that the calls took, and the share that all frames would take, 1 or more if too much.

    A frame that waits takes the time in which its inputs are copied, too: the calls cannot follow each other sooner.
    """
    times = FrameTimes(schedule.rate_per_s, timed.arrived_ns - timed.begin_ns, timed.starts_ns - timed.begin_ns, timed.latency_ns)
    copied_ns = np.where(times.arrivals_ns < times.before_ns, times.starts_ns - times.before_ns, 0)
    calls_ns = float(times.service_ns.sum())
    needed_s = (calls_ns + float(copied_ns.sum())) / times.service_ns.size / 1e9
    return calls_ns / max(timed.end_ns - timed.begin_ns, 1), needed_s * schedule.rate_per_s


def schedule_of_record(steady: Steady) -> timing.FrameSchedule:
    """Return the schedule that a record states."""
    return timing.FrameSchedule(steady.rate_per_s, round(steady.deadline_ms * 1e6), steady.frames)


def in_time(schedule: timing.FrameSchedule, arrivals_ns: Times, latency_ns: Times) -> Times:
    """Return the numbers of the frames that were answered by their deadline, int64 [n]; arrivals count from the beginning."""
    return schedule.numbers(arrivals_ns)[latency_ns <= schedule.deadline_ns]


def off_schedule(schedule: timing.FrameSchedule, arrivals_ns: Times) -> int:
    """Return how many of these arrivals are none of the schedule's, or not in its order."""
    numbers = schedule.numbers(arrivals_ns)
    is_known = (numbers >= 0) & (numbers < schedule.frames) & (np.diff(numbers, prepend=-1) > 0)
    return int(np.count_nonzero(~is_known | (schedule.arrivals_ns(numbers) != arrivals_ns)))


def missed_between(schedule: timing.FrameSchedule, hits: Times, edges_ns: list[int]) -> list[int]:
    """Return how many of the frames that arrived from each of these moments to the next were missed, after the last one none."""
    before = np.searchsorted(schedule.arrivals_ns(), edges_ns)
    missed: list[int] = (np.diff(before) - np.diff(np.searchsorted(hits, before))).tolist()
    return missed


def steady_of(timed: timing.TimedQueries) -> Steady | None:
    """Return what became of the frames of a schedule; None of another load."""
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

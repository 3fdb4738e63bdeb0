"""Scenario steady: frames of a camera or a microphone. Frame n arrives n / `rate_per_s` after the beginning, whatever happens.

The model takes the oldest frame that waits, when it is free. `queue_frames` wait at most: another one takes the place of the oldest, which
is dropped, as a camera's driver does. A latency counts from the arrival to the answer; an answer after the deadline is late. Frames that
were dropped or late are missed; one that a server does not answer counts as dropped. Inputs of a frame that is awaited are copied in before
it arrives, those of one that waits within its latency. Between frames the process sleeps, so that the energy of the schedule has its idle
share; the last 0.2 ms are spun.

The timed part is the whole schedule, to the end of the last frame's period: each frame has its share of the idle time. A rate that is far
beyond the model ends no later: frames that still wait `DRAIN_NS`, or the deadline, after the schedule are dropped.
"""

import math
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.base.statistics import exact_interval
from edgemeter.agent.contract.frame_times import FrameTimes
from edgemeter.agent.contract.pooled_misses import FEWEST_BURSTS
from edgemeter.agent.contract.record_figures import Steady, Sustained
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine.scenarios import timing
from edgemeter.agent.engine.scenarios.latency_statistics import FEWEST_EFFECTIVE, effective_trials, summarise_stage
from edgemeter.agent.engine.scenarios.poisson import LEAD_NS, wait_until

DRAIN_NS = 1_000_000_000
# A rate times a time may be a frame too many by its last digit.
WHOLE = 1e-9
# Few missed frames do not show whether they come in bursts: those that took nearly the whole deadline count too.
FEWEST_MISSED = 10
NEAR_RATIO = 0.8
# A burst ends where no frame is missed for so many times as long as there are frames to a missed one.
BURSTS_APART = 3
# More frames than any camera brings; whether they depend on each other is not looked at.
MOST_JUDGED = 20_000_000


def schedule_of(plan: timing.TimingPlan) -> timing.FrameSchedule:
    """Return the schedule: at least `queries` frames, and as many as arrive in `seconds`."""
    rate_per_s = plan.rate_per_s or 1.0
    deadline_ns = round(1e9 / rate_per_s) if plan.deadline_ns is None else plan.deadline_ns
    frames = max(plan.queries, math.ceil(rate_per_s * plan.seconds * (1 - WHOLE)), 1)
    return timing.FrameSchedule(rate_per_s, deadline_ns, plan.queue_frames, frames)


def seconds(plan: timing.TimingPlan) -> float:
    """Return the duration."""
    return schedule_of(plan).length_ns / 1e9


def run(subject: timing.TimingSubject, plan: timing.TimingPlan) -> timing.TimedQueries:
    """Offer the frames of the schedule and return those that were answered, with their latency from their arrival."""
    schedule = schedule_of(plan)
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
            arrival = begin + schedule.arrival_ns(frame)
            try:
                call = bind(inputs[item])
                wait_until(arrival, clock, subject.sleep)
                start = clock()
                call()
            except AnswerError as error:
                failures[error.kind] = failures.get(error.kind, 0) + 1
                wait_until(arrival, clock, subject.sleep)
                frame = max(frame + 1, schedule.arrived((failed_at := clock()) - begin) - schedule.queue_frames)
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
            frame = max(frame + 1, schedule.arrived(end - begin) - schedule.queue_frames)
        # The idle time of the last frame.
        if (rest_ns := schedule_end - clock()) > 0:
            subject.sleep(rest_ns / 1e9)
    arrivals = begin + schedule.arrivals_ns(numbers.taken(count))
    finished = ends.taken(count)
    return timing.TimedQueries(
        starts.taken(count), finished - arrivals, kept_outputs.by_input, begin, max(int(finished[-1]), schedule_end), arrivals,
        schedule.frames - count, failures=failures, schedule=schedule,
    )  # fmt: skip


def busy_ratio(timed: timing.TimedQueries, schedule: timing.FrameSchedule) -> tuple[float, float]:
    """Return the share of the time that the calls took, and the share that all frames would take, 1 or more if too much.

    A frame that waits takes the time in which its inputs are copied, too: the calls cannot follow each other sooner.
    """
    times = frame_times(timed, schedule)
    copied_ns = np.where(times.arrivals_ns < times.before_ns, times.starts_ns - times.before_ns, 0)
    calls_ns = float(times.service_ns.sum())
    needed_s = (calls_ns + float(copied_ns.sum())) / times.service_ns.size / 1e9
    return calls_ns / max(timed.end_ns - timed.begin_ns, 1), needed_s * schedule.rate_per_s


def frame_times(timed: timing.TimedQueries, schedule: timing.FrameSchedule) -> FrameTimes:
    """Return when the frames were answered, from the beginning of the schedule."""
    return FrameTimes(schedule.rate_per_s, timed.arrived_ns - timed.begin_ns, timed.starts_ns - timed.begin_ns, timed.latency_ns)


def schedule_of_record(steady: Steady) -> timing.FrameSchedule:
    """Return the schedule that a record states."""
    return timing.FrameSchedule(steady.rate_per_s, round(steady.deadline_ms * 1e6), steady.queue_frames, steady.frames)


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
    before = np.array([schedule.arrived(edge_ns - 1) for edge_ns in edges_ns])
    missed: list[int] = (np.diff(before) - np.diff(np.searchsorted(hits, before))).tolist()
    return missed


def steady_of(timed: timing.TimedQueries) -> Steady | None:
    """Return what became of the frames of a schedule; None of another load."""
    schedule = timed.schedule
    if schedule is None or timed.arrivals_ns is None:
        return None
    times = frame_times(timed, schedule)
    arrivals_ns = times.arrivals_ns
    answered, hits = times.numbers, in_time(schedule, arrivals_ns, timed.latency_ns)
    ends_ns = arrivals_ns + timed.latency_ns
    missed = schedule.frames - hits.size
    # Missed frames between those that were answered in time.
    rows = np.diff(np.concatenate(([-1], hits, [schedule.frames]))) - 1
    # As many as arrived meanwhile, of which the newest are left.
    behind = np.minimum(np.floor((timed.latency_ns - 1) * (schedule.rate_per_s / 1e9)), schedule.frames - 1 - answered)
    return Steady(
        rate_per_s=schedule.rate_per_s,
        deadline_ms=schedule.deadline_ns / 1e6,
        queue_frames=schedule.queue_frames,
        frames=schedule.frames,
        dropped=schedule.frames - answered.size,
        late=answered.size - hits.size,
        woke_late=int(np.count_nonzero(times.woke_late(schedule.deadline_ns / 1e6))),
        missed_ratio=missed / schedule.frames,
        **_bounds(schedule, hits, answered[timed.latency_ns > NEAR_RATIO * schedule.deadline_ns]),
        longest_row=int(rows.max()),
        jitter=summarise_stage(np.abs(np.diff(timed.latency_ns))),
        waiting=summarise_stage((times.starts_ns - times.arrivals_ns)[times.have_waited]),
        queue_max=min(schedule.queue_frames, int(behind.max())),
        longest_gap_ms=float(np.diff(ends_ns, prepend=0).max()) / 1e6,
        first_missed_s=schedule.arrival_ns(int(np.argmax(rows > 0))) / 1e9 if missed else None,
    )


def _bounds(schedule: timing.FrameSchedule, hits: Times, near: Times) -> dict[str, Any]:
    """Return the bounds of the share of missed frames, in what bursts these came, and how many independent frames all are worth.

    A few bursts are worth as many independent frames as there are stretches of the longest one, and of what others may be longer by. By
    simulation of half a burst to five in a run 97 to 100% of the bounds hold where bursts are alike, 85 to 98% where their lengths differ
    much; of more bursts 93 to 98%. There are none where these are too few frames. Where nothing suggests bursts, all frames count.
    """
    frames, missed = schedule.frames, schedule.frames - hits.size
    if frames > MOST_JUDGED:
        return {}
    is_missed = np.ones(frames, np.bool_)
    is_missed[hits] = False
    happens = is_missed.copy()
    if missed < FEWEST_MISSED:
        happens[near] = True
    effective, bursts, longest, fewest = effective_trials(happens), missed, min(missed, 1), min(FEWEST_EFFECTIVE, frames)
    if effective < frames:
        places = np.flatnonzero(happens)
        burst = np.cumsum(np.diff(places, prepend=places[0]) > BURSTS_APART * frames / places.size)
        number, longest = int(burst[-1]) + 1, int(np.bincount(burst).max())
        bursts = np.unique(burst[is_missed[places]]).size
        if number < FEWEST_BURSTS:
            effective, fewest = int(frames / (longest * (1 + 1 / number))), FEWEST_BURSTS
    facts = {"effective": effective, "bursts": bursts, "longest_burst": longest}
    if effective < fewest:
        return facts
    low, high = exact_interval(missed / frames * effective, effective)
    return {"missed_low_ratio": low, "missed_high_ratio": high, **facts}


def with_throttling(steady: Steady, arrivals_ns: Times, latency_ns: Times, curve: Sustained | None) -> Steady:
    """Return the frames with how long after the beginning of throttling the first one arrived that was missed.

    None if none was, or so soon that it is not known which came first: the curve dates throttling to an interval.
    """
    if curve is None or curve.throttled_after_s is None:
        return steady
    schedule = schedule_of_record(steady)
    begin = schedule.arrived(round((curve.throttled_after_s - curve.interval_s) * 1e9) - 1)
    hits = in_time(schedule, arrivals_ns, latency_ns)
    later = hits[np.searchsorted(hits, begin) :]
    skips = np.flatnonzero(later != np.arange(begin, begin + later.size))
    first = begin + (int(skips[0]) if skips.size else later.size)
    after_s = schedule.arrival_ns(first) / 1e9 - curve.throttled_after_s
    is_known = first < schedule.frames and after_s >= curve.interval_s
    return msgspec.structs.replace(steady, first_missed_after_throttling_s=after_s if is_known else None)

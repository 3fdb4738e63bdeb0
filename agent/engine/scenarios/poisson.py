"""Scenario poisson: an open loop. Queries arrive by a schedule that was fixed before, whether the model is ready or not.

Gaps between arrivals are exponential with mean 1 / `rate_per_s` (numpy's PCG64, seeded). A latency counts from the scheduled arrival to
completion, so that a slow query also delays those behind it and none is left out (no coordinated omission). Queueing is what passes from
the arrival to the bare call: waiting for queries before it, copying the inputs in, and waking up late. Queries wait in the order of
arrival. Neighbouring latencies depend on each other here, so that under high load percentiles have wide bounds, or none.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.engine.scenarios import timing

# Sleeping wakes up to about 0.1 ms late: the rest is spun.
SPIN_NS = 200_000
LEAD_NS = 1_000_000
# A rate that cannot be sustained is given up on when the schedule has been over for as long as it took; a median needs 11.
GIVE_UP_RATIO = 2
FEWEST = 11


def schedule_ns(plan: timing.TimingPlan) -> NDArray[np.int64]:
    """Return when each query arrives, after the beginning, int64 [n]: as many as `queries`, or as the rate brings in `seconds`."""
    rate_per_s = plan.rate_per_s or 1.0
    count = max(plan.queries, math.ceil(rate_per_s * plan.seconds))
    gaps_s = np.random.default_rng(plan.seed).exponential(1 / rate_per_s, count)
    return (np.cumsum(gaps_s) * 1e9).astype(np.int64)


def seconds(plan: timing.TimingPlan) -> float:
    """Return the expected duration at a rate that can be sustained."""
    return float(schedule_ns(plan)[-1]) / 1e9


def run(subject: timing.TimingSubject, plan: timing.TimingPlan) -> timing.TimedQueries:
    """Serve the schedule and return the latency of every query that was served, from its scheduled arrival."""
    due = schedule_ns(plan)
    offsets = due.tolist()
    order = plan.drawn(len(subject.inputs))
    kept_outputs = timing.KeptOutputs(subject.outputs, len(offsets))
    starts, ends = timing.Moments(len(offsets)), timing.Moments(len(offsets))
    bind, inputs, clock = subject.bind, subject.inputs, subject.clock
    count = 0
    with timing.no_collection():
        begin = clock() + LEAD_NS
        give_up = begin + GIVE_UP_RATIO * offsets[-1]
        for offset in offsets:
            item = order[count % timing.DRAWN]
            call = bind(inputs[item])
            _wait_until(begin + offset, clock, subject.sleep)
            start = clock()
            call()
            end = clock()
            starts.values[count] = start
            ends.values[count] = end
            if kept_outputs.wants(count, item):
                kept_outputs.keep(item)
            count += 1
            if end > give_up and count >= FEWEST:
                break
    arrivals, finished = begin + due[:count], ends.taken(count)
    return timing.TimedQueries(
        starts.taken(count), finished - arrivals, kept_outputs.by_input, begin, int(finished[-1]), arrivals, len(offsets) - count
    )


def _wait_until(moment_ns: int, clock: timing.Clock, sleep: Callable[[float], None]) -> None:
    rest_ns = moment_ns - clock()
    if rest_ns > SPIN_NS:
        sleep((rest_ns - SPIN_NS) / 1e9)
    while clock() < moment_ns:
        pass


def utilisation_ratio(timed: timing.TimedQueries) -> float | None:
    """Return the share of the arrivals' time in which a query was being worked on; None for a closed loop.

    Work on a query begins at its arrival or when the one before it is done, whichever is later. At 1 or more the queue grows without end:
    the rate cannot be sustained. The second half of the schedule must hold it as well: the higher of the two is returned.
    """
    if timed.arrivals_ns is None:
        return None
    arrivals, ends = timed.arrivals_ns, timed.arrivals_ns + timed.latency_ns
    before = np.concatenate(([timed.begin_ns], ends[:-1]))
    work = ends - np.maximum(arrivals, before)
    half = arrivals.size // 2
    overall = float(work.sum()) / max(int(arrivals[-1]) - timed.begin_ns, 1)
    late = float(work[half:].sum()) / max(int(arrivals[-1] - arrivals[half - 1]), 1) if half else overall
    return max(overall, late)

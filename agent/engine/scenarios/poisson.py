"""Scenario poisson: an open loop. Queries arrive by a schedule that was fixed before, whether the model is ready or not.

Gaps between arrivals are exponential with mean 1 / `rate_per_s` (numpy's PCG64, seeded). A latency counts from the scheduled arrival to
completion, so that a slow query also delays those behind it and none is left out (no coordinated omission). Queueing is what passes from
the arrival to the bare call: waiting for queries before it, copying the inputs in, and waking up late. Queries wait in the order of
arrival.

A server's users arrive by the same schedule, and each is served beside the others. Nobody waits for another there: an arrival that finds
too many queries unanswered is left out and counted, never put off. What a server puts in a
queue of its own is part of the answer's time. How many it can serve at once is unknown, so there is no utilisation: the rate was not kept
where latencies grow with the schedule, as those behind a growing backlog do, whatever a single answer takes.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.engine.scenarios import timing

# At a rate 2% above what is served, latency grows by a fiftieth of the time that passes. Of few queries chance makes as much: by simulation
# of 1 and 4 places at 80% utilisation, 4% of runs of 64 queries exceed 1 / sqrt(64); at 90% none of 6,000 exceeds a fiftieth, at 105% all.
BACKLOG_RATIO = 0.02
CHANCE_RATIO = 1.0
# Until the first queries are answered a server's load still rises: they may take this share of the schedule, and are not judged.
RISE_RATIO = 0.25
SURE_ERRORS = 2.0


def schedule_ns(plan: timing.TimingPlan) -> NDArray[np.int64]:
    """Return when each query arrives, after the beginning, int64 [n]: as many as `queries`, or as the rate brings in `seconds`.

    Prompts of a file are asked in whole passes.
    """
    rate_per_s = plan.rate_per_s or 1.0
    count = plan.whole(max(plan.queries, math.ceil(rate_per_s * plan.seconds)))
    gaps_s = np.random.default_rng(plan.seed).exponential(1 / rate_per_s, count)
    return (np.cumsum(gaps_s) * 1e9).astype(np.int64)


def seconds(plan: timing.TimingPlan) -> float:
    """Return the expected duration at a rate that can be sustained."""
    return float(schedule_ns(plan)[-1]) / 1e9


def utilisation_ratio(timed: timing.TimedQueries) -> float:
    """Return the share of the timed part, from its beginning to the last answer, in which a query was being worked on."""
    return float(_work_ns(timed).sum()) / max(timed.end_ns - timed.begin_ns, 1)


def holds_rate(timed: timing.TimedQueries, rate_per_s: float) -> bool:
    """Return whether the work of the second half's queries fits into the time between arrivals, or exceeds it by chance alone.

    That time is 1 / `rate_per_s`, not the gaps that were drawn: a few arrivals close together make a queue that the rate does not. Chance
    is two standard errors.
    """
    work_s = _work_ns(timed)[timed.latency_ns.size // 2 :] / 1e9
    error_s = float(work_s.std(ddof=1)) / math.sqrt(work_s.size) if work_s.size > 1 else math.inf
    return (float(work_s.mean()) - SURE_ERRORS * error_s) * rate_per_s <= 1


def _work_ns(timed: timing.TimedQueries) -> NDArray[np.int64]:
    """Return how long each query was worked on, int64 [n]: from its arrival, or from the end of the query before, to its own end."""
    ends = timed.arrived_ns + timed.latency_ns
    before = np.concatenate(([timed.begin_ns], ends[:-1]))
    work: NDArray[np.int64] = ends - np.maximum(timed.arrived_ns, before)
    return work


def in_flight_max(timed: timing.TimedQueries) -> int:
    """Return how many queries were being answered at once at most; one that ends as another starts is over."""
    ends_ns = np.sort(timed.arrived_ns + timed.latency_ns)
    starts_ns = np.sort(timed.starts_ns)
    return int((np.arange(1, starts_ns.size + 1) - np.searchsorted(ends_ns, starts_ns, side="right")).max())


def keeps_up(timed: timing.TimedQueries) -> bool | None:
    """Return whether a server kept up with the arrivals: latency grows by little of the time that passes; None where that does not show.

    It does not where these differ so much that chance alone makes a slope, or where the schedule is as short as a few answers: then only
    a latency that grows faster than time passes is one of a backlog.
    """
    if timed.arrivals_ns is None:
        return None
    since_s = (timed.arrivals_ns - timed.begin_ns) / 1e9
    latency_s = timed.latency_ns / 1e9
    is_rising = since_s < RISE_RATIO * since_s[-1]
    slope, error = _slope(since_s[~is_rising], latency_s[~is_rising])
    unsure = SURE_ERRORS * error
    # Of the first queries the quicker ones waited for the fewest.
    if is_rising.any() and float(np.quantile(latency_s[is_rising], 0.25)) > RISE_RATIO * since_s[-1]:
        return False if slope - unsure > 1 else None
    limit = max(BACKLOG_RATIO, CHANCE_RATIO / math.sqrt(latency_s.size))
    return None if unsure > limit and slope <= limit + unsure else slope <= limit


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope of a straight line through the points, and its standard error; 0 and infinity of fewer than three."""
    away = x - x.mean() if x.size else x
    spread = float(away @ away)
    if x.size < 3 or not spread:
        return 0.0, math.inf
    slope = float(away @ y) / spread
    residuals = y - y.mean() - slope * away
    return slope, math.sqrt(float(residuals @ residuals) / (x.size - 2) / spread)

"""Scenario poisson: an open loop.

Queries arrive by a fixed schedule, whether the model is ready or not.

Gaps between arrivals are exponential with mean 1 / `rate_per_s` (numpy's PCG64, seeded). A latency
counts from the scheduled arrival to completion, so that a slow query also delays those after it (no
coordinated omission). Queueing is the time from the arrival to the bare call: waiting for earlier
queries, copying the inputs in, and waking up late. Queries wait in the order of arrival.

Queries to a server arrive by the same schedule, but do not wait for each other in the client. If
too many are unanswered, an arrival is dropped and counted, never delayed. A queue in the server is
part of the latency. The number of queries that a server can process at once is unknown, so there is
no utilisation. The rate is not sustained if latencies grow over the schedule, as they do with a
growing backlog.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.engine.scenarios import timing

# At a rate 2% above the capacity, latency grows by 2% of the time that passes. With few queries,
# chance has slopes of up to 1 / sqrt(n). By simulation of 1 and 4 servers: at 80% utilisation 4% of
# runs of 64 queries exceed 1 / sqrt(64); at 90% none of 6,000 exceeds 2%, at 105% all do.
BACKLOG_RATIO = 0.02
CHANCE_RATIO = 1.0
# In the first share of the schedule the load of a server rises, so its queries are not judged.
RISE_RATIO = 0.25
SURE_ERRORS = 2.0


def schedule_ns(plan: timing.TimingPlan) -> NDArray[np.int64]:
    """Return the arrivals from the beginning, int64 [n], in whole passes.

    There are at least `queries`, and as many as arrive in `seconds`.
    """
    rate_per_s = plan.rate_per_s or 1.0
    count = plan.whole(max(plan.queries, math.ceil(rate_per_s * plan.seconds)))
    gaps_s = np.random.default_rng(plan.seed).exponential(1 / rate_per_s, count)
    return (np.cumsum(gaps_s) * 1e9).astype(np.int64)


def seconds(plan: timing.TimingPlan) -> float:
    """Return the expected duration if the rate is sustained."""
    return float(schedule_ns(plan)[-1]) / 1e9


def utilisation_ratio(timed: timing.TimedQueries) -> float:
    """Return the share of the timed part in which a query was being processed.

    The timed part is taken up to the last answer.
    """
    return float(_work_ns(timed).sum()) / max(timed.end_ns - timed.begin_ns, 1)


def holds_rate(timed: timing.TimedQueries, rate_per_s: float) -> bool:
    """Return whether the mean work of the second half's queries fits between arrivals.

    It fits if it is at most the mean time between arrivals, within two standard errors.

    That time is 1 / `rate_per_s`, not the mean of the drawn gaps: a few arrivals close together
    cause a queue that the rate does not.
    """
    work_s = _work_ns(timed)[timed.latency_ns.size // 2 :] / 1e9
    error_s = float(work_s.std(ddof=1)) / math.sqrt(work_s.size) if work_s.size > 1 else math.inf
    return (float(work_s.mean()) - SURE_ERRORS * error_s) * rate_per_s <= 1


def _work_ns(timed: timing.TimedQueries) -> NDArray[np.int64]:
    """Return the work on each query, int64 [n].

    It is from its arrival, or from the end of the query before, to its end.
    """
    ends = timed.arrived_ns + timed.latency_ns
    before = np.concatenate(([timed.begin_ns], ends[:-1]))
    work: NDArray[np.int64] = ends - np.maximum(timed.arrived_ns, before)
    return work


def in_flight_max(timed: timing.TimedQueries) -> int:
    """Return the largest number of queries in flight.

    A query that ends when another starts does not count.
    """
    ends_ns = np.sort(timed.arrived_ns + timed.latency_ns)
    starts_ns = np.sort(timed.starts_ns)
    return int(
        (np.arange(1, starts_ns.size + 1) - np.searchsorted(ends_ns, starts_ns, side="right")).max()
    )


def keeps_up(timed: timing.TimedQueries) -> bool | None:
    """Return whether a server kept up with the arrivals.

    It did if the slope of latency over time is small. None if that cannot be decided.

    It cannot if the scatter alone may cause the slope, or if the schedule is as short as a few
    answers. Then only a latency that grows faster than time shows a backlog.
    """
    if timed.arrivals_ns is None:
        return None
    since_s = (timed.arrivals_ns - timed.begin_ns) / 1e9
    latency_s = timed.latency_ns / 1e9
    is_rising = since_s < RISE_RATIO * since_s[-1]
    slope, error = _slope(since_s[~is_rising], latency_s[~is_rising])
    unsure = SURE_ERRORS * error
    # The quickest of the first queries waited for the fewest others.
    if (
        is_rising.any()
        and float(np.quantile(latency_s[is_rising], 0.25)) > RISE_RATIO * since_s[-1]
    ):
        return False if slope - unsure > 1 else None
    limit = max(BACKLOG_RATIO, CHANCE_RATIO / math.sqrt(latency_s.size))
    return None if unsure > limit and slope <= limit + unsure else slope <= limit


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope of a straight line through the points, and its standard error.

    0 and infinity for fewer than three points.
    """
    away = x - x.mean() if x.size else x
    spread = float(away @ away)
    if x.size < 3 or not spread:
        return 0.0, math.inf
    slope = float(away @ y) / spread
    residuals = y - y.mean() - slope * away
    return slope, math.sqrt(float(residuals @ residuals) / (x.size - 2) / spread)

"""Closed loops: how long one takes, and which of several users' queries count.

single_stream, offline: the next query begins when the last is done. Source: MLPerf Inference, SingleStream and Offline. Of offline
throughput counts: samples over the whole window, since copying a batch in is part of the work there. Pauses between queries, where the
plan has them, are in no latency, and throughput leaves them out.

concurrent: several users of a server, each of whom sends the next query when the last answer is complete. All begin at once. That burst,
in which prompts wait for each other as they never do later, is the ramp-up: the first query of each of several users is in no statistic
but the energy. Each then takes the next query until both the number of answers and the time are reached; then the first of them has
nothing left, while the others still wait for their last answers. Rates are over the time between ramp-up and tail: tokens count by their
moments, and a query that is cut counts by the share of its time in between.
"""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan

# Of fewer queries a user the tail would be a large part.
FEWEST_A_USER = 8


def seconds(plan: TimingPlan) -> float:
    """Return the expected duration of queries one after the other."""
    query_s = plan.expected_ns / 1e9
    return max(plan.seconds, plan.whole(plan.queries, query_s) * query_s)


def queries_in_all(queries: int, users: int) -> int:
    """Return how many queries of users are timed at least where a case asks for `queries`."""
    return max(queries, FEWEST_A_USER * users)


def users_seconds(plan: TimingPlan) -> float:
    """Return the expected duration with several users; `expected_ns` is that of a query beside the others."""
    users, query_s = plan.users or 1, plan.expected_ns / 1e9
    queries = plan.whole(queries_in_all(plan.queries, users), query_s / users)
    return max(plan.seconds, -(-queries // users) * query_s) + (query_s if users > 1 else 0.0)


def shares_within(timed: TimedQueries) -> NDArray[np.float64]:
    """Return which share of each query's time lies between ramp-up and tail, 0..1 [n]."""
    ends_ns = np.minimum(timed.starts_ns + timed.latency_ns, timed.busy_end_ns)
    within_ns = ends_ns - np.maximum(timed.starts_ns, timed.busy_begin_ns)
    shares: NDArray[np.float64] = np.clip(within_ns / np.maximum(timed.latency_ns, 1), 0.0, 1.0)
    return shares

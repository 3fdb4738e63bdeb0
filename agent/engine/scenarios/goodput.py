"""Goodput: the requests a second that met all of their limits, as aiperf counts them. Source: DistServe (Zhong and others, OSDI 2024)."""

from collections.abc import Collection, Mapping

import numpy as np

from edgemeter.agent.contract.record_generation import Generation, Goodput
from edgemeter.agent.engine.scenarios.concurrent import shares_before_tail
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.timing import TimedQueries


def without_metric(generation: Generation) -> list[str]:
    """Return the metrics that none of the requests has."""
    return [name for name in ("ttft", "tpot") if getattr(generation, name) is None]


def goodput_of(
    moments: TokenMoments, timed: TimedQueries, limits_ms: Mapping[str, float], unanswered: int, absent: Collection[str] = ()
) -> Goodput | None:
    """Return the goodput of answered requests and so many that were not (failed, or left out), which are never good; None without limits.

    A request without a metric is not good either: TPOT of one token, and what is `absent` of all. Of several users a request that the tail
    cuts counts by its share before the tail, as in the throughput.
    """
    if not limits_ms:
        return None
    later_tokens = moments.later_tokens()
    tpot_ns = np.where(later_tokens > 0, moments.decoding_ns() / np.maximum(later_tokens, 1), np.inf)
    metrics_ns = {"ttft": moments.first_ns, "tpot": tpot_ns, "latency": moments.latency_ns}
    meets = {name: (metrics_ns[name] <= limit * 1e6) & (name not in absent) for name, limit in limits_ms.items()}
    good = np.logical_and.reduce([*meets.values()])
    shares = shares_before_tail(timed) if timed.users is not None else np.ones(good.size)
    return Goodput(
        limits_ms=dict(limits_ms),
        good=int(good.sum()),
        good_ratio=int(good.sum()) / (good.size + unanswered),
        requests_per_s=float(shares[good].sum()) * 1e9 / max(timed.busy_end_ns - timed.begin_ns, 1),
        missed={name: int((~met).sum()) for name, met in meets.items()},
    )

"""Goodput: the requests a second that met all of their limits, as aiperf counts them. Source: DistServe (Zhong and others, OSDI 2024)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Goodput
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.engine.scenarios.concurrent import shares_within
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.timing import TimedQueries


def goodput_of(
    generation: Generation, moments: TokenMoments, timed: TimedQueries, limits_ms: Mapping[str, float], requests_per_s: float
) -> Goodput | None:
    """Return the goodput of generated text; see `goodput_within`. A request of one token has no TPOT."""
    later_tokens = moments.later_tokens()
    tpot_ns = np.where(later_tokens > 0, moments.decoding_ns() / np.maximum(later_tokens, 1), np.inf)
    metrics_ns = {"ttft": moments.first_ns, "tpot": tpot_ns, "latency": moments.latency_ns}
    absent = [name for name in ("ttft", "tpot") if getattr(generation, name) is None]
    present = {name: metric_ns for name, metric_ns in metrics_ns.items() if name not in absent}
    return goodput_within(limits_ms, present, timed, generation.failed_queries, requests_per_s)


def goodput_within(
    limits_ms: Mapping[str, float], metrics_ns: Mapping[str, NDArray[Any]], timed: TimedQueries, failed: int, requests_per_s: float
) -> Goodput | None:
    """Return the goodput of a load of so many requests a second, of which it is the good part; None without limits.

    A request without an answer (`failed`, or left out) is never good, nor is one without a metric. Of several users a request that
    ramp-up or tail cuts counts by its share in between, as in the throughput.
    """
    if not limits_ms:
        return None
    never = np.full(timed.latency_ns.size, np.inf)
    meets = {name: metrics_ns.get(name, never) <= limit * 1e6 for name, limit in limits_ms.items()}
    good = np.logical_and.reduce([*meets.values()])
    shares = shares_within(timed) if timed.users is not None else np.ones(good.size)
    requests = good.size + failed + timed.unserved
    return Goodput(
        limits_ms=dict(limits_ms),
        good=int(good.sum()),
        good_ratio=int(good.sum()) / requests,
        requests_per_s=requests_per_s * float(shares[good].sum() / max(shares.sum(), 1e-9)),
        missed={name: int((~met).sum()) for name, met in meets.items()},
    )

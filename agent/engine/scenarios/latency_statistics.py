"""Statistics of one run's latencies, with MLPerf's early-stopping estimates.

Percentiles are refused where too few queries support them.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Latency, Stage

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
# MLPerf Inference loadgen/early_stopping.cc: confidence 0.99, tolerance 0. It assumes independent
# queries: if slow ones come in bursts, the estimate of p99 lies below the true one in up to 83% of
# runs of 10 s. So it is given only in the scenario in which MLPerf gives it.
MLPERF_SCENARIO = "single_stream"
STOPPING_CONFIDENCE = 0.99


def binomial_cdf(trials: int, chance: float) -> NDArray[np.float64]:
    """Return P(X <= k) for k = 0..trials, X binomial; float64 [trials + 1]."""
    steps = np.arange(trials, dtype=np.float64)
    log_ratio = np.log((trials - steps) / (steps + 1)) + math.log(chance) - math.log1p(-chance)
    log_mass = np.concatenate(([0.0], np.cumsum(log_ratio))) + trials * math.log1p(-chance)
    cdf: NDArray[np.float64] = np.minimum(np.cumsum(np.exp(log_mass)), 1.0)
    return cdf


def over_latency_limit(queries: int, percentile: float) -> int:
    """Return how many of `queries` may exceed the percentile.

    With that number it holds with confidence 0.99; if below 1, it does not. It is the largest t
    with P(Binomial(queries, 1 - percentile) <= t) <= 1 - 0.99.

    Source: MLPerf Inference rules, early stopping.
    """
    if queries < 1:
        return -1
    cdf = binomial_cdf(queries, 1 - percentile)
    return int(np.searchsorted(cdf, 1 - STOPPING_CONFIDENCE, side="right")) - 1


@lru_cache(maxsize=32)
def queries_needed(percentile: float) -> int:
    """Return the smallest number of queries that support the percentile.

    For example p50 11, p90 64, p99 662.
    """
    low, high = 1, 2
    while over_latency_limit(high, percentile) < 1:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if over_latency_limit(middle, percentile) >= 1 else (middle, high)
    return high


def early_stopping_ms(sorted_ms: NDArray[np.float64], percentile: float) -> float | None:
    """Return MLPerf's early-stopping estimate of a percentile.

    None if there are too few queries. `sorted_ms` are ascending, [n].
    """
    limit = over_latency_limit(sorted_ms.size, percentile)
    return float(sorted_ms[sorted_ms.size - limit]) if limit >= 1 else None


def summarise_latency(latency_ns: NDArray[np.int64], scenario: str = "") -> Latency:
    """Return the latency part of a record from durations, nanoseconds [n >= 1].

    `scenario` is empty unless they are of whole queries.
    """
    sorted_ms = np.sort(latency_ns / 1e6)
    count = sorted_ms.size
    levels = {name: level for name, level in PERCENTILES.items() if count >= queries_needed(level)}
    return Latency(
        count=int(count),
        mean_ms=float(sorted_ms.mean()),
        max_ms=float(sorted_ms[-1]),
        **{f"{name}_ms": float(np.quantile(sorted_ms, level)) for name, level in levels.items()},
        early_stopping_ms={
            name: estimate_ms
            for name, level in levels.items()
            if scenario == MLPERF_SCENARIO
            and (estimate_ms := early_stopping_ms(sorted_ms, level)) is not None
        },
    )


def summarise_stage(durations_ns: NDArray[np.int64]) -> Stage | None:
    """Return the summary of a pre- or post-processing step, None without samples."""
    if durations_ns.size == 0:
        return None
    milliseconds = durations_ns / 1e6
    return Stage(
        p50_ms=float(np.quantile(milliseconds, 0.5)),
        p90_ms=float(np.quantile(milliseconds, 0.9)),
    )

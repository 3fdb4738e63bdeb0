"""Statistics of one run's latencies: percentiles with bounds, refused where too few queries support them."""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Latency, Stage

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
BOUND_CONFIDENCE = 0.95
# MLPerf Inference loadgen/early_stopping.cc: confidence 0.99, tolerance 0.
STOPPING_CONFIDENCE = 0.99


def binomial_cdf(trials: int, chance: float) -> NDArray[np.float64]:
    """Return P(X <= k) for k = 0..trials, X binomial; float64 [trials + 1]."""
    steps = np.arange(trials, dtype=np.float64)
    log_ratio = np.log((trials - steps) / (steps + 1)) + math.log(chance) - math.log1p(-chance)
    log_mass = np.concatenate(([0.0], np.cumsum(log_ratio))) + trials * math.log1p(-chance)
    cdf: NDArray[np.float64] = np.minimum(np.cumsum(np.exp(log_mass)), 1.0)
    return cdf


def over_latency_limit(queries: int, percentile: float) -> int:
    """Return how many of `queries` may exceed the percentile so that it still holds with confidence 0.99; below 1 it does not.

    The largest t with P(Binomial(queries, 1 - percentile) <= t) <= 1 - 0.99.
    Source: MLPerf Inference rules, early stopping.
    """
    if queries < 1:
        return -1
    cdf = binomial_cdf(queries, 1 - percentile)
    return int(np.searchsorted(cdf, 1 - STOPPING_CONFIDENCE, side="right")) - 1


@lru_cache(maxsize=32)
def queries_needed(percentile: float) -> int:
    """Return the smallest number of queries with which the percentile may be stated (p50 11, p90 64, p95 130, p99 662, p99.9 6,636)."""
    low, high = 1, 2
    while over_latency_limit(high, percentile) < 1:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if over_latency_limit(middle, percentile) >= 1 else (middle, high)
    return high


def early_stopping_ms(sorted_ms: NDArray[np.float64], percentile: float) -> float | None:
    """Return MLPerf's early-stopping estimate of a percentile, None when too few queries support it; `sorted_ms` ascending [n]."""
    limit = over_latency_limit(sorted_ms.size, percentile)
    return float(sorted_ms[sorted_ms.size - limit]) if limit >= 1 else None


def order_bounds(sorted_ms: NDArray[np.float64], percentile: float) -> tuple[float | None, float | None]:
    """Return the distribution-free two-sided 95% bounds of a percentile; a side that no order statistic bounds is None.

    Source: Hahn and Meeker, Statistical Intervals, section 5.2.
    """
    count = sorted_ms.size
    cdf = binomial_cdf(count, percentile)
    tail = (1 - BOUND_CONFIDENCE) / 2
    # X, the number of samples below the percentile, is binomial: P(X <= l - 1) <= tail and P(X <= u - 1) >= 1 - tail.
    lower = int(np.searchsorted(cdf, tail, side="right"))
    upper = int(np.searchsorted(cdf, 1 - tail, side="left")) + 1
    low = float(sorted_ms[lower - 1]) if lower >= 1 else None
    high = float(sorted_ms[upper - 1]) if upper <= count else None
    return low, high


def summarise_latency(latency_ns: NDArray[np.int64]) -> Latency:
    """Return the latency part of a record from the durations of the timed queries, nanoseconds [n >= 1]."""
    sorted_ms = np.sort(latency_ns) / 1e6
    fields: dict[str, float | None] = {}
    stopping: dict[str, float] = {}
    refused: dict[str, int] = {}
    for name, percentile in PERCENTILES.items():
        estimate = early_stopping_ms(sorted_ms, percentile)
        if estimate is None:
            refused[name] = queries_needed(percentile)
            continue
        stopping[name] = estimate
        fields[f"{name}_ms"] = float(np.quantile(sorted_ms, percentile))
        fields[f"{name}_low_ms"], fields[f"{name}_high_ms"] = order_bounds(sorted_ms, percentile)
    return latency_of(sorted_ms, fields, stopping, refused)


def latency_of(
    sorted_ms: NDArray[np.float64], percentiles: Mapping[str, float | None], stopping: dict[str, float], refused: dict[str, int]
) -> Latency:
    """Return the latency part of a record from ascending durations [n >= 1] and the fields of their percentiles."""
    return Latency(
        count=int(sorted_ms.size),
        mean_ms=float(sorted_ms.mean()),
        min_ms=float(sorted_ms[0]),
        max_ms=float(sorted_ms[-1]),
        sd_ms=float(sorted_ms.std(ddof=1)) if sorted_ms.size > 1 else 0.0,
        early_stopping_ms=stopping,
        refused=refused,
        **percentiles,
    )


def summarise_stage(durations_ns: NDArray[np.int64]) -> Stage | None:
    """Return the summary of a pre- or post-processing step, None without samples."""
    if durations_ns.size == 0:
        return None
    milliseconds = durations_ns / 1e6
    return Stage(
        count=int(milliseconds.size),
        mean_ms=float(milliseconds.mean()),
        p50_ms=float(np.quantile(milliseconds, 0.5)),
        p90_ms=float(np.quantile(milliseconds, 0.9)),
    )

"""Statistics of one run's latencies: percentiles with bounds, refused where too few queries support them."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Latency, Stage
from edgemeter.agent.engine.scenarios.query_dependence import are_dependent, effective_queries

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
BOUND_CONFIDENCE = 0.95
# MLPerf Inference loadgen/early_stopping.cc: confidence 0.99, tolerance 0.
STOPPING_CONFIDENCE = 0.99
# A percentile of dependent queries has bounds from so many effective ones on, even if fewer independent ones would do: what an estimate
# of their number is worth was tried on autoregressive latencies, bursts and queues (tests/benchmarks/latency_worlds.py).
FEWEST_EFFECTIVE = 25
DEPENDENT = "queries depend on each other, which its binomial count does not allow: see the percentiles' own bounds"


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


def order_bounds(sorted_ms: NDArray[np.float64], percentile: float, effective: int | None = None) -> tuple[float | None, float | None]:
    """Return the distribution-free two-sided 95% bounds of a percentile; a side that no order statistic bounds is None.

    Queries that depend are worth `effective` independent ones: the bounds are those of as many, at the same share of all queries.
    Source: Hahn and Meeker, Statistical Intervals, section 5.2; Woodruff, JASA 47 (1952) 635 for those that depend.
    """
    count = sorted_ms.size
    trials = count if effective is None else effective
    cdf = binomial_cdf(trials, percentile)
    tail = (1 - BOUND_CONFIDENCE) / 2
    # X, the number of samples below the percentile, is binomial: P(X <= l - 1) <= tail and P(X <= u - 1) >= 1 - tail.
    lower = int(np.searchsorted(cdf, tail, side="right"))
    upper = int(np.searchsorted(cdf, 1 - tail, side="left")) + 1
    low = float(sorted_ms[lower * count // trials - 1]) if lower >= 1 else None
    high = float(sorted_ms[-(-upper * count // trials) - 1]) if upper <= trials else None
    return low, high


def summarise_latency(latency_ns: NDArray[np.int64]) -> Latency:
    """Return the latency part of a record from the durations of the timed queries in their order, nanoseconds [n >= 1]."""
    latency_ms = latency_ns / 1e6
    sorted_ms = np.sort(latency_ms)
    count = sorted_ms.size
    refused = {name: queries_needed(level) for name, level in PERCENTILES.items() if count < queries_needed(level)}
    levels = {name: level for name, level in PERCENTILES.items() if name not in refused}
    thresholds_ms = {name: _threshold_ms(sorted_ms, level) for name, level in levels.items()}
    depend = bool(levels) and are_dependent(latency_ms, sorted_ms, [*thresholds_ms.values()])
    effective = {name: effective_queries(latency_ms, thresholds_ms[name]) if depend else count for name in levels}
    unbounded: dict[str, int] = {}
    fields: dict[str, float | None] = {}
    for name, level in levels.items():
        fields[f"{name}_ms"] = float(np.quantile(sorted_ms, level))
        required = max(queries_needed(level), FEWEST_EFFECTIVE)
        if depend and effective[name] < required:
            unbounded[name] = math.ceil(count * required / max(effective[name], 1))
        else:
            fields[f"{name}_low_ms"], fields[f"{name}_high_ms"] = order_bounds(sorted_ms, level, effective[name])
    stopping = {} if depend else {name: early_stopping_ms(sorted_ms, level) for name, level in levels.items()}
    details = {"early_stopping_ms": stopping, "early_stopping_reason": DEPENDENT if depend else None, "refused": refused}
    return latency_of(sorted_ms, fields | details | {"effective": effective, "unbounded": unbounded})


def _threshold_ms(sorted_ms: NDArray[np.float64], level: float) -> float:
    """Return the percentile, or the value below it where no query exceeds it: a clock with steps makes many equal."""
    threshold_ms = float(np.quantile(sorted_ms, level))
    if threshold_ms < sorted_ms[-1]:
        return threshold_ms
    below = int(np.searchsorted(sorted_ms, threshold_ms))
    return float(sorted_ms[max(below - 1, 0)])


def latency_of(sorted_ms: NDArray[np.float64], percentiles: Mapping[str, Any]) -> Latency:
    """Return the latency part of a record from ascending durations [n >= 1] and the fields that concern their percentiles."""
    return Latency(
        count=int(sorted_ms.size),
        mean_ms=float(sorted_ms.mean()),
        min_ms=float(sorted_ms[0]),
        max_ms=float(sorted_ms[-1]),
        sd_ms=float(sorted_ms.std(ddof=1)) if sorted_ms.size > 1 else 0.0,
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

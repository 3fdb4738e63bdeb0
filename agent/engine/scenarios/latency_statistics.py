"""Statistics of one run's latencies: percentiles with bounds, refused where too few queries support them.

A burst of another job, a clock that wanders or a queue concerns many queries in a row, and each of them says less than one that stands
alone: for a percentile, queries that depend on each other are worth fewer independent ones. A test comes first, so that independent queries
keep their exact bounds.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.dependence import mean_scatter
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.record_figures import Latency, Stage

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
BOUND_CONFIDENCE = 0.95
# MLPerf Inference loadgen/early_stopping.cc: confidence 0.99, tolerance 0.
STOPPING_CONFIDENCE = 0.99
# A percentile of dependent queries has bounds from so many effective ones on, even if fewer independent ones would do: what an estimate
# of their number is worth was tried on autoregressive latencies, bursts and queues (test_latency_statistics.py).
FEWEST_EFFECTIVE = 25
DEPENDENT = "queries depend on each other, which its binomial count does not allow: see the percentiles' own bounds"

# Share of runs of independent queries that all tests together take for dependent, at most.
FALSE_ALARMS = 0.03
# Classes of equally many queries, for what the bulk of them does.
CLASSES = 16
# Each stretch that is looked at is so many times as long as the one before, from two queries to a quarter of the run.
LONGER = 4
BATCHES = 32
NORMAL_95 = NormalDist().inv_cdf(0.975)


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
    effective = {name: _effective(latency_ms > thresholds_ms[name]) if depend else count for name in levels}
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


def are_dependent(latency_ms: NDArray[np.float64], sorted_ms: NDArray[np.float64], thresholds_ms: list[float]) -> bool:
    """Return whether queries of like latency stand together; `latency_ms` in the order of the run [n], thresholds one a percentile."""
    lengths = [LONGER**power // 2 for power in range(1, 20) if LONGER**power // 2 <= latency_ms.size // 4]
    highest = max([_bulk_z(latency_ms, sorted_ms, lengths), *(_tail_z(latency_ms > threshold, lengths) for threshold in thresholds_ms)])
    tests = max(1, len(lengths) * (1 + len(thresholds_ms)))
    return highest > NormalDist().inv_cdf(1 - FALSE_ALARMS / tests)


def _bulk_z(latency_ms: NDArray[np.float64], sorted_ms: NDArray[np.float64], lengths: list[int]) -> float:
    """Return by how many standard errors the sums of stretches scatter more than those of independent queries; the highest of all lengths.

    Source: variance ratio of overlapping stretches (Lo and MacKinlay, Review of Financial Studies 1 (1988) 41), its deviance as chi-square.
    """
    n = latency_ms.size
    edges = sorted_ms[np.arange(1, CLASSES) * n // CLASSES]
    classes = np.searchsorted(edges, latency_ms, side="right").astype(np.float64)
    variance = float(classes.var())
    if variance == 0:
        return 0.0
    passed = np.concatenate(([0.0], np.cumsum(classes - classes.mean())))
    highest = 0.0
    for length in lengths:
        sums = passed[length:] - passed[:-length]
        ratio = float(np.mean(sums**2)) / (length * variance * (1 - length / n))
        freedom = 3 * length * n / ((2 * length - 1) * (length - 1))
        highest = max(highest, math.sqrt(freedom * (ratio - 1 - math.log(ratio)))) if ratio > 1 else highest
    return highest


def _tail_z(exceeds: NDArray[np.bool_], lengths: list[int]) -> float:
    """Return by how many standard errors more slow queries share a stretch than chance lets them: the deviance of a Poisson count."""
    places, n = np.flatnonzero(exceeds), exceeds.size
    highest = 0.0
    for length in lengths if places.size > 1 else ():
        counts = np.bincount(places // length)
        # Half a pair less: pairs are whole.
        pairs = float(counts @ (counts - 1)) / 2 - 0.5
        expected = places.size * (places.size - 1) / 2 * (length - 1) / (n - 1)
        highest = max(highest, math.sqrt(2 * (pairs * math.log(pairs / expected) - pairs + expected))) if pairs > expected else highest
    return highest


def effective_trials(happens: NDArray[np.bool_]) -> int:
    """Return how many independent queries would know the share of those to which something happens as well; `happens` in their order [n].

    All of them, unless these stand together.
    """
    n = happens.size
    rare = happens if np.count_nonzero(happens) * 2 <= n else ~happens
    lengths = [LONGER**power // 2 for power in range(1, 20) if LONGER**power // 2 <= n // 4]
    is_chance = not lengths or _tail_z(rare, lengths) <= NormalDist().inv_cdf(1 - FALSE_ALARMS / len(lengths))
    return n if is_chance else _effective(rare)


def _effective(exceeds: NDArray[np.bool_]) -> int:
    """Return how many independent queries would bound the share of those that exceed a threshold as well; in the order of the run [n].

    The share is taken in 32 batches, whose scatter and correlation give its uncertainty; what that leaves unsure counts as fewer queries.
    Source: batch means (Schmeiser, Operations Research 30 (1982) 556); an effective number with the quantile of Student's t, as for shares
    of surveys (Korn and Graubard, Survey Methodology 24 (1998) 193).
    """
    n = exceeds.size
    batches = min(BATCHES, n // 2)
    edges = np.arange(batches + 1) * n // batches
    shares = np.add.reduceat(exceeds, edges[:-1], dtype=np.float64) / np.diff(edges)
    scatter = mean_scatter(shares)
    if scatter.u == 0:
        return n
    share = float(np.mean(exceeds))
    effective = min(float(n), share * (1 - share) / scatter.u**2)
    return int(effective * (NORMAL_95 / student_quantile(0.95, round(scatter.freedom, 1))) ** 2)

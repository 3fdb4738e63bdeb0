"""Queries that depend on each other: how many independent ones they are worth for a percentile.

A burst of another job, a clock that wanders or a queue concerns many queries in a row, and each of them says less than one that stands
alone. A test comes first, so that independent queries keep their exact bounds.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.dependence import mean_scatter
from edgemeter.agent.base.statistics import student_quantile

Milliseconds = NDArray[np.float64]

# Share of runs of independent queries that all tests together take for dependent, at most.
FALSE_ALARMS = 0.03
# Classes of equally many queries, for what the bulk of them does.
CLASSES = 16
# Each stretch that is looked at is so many times as long as the one before, from two queries to a quarter of the run.
LONGER = 4
BATCHES = 32
NORMAL_95 = NormalDist().inv_cdf(0.975)


def are_dependent(latency_ms: Milliseconds, sorted_ms: Milliseconds, thresholds_ms: list[float]) -> bool:
    """Return whether queries of like latency stand together; `latency_ms` in the order of the run [n], thresholds one a percentile."""
    lengths = [LONGER**power // 2 for power in range(1, 20) if LONGER**power // 2 <= latency_ms.size // 4]
    highest = max([_bulk_z(latency_ms, sorted_ms, lengths), *(_tail_z(latency_ms > threshold, lengths) for threshold in thresholds_ms)])
    tests = max(1, len(lengths) * (1 + len(thresholds_ms)))
    return highest > NormalDist().inv_cdf(1 - FALSE_ALARMS / tests)


def _bulk_z(latency_ms: Milliseconds, sorted_ms: Milliseconds, lengths: list[int]) -> float:
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


def effective_queries(latency_ms: Milliseconds, threshold_ms: float) -> int:
    """Return how many independent queries would bound the share above the threshold as well; `latency_ms` in the order of the run [n].

    The share is taken in 32 batches, whose scatter and correlation give its uncertainty; what that leaves unsure counts as fewer queries.
    Source: batch means (Schmeiser, Operations Research 30 (1982) 556); an effective number with the quantile of Student's t, as for shares
    of surveys (Korn and Graubard, Survey Methodology 24 (1998) 193).
    """
    n = latency_ms.size
    exceeds = latency_ms > threshold_ms
    batches = min(BATCHES, n // 2)
    edges = np.arange(batches + 1) * n // batches
    shares = np.add.reduceat(exceeds, edges[:-1], dtype=np.float64) / np.diff(edges)
    scatter = mean_scatter(shares)
    if scatter.u == 0:
        return n
    share = float(np.mean(exceeds))
    effective = min(float(n), share * (1 - share) / scatter.u**2)
    return int(effective * (NORMAL_95 / student_quantile(0.95, round(scatter.freedom, 1))) ** 2)

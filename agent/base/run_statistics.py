"""Statistics over runs: intervals that hold with as few runs as people make, and whether two sets of runs differ.

Queries of one run share its process, its memory layout and its hour, so they say nothing about the next run: every interval here is over
runs. Which method stands where was chosen by coverage in simulation (600 to 20,000 sets of runs; normal, skewed, exponential, bimodal
and contaminated run-to-run noise; a stated 95% should cover 93-97%):

- Median of one case, 6 runs and more: interpolated order statistics (Hettmansperger and Sheather 1986), 93.6-96.5% for every noise.
  It is what a smoothed bootstrap of the median tends to, computed exactly. Resampling does worse with few runs: BCa of the mean covers
  64-88% with 5 runs and 69-96% with 10, the studentised bootstrap 84-94% and 78-99%.
- Five runs: their range, which has 93.75% for every noise, widened by a twentieth of itself (on logarithms) each way: 95.0-96.3%.
- Three or four runs: Student's t on logarithms, 93-96%, but 90 and 93% with two modes. Nothing without assumptions does better:
  the range has 75 and 87.5%.
- Pairs of neighbouring runs (A/B): Student's t on the log ratios below 10 pairs, 94-98%; Wilcoxon's signed ranks from 10 on, 94-96%: they
  lose nothing to t on normal noise then, and hold their power when one run in ten is disturbed (0.73 against 0.54 under throttling).
"""

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgemeter.agent.base.dependence import corrected_correlation, longest_correlation, neighbour_correlation, scatter_inflation
from edgemeter.agent.base.statistics import student_quantile, student_two_sided_p

CONFIDENCE = 0.95
FEWEST = 3
FEWEST_WITH_ZERO = 6
MATTERS_RATIO = 0.03  # A difference smaller than this ratio is no reason to choose one or the other.
MATTERS_ACCURACY = 0.005  # The smallest difference of accuracies (0..1) that matters.
MATTERS_SHARE = 0.01  # The same of shares, such as that of missed frames.
# By so much of the range of five runs (on logarithms) it is widened each way, to go from 93.75 to 95%.
WIDENING = 0.05
PAIRS_FOR_RANKS = 10
# Pairs whose neighbours chance lets correlate as much in one of twenty comparisons are taken for dependent: intervals of independent
# pairs are 3 to 8% wider for it on average, and no wider in 95 of 100. Dependent ones are taken to correlate by 0.6 at least.
NEIGHBOURS_Z = NormalDist().inv_cdf(0.95)
LEAST_CORRELATION = 0.6
TELLING_NEIGHBOURS = 30  # Values in a row from which on neighbours that correlate so much show it in nine of ten series.
# Beyond so many orders of ranks the normal approximation is exact enough (error below 0.001), and the exact count slow.
EXACT_CELLS = 400
Values = NDArray[np.float64]
_LARGEST_LOG = math.log(sys.float_info.max)


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95% interval of the median over runs; `values` are one a run.

    None below three runs, below six if one of them is 0, which has no logarithm, and where they lie so far apart that no float holds the
    upper bound.
    """
    ordered, count = sorted(map(float, values)), len(values)
    if count < fewest_runs(ordered):
        return None
    if count < 5:
        # A case of a comparison has twenty of these: the exact arithmetic of `statistics` would take most of the time.
        logs = [math.log(value) for value in ordered]
        middle = math.fsum(logs) / count
        variance = math.fsum((value - middle) ** 2 for value in logs) / (count - 1)
        reach = student_quantile(CONFIDENCE, count - 1) * math.sqrt(variance / count)
        return Interval(math.exp(middle - reach), math.exp(middle + reach)) if middle + reach < _LARGEST_LOG else None
    if count == 5:
        wider = (ordered[-1] / ordered[0]) ** WIDENING
        return Interval(ordered[0] / wider, ordered[-1] * wider)
    outer, weight = _order_places(count)
    low = (1 - weight) * ordered[outer] + weight * ordered[outer + 1]
    return Interval(low, (1 - weight) * ordered[-1 - outer] + weight * ordered[-2 - outer])


def fewest_runs(values: Sequence[float]) -> int:
    """Return how many runs with such values an interval of their median takes."""
    return FEWEST if min(values, default=1.0) > 0 else FEWEST_WITH_ZERO


@lru_cache(maxsize=4096)
def _order_places(count: int) -> tuple[int, float]:
    """Return the outer of the two pairs of order statistics that have just more and just less than 95%, and the weight of the inner."""
    coverage, below = [], 0.0
    for rank in range(count // 2 + 1):
        # By logarithms: 2**count is no float beyond 1,023.
        below += math.exp(math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1) - count * math.log(2))
        coverage.append(1 - 2 * below)
    inner = next(rank for rank, share in enumerate(coverage) if share < CONFIDENCE)
    outer = inner - 1
    share = (coverage[outer] - CONFIDENCE) / (coverage[outer] - coverage[inner])
    return outer, (count - inner) * share / (inner + (count - 2 * inner) * share)


def interval_of_ratio(
    value: float, own_bounds: tuple[float, float], other: float, other_bounds: tuple[float, float]
) -> tuple[float, float]:
    """Return the bounds of `value` / `other`, which always hold the ratio itself; all are > 0."""
    below = math.hypot(log_reach(own_bounds[0], value), log_reach(other, other_bounds[1]))
    above = math.hypot(log_reach(value, own_bounds[1]), log_reach(other_bounds[0], other))
    return value / other * math.exp(-below), value / other * math.exp(above)


def log_reach(low: float, high: float) -> float:
    """Return how far `high` is above `low` on logarithms, 0 where it is not."""
    return max(0.0, math.log(high / low))


def centre(differences: ArrayLike) -> float:
    """Return the Hodges-Lehmann estimate: the median of all means of two, each with itself too."""
    return float(np.median(_walsh(np.asarray(differences, dtype=np.float64))))


def neighbour_widening(differences: ArrayLike) -> float:
    """Return how many times as wide an interval of differences is because neighbours depend, in the order of measuring; 1 if they do not.

    Source: a first-order process; the correlation of independent ones has mean -1 / n and this variance (Moran, Biometrika 35 (1948) 255).
    """
    values = np.asarray(differences, dtype=np.float64)
    n, correlation = values.size, neighbour_correlation(values) if values.size else 0.0
    if n < 4 or correlation <= -1 / n + NEIGHBOURS_Z * (n - 2) / (n * math.sqrt(n - 1)):
        return 1.0
    return widening_of(n, max(corrected_correlation(correlation, n), LEAST_CORRELATION))


def widening_of(n: int, correlation: float = LEAST_CORRELATION) -> float:
    """Return how many times as wide the interval of n differences is if neighbours correlate so much."""
    return math.sqrt(scatter_inflation(n, min(correlation, longest_correlation(n))))


def pair_interval(differences: ArrayLike, confidence: float = CONFIDENCE, least_widening: float = 1.0) -> Interval | None:
    """Return the interval of the centre of paired differences in the order of measuring, symmetric where nothing differs.

    None below two pairs.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.size < 2:
        return None
    interval = _of_independent(values, confidence)
    if (widening := max(neighbour_widening(values), least_widening)) == 1:
        return interval
    middle = centre(values)
    return Interval(middle - widening * (middle - interval.low), middle + widening * (interval.high - middle))


def _of_independent(values: Values, confidence: float) -> Interval:
    if values.size < PAIRS_FOR_RANKS:
        middle = float(values.mean())
        reach = student_quantile(confidence, values.size - 1) * float(values.std(ddof=1)) / math.sqrt(values.size)
        return Interval(middle - reach, middle + reach)
    means = np.sort(_walsh(values))
    outside = int(np.searchsorted(_signed_rank_cdf(values.size), (1 - confidence) / 2, side="right"))
    if outside == 0:
        return Interval(-math.inf, math.inf)
    return Interval(float(means[outside - 1]), float(means[-outside]))


def _walsh(values: Values) -> Values:
    first, second = np.triu_indices(values.size)
    means: Values = (values[first] + values[second]) / 2
    return means


@lru_cache(maxsize=64)
def _signed_rank_cdf(count: int) -> Values:
    """Return P(W <= w) of Wilcoxon's signed-rank sum where nothing differs, exact."""
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
        ways /= 2
    cdf: Values = np.cumsum(ways)
    return cdf


def welch_p(a: ArrayLike, b: ArrayLike) -> float | None:
    """Return the two-sided p of Welch's t test of equal means, None where either has fewer than two runs or no spread."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(first.size, second.size) < 2:
        return None
    parts = first.var(ddof=1) / first.size, second.var(ddof=1) / second.size
    if sum(parts) == 0:
        return None
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (first.size - 1) + parts[1] ** 2 / (second.size - 1))
    return student_two_sided_p(float((second.mean() - first.mean()) / math.sqrt(sum(parts))), float(freedom))


def mann_whitney_p(a: ArrayLike, b: ArrayLike) -> float | None:
    """Return the two-sided p of the Mann-Whitney test: exact for few runs without ties, else normal with ties and continuity corrected."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    cells = first.size * second.size
    if cells == 0:
        return None
    above, variance = rank_sum(first, second)
    if cells <= EXACT_CELLS and np.unique(np.concatenate([first, second])).size == first.size + second.size:
        cdf = _rank_sum_cdf(first.size, second.size)
        return float(min(1.0, 2 * cdf[int(cells / 2 - abs(above))]))
    return min(1.0, 2 * NormalDist().cdf(-max(0.0, abs(above) - 0.5) / math.sqrt(variance))) if variance > 0 else None


def ranks(values: Values) -> Values:
    """Return the rank of each value, from 1; equal ones share the mean of theirs."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    shared: Values = (np.cumsum(counts) - (counts - 1) / 2)[index]
    return shared


def rank_sum(first: Values, second: Values) -> tuple[float, float]:
    """Return how far the rank sum of `second` is above what chance gives, and the variance of that.

    Source: Mann and Whitney's U, normal approximation with the correction for ties (Lehmann, Nonparametrics, section 1.4).
    """
    together = np.concatenate([first, second])
    n, m = first.size, second.size
    _, tied = np.unique(together, return_counts=True)
    above = float(ranks(together)[n:].sum()) - m * (n + m + 1) / 2
    return above, n * m / 12 * (n + m + 1 - float(np.sum(tied.astype(np.float64) ** 3 - tied)) / ((n + m) * (n + m - 1)))


@lru_cache(maxsize=64)
def _rank_sum_cdf(first: int, second: int) -> Values:
    """Return P(U <= u) of the Mann-Whitney statistic where nothing differs, exact: counts are the Gaussian binomial coefficients."""
    ways = np.zeros(first * second + 1)
    ways[0] = 1.0
    for rank in range(1, first + 1):
        grown = second + rank
        ways[grown:] = ways[grown:] - ways[:-grown] if grown <= first * second else ways[grown:]
        for start in range(rank):
            ways[start::rank] = np.cumsum(ways[start::rank])
    cdf: Values = np.cumsum(ways) / math.comb(first + second, first)
    return cdf


def hedges_g(a: ArrayLike, b: ArrayLike) -> float | None:
    """Return the standardised difference of means (b - a) with Hedges' correction for few runs, None without spread."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    freedom = first.size + second.size - 2
    if min(first.size, second.size) < 2:
        return None
    pooled = ((first.size - 1) * first.var(ddof=1) + (second.size - 1) * second.var(ddof=1)) / freedom
    if pooled == 0:
        return None
    return float((second.mean() - first.mean()) / math.sqrt(pooled) * (1 - 3 / (4 * freedom - 1)))

"""The interval of a figure over runs of one case, and which cases differ by it: Student's t on the logarithms of the runs' values."""

import math
import sys
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, variance
from typing import NamedTuple, TypeVar

from edgemeter.agent.base.statistics import student_quantile, student_two_sided_p

CONFIDENCE = 0.95
FEWEST_RUNS = 3
_LARGEST_LOG = math.log(sys.float_info.max)
Pair = TypeVar("Pair", bound=Hashable)


class IntervalOverRuns(NamedTuple):
    """The geometric mean of the runs' values and its 95% interval."""

    middle: float
    low: float
    high: float

    @property
    def half_width_ratio(self) -> float:
        """How far the upper bound is above the middle, as a share of the middle: the `n` of `± n %`."""
        return self.high / self.middle - 1


def interval_over_runs(values: Sequence[float]) -> IntervalOverRuns | None:
    """Return the interval of a figure from one value a run.

    It is None below three runs, where a value is not above 0, and where the runs differ so much that no float holds the upper bound.
    """
    count = len(values)
    if count < FEWEST_RUNS or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    middle = math.fsum(logs) / count
    reach = student_quantile(CONFIDENCE, count - 1) * math.sqrt(variance(logs, middle) / count)
    if middle + reach >= _LARGEST_LOG:
        return None
    return IntervalOverRuns(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def told_apart(pairs: Mapping[Pair, tuple[Sequence[float], Sequence[float]]], margin_ratio: float) -> set[Pair]:
    """Return the pairs of cases whose figures differ, and not surely by less than the margin.

    All pairs are decided together (Holm): in 95 of 100 answers no pair that does not differ is among them. The values of a pair are those
    of its runs; pairs with fewer than three runs on a side are not told apart.
    """
    differences = {pair: difference for pair, sides in pairs.items() if (difference := _log_difference(*sides))}
    apart: set[Pair] = set()
    for rank, pair in enumerate(sorted(differences, key=lambda pair: differences[pair].p)):
        difference, alpha = differences[pair], (1 - CONFIDENCE) / (len(pairs) - rank)
        if difference.p > alpha:
            break
        reach = student_quantile(1 - alpha, difference.freedom) * difference.error
        if abs(difference.middle) + reach > math.log1p(margin_ratio):
            apart.add(pair)
    return apart


class _LogDifference(NamedTuple):
    """The difference of two means of logarithms, with its standard error by Welch."""

    middle: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        if self.error == 0:
            return float(self.middle == 0)
        return student_two_sided_p(self.middle / self.error, self.freedom)


def _log_difference(values: Sequence[float], other: Sequence[float]) -> _LogDifference | None:
    if min(len(values), len(other)) < FEWEST_RUNS or min(*values, *other) <= 0:
        return None
    sides = [[math.log(value) for value in side] for side in (values, other)]
    middle, other_middle = map(fmean, sides)
    squares = [(variance(side) / len(side), len(side) - 1) for side in sides]
    square = math.fsum(part for part, _ in squares)
    scatter = math.fsum(part * part / freedom for part, freedom in squares)
    return _LogDifference(middle - other_middle, math.sqrt(square), square * square / scatter if scatter else math.inf)

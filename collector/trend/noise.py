"""Noise: the scatter between days beyond the known uncertainty of each point, and the correlation of neighbours; robust to steps."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# The median of the absolute value of a standard normal variable.
HALF_NORMAL = 0.6744897501960817
_BISECTIONS = 14
_TINY = 1e-30
# The largest lag-1 correlation assumed: beyond it, a series has hardly any level.
LAG1_MOST = 0.7
# How many points' worth of lag-1 the fit of level, temperature and step removes.
TAKEN_BY_FIT = 2.0
# The lag-1 is assumed to be at least this many of its standard errors.
UNSEEN = 0.3
# The lag-1 is itself estimated from few points: at its largest, standard errors grow by this factor.
POORLY_KNOWN = 0.3
# The spread of runs needs this many differences within days.
ENOUGH_DIFFERENCES = 8


def row_medians(values: Array, count: NDArray[np.int64]) -> Array:
    """Return the median of the `count` least values of each row, NaN for none; the values are sorted in place."""
    values.sort(axis=1)
    row = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[1] - 1)
    return np.where(count > 0, (values[row, low] + values[row, high]) / 2, np.nan)


def median(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    """Return the median of at least one value; of few, numpy's own takes ten times as long."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def day_variances(x: Array, known_variance: Array, present: Mask, floor: Array) -> tuple[Array, Array]:
    """Return the own variance of each point, and the scatter of days beside it, one for each series.

    Where days scatter less than the points' own variances promise, those are taken down: a meter's common error moves no day against
    another. `floor` [series] is the smallest standard deviation that any point has: figures are rounded. The points of a row are at its
    end, as `present` says.
    Source: the median of absolute differences of neighbours, as a step moves only one of them.
    """
    difference = np.abs(np.diff(x, axis=1))
    both = known_variance[:, 1:] + known_variance[:, :-1]
    tiny = np.maximum(floor, 1e-9)[:, None] ** 2
    difference[~present[:, :-1]] = np.inf
    count = present[:, :-1].sum(axis=1)
    ratio_alone = row_medians(difference / np.sqrt(both + tiny), count) / HALF_NORMAL
    low, high = np.zeros(len(x)), np.nan_to_num(row_medians(difference.copy(), count)) / HALF_NORMAL + 1e-12
    for _ in range(_BISECTIONS):
        tried = (low + high) / 2
        ratio = row_medians(difference / np.sqrt(both + 2 * tried[:, None] ** 2 + _TINY), count)
        low, high = np.where(ratio > HALF_NORMAL, tried, low), np.where(ratio > HALF_NORMAL, high, tried)
    between = ((low + high) / 2)[:, None] ** 2
    taken_down = np.clip(np.nan_to_num(ratio_alone, nan=1.0), 0.0, 1.0)[:, None] ** 2
    return np.maximum(known_variance * taken_down, tiny / 2), np.maximum(between[:, 0], tiny[:, 0] / 2)


def run_variance(values: Array, day: NDArray[np.int64], known_variance: Array) -> float | None:
    """Return how far runs of one day scatter beyond what is `known_variance` of each [runs], one series; None if too few share a day."""
    same = day[1:] == day[:-1]
    if np.count_nonzero(same) < ENOUGH_DIFFERENCES:
        return None
    scale = float(np.median(np.abs(np.diff(values))[same])) / HALF_NORMAL
    return max(0.0, scale**2 / 2 - float(np.median(known_variance)))


def shared_variance(residuals: Array, variance: Array, present: Mask) -> Array:
    """Return the share of its variance that a point has in common with its neighbour [series]: the weighted mean of their products.

    `residuals` are what a level and a step leave, which takes a part of what neighbours share away: that is added again. Where nothing
    is seen, a part of what could have stayed unseen in so few points is taken.
    """
    spread = np.where(present, 1 / variance, 0.0)
    weight = spread[:, 1:] * spread[:, :-1]
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean_product = (weight * residuals[:, 1:] * residuals[:, :-1]).sum(axis=1) / total
    mean_square = (weight * residuals[:, 1:] ** 2).sum(axis=1) / total
    pairs = np.maximum(total**2 / np.maximum((weight**2).sum(axis=1), 1e-300), 1.0)
    absorbed = TAKEN_BY_FIT * mean_square / np.maximum(present.sum(axis=1), 1)
    shared: Array = np.maximum(mean_product + absorbed, UNSEEN * mean_square / np.sqrt(pairs))
    return shared


def long_run(between: Array, shared: Array) -> Array:
    """Return the variance of days as it counts in a mean of many, where neighbours share `shared` of it [series].

    `between` was estimated from differences of neighbours, in which what they share cancels. Source: an autoregression of order one.
    """
    total = between + shared
    ratio = np.minimum(shared / np.maximum(total, 1e-300), LAG1_MOST)
    lasting: Array = total * (1 + ratio) / (1 - ratio) * (1 + POORLY_KNOWN * ratio) ** 2
    return lasting

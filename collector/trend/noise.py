"""Noise: how far days scatter by themselves, beyond what is known of each point. Robust: steps and outliers hardly move it.

Arrays are float64 [series, days]; `present` says which days have a point. Neighbours are points that follow each other, whatever lies
between them. Everything is computed for many series at once.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# The median of the absolute value of a standard normal variable.
HALF_NORMAL = 0.6744897501960817
_BISECTIONS = 14
# What neighbours share is believed up to here: beyond, a series has hardly any level.
LAG1_MOST = 0.7
# So many points' worth of lag-1 the fit of level, temperature and step takes away.
TAKEN_BY_FIT = 2.0
# So many standard errors of the lag-1 are taken where less is seen.
UNSEEN = 0.3
# What neighbours share is itself told by few points: where it is all, standard errors are larger by so much.
BADLY_TOLD = 0.3
# So many differences within days are a spread of runs; of fewer it is not known.
ENOUGH_DIFFERENCES = 8


def masked_median(values: Array, present: Mask) -> Array:
    """Return the median of the present values of each row, NaN where a row has none."""
    ordered = np.sort(np.where(present, values, np.inf), axis=1)
    count = present.sum(axis=1)
    row = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[1] - 1)
    return np.where(count > 0, (ordered[row, low] + ordered[row, high]) / 2, np.nan)


def packed(values: Array, present: Mask) -> Array:
    """Return each row's present values at its end, in their order; what stands before them is 0."""
    place = np.argsort(present, axis=1, kind="stable")
    return np.where(np.take_along_axis(present, place, axis=1), np.take_along_axis(values, place, axis=1), 0.0)


def day_variances(x: Array, known: Array, present: Mask, floor: Array) -> tuple[Array, Array]:
    """Return the variance of each point that is its own, and what days scatter beside it, one for each series.

    Where days scatter less than the points' own variances promise, those are taken down: a meter's common error moves no day against
    another. `floor` [series] is the smallest standard deviation that any point has: figures are rounded.
    Source: the median of absolute differences of neighbours, as a step moves only one of them.
    """
    size = present.sum(axis=1)
    values, variances = packed(x, present), packed(known, present)
    follows = np.arange(x.shape[1] - 1)[None, :] >= (x.shape[1] - size)[:, None]
    difference = np.abs(np.diff(values, axis=1))
    both = variances[:, 1:] + variances[:, :-1]
    tiny = np.maximum(floor, 1e-9)[:, None] ** 2
    ratio_alone = masked_median(difference / np.sqrt(both + tiny), follows) / HALF_NORMAL
    low = np.zeros(len(x))
    high = np.nan_to_num(masked_median(difference, follows)) / HALF_NORMAL + 1e-12
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        ratio = masked_median(difference / np.sqrt(both + 2 * middle[:, None] ** 2 + 1e-30), follows)
        too_small = ratio > HALF_NORMAL
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    between = ((low + high) / 2)[:, None] ** 2
    taken_down = np.clip(np.nan_to_num(ratio_alone, nan=1.0), 0.0, 1.0)[:, None] ** 2
    return np.maximum(known * taken_down, tiny / 2), np.maximum(between[:, 0], tiny[:, 0] / 2)


def run_variance(values: Array, day: NDArray[np.int64], known: Array) -> float | None:
    """Return how far runs of one day scatter beyond what is `known` of each [runs], one series; None where too few share a day."""
    same = day[1:] == day[:-1]
    if np.count_nonzero(same) < ENOUGH_DIFFERENCES:
        return None
    scale = float(np.median(np.abs(np.diff(values))[same])) / HALF_NORMAL
    return max(0.0, scale**2 / 2 - float(np.median(known)))


def shared_variance(residuals: Array, variance: Array, present: Mask) -> Array:
    """Return how much of its variance a point shares with its neighbour [series]: the weighted mean of their products.

    `residuals` are what a level and a step leave, which takes a part of what neighbours share away: that is added again. Where nothing
    is seen, a part of what could have stayed unseen in so few points is taken.
    """
    values, spread = packed(residuals, present), packed(1 / variance, present)
    weight = spread[:, 1:] * spread[:, :-1]
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean_product = (weight * values[:, 1:] * values[:, :-1]).sum(axis=1) / total
    mean_square = (weight * values[:, 1:] ** 2).sum(axis=1) / total
    pairs = np.maximum(total**2 / np.maximum((weight**2).sum(axis=1), 1e-300), 1.0)
    taken = TAKEN_BY_FIT * mean_square / np.maximum(present.sum(axis=1), 1)
    shared: Array = np.maximum(mean_product + taken, UNSEEN * mean_square / np.sqrt(pairs))
    return shared


def long_run(between: Array, shared: Array) -> Array:
    """Return the variance of days as it counts in a mean of many, where neighbours share `shared` of it [series].

    `between` was told by differences of neighbours, in which what they share does not show. Source: an autoregression of order one.
    """
    whole = between + shared
    ratio = np.minimum(shared / np.maximum(whole, 1e-300), LAG1_MOST)
    lasting: Array = whole * (1 + ratio) / (1 - ratio) * (1 + BADLY_TOLD * ratio) ** 2
    return lasting

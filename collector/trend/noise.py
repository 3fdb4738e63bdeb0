"""Noise is the scatter between days and the correlation of neighbours; robust to steps.

The scatter is that beyond the known uncertainty of each point.
"""

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.thresholds import (
    ENOUGH_DIFFERENCES,
    LAG1_MOST,
    POORLY_KNOWN,
    TAKEN_BY_FIT,
    UNSEEN,
)

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# The median of the absolute value of a standard normal variable.
HALF_NORMAL = 0.6744897501960817
_BISECTIONS = 14
_TINY, _ROUNDING = 1e-30, 1e-9


def row_medians(values: Array, count: NDArray[np.int64]) -> Array:
    """Return the median of the `count` least values of each row, NaN for none.

    The values are sorted in place.
    """
    values.sort(axis=1)
    medians: Array = values[np.arange(len(values)), _middle(values, count)].sum(axis=0) / 2
    return np.where(count > 0, medians, np.nan)


def _middle(values: Array, count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indexes of the two middle values among the `count` least ones of each row.

    The values are sorted; the result is [2, rows].
    """
    return np.stack([np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[1] - 1)])


def median(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    """Return the median of at least one value; numpy's own takes ten times as long for few."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def day_variances(
    x: Array, known_variance: Array, present: Mask, floor: Array
) -> tuple[Array, Array]:
    """Return each point's own variance, and the additional scatter of days, one for each series.

    If days scatter less than the points' own variances, those are reduced: a meter's common error
    does not move days relative to each other. `floor` [series] is the smallest standard deviation
    of a point: figures are rounded. The points of a row are at its end, as given by `present`.
    Source: the median of absolute differences of neighbours, as a step moves only one of them.
    """
    difference, both = np.abs(x[:, 1:] - x[:, :-1]), known_variance[:, 1:] + known_variance[:, :-1]
    tiny, is_there = np.maximum(floor, 1e-9) ** 2, present[:, :-1]
    difference[~is_there] = np.inf
    count = is_there.sum(axis=1)
    places = _middle(difference, count)
    middle = np.where(
        count > 0, np.sort(difference, axis=1)[np.arange(len(x)), places].sum(axis=0) / 2, np.nan
    )

    def is_beyond(rows: NDArray[np.intp], added: Array) -> Mask:
        """Return in which series the differences exceed those of a normal variable.

        Their median in standard deviations is compared.
        """
        ratio = difference[rows] / np.sqrt(both[rows] + added[rows, None])
        within = (ratio <= HALF_NORMAL).sum(axis=1)
        beyond: Mask = within <= places[0, rows]
        halves = np.flatnonzero((within > places[0, rows]) & (within <= places[1, rows]))
        beyond[halves] = row_medians(ratio[halves], count[rows[halves]]) > HALF_NORMAL
        return beyond

    # The median is certainly beyond or within, if all days had the largest of the variances, or the
    # least.
    square = (middle / HALF_NORMAL) ** 2
    largest, least = (
        both.max(axis=1, where=is_there, initial=0.0),
        both.min(axis=1, where=is_there, initial=np.inf),
    )
    beyond_below = np.sqrt(np.maximum(square * (1 - _ROUNDING) - largest - _TINY, 0.0) / 2) * (
        1 - _ROUNDING
    )
    within_above = np.sqrt(np.maximum(square * (1 + _ROUNDING) - least, 0.0) / 2) * (1 + _ROUNDING)
    low, high = np.zeros(len(x)), np.nan_to_num(middle) / HALF_NORMAL + 1e-12
    for _ in range(_BISECTIONS):
        tried = (low + high) / 2
        is_more = tried < beyond_below
        rows = np.flatnonzero(~is_more & (tried <= within_above))
        if len(rows):
            is_more[rows] = is_beyond(rows, 2 * tried**2 + _TINY)
        low, high = np.where(is_more, tried, low), np.where(is_more, high, tried)
    between = ((low + high) / 2) ** 2
    ratio_alone = np.full(len(x), np.inf)
    rows = np.flatnonzero(square <= (largest + tiny) * (1 + _ROUNDING))
    ratio_alone[rows] = row_medians(
        difference[rows] / np.sqrt(both[rows] + tiny[rows, None]), count[rows]
    )
    taken_down = np.minimum(ratio_alone / HALF_NORMAL, 1.0)[:, None] ** 2
    return np.maximum(known_variance * taken_down, tiny[:, None] / 2), np.maximum(between, tiny / 2)


def run_variance(values: Array, day: NDArray[np.int64], known_variance: Array) -> float | None:
    """Return the scatter of one day's runs beyond the `known_variance` of each [runs].

    The runs are of one series; it is None if too few share a day.
    """
    same = day[1:] == day[:-1]
    if np.count_nonzero(same) < ENOUGH_DIFFERENCES:
        return None
    scale = float(np.median(np.abs(np.diff(values))[same])) / HALF_NORMAL
    return max(0.0, scale**2 / 2 - float(np.median(known_variance)))


def shared_variance(residuals: Array, variance: Array, present: Mask) -> Array:
    """Return the share of its variance that a point shares with its neighbour [series].

    It is the weighted mean of their products.

    `residuals` are those after fitting a level and a step, which removes a part of the shared
    variance: it is added again. If none is seen, a part of what could be undetected in so few
    points is assumed.
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
    """Return the variance of days as it counts in a mean of many.

    Neighbours share `shared` of it [series]. `between` was estimated from differences of
    neighbours, in which the shared part cancels. Source: an autoregression of order one.
    """
    total = between + shared
    ratio = np.minimum(shared / np.maximum(total, 1e-300), LAG1_MOST)
    lasting: Array = total * (1 + ratio) / (1 - ratio) * (1 + POORLY_KNOWN * ratio) ** 2
    return lasting

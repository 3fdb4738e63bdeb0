"""The screen proves which scans of history cannot find a step.

It does so for many series at once, so that only the others are run.

The sums over a window of days bound how much a step at each index explains, by a regression with
equal weights. With a lower bound of the variance of a day this bounds the score. There is a margin
for the scan's other parts: outliers moved near, and unequal weights.
"""

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.noise import HALF_NORMAL, Array, Mask
from edgemeter.collector.trend.thresholds import (
    AFTER,
    BEFORE,
    CLIP,
    CONFIRMED_LESS,
    EVEN_RATIO,
    HIDDEN_RATIO,
    LEAST_TEMPERATURE_SD,
    RECENT,
    STEP_SCORE,
)

_Integers = NDArray[np.intp]
# The scatter of days is found by bisection, to less than this.
_BISECTED = 3e-4
_ROUNDING = 1e-6


def is_even(x: Array, known_variance: Array, is_part: Mask) -> Mask:
    """Return for which series the screen may prove something.

    All but the result are [days, series].
    """
    is_both = is_part[1:] & is_part[:-1]
    square = ((x[1:] - x[:-1]) ** 2).sum(axis=0, where=is_both) / np.maximum(
        2 * is_both.sum(axis=0), 1
    )
    apart = known_variance.max(axis=0, where=is_part, initial=0.0) - known_variance.min(
        axis=0, where=is_part, initial=np.inf
    )
    even: Mask = apart <= EVEN_RATIO * square
    return even


class Screen:
    """Levels of series from the indexes `begin` to before `stop`.

    `x`, `known_variance` and `heat` (no NaN) are [days, series].
    """

    def __init__(
        self,
        x: Array,
        known_variance: Array,
        floor: Array,
        heat: Array | None,
        begin: _Integers,
        stop: _Integers,
    ) -> None:
        position = np.arange(len(x))[:, None]
        self._is_part: Mask = (position >= begin) & (position < stop)
        self._begin, self._least_variance = begin, np.maximum(floor, 1e-9) ** 2 * (1 - _BISECTED)
        self._known = [
            known_variance.min(axis=0, where=self._is_part, initial=np.inf),
            known_variance.max(axis=0, where=self._is_part, initial=0.0),
        ]
        self._x, self._heat = self._centred(x), None if heat is None else self._centred(heat)
        self._low = self._x.min(axis=0, where=self._is_part, initial=np.inf)
        high = self._x.max(axis=0, where=self._is_part, initial=-np.inf)
        self._apart = np.where(high > self._low, high - self._low, 1.0)
        has_two_values = ((self._x == self._low) | (self._x == high) | ~self._is_part).all(axis=0)
        self._is_binary = has_two_values & (self._known[0] == self._known[1]) & (heat is None)
        is_both = self._is_part[1:] & self._is_part[:-1]
        self._moved = np.where(is_both, np.abs(self._x[1:] - self._x[:-1]), np.inf).T.copy()
        products = [self._x, self._x**2]
        if self._heat is not None:
            products += [self._heat, self._heat**2, self._heat * self._x]
        self._sums = [
            np.concatenate([np.zeros((1, len(begin))), np.cumsum(product, axis=0)])
            for product in products
        ]

    def _centred(self, values: Array) -> Array:
        mean = values.sum(axis=0, where=self._is_part) / np.maximum(self._is_part.sum(axis=0), 1)
        centred: Array = (values - mean) * self._is_part
        return centred

    def may_step(self, end: int, window: int) -> Mask:
        """Return in which series the days of a window before the index `end` may confirm a step."""
        first = max(end - window, 0)
        begin = np.maximum(self._begin, first)
        size, row = np.maximum(end - begin, 1), np.arange(len(begin))
        variance, uneven = self._variance(first, end, begin)
        sd = np.sqrt(variance)
        x_sum, x_square, *sums_of_heat = (sums[end] - sums[begin, row] for sums in self._sums)
        x_mean = x_sum / size
        square, residual = x_square - x_sum * x_mean, self._x[first:end] - x_mean
        places = slice(max(end - RECENT, BEFORE), end - AFTER + 1)
        after = (end - np.arange(places.start, places.stop))[:, None]
        moved, information = (
            self._sums[0][end] - self._sums[0][places] - after * x_mean,
            after * (1 - after / size),
        )
        is_possible: Mask = end - after >= begin + BEFORE
        is_open = np.zeros(len(begin), np.bool_)
        if self._heat is not None:
            heat_sum, heat_square, product = sums_of_heat
            heat_mean = heat_sum / size
            heat_square = heat_square - heat_sum * heat_mean
            # Whether a temperature that hardly varies is a regressor is decided by the scan.
            is_open = heat_square <= 2 * uneven * LEAST_TEMPERATURE_SD**2 * size
            slope = (product - heat_sum * x_mean) / np.where(is_open, 1.0, heat_square)
            square, residual = (
                square - slope**2 * heat_square,
                residual - slope * (self._heat[first:end] - heat_mean),
            )
            warmed = self._sums[2][end] - self._sums[2][places] - after * heat_mean
            adjusted = information - warmed**2 / np.where(is_open, 1.0, heat_square)
            is_possible &= adjusted >= (1 - HIDDEN_RATIO) * (1 - _ROUNDING) / uneven * information
            moved, information = moved - slope * warmed, adjusted
        explained = (moved**2 * is_possible / np.where(is_possible, information, 1.0)).max(axis=0)
        square = np.maximum(square, 0.0)
        bound = np.sqrt((explained + (1 - 1 / uneven) * square) / variance)
        # The score may increase by as much as a day is moved near; the fit that decides that moves
        # with these days.
        far = (
            np.abs(residual) * self._is_part[first:end] / sd
            + (uneven - 1) * np.sqrt(square) / sd
            - CLIP
        )
        excess = np.sqrt((np.maximum(far, 0.0) ** 2).sum(axis=0))
        excess = np.sqrt((np.maximum(far + np.sqrt(uneven) * excess, 0.0) ** 2).sum(axis=0))
        # On days with two values, the rarer is moved towards the other: the step shrinks, and more
        # so with a smaller variance.
        rare = (
            np.abs((x_mean - self._low) / self._apart - np.array([[0.0], [1.0]])).min(axis=0)
            * self._apart
        )
        reach = np.minimum(np.where(rare <= CLIP * sd, rare + CLIP * sd, np.inf), 2 * CLIP * sd)
        bound = np.where(
            self._is_binary, bound * np.minimum(reach / self._apart, 1.0), bound + excess
        )
        may_step: Mask = is_open | ~(
            bound * (1 + _ROUNDING) < np.interp(size, *STEP_SCORE) - CONFIRMED_LESS
        )
        return may_step

    def _variance(self, first: int, end: int, begin: _Integers) -> tuple[Array, Array]:
        """Return the least variance of the days of a window.

        It also returns the largest ratio to it within the window.
        """
        moved = self._moved[:, first : end - 1]
        if begin.max() > first:
            moved = np.where(np.arange(first, end - 1) >= begin[:, None], moved, np.inf)
        differences = end - 1 - begin
        middle = np.sort(moved, axis=1)[
            np.arange(len(begin)), np.clip((differences - 1) // 2, 0, end - 2 - first)
        ]
        # A series that ended before has no scan here: its result is not used.
        variance = (
            (np.where((differences > 0) & np.isfinite(middle), middle, 0.0) / HALF_NORMAL) ** 2
            / 2
            * (1 - _BISECTED)
        )
        low, high = self._known
        between = np.maximum(variance - high, 0.0)
        uneven = np.where(high > low, (high + between) / np.maximum(low + between, 1e-300), 1.0)
        return np.maximum(variance / uneven, self._least_variance), uneven

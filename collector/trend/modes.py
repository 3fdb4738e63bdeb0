"""A series has two modes if it alternates between two levels.

The cause is for example memory placement or a governor. The changes are not steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from edgemeter.collector.trend.noise import HALF_NORMAL, Array, Mask, median, row_medians
from edgemeter.collector.trend.thresholds import (
    FEWEST_MODE_CHANGES,
    LEAST_MODE_RATIO,
    LONGEST_NEWEST_STAY,
    LONGEST_STAY,
    MODES_APART,
    SAME_RATIO,
)

# Splits at this many positions are tried for the first guess.
_TRIED = 33


@dataclass(frozen=True, slots=True)
class TwoModes:
    """Two levels on the metric's scale, `is_high` [days] at the higher.

    The second stay begins at `first`, the newest at `last`.
    """

    low: float
    high: float
    is_high: Mask
    changes: int
    first: int
    last: int

    def apart(self) -> Array:
        """Return the difference of each day from the mean of all that is due to its mode."""
        apart: Array = (self.high - self.low) * (
            self.is_high.astype(np.float64) - float(self.is_high.mean())
        )
        return apart


def modes_adjusted_for_heat(x: Array, heat: Array, least: float) -> list[TwoModes | None]:
    """Return the two modes of each series after removing the effect of the temperature.

    `x` and `heat` are [series, days].

    The slope of the temperature is that over all days, then that within each mode. Over all days, a
    step in a warming season looks like an effect of the temperature, whose weather then looks like
    modes: so `x` itself has to change with them.
    """
    remainder = x - _heat_effect(x, heat, np.zeros(x.shape, np.bool_))
    modes_of_series: list[TwoModes | None] = [None] * len(x)
    for row in np.flatnonzero(np.isfinite(_middles(remainder, least))):
        modes = two_modes(remainder[row], least)
        modes = modes and two_modes(x[row] - _heat_effect(x[row], heat[row], modes.is_high), least)
        if modes is not None:
            # From one day to the next at a change of mode, most of the distance to the other level.
            places = np.flatnonzero(modes.is_high[1:] != modes.is_high[:-1]) + 1
            changes = (x[row, places] - x[row, places - 1]) * np.where(
                modes.is_high[places], 1.0, -1.0
            )
            modes_of_series[row] = (
                modes if median(changes) >= (modes.high - modes.low) / 2 else None
            )
    return modes_of_series


def _heat_effect(x: Array, heat: Array, is_high: Mask) -> Array:
    """Return the part of `x` [.., days] that follows the temperature.

    A difference between the two levels does not change the slope.
    """
    within = heat
    for level in (is_high, ~is_high):
        mean = (heat * level).sum(axis=-1, keepdims=True) / np.maximum(
            level.sum(axis=-1, keepdims=True), 1
        )
        within = within - level * mean
    slope = (within * x).sum(axis=-1, keepdims=True) / np.maximum(
        (within**2).sum(axis=-1, keepdims=True), 1e-9
    )
    effect: Array = (heat - heat.mean(axis=-1, keepdims=True)) * slope
    return effect


def two_modes(x: Array, least: float) -> TwoModes | None:
    """Return the two modes of days with the figures `x`, if they are `least` apart; else None."""
    middle = float(_middles(x[None], least)[0])
    if math.isnan(middle):
        return None
    for _ in range(3):
        # A single point on the other side is not a stay, unless its neighbours differ.
        beyond = np.pad((x > middle).astype(np.int64), 1, mode="edge")
        is_high = beyond[:-2] + beyond[1:-1] + beyond[2:] >= 2
        if not LEAST_MODE_RATIO <= is_high.mean() <= 1 - LEAST_MODE_RATIO:
            return None
        low, high = median(x[~is_high]), median(x[is_high])
        middle = (low + high) / 2
    edges = [0, *(np.flatnonzero(is_high[1:] != is_high[:-1]) + 1).tolist(), len(x)]
    if high - low < least or not _alternates(is_high, edges):
        return None
    apart = x - np.where(is_high, high, low)
    stays = [
        (end - begin, float(apart[begin:end].mean()))
        for begin, end in pairwise(edges)
        if end - begin >= 2
    ]
    is_far = high - low >= MODES_APART * median(np.abs(apart)) / HALF_NORMAL
    is_same = np.std([mean for _, mean in stays]) <= SAME_RATIO * (high - low)
    if (
        not is_far
        or not is_same
        or any(size >= 5 and abs(mean) > (high - low) / 2 for size, mean in stays)
    ):
        return None
    return TwoModes(low, high, is_high, len(edges) - 2, edges[1], edges[-2])


def _alternates(is_high: Mask, edges: Sequence[int]) -> bool:
    """Return whether the stays between the `edges` alternate often enough.

    They must do so also without the newest one, which may be a new level.
    """
    lengths = np.diff(edges)
    if len(lengths) <= FEWEST_MODE_CHANGES or lengths.max() > LONGEST_STAY:
        return False
    of_each = min(np.count_nonzero(lengths[which::2] >= 3) for which in (0, 1))
    longest_newest = max(LONGEST_NEWEST_STAY * float(lengths[:-1].mean()), LONGEST_STAY / 4)
    high_ratio = float(is_high[: edges[-2]].mean())
    return bool(
        of_each >= 2
        and lengths[-1] <= longest_newest
        and LEAST_MODE_RATIO <= high_ratio <= 1 - LEAST_MODE_RATIO
    )


def _middles(x: Array, least: float) -> Array:
    """Return the value that splits the figures of each series best.

    It is NaN if the halves are too near for two modes.
    """
    ordered, size = np.sort(x, axis=1), x.shape[1]
    fewest = max(int(LEAST_MODE_RATIO * size), 2)
    if size < 4 * fewest:
        return np.full(len(x), np.nan)
    total, places = (
        np.cumsum(ordered, axis=1),
        np.linspace(fewest, size - fewest, min(_TRIED, size - 2 * fewest + 1)).astype(np.int64),
    )
    before = total[:, places - 1]
    apart = (total[:, -1:] - before) / (size - places) - before / places
    row, best = np.arange(len(x)), np.argmax(apart**2 * (places * (size - places)), axis=1)
    scatter = (
        row_medians(np.abs(x[:, 1:] - x[:, :-1]), np.full(len(x), size - 1))
        / HALF_NORMAL
        / math.sqrt(2)
    )
    is_apart = (ordered[:, -fewest] - ordered[:, fewest] >= least) & (
        apart[row, best] >= 0.8 * MODES_APART * scatter
    )
    return np.where(
        is_apart, (ordered[row, places[best] - 1] + ordered[row, places[best]]) / 2, np.nan
    )

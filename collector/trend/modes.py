"""Two modes: a series that goes back and forth between two levels, as with where memory was placed, or a governor. These are no steps."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from edgemeter.collector.trend.noise import HALF_NORMAL, Array, Mask, median

# A series changes between its modes at least so often, and stays in one for no more points; in the newest one for no more times its usual
# stay, or it is a new level.
FEWEST_CHANGES, LONGEST, LONGEST_NEWEST = 3, 120, 6
# Both have this share of the points, and are so many of their standard deviations apart.
LEAST_RATIO, APART = 0.05, 3.2
# The stays in a mode are on one level: those of two points or more scatter by no more than this share of the distance, and none of five or
# more is as near to the other mode.
SAME_RATIO = 0.25
# Splits of this many places are tried for the first guess.
_TRIED = 33


@dataclass(frozen=True, slots=True)
class TwoModes:
    """Two levels on the metric's scale; `is_high` [days] are the days at the higher one, of which `first` begins the second stay.

    `changes` is how often the series went from one to the other, `last` the first place of the newest stay.
    """

    low: float
    high: float
    is_high: Mask
    changes: int
    first: int
    last: int

    def apart(self) -> Array:
        """Return by how much each day differs from the mean of all for its mode."""
        apart: Array = (self.high - self.low) * (self.is_high.astype(np.float64) - float(self.is_high.mean()))
        return apart


def two_modes(x: Array, least: float) -> TwoModes | None:
    """Return the two modes of days whose figures are `x`, if they have such, at least `least` apart."""
    middle = _middle(x, least)
    if middle is None:
        return None
    for _ in range(3):
        is_high = _stays(x > middle)
        if not LEAST_RATIO <= is_high.mean() <= 1 - LEAST_RATIO:
            return None
        low, high = median(x[~is_high]), median(x[is_high])
        middle = (low + high) / 2
    edges = [0, *(np.flatnonzero(is_high[1:] != is_high[:-1]) + 1).tolist(), len(x)]
    lengths = np.diff(edges)
    if len(edges) - 2 < FEWEST_CHANGES or high - low < least:
        return None
    if lengths.max() > LONGEST or lengths[-1] > max(LONGEST_NEWEST * float(lengths[:-1].mean()), LONGEST / 4):
        return None
    level = np.where(is_high, high, low)
    scatter = median(np.abs(x - level)) / HALF_NORMAL
    stays = [(end - begin, float(np.mean(x[begin:end] - level[begin]))) for begin, end in pairwise(edges) if end - begin >= 2]
    is_same = np.std([mean for _, mean in stays]) <= SAME_RATIO * (high - low)
    if high - low < APART * scatter or not is_same or any(size >= 5 and abs(mean) > (high - low) / 2 for size, mean in stays):
        return None
    return TwoModes(low, high, is_high, len(edges) - 2, edges[1], edges[-2])


def _middle(x: Array, least: float) -> float | None:
    """Return the value that splits the figures best, None where the halves are too near for two modes."""
    ordered, size = np.sort(x), len(x)
    fewest = max(int(LEAST_RATIO * size), 2)
    if size < 4 * fewest or ordered[-fewest] - ordered[fewest] < least:
        return None
    total, places = np.cumsum(ordered), np.unique(np.linspace(fewest, size - fewest, _TRIED).astype(np.int64))
    apart = (total[-1] - total[places - 1]) / (size - places) - total[places - 1] / places
    best = int(np.argmax(apart**2 * places * (size - places)))
    if apart[best] < 0.8 * APART * median(np.abs(x[1:] - x[:-1])) / HALF_NORMAL / math.sqrt(2):
        return None
    return float((ordered[places[best] - 1] + ordered[places[best]]) / 2)


def _stays(is_beyond: Mask) -> Mask:
    """Return the mode of each point: a single one on the other side is none, unless its neighbours differ."""
    padded = np.concatenate([is_beyond[:1], is_beyond, is_beyond[-1:]]).astype(np.int64)
    stays: Mask = padded[:-2] + padded[1:-1] + padded[2:] >= 2
    return stays

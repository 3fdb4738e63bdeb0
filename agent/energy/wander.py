"""How well the mean of an idle stretch is known where the power wanders: neighbouring readings are not independent, nor are their blocks.

Each stretch is cut into blocks of equal length; the correlation of neighbouring blocks is that of a first-order process, and gives
by how much the variance of a mean exceeds that of as many independent blocks.
Source: autoregressive estimate of the spectrum at zero.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.dependence import corrected_correlation, variance_inflation
from edgemeter.agent.energy.curve import Curve, PowerScatter, mean_w
from edgemeter.agent.energy.window import Window

BLOCKS = 30
# A block holds at least so many values.
FEWEST_IN_BLOCK = 2
FEWEST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class StretchMeans:
    """The standard uncertainty of each stretch's mean, and how the power wanders: variance and correlation of blocks of `block_ns`."""

    each: tuple[PowerScatter, ...]
    variance_w2: float
    correlation: float
    block_ns: float

    @property
    def u_w(self) -> float:
        """Return the standard uncertainty of the mean of all stretches."""
        return math.hypot(*(scatter.u_w for scatter in self.each)) / len(self.each)

    def mean_u_w(self, length_ns: float) -> float:
        """Return how far the mean over a stretch of that length scatters."""
        n = max(1.0, length_ns / self.block_ns)
        return math.sqrt(self.variance_w2 * variance_inflation(n, self.correlation) / n)

    def wander_u_w(self, length_ns: float) -> float:
        """Return how far the mean over another stretch may lie off, beyond what independent blocks would scatter."""
        n = max(1.0, length_ns / self.block_ns)
        return math.sqrt(self.variance_w2 * max(0.0, variance_inflation(n, self.correlation) - 1) / n)


def stretch_means(curve: Curve, stretches: Sequence[Window], renewed_ns: float | None = None) -> StretchMeans:
    """Return how well the mean power of each of these stretches is known; `renewed_ns` is how often the sensor renews its value."""
    shortest_ns = min(window.length_ns for window in stretches)
    values = min(curve.values(window) for window in stretches)
    most_blocks = min(BLOCKS, values // FEWEST_IN_BLOCK) if renewed_ns is None else round(shortest_ns / renewed_ns)
    n = max(FEWEST_BLOCKS, most_blocks)
    block_ns = shortest_ns / n
    blocks = [block_means(curve, window, max(n, round(window.length_ns / block_ns))) for window in stretches]
    centred = [means - means.mean() for means in blocks]
    squares = math.fsum(float(np.sum(means**2)) for means in centred)
    freedom = sum(means.size - 1 for means in blocks)
    products = math.fsum(float(np.sum(means[1:] * means[:-1])) for means in centred)
    correlation = corrected_correlation(products / squares if squares else 0.0, n)
    # The mean of a stretch has gone along with the wandering: what is left of the scatter is less than there was.
    lost = [(variance_inflation(means.size, correlation) - 1) / (means.size - 1) for means in blocks]
    variance = squares / freedom / max(1e-3, 1 - sum(lost) / len(lost))
    each = []
    for means in blocks:
        effective = means.size / variance_inflation(means.size, correlation)
        each.append(PowerScatter(math.sqrt(variance / effective), max(1.0, effective - 1)))
    return StretchMeans(tuple(each), variance, correlation, block_ns)


def held_values(powers_w: NDArray[np.float64], times_ns: NDArray[np.int64]) -> PowerScatter:
    """Return how well the mean is known of values that a sensor holds for intervals of different lengths, and repeats meanwhile.

    Source: the variance of a weighted mean, each value weighing as long as it was held; effective number of values after Kish.
    """
    places = np.concatenate(([0], np.flatnonzero(np.diff(powers_w)) + 1))
    if places.size < FEWEST_BLOCKS:
        return PowerScatter(0.0, None)
    bounds = np.concatenate((times_ns[:1], (times_ns[places[1:] - 1] + times_ns[places[1:]]) // 2, times_ns[-1:]))
    weights = np.diff(bounds) / float(bounds[-1] - bounds[0])
    values = powers_w[places]
    squares = float(np.sum(weights**2))
    variance = float(np.sum(weights * (values - np.sum(weights * values)) ** 2)) / (1 - squares)
    return PowerScatter(math.sqrt(variance * squares), max(1.0, 1 / squares - 1))


def block_means(curve: Curve, window: Window, n: int) -> NDArray[np.float64]:
    """Return the mean powers of n blocks of a window, W, float64 [n]."""
    edges = [window.start_ns + window.length_ns * number // n for number in range(n + 1)]
    return np.array([mean_w(curve, Window(begin, end)) for begin, end in itertools.pairwise(edges)])

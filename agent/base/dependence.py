"""The uncertainty of a mean of values in a row, each of which takes after the one before: a first-order process."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A correlation that lasts for more than this share of the values: they do not tell a process that wanders from one that drifts away.
LONGEST_RATIO = 2 / 3


@dataclass(frozen=True, slots=True)
class MeanScatter:
    """The standard uncertainty of a mean, in the unit of the values, and the degrees of freedom that it rests on."""

    u: float
    freedom: float


def variance_inflation(n: float, correlation: float) -> float:
    """Return the variance of a mean of n values whose neighbours have this correlation over that of n independent ones."""
    r = correlation
    inflation: float = (1 + r) / (1 - r) - 2 * r * (1 - r**n) / (n * (1 - r) ** 2)
    return inflation


def corrected_correlation(raw: float, n: float) -> float:
    """Return the correlation of neighbours, 0 or more, from that of n values about their own mean, which makes it too low.

    Source: Marriott and Pope, Biometrika 41 (1954) 390.
    """
    return min(1 - 1 / (LONGEST_RATIO * n), max(0.0, raw + (1 + 4 * raw) / n))


def mean_scatter(values: NDArray[np.float64]) -> MeanScatter:
    """Return how well the mean of these values in a row is known, [n >= 3].

    A few values that make most of the scatter, and a correlation that is known from few of them, leave fewer degrees of freedom.
    Source: Welch-Satterthwaite; the variance of a variance is that of the fourth moment.
    """
    n = values.size
    centred = values - values.mean()
    squares = float(centred @ centred)
    if squares == 0:
        return MeanScatter(0.0, n - 1)
    correlation = corrected_correlation(float(centred[1:] @ centred[:-1]) / squares, n)
    inflation = variance_inflation(n, correlation)
    # The mean has gone along with the process: what is left of the scatter is less than there was.
    variance = squares / (n - 1) / max(1e-3, 1 - (inflation - 1) / (n - 1))
    kurtosis = float(np.mean(centred**4)) / (squares / n) ** 2
    relative = (kurtosis - 1 + (4 / (1 - correlation**2) if correlation else 0.0)) / n
    return MeanScatter(math.sqrt(variance / n * inflation), max(1.0, 2 / relative))

"""Bands: a best value with the bounds between which the truth is taken to lie, and how they pass through a formula."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Band:
    """A value from `low` to `high`; `value` is the best estimate, of something that only has ends their geometric mean."""

    low: float
    value: float
    high: float

    def scaled(self, factor: float) -> "Band":
        """Return the band times a factor (>= 0)."""
        return Band(self.low * factor, self.value * factor, self.high * factor)


def exactly(value: float) -> Band:
    """Return the band of what is known."""
    return Band(value, value, value)


def between(low: float, high: float) -> Band:
    """Return the band of which only the ends are known (>= 0)."""
    return Band(low, math.sqrt(low * high), high)


def through(formula: Callable[..., float], *inputs: Band) -> Band:
    """Return the band of `formula` over `inputs`: it must rise or fall in each of them alone, so that its extremes lie at corners.

    The corners are wider than independent errors would be together: what is said over all of a band holds for every mixture within it.
    """
    corners = [formula(*corner) for corner in itertools.product(*((one.low, one.high) for one in inputs))]
    return Band(min(corners), formula(*(one.value for one in inputs)), max(corners))


def spanning(bands: Sequence[Band]) -> Band:
    """Return the band from the lowest to the highest of several; its value is between its ends."""
    return between(min(one.low for one in bands), max(one.high for one in bands))

"""The bounds of a difference of two accuracies over the same items: part by part where both have parts, else of independent figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.base.statistics import paired_bounds

SAME = "both are the same without any part of the images"
NOT_MOVED = "no part of the images moves the difference"


@dataclass(frozen=True, slots=True)
class BoundedFigure:
    """An accuracy with its 95% bounds, or `reason` why it has none; `without_parts` is it without one part after the other."""

    value: float
    low: float | None
    high: float | None
    without_parts: Sequence[float]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DifferenceBounds:
    """The 95% bounds of a difference, or why there are none."""

    bounds: tuple[float, float] | None
    reason: str = ""


def difference_bounds(figure: BoundedFigure, other: BoundedFigure) -> DifferenceBounds:
    """Return the bounds of `figure` - `other`.

    Two figures that are equal in every part have no bounds: on these images they are the same, and how far they may lie apart on others
    does not show.
    """
    difference = figure.value - other.value
    if paired := paired_bounds(difference, figure.without_parts, other.without_parts):
        return DifferenceBounds(paired)
    has_parts = bool(figure.without_parts) and len(figure.without_parts) == len(other.without_parts)
    if has_parts and difference == 0:
        return DifferenceBounds(None, SAME)
    if figure.low is None or figure.high is None or other.low is None or other.high is None:
        missing = figure.reason or other.reason or "no bounds recorded"
        return DifferenceBounds(None, NOT_MOVED if has_parts else missing)
    below = math.hypot(max(0.0, figure.value - figure.low), max(0.0, other.high - other.value))
    above = math.hypot(max(0.0, figure.high - figure.value), max(0.0, other.value - other.low))
    return DifferenceBounds((difference - below, difference + above))

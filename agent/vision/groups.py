"""Accuracy by group: figures with bounds, and the largest gap between two groups."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from edgemeter.agent import records

# Below so many images (of a group of annotations: objects) a group gets no figure: it would be an anecdote.
SMALLEST_GROUP = 30
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Group:
    """A group with the standard error of its figure; None where there is no figure, or nobody asked for bounds."""

    part: records.PartAccuracy
    error: float | None


def group(name: str, value: float | None, error: float | None, images: int, objects: int | None) -> Group:
    """Return a group with its figure and its normal bounds."""
    low, high = (None, None) if value is None else between(value, error)
    part = records.PartAccuracy(name=name, value=value, images=images, objects=objects, low=low, high=high)
    return Group(part, None if value is None else error)


def between(value: float, error: float | None) -> tuple[float | None, float | None]:
    """Return the normal bounds (95 %) of a ratio, within 0..1; None without a standard error."""
    if error is None:
        return None, None
    reach = quantile() * error
    return max(value - reach, 0.0), min(value + reach, 1.0)


def quantile(pairs: int = 1) -> float:
    """Return how many standard errors the bounds reach to each side, where so many bounds are to hold at once (Bonferroni)."""
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / pairs)


def largest_gap(groups: Sequence[Group]) -> records.GroupGap | None:
    """Return the largest difference between two of the groups; None with fewer than two figures.

    It was picked from all pairs, so its bounds are Bonferroni's over that many: all pairs lie within theirs at once with 95 %. Groups
    are taken as independent; where they share images that makes the bounds wider than they need be.
    """
    known = [(one.part.value, one) for one in groups if one.part.value is not None]
    if len(known) < 2:
        return None
    best, worst = max(known, key=lambda one: one[0]), min(known, key=lambda one: one[0])
    value = best[0] - worst[0]
    low = high = None
    if best[1].error is not None and worst[1].error is not None:
        reach = quantile(len(list(itertools.combinations(known, 2)))) * math.hypot(best[1].error, worst[1].error)
        low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    return records.GroupGap(best=best[1].part.name, worst=worst[1].part.name, value=value, low=low, high=high)

"""Accuracy by group: figures with bounds, and the largest gap between two groups."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.record_figures import GroupGap, PartAccuracy

# Below so many images (of a group of annotations: objects) a group gets no figure: it would be an anecdote.
SMALLEST_GROUP = 30
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with the standard error of its figure; None where there is no figure, or nobody asked for bounds."""

    part: PartAccuracy
    error: float | None


def scored_group(name: str, value: float | None, error: float | None, images: int, objects: int | None, freedom: float) -> ScoredGroup:
    """Return a group with its figure and its bounds; `freedom` as for `between`."""
    low, high = (None, None) if value is None else between(value, error, freedom)
    part = PartAccuracy(name=name, value=value, images=images, objects=objects, low=low, high=high)
    return ScoredGroup(part, None if value is None else error)


def between(value: float, error: float | None, freedom: float) -> tuple[float | None, float | None]:
    """Return the bounds (95 %) of a ratio, within 0..1, by Student's t with so many degrees of freedom; None without a standard error."""
    if error is None:
        return None, None
    reach = _errors(CONFIDENCE, freedom) * error
    return max(value - reach, 0.0), min(value + reach, 1.0)


def largest_gap(groups: Sequence[ScoredGroup], freedom: float) -> GroupGap | None:
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
        pairs = len(known) * (len(known) - 1) / 2
        reach = _errors(1 - (1 - CONFIDENCE) / pairs, freedom) * math.hypot(best[1].error, worst[1].error)
        low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    return GroupGap(best=best[1].part.name, worst=worst[1].part.name, value=value, low=low, high=high)


def _errors(confidence: float, freedom: float) -> float:
    """Return how many standard errors the bounds reach to each side; without end many degrees of freedom are the normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2) if math.isinf(freedom) else student_quantile(confidence, freedom)

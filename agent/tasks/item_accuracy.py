"""The accuracy of a task that scores items one by one: a figure of any of them gives value, bounds, and what its groups reach.

One mechanism gives the figures of groups in all tasks, with bounds and the largest gap between two.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.contract.record_accuracy import Accuracy, GroupGap, PartAccuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.parts import CONFIDENCE, NOT_ASKED, Bounded, ItemFigure, errors

# Below so many items (of a group of annotations: objects) a group gets no figure: it would be an anecdote.
SMALLEST_GROUP = 30
# What the items of a kind are called.
_NOUNS = {"image": "images", "tensor": "items"}


def noun_of(data: Dataset) -> str:
    """Return what the items are called that bounds take as independent."""
    return _NOUNS[data.items[0].kind]


def item_accuracy(
    metric: str,
    figure: ItemFigure,
    members: Sequence[int],
    data: Dataset,
    *,
    parts: Parts = "all",
    better: Better = "higher",
    detail: Mapping[str, float | None] | None = None,
    warnings: Sequence[str] = (),
) -> Accuracy | None:
    """Return the accuracy of the items `members`, by their numbers; None where there is nothing to find in them."""
    value = figure.value(members) if members else None
    if value is None:
        return None
    noun = noun_of(data)
    bounds, groups = Bounded(reason=NOT_ASKED), []
    if parts == "all":
        bounds = figure.bounded(members, noun)
        group_of = {index: (data.groups or {}).get(data.items[index].name) for index in members}
        groups = scored_groups({index: name for index, name in group_of.items() if name is not None}, figure, noun=noun)
    return Accuracy(
        metric=metric,
        value=value,
        images=len(members),
        dataset_sha256=data.sha256,
        detail=dict(detail or {}),
        **bounds.in_record(),
        group_metric=metric if groups else None,
        groups=tuple(group.part for group in groups),
        group_gap=largest_gap(groups, better, figure.limits[1] - figure.limits[0]),
        warnings=(*data.warnings, *warnings),
        better=better,
    )


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with the bounds of its figure, or why they are not known."""

    part: PartAccuracy
    bounds: Bounded


def scored_groups(
    group_of: Mapping[int, str],
    figure: ItemFigure,
    objects: Callable[[Sequence[int]], int] | None = None,
    *,
    noun: str = "images",
    is_bounded: bool = True,
) -> list[ScoredGroup]:
    """Return the figure of each group by name, with bounds; none of a group that is too small. `objects` counts those in its items."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in group_of.items():
        members[name].append(index)
    scored = []
    for name, its in sorted(members.items()):
        part = PartAccuracy(name=name, value=None, images=len(its), objects=None if objects is None else objects(its))
        scored.append(scored_group(part, figure, its, noun if is_bounded else None, size=len(its)))
    return scored


def scored_group(part: PartAccuracy, figure: ItemFigure, members: Sequence[int], noun: str | None, *, size: int) -> ScoredGroup:
    """Return a group with its figure over these members, none where its `size` is too small; without `noun` it has no bounds."""
    value = figure.value(members) if size >= SMALLEST_GROUP else None
    bounds = figure.bounded(members, noun) if value is not None and noun is not None else Bounded(reason=NOT_ASKED)
    return ScoredGroup(msgspec.structs.replace(part, value=value, low=bounds.low, high=bounds.high), bounds)


def largest_gap(groups: Sequence[ScoredGroup], better: Better = "higher", reach: float = 1.0) -> GroupGap | None:
    """Return the largest difference between two of the groups, at most `reach`; None with fewer than two figures.

    It was picked from all pairs, so its bounds are Bonferroni's over that many: all pairs lie within theirs at once with 95%. Groups
    are taken as independent; where they share images that makes the bounds wider than they need be.
    """
    figures = [(gain(group.part.value, better), group) for group in groups if group.part.value is not None]
    if len(figures) < 2:
        return None
    (highest, best), (lowest, worst) = max(figures, key=lambda pair: pair[0]), min(figures, key=lambda pair: pair[0])
    value = highest - lowest
    low = high = reason = None
    if best.bounds.error is not None and worst.bounds.error is not None:
        pairs = len(figures) * (len(figures) - 1) / 2
        freedom = min(best.bounds.freedom, worst.bounds.freedom)
        spread = errors(1 - (1 - CONFIDENCE) / pairs, freedom) * math.hypot(best.bounds.error, worst.bounds.error)
        low, high = max(value - spread, 0.0), min(value + spread, reach)
    else:
        reason = "; ".join(f"{group.part.name}: {group.bounds.reason}" for group in (best, worst) if group.bounds.error is None)
    return GroupGap(best=best.part.name, worst=worst.part.name, value=value, low=low, high=high, reason=reason)

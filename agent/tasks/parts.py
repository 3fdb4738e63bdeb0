"""A figure over parts of the items: its bounds, and what those of its difference to another model are computed from."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np

from edgemeter.agent.base.metrics import Better
from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile, wilson_interval
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.tasks import Parts

# Parts of the delete-a-group jackknife: so many evaluations an error costs, and one fewer are its degrees of freedom.
PARTS = 20
CONFIDENCE = 0.95
# Logarithms beyond this are no numbers a figure can reach.
_FARTHEST = 100.0
_SEED = 0
# What the items of a kind are called.
_NOUNS = {"image": "images", "tensor": "items"}

# A figure of some items, by their numbers; None where there is nothing to find in them.
Figure = Callable[[Sequence[int]], float | None]
# The numbers of items whose content another one has too, each with the number of the first of them.
Copies = Mapping[int, int]
NO_COPIES: Copies = MappingProxyType({})


def without_parts(members: Sequence[int], figure: Figure, copies: Copies = NO_COPIES) -> tuple[float, ...]:
    """Return a figure of the items (by number) without one part of them after the other; an item and its copies are in one part.

    Two models on the same items get the same parts, so that their difference can be bounded pair by pair. Empty where the items are too
    few, or all that is to be found lies in a few.
    """
    distinct = _distinct(members, copies)
    if len(distinct) < PARTS:
        return ()
    shuffled = np.random.RandomState(_SEED).permutation(sorted(distinct))
    parts = [set(part.tolist()) for part in np.array_split(shuffled, PARTS)]
    values = [figure([number for number in members if copies.get(number, number) not in out]) for out in parts]
    figures = tuple(value for value in values if value is not None)
    return figures if len(figures) == len(parts) else ()


def _distinct(members: Iterable[int], copies: Copies) -> Counter[int]:
    """Return how often each content is among the items, by the number of the first that has it."""
    return Counter(copies.get(number, number) for number in members)


def _independent(members: Sequence[int], copies: Copies) -> float:
    """Return as how many independent items these count: copies of one are answered alike, so their shares are no more certain than its own.

    Source: Kish, Survey Sampling (1965), the effective size of a sample with weights.
    """
    return len(members) ** 2 / sum(times * times for times in _distinct(members, copies).values())


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names of classes; of several of one name the later ones are numbered: `cat (2)`."""
    name_counts: Counter[str] = Counter()
    distinct = []
    for name in names:
        name_counts[name] += 1
        distinct.append(name if name_counts[name] == 1 else f"{name} ({name_counts[name]})")
    return distinct


@dataclass(frozen=True, slots=True)
class Bounded:
    """Bounds of a figure (95%), None where they are not known; `without_parts` as of the function.

    `reason` is why they are not known.
    """

    low: float | None = None
    high: float | None = None
    without_parts: tuple[float, ...] = ()
    reason: str | None = None

    def in_record(self) -> dict[str, Any]:
        """Return the fields of an accuracy's record that hold these bounds."""
        fields = {name: getattr(self, name) for name in ("low", "high", "without_parts")}
        return fields | {"interval_reason": self.reason}


@dataclass(frozen=True, slots=True)
class Share:
    """The share of items that are right, with Wilson's bounds; the figure lies within `limits`."""

    right: Mapping[int, bool]
    limits: tuple[float, float] = (0.0, 1.0)

    def value(self, members: Sequence[int]) -> float:
        """Return the share of these items."""
        return sum(self.right[index] for index in members) / len(members)

    def bounded(self, members: Sequence[int], _noun: str = "images", copies: Copies = NO_COPIES) -> Bounded:
        """Return Wilson's bounds of the share of these items."""
        count = _independent(members, copies)
        return _by_wilson(self.value(members), count, math.inf, without_parts(members, self.value, copies))


@dataclass(frozen=True, slots=True)
class Jackknifed:
    """Any figure of items, with bounds by a delete-a-group jackknife.

    The figure lies within `limits`. It `is_mean` where it is an average over items of values from 0 to 1 (a rate: or above).
    """

    value: Figure
    limits: tuple[float, float] = (0.0, 1.0)
    is_mean: bool = False

    def bounded(self, members: Sequence[int], noun: str = "images", copies: Copies = NO_COPIES) -> Bounded:
        """Return the bounds of the figure of these items, which are called `noun`; none where they are too few, or all alike.

        Not the bootstrap: images that it draws twice match themselves, which narrows COCO's AP, and it takes five times as long.
        """
        value, values = self.value(members), without_parts(members, self.value, copies)
        parts = f"{PARTS} parts of the {noun}"
        if value is None or not values:
            few = f"fewer than {PARTS} {noun}" if len(_distinct(members, copies)) < PARTS else None
            return Bounded(reason=few or f"without one of {parts} there is nothing to find")
        error, alike = jackknife_error(values), self._where_alike(value, _independent(members, copies), values)
        if error is None:
            return alike or Bounded(without_parts=values, reason=f"no one of {parts} moves the figure")
        freedom = jackknife_freedom(values)
        low, high = between(value, error, freedom, self.limits)
        if alike and self.limits[1] == 1:
            # No figure of items is less sure than where each is all right or all wrong.
            low, high = max(low, alike.low or 0.0), min(high, 1.0 if alike.high is None else alike.high)
        return Bounded(low, high, values)

    def _where_alike(self, value: float, count: float, values: tuple[float, ...]) -> Bounded | None:
        """Return Wilson's bounds of a mean as if each item were 0 or 1; None of a figure that is none."""
        if not self.is_mean or (math.isinf(self.limits[1]) and value > 0):
            return None
        return _by_wilson(value, count, len(values) - 1, values)


def _by_wilson(share: float, count: float, freedom: float, values: tuple[float, ...]) -> Bounded:
    low, high = wilson_interval(share * count, count, errors(CONFIDENCE, freedom))
    return Bounded(low, high, values)


# A figure of any of the items, with its bounds.
ItemFigure = Share | Jackknifed


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
    bounds = figure.bounded(members, noun_of(data), data.copies) if parts == "all" else Bounded()
    return Accuracy(
        metric=metric,
        value=value,
        images=len(members),
        dataset_sha256=data.sha256,
        detail=dict(detail or {}),
        **bounds.in_record(),
        warnings=(*data.warnings, *warnings),
        better=better,
    )


def between(value: float, error: float, freedom: float, limits: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
    """Return the bounds (95%) of a figure within `limits`, by Student's t with the given degrees of freedom.

    They are computed on the scale of the log odds of the figure between its limits, without an upper one of its logarithm: near a limit a
    figure strays further from it than towards it, and its error grows with its distance. At a limit itself they are cut there.
    """
    lowest, highest = limits
    below, above = value - lowest, highest - value
    reach = errors(CONFIDENCE, freedom) * error
    if below <= 0 or above <= 0:
        return max(value - reach, lowest), min(value + reach, highest)
    if math.isinf(highest):
        factor = math.exp(min(reach / below, _FARTHEST))
        return lowest + below / factor, lowest + below * factor
    factor = math.exp(min(reach * (1 / below + 1 / above), _FARTHEST))
    low, high = (lowest + (highest - lowest) * odds / (1 + odds) for odds in (below / above / factor, below / above * factor))
    return low, high


def errors(confidence: float, freedom: float) -> float:
    """Return how many standard errors the bounds reach to each side; without end many degrees of freedom are the normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2) if math.isinf(freedom) else student_quantile(confidence, freedom)

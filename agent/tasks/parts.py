"""Bounds of a figure over items: by Wilson for shares, else by a jackknife.

The jackknife is over parts of the items.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np

from edgemeter.agent.base.metrics import Better
from edgemeter.agent.base.statistics import (
    jackknife_error,
    jackknife_freedom,
    student_quantile,
    wilson_interval,
)
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.tasks import Parts

# Parts of the delete-a-group jackknife, each an evaluation; the degrees of freedom are one fewer.
PARTS = 20
CONFIDENCE = 0.95
# The largest logarithm of a factor between a figure and its bounds.
_FARTHEST = 100.0
_SEED = 0
# The nouns for items of a kind.
_NOUNS = {"image": "images", "tensor": "items"}

# A figure of some items, by their numbers; None if they have nothing to find.
Figure = Callable[[Sequence[int]], float | None]
# The numbers of items with the same content as an earlier one, each with the number of the first.
Copies = Mapping[int, int]
NO_COPIES: Copies = MappingProxyType({})


def without_parts(
    members: Sequence[int], figure: Figure, copies: Copies = NO_COPIES
) -> tuple[float, ...]:
    """Return the figure without each part of the items in turn.

    An item and its copies are in one part. Two models on the same items get the same parts, so that
    their difference can be bounded pair by pair. Empty if there are too few items, or if the items
    without some part have nothing to find.
    """
    distinct = _distinct(members, copies)
    if len(distinct) < PARTS:
        return ()
    shuffled = np.random.RandomState(_SEED).permutation(sorted(distinct))
    parts = [set(part.tolist()) for part in np.array_split(shuffled, PARTS)]
    contents = [(number, copies.get(number, number)) for number in members]
    values = [
        figure([number for number, content in contents if content not in out]) for out in parts
    ]
    figures = tuple(value for value in values if value is not None)
    return figures if len(figures) == len(parts) else ()


def _distinct(members: Iterable[int], copies: Copies) -> Counter[int]:
    """Return the number of items of each content, by the number of the first with it."""
    return Counter(copies.get(number, number) for number in members)


def _independent(members: Sequence[int], copies: Copies) -> float:
    """Return the effective number of items: copies add no information.

    Source: Kish, Survey Sampling (1965), the effective size of a sample with weights.
    """
    return len(members) ** 2 / sum(times * times for times in _distinct(members, copies).values())


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names of classes; later ones with the same name get a number: `cat (2)`."""
    name_counts: Counter[str] = Counter()
    distinct = []
    for name in names:
        name_counts[name] += 1
        distinct.append(name if name_counts[name] == 1 else f"{name} ({name_counts[name]})")
    return distinct


@dataclass(frozen=True, slots=True)
class Bounded:
    """The 95% bounds of a figure, or the `reason` why they are unknown.

    `without_parts` is as in the function.
    """

    low: float | None = None
    high: float | None = None
    without_parts: tuple[float, ...] = ()
    reason: str | None = None

    def in_record(self) -> dict[str, Any]:
        """Return the fields of an accuracy's record that hold these bounds."""
        return {
            "low": self.low,
            "high": self.high,
            "without_parts": self.without_parts,
            "interval_reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Share:
    """The share of items that are right, with Wilson's bounds."""

    right: Mapping[int, bool]

    def value(self, members: Sequence[int]) -> float:
        """Return the share of these items."""
        return sum(self.right[index] for index in members) / len(members)

    def bounded(
        self, members: Sequence[int], _noun: str = "images", copies: Copies = NO_COPIES
    ) -> Bounded:
        """Return Wilson's bounds of the share of these items."""
        return _by_wilson(
            self.value(members),
            _independent(members, copies),
            math.inf,
            without_parts(members, self.value, copies),
        )


@dataclass(frozen=True, slots=True)
class Jackknifed:
    """Any figure of items, with bounds by a delete-a-group jackknife.

    The figure lies within `limits`. It `is_mean` if it is an average over items of values from 0 to
    1 (for a rate: or above).
    """

    value: Figure
    limits: tuple[float, float] = (0.0, 1.0)
    is_mean: bool = False

    def bounded(
        self, members: Sequence[int], noun: str = "images", copies: Copies = NO_COPIES
    ) -> Bounded:
        """Return the bounds of the figure over these items.

        There are none if there are too few items, or if all are equal. `noun` names the items in
        messages. The bootstrap is not used, because it draws images twice, which narrows COCO's AP,
        and takes five times as long.
        """
        value, values = self.value(members), without_parts(members, self.value, copies)
        parts = f"{PARTS} parts of the {noun}"
        if value is None or not values:
            few = f"fewer than {PARTS} {noun}" if len(_distinct(members, copies)) < PARTS else None
            return Bounded(reason=few or f"without one of {parts} there is nothing to find")
        error, alike = (
            jackknife_error(values),
            self._where_alike(value, _independent(members, copies), values),
        )
        if error is None:
            return alike or Bounded(
                without_parts=values, reason=f"none of {parts} changes the figure"
            )
        low, high = between(value, error, jackknife_freedom(values), self.limits)
        if alike and self.limits[1] == 1:
            # The bounds are widest if each item is all right or all wrong.
            low, high = (
                max(low, alike.low or 0.0),
                min(high, 1.0 if alike.high is None else alike.high),
            )
        return Bounded(low, high, values)

    def _where_alike(self, value: float, count: float, values: tuple[float, ...]) -> Bounded | None:
        """Return Wilson's bounds of a mean as if each item were 0 or 1.

        They are None if the figure is not a mean.
        """
        if not self.is_mean or (math.isinf(self.limits[1]) and value > 0):
            return None
        return _by_wilson(value, count, len(values) - 1, values)


def _by_wilson(share: float, count: float, freedom: float, values: tuple[float, ...]) -> Bounded:
    low, high = wilson_interval(share * count, count, errors(CONFIDENCE, freedom))
    return Bounded(low, high, values)


# A figure of any of the items, with its bounds.
ItemFigure = Share | Jackknifed


def noun_of(data: Dataset) -> str:
    """Return the noun for the items of the data."""
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
    """Return the accuracy of the items `members`, which are given by their numbers.

    It is None if they have nothing to find.
    """
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


def between(
    value: float, error: float, freedom: float, limits: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, float]:
    """Return the bounds (95%) of a figure within `limits`.

    They are by Student's t with the given degrees of freedom. They are computed on the scale of the
    log odds between the limits, or of the logarithm without an upper limit, because near a limit
    the distribution is skewed away from it. Bounds of a figure at a limit are cut there.
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
    low, high = (
        lowest + (highest - lowest) * odds / (1 + odds)
        for odds in (below / above / factor, below / above * factor)
    )
    return low, high


def errors(confidence: float, freedom: float) -> float:
    """Return the distance of the bounds in standard errors.

    Infinitely many degrees of freedom give the normal distribution.
    """
    return (
        NormalDist().inv_cdf((1 + confidence) / 2)
        if math.isinf(freedom)
        else student_quantile(confidence, freedom)
    )

"""A figure over parts of the items: its bounds, and what those of its difference to another model are computed from."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile, wilson_interval
from edgemeter.agent.contract.record_accuracy import AccuracyClusters
from edgemeter.agent.datasets.clusters import Clusters

# Parts of the delete-a-group jackknife: so many evaluations an error costs, and one fewer are its degrees of freedom.
PARTS = 20
# How much fewer clusters differ does not show.
FEWEST_CLUSTERS = 5
CONFIDENCE = 0.95
NOT_ASKED = "not asked for"
# Logarithms beyond this are no numbers a figure can reach.
_FARTHEST = 100.0
_SEED = 0

# A figure of some items, by their numbers; None where there is nothing to find in them.
Figure = Callable[[Sequence[int]], float | None]


@dataclass(frozen=True, slots=True)
class Units:
    """The units that the bounds take as independent of each other: the items (`noun`), or the clusters of them that the data names.

    `cluster_of` is the cluster of an item by its number, `by` what names it; an item without one stands for itself.
    """

    noun: str = "images"
    by: str | None = None
    cluster_of: Mapping[int, str] = field(default_factory=dict)

    def clusters(self, members: Sequence[int]) -> list[list[int]]:
        """Return the items of each cluster; of items that are independent each is one. In an order drawn with a fixed seed."""
        clusters: dict[str | int, list[int]] = {}
        for number in np.random.RandomState(_SEED).permutation(sorted(members)).tolist():
            clusters.setdefault(self.cluster_of.get(number, number), []).append(number)
        return list(clusters.values())

    def parts(self, members: Sequence[int]) -> list[list[int]]:
        """Return the parts that are left out: twenty, of whole clusters, of about the same size; each cluster where they are fewer."""
        clusters = self.clusters(members)
        if self.by is None:
            return [part.tolist() for part in np.array_split(np.concatenate(clusters), PARTS)]
        if len(clusters) < PARTS:
            return clusters
        parts: list[list[int]] = [[] for _ in range(PARTS)]
        for cluster in sorted(clusters, key=len, reverse=True):
            min(parts, key=len).extend(cluster)
        return parts

    def counted(self, members: Sequence[int]) -> AccuracyClusters | None:
        """Return how many clusters these items are and what names them; None of items that are taken as independent."""
        return None if self.by is None else AccuracyClusters(count=len(self.clusters(members)), by=self.by)

    def words(self, members: Sequence[int]) -> str:
        """Return what is taken as independent, in words."""
        counted = self.counted(members)
        return f"{self.noun} taken as independent" if counted is None else counted.words

    def effective(self, members: Sequence[int]) -> float:
        """Return as how many items these count where those of a cluster are all alike (ICC 1)."""
        return len(members) ** 2 / sum(len(cluster) ** 2 for cluster in self.clusters(members))

    def within(self, group_of: Mapping[int, str]) -> "Units":
        """Return the units within groups: the items where each group is a cluster, as the recordings of a speaker are.

        Not so of a video: what its frames have in common is not only their mean, each is like its neighbours.
        """
        is_same = self.noun != INDEPENDENT.noun and all(self.cluster_of.get(number) == name for number, name in group_of.items())
        return Units(self.noun) if is_same else self

    def too_few(self, members: Sequence[int]) -> str | None:
        """Return why these items have no bounds by parts; None where they are enough."""
        if self.by is not None and len(self.clusters(members)) < FEWEST_CLUSTERS:
            remedy = f"score {self.noun} of more of them; if they are independent all the same, --cluster-by none"
            return f"{self.words(members)}, and bounds need {FEWEST_CLUSTERS}: {remedy}"
        return f"fewer than {PARTS} {self.noun}" if len(members) < PARTS else None


INDEPENDENT = Units()


def units_of(clusters: Clusters | None, names: Mapping[int, str], noun: str = "images") -> Units:
    """Return what of these items (number and name) is independent: the clusters that the data names, else each of them."""
    if clusters is None:
        return Units(noun)
    return Units(noun, clusters.by, {number: clusters.names[name] for number, name in names.items() if name in clusters.names})


def without_parts(members: Sequence[int], figure: Figure, units: Units = INDEPENDENT) -> tuple[float, ...]:
    """Return a figure of the items (by number) without one part of them after the other.

    Two models on the same items get the same parts, so that their difference can be bounded pair by pair. Empty where the items or their
    clusters are too few, or all that is to be found lies in a few.
    """
    if units.too_few(members):
        return ()
    parts = units.parts(members)
    values = [figure([number for number in members if number not in out]) for out in map(set, parts)]
    figures = tuple(value for value in values if value is not None)
    return figures if len(figures) == len(parts) else ()


@dataclass(frozen=True, slots=True)
class Bounded:
    """Bounds of a figure (95%) and its standard error, None where they are not known; `without_parts` as of the function.

    `freedom` are the degrees of freedom of the error, `interval` is how the bounds are computed, `reason` why they are not known.
    """

    low: float | None = None
    high: float | None = None
    error: float | None = None
    without_parts: tuple[float, ...] = ()
    reason: str | None = None
    freedom: float = math.inf
    interval: str | None = None

    def in_record(self) -> dict[str, Any]:
        """Return the fields of an accuracy's record that hold these bounds."""
        fields = {name: getattr(self, name) for name in ("low", "high", "interval", "without_parts")}
        return fields | {"interval_reason": self.reason}


@dataclass(frozen=True, slots=True)
class Share:
    """The share of items that are right, with Wilson's bounds; the figure lies within `limits`."""

    right: Mapping[int, bool]
    limits: tuple[float, float] = (0.0, 1.0)

    def value(self, members: Sequence[int]) -> float:
        """Return the share of these items."""
        return sum(self.right[index] for index in members) / len(members)

    def bounded(self, members: Sequence[int], units: Units = INDEPENDENT) -> Bounded:
        """Return Wilson's bounds of the share of these items; of clusters those of a mean."""
        if units.by is not None:
            return Jackknifed(self.value, is_mean=True).bounded(members, units)
        values, how = without_parts(members, self.value, units), f"95%, Wilson; {units.words(members)}"
        return _by_wilson(self.value(members), len(members), math.inf, values, how)


@dataclass(frozen=True, slots=True)
class Jackknifed:
    """Any figure of items, with bounds by a delete-a-group jackknife.

    The figure lies within `limits`. It `is_mean` where it is an average over items of values from 0 to 1 (a rate: or above).
    """

    value: Figure
    limits: tuple[float, float] = (0.0, 1.0)
    is_mean: bool = False

    def bounded(self, members: Sequence[int], units: Units = INDEPENDENT) -> Bounded:
        """Return the bounds of the figure of these items; none where they or their clusters are too few, or all alike.

        Not the bootstrap: images that it draws twice match themselves, which narrows COCO's AP, and it takes five times as long. How often
        the bounds hold is judged by `tests/benchmarks/clusters.py`.
        """
        value, values = self.value(members), without_parts(members, self.value, units)
        parts = f"{len(values) or PARTS} parts of the {units.noun}"
        if value is None or not values:
            return Bounded(reason=units.too_few(members) or f"without one of {parts} there is nothing to find")
        error, alike = jackknife_error(values), self._where_alike(value, members, units, values)
        if error is None:
            return alike or Bounded(without_parts=values, reason=f"no one of {parts} moves the figure")
        freedom = jackknife_freedom(values)
        low, high = between(value, error, freedom, self.limits)
        if alike and self.limits[1] == 1:
            # Items of a cluster cannot be more alike than all the same.
            low, high = max(low, alike.low or 0.0), min(high, 1.0 if alike.high is None else alike.high)
        scale = "log" if math.isinf(self.limits[1]) else "logit"
        how = f"95%, Student's t on a {scale} scale, standard error by jackknife over {parts}; {units.words(members)}"
        return Bounded(low, high, error, values, freedom=freedom, interval=how)

    def _where_alike(self, value: float, members: Sequence[int], units: Units, values: tuple[float, ...]) -> Bounded | None:
        """Return Wilson's bounds of a mean as if the items of each cluster were all alike, each 0 or 1; None of a figure that is none."""
        if not self.is_mean or (math.isinf(self.limits[1]) and value > 0):
            return None
        count = units.effective(members)
        how = f"95%, Wilson, as of {count:.3g} that are all right or all wrong; {units.words(members)}"
        return _by_wilson(value, count, len(values) - 1, values, how)


def _by_wilson(share: float, count: float, freedom: float, values: tuple[float, ...], how: str) -> Bounded:
    """Return Wilson's bounds of a share; their error is never 0, as that of the share itself is where all are alike."""
    reach = errors(CONFIDENCE, freedom)
    low, high = wilson_interval(share * count, count, reach)
    return Bounded(low, high, (high - low) / 2 / reach, values, freedom=freedom, interval=how)


# A figure of any of the items, with its bounds.
ItemFigure = Share | Jackknifed


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

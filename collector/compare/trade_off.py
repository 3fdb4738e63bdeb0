"""The trade-off of cost against accuracy: what is on the Pareto front, what is dominated, and what the intervals leave open."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.metrics import Better, gain

ParetoStatus = Literal["Pareto-optimal", "possibly Pareto-optimal", "dominated"]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points (cost, gain) that no other beats (as good in both, better in one), cheapest first; equals stay."""
    order = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    front: list[int] = []
    for index in order:
        cost, gain = points[index]
        if not front or gain > points[front[-1]][1] or (cost, gain) == points[front[-1]]:
            front.append(index)
    return front


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A case by cost and gain, with the 95% bounds of both where known; where a lower metric is better the gain is minus it."""

    cost: float
    gain: float
    cost_low: float | None = None
    cost_high: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    better: Better = "higher"

    def shown(self, value: float) -> float:
        """Return a gain as the value of its metric."""
        return gain(value, self.better)

    @property
    def best(self) -> tuple[float, float]:
        """The corner of its intervals where it costs least and gains most."""
        return self.cost if self.cost_low is None else self.cost_low, self.gain if self.gain_high is None else self.gain_high

    @property
    def worst(self) -> tuple[float, float]:
        """The corner of its intervals where it costs most and gains least."""
        return self.cost if self.cost_high is None else self.cost_high, self.gain if self.gain_low is None else self.gain_low


def pareto_statuses(points: Sequence[FrontPoint]) -> list[ParetoStatus]:
    """Return what the intervals support: whether a point is dominated whatever the true figures are, optimal, or neither is settled."""
    statuses: list[ParetoStatus] = []
    for point in points:
        rivals = [other for other in points if other is not point]
        if any(_dominates(other.worst, point.best) for other in rivals):
            statuses.append("dominated")
        else:
            is_open = any(_dominates(other.best, point.worst) for other in rivals)
            statuses.append("possibly Pareto-optimal" if is_open else "Pareto-optimal")
    return statuses


def _dominates(point: tuple[float, float], other: tuple[float, float]) -> bool:
    return point[0] <= other[0] and point[1] >= other[1] and point != other


def front_band(points: Sequence[FrontPoint]) -> list[tuple[float, float, float]]:
    """Return between which gains the front lies from each cost on, as (cost, low, high); empty where no point has an interval."""
    if all(point.best == point.worst for point in points):
        return []
    floor = min(point.worst[1] for point in points)
    costs = sorted({corner[0] for point in points for corner in (point.best, point.worst)})
    return [
        (
            cost,
            max((point.worst[1] for point in points if point.worst[0] <= cost), default=floor),
            max(point.best[1] for point in points if point.best[0] <= cost),
        )
        for cost in costs
    ]

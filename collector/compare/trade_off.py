"""The trade-off of cost against accuracy: what is on the Pareto front, what is beaten and by which case, and what has no place in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.metrics import Better, gain
from edgemeter.collector.compare.comparison import most_precise, not_ranked
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.energy_class import EnergyClass


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points (cost, gain) that no other point beats, cheapest first.

    A point beats another when it is at least as good in both and better in one; of equal points all stay.
    """
    order = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    kept: list[int] = []
    for index in order:
        cost, gain = points[index]
        if not kept or gain > points[kept[-1]][1] or (cost, gain) == points[kept[-1]]:
            kept.append(index)
    return kept


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


Standing = Literal["on the front", "perhaps on the front", "beaten"]


def standings(points: Sequence[FrontPoint]) -> list[Standing]:
    """Return what the intervals support: whether a point is beaten whatever the true figures are, on the front, or neither is settled."""
    return [_standing(point, [other for other in points if other is not point]) for point in points]


def _standing(point: FrontPoint, others: Sequence[FrontPoint]) -> Standing:
    if any(_beats(other.worst, point.best) for other in others):
        return "beaten"
    return "perhaps on the front" if any(_beats(other.best, point.worst) for other in others) else "on the front"


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other


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


Cost = Literal["latency", "energy"]


@dataclass(frozen=True, slots=True)
class TradeOffClass:
    """The class of cases that may appear in one chart: task, data, images, metric, scenario, provenance; of energies the class too."""

    task: str
    metric: str
    dataset_sha256: str
    images: int
    scenario: str
    provenance: str
    energy: EnergyClass | None


@dataclass(frozen=True, slots=True)
class TradeOffPoint:
    """One case with its cost and accuracy; `beaten_by` is the cheapest case that is at least as good in both, None on the front."""

    case: CaseSummary
    cost: float
    accuracy: float
    beaten_by: CaseSummary | None


@dataclass(frozen=True, slots=True)
class TradeOff:
    """The places of one stage, cheapest first."""

    stage: TradeOffClass
    places: tuple[TradeOffPoint, ...]


@dataclass(frozen=True, slots=True)
class AbsentCase:
    """A case without a place, and why."""

    case: CaseSummary
    reason: str


def trade_offs(summaries: Sequence[CaseSummary], cost: Cost) -> tuple[list[TradeOff], list[AbsentCase]]:
    """Return the trade-offs by stage, and what has no place in any. Models differ within a stage: that is what is chosen among."""
    by_model = most_precise(summaries)
    staged: dict[TradeOffClass, list[CaseSummary]] = {}
    absent: list[AbsentCase] = []
    for case in summaries:
        why = _why_absent(case, cost) or not_ranked(case, by_model[case.key.model])
        if why is not None:
            absent.append(AbsentCase(case, why))
        elif stage := _trade_off_class(case, cost):
            staged.setdefault(stage, []).append(case)
    return [_trade_off(stage, cases, cost) for stage, cases in staged.items()], absent


def _why_absent(case: CaseSummary, cost: Cost) -> str | None:
    if case.accuracy is None:
        return f"no accuracy: {case.accuracy_reason}"
    if cost == "energy" and case.gross_mj is None:
        return f"no energy: {case.energy_reason}"
    return "too few queries for a median latency" if cost == "latency" and case.p50_ms is None else None


def _trade_off_class(case: CaseSummary, cost: Cost) -> TradeOffClass | None:
    accuracy = case.accuracy
    if accuracy is None:
        return None
    energy = case.energy.ranks_as if cost == "energy" and case.energy else None
    key = case.key
    return TradeOffClass(key.task, accuracy.metric, accuracy.dataset_sha256, accuracy.images, key.scenario, key.provenance, energy)


def _trade_off(stage: TradeOffClass, cases: Sequence[CaseSummary], cost: Cost) -> TradeOff:
    points = [(_cost(case, cost), case.accuracy.gain if case.accuracy else 0.0) for case in cases]
    on_front = set(pareto_front(points))
    places = []
    for index in sorted(range(len(cases)), key=lambda one: (points[one][0], -points[one][1])):
        beaten_by = None if index in on_front else _beater(index, points, sorted(on_front, key=lambda one: points[one][0]))
        accuracy = cases[index].accuracy
        value = accuracy.value.median if accuracy else 0.0
        places.append(TradeOffPoint(cases[index], points[index][0], value, None if beaten_by is None else cases[beaten_by]))
    return TradeOff(stage, tuple(places))


def _beater(index: int, points: Sequence[tuple[float, float]], on_front: Sequence[int]) -> int:
    """Return the cheapest case of the front that is at least as cheap and as accurate: one always is."""
    cost, gain = points[index]
    return next(other for other in on_front if points[other][0] <= cost and points[other][1] >= gain)


def _cost(case: CaseSummary, cost: Cost) -> float:
    found = case.p50_ms if cost == "latency" else case.gross_mj
    return found.median if found else float("inf")

"""The trade-off of cost against accuracy: what is on the Pareto front, what is beaten and by which case, and what has no place in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.contract.case_identity import load_text
from edgemeter.collector.compare.comparison import most_precise, not_ranked
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import EnergyClass

Cost = Literal["latency", "energy"]
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


@dataclass(frozen=True, slots=True)
class TradeOffClass:
    """The class of cases that may appear in one chart: task, data, images, metric, scenario, load, provenance; of energies the class too.

    `load` is the rate, the users and the models at the same time, in words.
    """

    task: str
    metric: str
    dataset_sha256: str
    images: int
    normalisation: str | None
    scenario: str
    load: str
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
        elif accuracy := case.accuracy:
            energy, key = case.energy.ranks_as if cost == "energy" and case.energy else None, case.key
            data = accuracy.metric, accuracy.dataset_sha256, accuracy.images, accuracy.normalisation
            staged.setdefault(TradeOffClass(key.task, *data, key.scenario, load_text(key), key.provenance, energy), []).append(case)
    return [_trade_off(stage, cases, cost) for stage, cases in staged.items()], absent


def _why_absent(case: CaseSummary, cost: Cost) -> str | None:
    if case.accuracy is None:
        return f"no accuracy: {case.accuracy_reason}"
    if cost == "energy" and case.gross_mj is None:
        return f"no energy: {case.energy_reason}"
    return "too few queries for a median latency" if cost == "latency" and case.p50_ms is None else None


def _trade_off(stage: TradeOffClass, cases: Sequence[CaseSummary], cost: Cost) -> TradeOff:
    costs = [case.p50_ms if cost == "latency" else case.gross_mj for case in cases]
    points = [
        (spread.median if spread else float("inf"), case.accuracy.gain if case.accuracy else 0.0)
        for case, spread in zip(cases, costs, strict=True)
    ]
    # Cheapest first, so that the first that dominates a case is the cheapest of the front.
    front = pareto_front(points)
    places = []
    for index in sorted(range(len(cases)), key=lambda index: (points[index][0], -points[index][1])):
        accuracy = cases[index].accuracy
        beaten_by = None if index in front else next(other for other in front if _dominates(points[other], points[index]))
        value = accuracy.value.median if accuracy else 0.0
        places.append(TradeOffPoint(cases[index], points[index][0], value, None if beaten_by is None else cases[beaten_by]))
    return TradeOff(stage, tuple(places))

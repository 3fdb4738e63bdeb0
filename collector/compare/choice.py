"""The choice among interchangeable cases.

It says which meet the requirements, the cheapest of them, and which do not differ from it. All
statements of one choice are decided together (Holm): each requirement of each case, with half of
the 5% if there are any, and the cheapest against each other case that meets all of them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edgemeter.agent.base.decision import ALPHA, MATTERS_RATIO, Decision, decide, holm
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.evidence import Evidence
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, MISSED, Figure
from edgemeter.agent.contract.held_load import MOST_MISSED_RATIO
from edgemeter.collector.compare.accuracy_gate import most_precise, not_ranked
from edgemeter.collector.compare.figure_differences import (
    Contrast,
    better_of,
    decided,
    scale_of,
    speed_of,
    why_not_compared,
)
from edgemeter.collector.compare.limits import FigureLimit, Requirements, selected
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import EnergyClass, names_of
from edgemeter.collector.runs.figure_names import JUDGED
from edgemeter.collector.runs.relation import EQUAL, agree, likeness

Met = Literal["met", "not met", "inconclusive"]
WORST_FIRST: tuple[Met, ...] = ("not met", "inconclusive", "met")
# The fields that candidates share: all that a comparison requires to be equal, except the model.
_SHARED = tuple(
    index
    for index, field in enumerate(EQUAL)
    if field.name not in ("model", "served_model", "precision", "input_values")
)
# Latency and energy are those of answered frames: a case that misses many is not faster.
IN_TIME = FigureLimit(JUDGED[MISSED], "at most", MOST_MISSED_RATIO)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit for a case, and its outcome.

    That is the value with the deciding interval, or the `reason` why it is open. `distance` is the
    decision on the distance of the value from the limit.
    """

    limit: FigureLimit
    outcome: Met
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    reason: str = ""
    distance: Decision | None = None

    @property
    def further(self) -> int | None:
        """About how many more runs would decide it; None: it is decided, or no number would."""
        return self.distance.further if self.distance and self.outcome == "inconclusive" else None


@dataclass(frozen=True, slots=True)
class ChoiceCandidate:
    """A case that may be chosen, with a unique name.

    `out` is why it is excluded whatever the requirements. `against_best` is the decision on the
    chosen figure against the recommended case; None for that case, and without a comparison.
    """

    case: CaseSummary
    name: str
    requirements: tuple[Requirement, ...]
    outcome: Met
    out: str = ""
    against_best: Decision | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates, best first.

    `recommended` is the cheapest that meets all, by the figure `cheapest`. `similar` ones do not
    differ from it. `unlike` is the number of cases that are not interchangeable with these.
    """

    required: Requirements
    cheapest: Figure
    candidates: tuple[ChoiceCandidate, ...]
    recommended: ChoiceCandidate | None
    similar: tuple[ChoiceCandidate, ...]
    unlike: int


def choose(
    summaries: Sequence[CaseSummary],
    required: Requirements,
    cheapest: str | None = None,
    matters_ratio: float = MATTERS_RATIO,
) -> Choice:
    """Return the choice among summarised cases.

    `cheapest` is the name of a judged figure, by default energy, else latency. With several tasks,
    data sets or scenarios, the choice is among the kind of which most cases have the requested
    figures; among several such kinds, the one with the most cases.

    Raises:
        UnavailableError: there is no case.
        ConfigError: no case matches a condition.
    """
    if not summaries:
        raise UnavailableError(
            "there is no case to choose among: measure some with `edgemeter run MODEL MODEL`"
        )
    picked = selected(summaries, required.conditions)
    cases = _alike(
        picked, {*(limit.figure.name for limit in required.figures), *filter(None, [cheapest])}
    )
    entry = JUDGED[cheapest] if cheapest else _usual_cost(cases)
    names = names_of((case.key for case in cases), _called([case.key for case in cases]))
    energy_class = min(
        (case.energy.ranks_as for case in cases if case.energy),
        key=lambda ranks: ranks.preference,
        default=None,
    )
    limits = _limits(required, cases)
    alpha = ALPHA / 2 if limits else ALPHA
    met = _requirements(cases, limits, energy_class, alpha)
    gates = {} if any(limit.figure.name == ACCURACY for limit in limits) else most_precise(cases)
    candidates = []
    for case in cases:
        of_case = tuple(met[id(case), limit] for limit in limits)
        out = (not_ranked(case, gates[case.key.model]) if gates else None) or ""
        outcome: Met = (
            "not met"
            if out
            else min(
                (requirement.outcome for requirement in of_case),
                key=WORST_FIRST.index,
                default="met",
            )
        )
        candidates.append(ChoiceCandidate(case, names[case.key], of_case, outcome, out))
    costs = {id(case): _cost(case, entry, energy_class) for case in cases}
    candidates.sort(
        key=lambda candidate: (
            -WORST_FIRST.index(candidate.outcome),
            costs[id(candidate.case)],
            candidate.name,
        )
    )
    ranked = [
        candidate
        for candidate in candidates
        if candidate.outcome == "met" and costs[id(candidate.case)] < math.inf
    ]
    if not ranked:
        return Choice(required, entry, tuple(candidates), None, (), len(picked) - len(cases))
    best = ranked[0].case
    contrasts = {
        id(other.case): Contrast(entry.name, other.case, best)
        for other in ranked[1:]
        if not why_not_compared(entry.name, other.case, best)
    }
    against = decided(contrasts, matters_ratio, alpha)
    candidates = [
        replace(candidate, against_best=against.get(id(candidate.case))) for candidate in candidates
    ]
    similar = [
        candidate
        for candidate in candidates
        if candidate.against_best
        and candidate.against_best.outcome in ("no difference", "inconclusive")
    ]
    return Choice(
        required, entry, tuple(candidates), candidates[0], tuple(similar), len(picked) - len(cases)
    )


def requirement_evidence(case: CaseSummary, limit: FigureLimit) -> Evidence | None:
    """Return the evidence on the distance of a figure from its limit, None without any.

    It is on the figure's scale.
    """
    if limit.figure.name == ACCURACY:
        is_other = case.accuracy is None or (
            limit.metric and metric_name(case.accuracy.metric) != limit.metric
        )
        if is_other or case.accuracy is None:
            return None
        end = case.accuracy.low if limit.value < case.accuracy.value else case.accuracy.high
        return case.accuracy.half(end).shifted(limit.value)
    figure = case.figures.get(limit.figure.name)
    if figure is None or (
        scale_of(limit.figure.name) == "ratio" and min(figure.value, limit.value) <= 0
    ):
        return None
    if limit.figure.is_rare and figure.low is None and figure.runs >= FEWEST:
        return None
    with_meter = (
        figure.evidence if figure.u is None else figure.evidence.with_error(figure.meter_error)
    )
    evidence = replace(
        with_meter, counted_ratio=case.counted_ratio if figure.evidence.unit == "run" else 1.0
    )
    return evidence.shifted(
        limit.value if scale_of(limit.figure.name) == "points" else math.log(limit.value)
    )


def _limits(required: Requirements, cases: Sequence[CaseSummary]) -> tuple[FigureLimit, ...]:
    """Return the given limits; by default frames have to be answered in time."""
    is_given = any(limit.figure.name == MISSED for limit in required.figures)
    has_frames = any(MISSED in case.figures for case in cases)
    return required.figures if is_given or not has_frames else (*required.figures, IN_TIME)


def _requirements(
    cases: Sequence[CaseSummary],
    limits: Sequence[FigureLimit],
    energy_class: EnergyClass | None,
    alpha: float,
) -> dict[tuple[int, FigureLimit], Requirement]:
    """Return the outcome of each limit, by the identity of the case and the limit.

    Energies of another class are not limited.
    """
    requirements: dict[tuple[int, FigureLimit], Requirement] = {}
    evidences: dict[tuple[int, FigureLimit], Evidence] = {}
    by_id = {id(case): case for case in cases}
    for case, limit in itertools.product(cases, limits):
        evidence = requirement_evidence(case, limit)
        if limit.figure.group == "energy" and case.energy and case.energy.ranks_as != energy_class:
            reason = f"measured at {case.energy.ranks_as}, the others at {energy_class}"
            requirements[id(case), limit] = Requirement(limit, "inconclusive", reason=reason)
        elif evidence is None:
            requirements[id(case), limit] = _without_interval(case, limit)
        else:
            evidences[id(case), limit] = evidence
    for (key, evidence), confidence in zip(
        evidences.items(), holm(list(evidences.values()), alpha), strict=True
    ):
        requirements[key] = _with_interval(by_id[key[0]], key[1], evidence, confidence)
    return requirements


def _without_interval(case: CaseSummary, limit: FigureLimit) -> Requirement:
    """Return the outcome of a limit on a figure that has no interval, or is absent or 0.

    Each run has to meet it.
    """
    figure = case.figures.get(limit.figure.name)
    if figure is None:
        reason = {"energy": case.energy_reason, "accuracy": case.accuracy_reason}.get(
            limit.figure.group
        ) or limit.figure.why_absent
        return Requirement(limit, "inconclusive", reason=reason)
    if limit.figure.name == ACCURACY and case.accuracy:
        return Requirement(
            limit, "inconclusive", reason=f"its accuracy is {metric_name(case.accuracy.metric)}"
        )
    are_kept = {limit.is_kept(run.value) for run in case.run_values(limit.figure.name)}
    if len(are_kept) == 2:
        return Requirement(limit, "inconclusive", figure.value, reason="met in some of its runs")
    outcome: Met = "met" if are_kept.pop() else "not met"
    if not limit.figure.is_rare:
        return Requirement(limit, outcome, figure.value)
    if outcome == "met" and not limit.figure.is_share:
        return Requirement(
            limit,
            "inconclusive",
            figure.value,
            reason="shown by runs of a minute or more: measure longer",
        )
    return Requirement(
        limit, outcome, figure.value, reason=f"in each of {count(figure.runs, 'run')}"
    )


def _with_interval(
    case: CaseSummary, limit: FigureLimit, evidence: Evidence, confidence: float
) -> Requirement:
    """Return the outcome of a limit by the interval of the distance from it."""
    name = limit.figure.name
    value, scale = case.figures[name].value, scale_of(name)
    distance = decide(
        evidence, confidence, 0.0, "lower" if limit.side == "at most" else "higher", scale
    )
    if distance.low is None or distance.high is None:
        reason = "no bounds recorded" if name == ACCURACY else "too few runs"
        return Requirement(limit, "inconclusive", value, reason=reason, distance=distance)
    ends = limit.value + distance.low, limit.value + distance.high
    if scale == "ratio":
        ends = limit.value * distance.low, limit.value * distance.high
    elif name == ACCURACY and case.accuracy:
        ends = case.accuracy.bounds(confidence) or ends
    within = set(map(limit.is_kept, ends))
    outcome: Met = "inconclusive" if len(within) == 2 else "met" if within.pop() else "not met"
    return Requirement(limit, outcome, value, *ends, confidence, distance=distance)


def _alike(cases: Sequence[CaseSummary], figure_names: set[str]) -> list[CaseSummary]:
    """Return the set of interchangeable cases of which most have all these figures.

    Among several sets, it is the largest.
    """
    groups: list[tuple[list[object], list[CaseSummary]]] = []
    for case in cases:
        shared = [likeness(case.key)[index] for index in _SHARED]
        members = next(
            (members for values, members in groups if all(map(agree, values, shared))), None
        )
        if members is None:
            groups.append((shared, [case]))
        else:
            members.append(case)

    def answering(members: Sequence[CaseSummary]) -> int:
        return sum(all(name in case.figures for name in figure_names) for case in members)

    return max(
        (members for _, members in groups), key=lambda members: (answering(members), len(members))
    )


def _usual_cost(cases: Sequence[CaseSummary]) -> Figure:
    """Return energy if all cases have one of one class, else latency.

    For offline loads it is throughput.
    """
    classes = {
        case.energy.ranks_as if case.energy and ENERGY in case.figures else None for case in cases
    }
    return JUDGED[ENERGY if len(classes) == 1 and None not in classes else speed_of(cases[0])]


def _called(keys: Sequence[CaseKey]) -> Callable[[CaseKey], str]:
    """Return the name of a case among these: without a model and device that all share."""
    models, devices = {key.model for key in keys}, {(key.fleet, key.device) for key in keys}

    def called(key: CaseKey) -> str:
        model = f"{key.model} " if len(models) > 1 else ""
        return (
            f"{model}{key.precision} on "
            f"{key.runtime}{f', {key.device}' if len(devices) > 1 else ''}"
        )

    return called


def _cost(case: CaseSummary, entry: Figure, energy_class: EnergyClass | None) -> float:
    """Return the value to minimise.

    It is the figure, or minus it if higher is better. A case without a comparable one comes last.
    """
    figure = case.figures.get(entry.name)
    if figure is None or (
        entry.group == "energy" and case.energy and case.energy.ranks_as != energy_class
    ):
        return math.inf
    return figure.value if better_of(entry.name, case) == "lower" else -figure.value

"""The choice: of the cases that may stand in for each other those that meet the limits, and which of them to ship."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.decision import ACCURACY, ENERGY
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.metrics import gain
from edgemeter.agent.base.run_statistics import MATTERS_ACCURACY
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.figures import Figure
from edgemeter.collector.choose.candidate import ChoiceCandidate
from edgemeter.collector.choose.certainty import (
    ORDER,
    Certainty,
    bounds_of,
    classes_of_energy,
    confidence_of,
    decisions,
    find,
    is_told_apart,
    limits_missed,
    not_in_time,
    value_of,
)
from edgemeter.collector.choose.limits import ChoiceLimits, selected
from edgemeter.collector.choose.sentence import sentence_of
from edgemeter.collector.compare.comparison import most_precise, not_ranked
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import speed_of
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.runs.cases import CaseRuns, names_of
from edgemeter.collector.runs.relation import EQUAL, agree, likeness

# What cases that are chosen among share: all that has to be equal for a comparison, but for the model.
_SHARED = tuple(index for index, field in enumerate(EQUAL) if field.name not in ("model", "served_model", "precision"))


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates, the best first, and what was chosen among them.

    `by` is the figure that is chosen by; `confidence` that of each interval, for so many `statements`; `rivals` are not told apart from the
    pick, `unlike` the number of cases that cannot stand in for these,
    `disturbed` that of runs that are left out.
    """

    limits: ChoiceLimits
    by: Figure
    candidates: tuple[ChoiceCandidate, ...]
    pick: ChoiceCandidate | None
    rivals: tuple[ChoiceCandidate, ...]
    sentence: str
    statements: int
    confidence: float
    unlike: int
    disturbed: int = 0

    def in_state(self, state: Certainty) -> list[ChoiceCandidate]:
        """Return the candidates of a certainty, the best first."""
        return [candidate for candidate in self.candidates if candidate.state == state]


def choose(
    summaries: Sequence[CaseSummary], limits: ChoiceLimits, by: str | None = None, references: Sequence[CaseSummary] | None = None
) -> Choice:
    """Return the choice among summarised cases; `by` is a name of `JUDGED`, `references` are the cases that a pick is held against.

    Where cases are of several tasks, data or scenarios, it is among the kind with the most cases.

    Raises:
        UnavailableError: there is no case.
        ConfigError: no case fulfils a condition.
    """
    if not summaries:
        raise UnavailableError("there is no case to choose among: measure some with `edgemeter run MODEL MODEL`")
    picked = selected(summaries, limits.conditions)
    sound = [_without_disturbed(case) for case in picked]
    disturbed = sum(len(case.run_ids) for case in picked) - sum(len(case.run_ids) for case in sound)
    cases, unlike = _alike(sound)
    entry = JUDGED[by] if by else _usual_objective(cases)
    statements = decisions(cases, limits.figures)
    confidence = confidence_of(statements)
    candidates = _candidates(cases, limits, entry, confidence)
    certain = [candidate for candidate in candidates if candidate.state == "meets"]
    pick, rivals = _pick(certain, entry, confidence)
    sentence = sentence_of(pick, rivals, candidates, references, limits, entry)
    return Choice(
        limits,
        entry,
        tuple(candidates),
        pick,
        tuple(rivals),
        sentence,
        statements,
        confidence,
        unlike,
        disturbed,
    )


def _without_disturbed(case: CaseSummary) -> CaseSummary:
    """Return the case without its disturbed runs, of which nothing is certain; as it is where it has no others."""
    if not case.disturbed or case.disturbed == len(case.run_ids):
        return case
    return summarise(CaseRuns(case.key, tuple(run for run in case.runs if run.verdict.state == "ok"), case.segment))


def _alike(cases: Sequence[CaseSummary]) -> tuple[list[CaseSummary], int]:
    """Return the largest set of cases that may stand in for each other, and how many other cases there are."""
    groups: list[tuple[list[object], list[CaseSummary]]] = []
    for case in cases:
        shared = [likeness(case.key)[index] for index in _SHARED]
        members = next((members for values, members in groups if all(map(agree, values, shared))), None)
        if members is None:
            groups.append((shared, [case]))
        else:
            members.append(case)
    largest = max((members for _, members in groups), key=len)
    return largest, len(cases) - len(largest)


def _usual_objective(cases: Sequence[CaseSummary]) -> Figure:
    """Return energy where all cases have one of one class, else latency, of offline loads throughput."""
    classes = {case.energy.ranks_as if case.energy and case.gross_mj else None for case in cases}
    return JUDGED[ENERGY if len(classes) == 1 and None not in classes else speed_of(cases[0])]


def _candidates(cases: Sequence[CaseSummary], limits: ChoiceLimits, entry: Figure, confidence: float) -> list[ChoiceCandidate]:
    names = names_of((case.key for case in cases), _called([case.key for case in cases]))
    ranks_as = classes_of_energy(cases)
    has_accuracy = any(limit.figure.name == ACCURACY for limit in limits.figures)
    gates = {} if has_accuracy else most_precise(cases)
    candidates = []
    for case in cases:
        findings = tuple(find(case, limit, confidence, ranks_as) for limit in limits.figures)
        gate = not_ranked(case, gates[case.key.model]) if gates else None
        gate = gate or ("" if limits_missed(limits.figures) else not_in_time(case, confidence))
        state: Certainty = "does not meet" if gate else min((finding.state for finding in findings), key=ORDER.index, default="meets")
        deciding = min(findings, key=lambda finding: (ORDER.index(finding.state), finding.share), default=None)
        value = value_of(case, entry)
        candidates.append(
            ChoiceCandidate(case, names[case.key], findings, state, deciding, value, bounds_of(case, entry, confidence), gate)
        )
    return sorted(candidates, key=lambda candidate: (-ORDER.index(candidate.state), _cost(candidate, entry), candidate.name))


def _called(keys: Sequence[CaseKey]) -> Callable[[CaseKey], str]:
    """Return what a case is called among these: without the model and the device that all of them have."""
    models, devices = {key.model for key in keys}, {(key.fleet, key.device) for key in keys}

    def called(key: CaseKey) -> str:
        model = f"{key.model} " if len(models) > 1 else ""
        return f"{model}{key.precision} on {key.runtime}{f', {key.device}' if len(devices) > 1 else ''}"

    return called


def _cost(candidate: ChoiceCandidate, entry: Figure) -> float:
    """Return what to keep low: the value of the figure, or minus it where higher is better; without one it comes last."""
    if candidate.objective is None:
        return math.inf
    if entry.name == ACCURACY and candidate.case.accuracy:
        return -gain(candidate.objective, candidate.case.accuracy.better)
    return -candidate.objective if entry.better == "higher" else candidate.objective


def _pick(certain: Sequence[ChoiceCandidate], entry: Figure, confidence: float) -> tuple[ChoiceCandidate | None, list[ChoiceCandidate]]:
    """Return which to ship, and what is not told apart from it.

    The best of all is among the case of the best value and those that are not told apart from that; it is missed only if the interval of
    one comparison with the best fails, so as many intervals are counted as there are other cases. Of these it is one with the highest
    accuracy (within what matters), of several the one of the best value.
    """
    ranked = [candidate for candidate in certain if candidate.objective is not None]
    if not ranked:
        return None, []
    best = ranked[0]
    level = [best, *(other for other in ranked[1:] if not is_told_apart(entry, best.case, other.case, confidence))]
    highest = max(_gain(candidate) for candidate in level)
    pick = next(candidate for candidate in level if _gain(candidate) >= highest - MATTERS_ACCURACY)
    return pick, [candidate for candidate in level if candidate is not pick]


def _gain(candidate: ChoiceCandidate) -> float:
    return candidate.case.accuracy.gain if candidate.case.accuracy else -math.inf

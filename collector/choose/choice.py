"""The choice: of the cases that may stand in for each other those that meet the limits, which of them to ship, and in a sentence why."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import Bounds
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.metrics import gain, metric_name
from edgemeter.agent.base.run_statistics import MATTERS_ACCURACY
from edgemeter.agent.contract.case_identity import LIKENESSES, CaseKey, agree, likeness
from edgemeter.agent.contract.figures import Figure
from edgemeter.collector.choose.certainty import (
    ORDER,
    Certainty,
    LimitFinding,
    bounds_of,
    change,
    classes_of_energy,
    confidence_of,
    decisions,
    figure_text,
    find,
    is_told_apart,
    value_of,
)
from edgemeter.collector.choose.further_runs import FurtherRuns, further_runs, members_apart
from edgemeter.collector.choose.limits import OBJECTIVES, ChoiceLimits, selected
from edgemeter.collector.choose.over_boards import over_boards, without_suspect
from edgemeter.collector.compare.comparison import most_precise, not_ranked
from edgemeter.collector.compare.judgement import ACCURACY, speed_of
from edgemeter.collector.compare.pairing import PRECISION_BITS, References
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import named, names_of

# What cases that are chosen among share: all that has to be equal for a comparison, but for the model.
_SHARED = tuple(index for index, (field, _) in enumerate(LIKENESSES) if field.name not in ("model", "served_model", "precision"))


@dataclass(frozen=True, slots=True)
class ChoiceCandidate:
    """A case with a name that no other has, what became of each limit, and how certain all of it is.

    `deciding` is the limit that decides; `gate` is why its speed is not ranked, where no limit of accuracy was given; `objective` is its
    value of the figure that is chosen by, with its bounds.
    """

    case: CaseSummary
    name: str
    findings: tuple[LimitFinding, ...]
    state: Certainty
    deciding: LimitFinding | None
    objective: float | None
    bounds: Bounds | None
    gate: str = ""

    @property
    def reason(self) -> str:
        """The figure that decides, with its interval and its limit; why it is out where that is no limit."""
        return self.gate or (self.deciding.words if self.deciding else "no limit was given")


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """A case to measure next, and what of it."""

    name: str
    further: FurtherRuns


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates, the best first, and what was chosen among them.

    `by` is the figure that is chosen by; `confidence` that of each interval, for so many `statements`; `rivals` are not told apart from the
    pick, `unlike` the number of cases that cannot stand in for these,
    `suspect` that of runs that are left out; `notes` are what figures over boards do not show.
    """

    limits: ChoiceLimits
    by: Figure
    candidates: tuple[ChoiceCandidate, ...]
    pick: ChoiceCandidate | None
    rivals: tuple[ChoiceCandidate, ...]
    sentence: str
    next: tuple[NextMeasurement, ...]
    statements: int
    confidence: float
    unlike: int
    suspect: int = 0
    notes: tuple[str, ...] = ()

    def in_state(self, state: Certainty) -> list[ChoiceCandidate]:
        """Return the candidates of a certainty, the best first."""
        return [candidate for candidate in self.candidates if candidate.state == state]


def choose(
    summaries: Sequence[CaseSummary], limits: ChoiceLimits, by: str | None = None, references: Sequence[CaseSummary] | None = None
) -> Choice:
    """Return the choice among summarised cases; `by` is a name of `OBJECTIVES`, `references` are the cases that a pick is held against.

    Where cases are of several tasks, data or scenarios, it is among the kind with the most cases.

    Raises:
        UnavailableError: there is no case.
        ConfigError: no case fulfils a condition.
    """
    if not summaries:
        raise UnavailableError("there is no case to choose among: measure some with `edgemeter run MODEL MODEL`")
    picked = selected(summaries, limits.conditions)
    sound = [without_suspect(case) for case in picked]
    suspect = sum(len(case.run_ids) for case in picked) - sum(len(case.run_ids) for case in sound)
    merged, notes = over_boards(sound)
    cases, unlike = _alike(merged)
    entry = OBJECTIVES[by] if by else _usual_objective(cases)
    statements = decisions(cases, limits.figures)
    confidence = confidence_of(statements)
    candidates = _candidates(cases, limits, entry, confidence)
    certain = [candidate for candidate in candidates if candidate.state == "meets"]
    pick, rivals = _pick(certain, entry, confidence)
    following = _next(candidates, pick, entry, confidence)
    sentence = _sentence(pick, rivals, candidates, references, limits, entry, confidence, following)
    return Choice(
        limits,
        entry,
        tuple(candidates),
        pick,
        tuple(rivals),
        sentence,
        tuple(following),
        statements,
        confidence,
        unlike,
        suspect,
        tuple(notes),
    )


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
    return OBJECTIVES["energy" if len(classes) == 1 and None not in classes else speed_of(cases[0])]


def _candidates(cases: Sequence[CaseSummary], limits: ChoiceLimits, entry: Figure, confidence: float) -> list[ChoiceCandidate]:
    names = names_of((case.key for case in cases), _called([case.key for case in cases]))
    ranks_as = classes_of_energy(cases)
    has_accuracy = any(limit.figure.choice == ACCURACY for limit in limits.figures)
    gates = {} if has_accuracy else most_precise(cases)
    candidates = []
    for case in cases:
        findings = tuple(find(case, limit, confidence, ranks_as) for limit in limits.figures)
        gate = not_ranked(case, gates[case.key.model]) if gates else None
        state: Certainty = "does not meet" if gate else min((finding.state for finding in findings), key=ORDER.index, default="meets")
        deciding = min(findings, key=lambda finding: (ORDER.index(finding.state), finding.share), default=None)
        value = value_of(case, entry)
        candidates.append(
            ChoiceCandidate(case, names[case.key], findings, state, deciding, value, bounds_of(case, entry, confidence), gate or "")
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
    if entry.choice == ACCURACY and candidate.case.accuracy:
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


def _next(candidates: Sequence[ChoiceCandidate], pick: ChoiceCandidate | None, entry: Figure, confidence: float) -> list[NextMeasurement]:
    """Return what to measure next: of the cases that may meet the limits those that would be the pick, the fewest days first."""
    open_cases = [candidate for candidate in candidates if candidate.state == "may meet"]
    if pick is not None:
        # A case that costs more would not be picked, whatever its limits come to.
        open_cases = [candidate for candidate in open_cases if _cost(candidate, entry) < _cost(pick, entry)]
    promising = [candidate for candidate in open_cases if all(finding.share >= 0 for finding in candidate.findings)] or open_cases
    steps = []
    for candidate in promising[:3]:
        open_findings = [finding for finding in candidate.findings if finding.state == "may meet"]
        plans = [further_runs(candidate.case, finding, confidence) for finding in open_findings]
        # What takes longest settles the others on the way.
        steps.append(NextMeasurement(candidate.name, max(plans, key=lambda runs: math.inf if runs.count is None else runs.count)))
    return sorted(steps, key=lambda step: math.inf if step.further.count is None else step.further.count)


def _sentence(
    pick: ChoiceCandidate | None,
    rivals: Sequence[ChoiceCandidate],
    candidates: Sequence[ChoiceCandidate],
    references: Sequence[CaseSummary] | None,
    limits: ChoiceLimits,
    entry: Figure,
    confidence: float,
    following: Sequence[NextMeasurement],
) -> str:
    if pick is not None:
        text = f"Ship {pick.name}: {_claims(pick, candidates, references, limits, entry)}"
        return f"{text}{_not_told_apart(pick, rivals, entry, confidence)}"
    if not any(candidate.state == "may meet" for candidate in candidates):
        nearest = max(candidates, key=lambda candidate: (not candidate.gate, candidate.deciding.share if candidate.deciding else -math.inf))
        why = f"none meets every limit; the nearest is {nearest.name} ({nearest.reason})"
        return f"Ship none of {figures.count(len(candidates), 'case')}: {why}"
    if any(candidate.state == "meets" for candidate in candidates):
        return f"Nothing to choose by: no case that meets every limit has a value of {chosen_by(entry)}; choose by another figure"
    name = following[0].name
    nearest = next(candidate for candidate in candidates if candidate.name == name)
    return (
        f"Ship none yet: no case meets every limit with certainty; the nearest is {name} ({nearest.reason}): {following[0].further.words}"
    )


def _not_told_apart(pick: ChoiceCandidate, rivals: Sequence[ChoiceCandidate], entry: Figure, confidence: float) -> str:
    if not rivals:
        return ""
    nearest = rivals[0]
    names = nearest.name + (f" and {figures.count(len(rivals) - 1, 'more case')}" if rivals[1:] else "")
    if entry.choice == ACCURACY:
        return f"; in {chosen_by(entry)} not told apart from {names}"
    members = members_apart(entry, pick.case, nearest.case, confidence)
    plan = f" ({members} of each would)" if members else " (no reasonable number of runs would)"
    return f"; in {chosen_by(entry)} not told apart from {names}{plan}"


def chosen_by(entry: Figure) -> str:
    """Return the figure that is chosen by as it is called in a sentence: `energy`, `latency p99`."""
    return entry.choice.replace("-", " ")


def _claims(
    pick: ChoiceCandidate,
    candidates: Sequence[ChoiceCandidate],
    references: Sequence[CaseSummary] | None,
    limits: ChoiceLimits,
    entry: Figure,
) -> str:
    """Return what the pick comes to against the baseline: the figure it was chosen by first, then speed, then accuracy.

    Of as many cases as it was chosen from each might have been the pick: so many are the intervals of each figure.
    """
    confidence = confidence_of(len(candidates))
    baseline = baseline_of(pick.case, [candidate.case for candidate in candidates], references)
    named_figures = list(dict.fromkeys((entry, OBJECTIVES[speed_of(pick.case)], OBJECTIVES[ACCURACY])))
    if baseline is None:
        texts = [
            f"{called(figure, pick.case)} {figure_text(figure, value, bounds_of(pick.case, figure, confidence))}"
            for figure in named_figures
            if (value := value_of(pick.case, figure)) is not None
        ]
        return ", ".join(texts) or "no figure of it is known"
    texts = [text for figure in named_figures if (text := _claim(figure, pick.case, baseline, limits, confidence))]
    names = {id(candidate.case): candidate.name for candidate in candidates}
    against = f"against {names.get(id(baseline)) or named(baseline.key)}"
    return f"{', '.join(texts)}, {against}" if texts else f"nothing of it could be compared {against}"


def called(entry: Figure, case: CaseSummary) -> str:
    """Return what people call a figure in a sentence: of an accuracy its metric."""
    return metric_name(case.accuracy.metric) if entry.choice == ACCURACY and case.accuracy else chosen_by(entry)


def baseline_of(case: CaseSummary, cases: Sequence[CaseSummary], references: Sequence[CaseSummary] | None) -> CaseSummary | None:
    """Return what a pick is held against: of the references its match, else the most precise case of its model, on its device if there.

    None where there is no such case, or the pick is it.
    """
    if references is None:
        alike = [other for other in cases if other.key.model == case.key.model and _bits(other) > _bits(case)]
        board = case.around.environment["board"]
        on_board = [other for other in alike if board and other.around.environment["board"] == board]
        nearest = [other for other in alike if other.device == case.device] or on_board or alike
        references = [other for other in nearest if _bits(other) == max(map(_bits, nearest))]
    paired = References([reference for reference in references if reference is not case]).pair(case)
    return None if isinstance(paired, str) else paired[0]


def _bits(case: CaseSummary) -> int:
    return PRECISION_BITS.get(case.key.precision, 0)


def _claim(entry: Figure, case: CaseSummary, baseline: CaseSummary, limits: ChoiceLimits, confidence: float) -> str:
    changed = change(entry, case, baseline, confidence)
    if changed is None:
        return ""
    value, bounds = changed
    if entry.choice == ACCURACY:
        return _accuracy_claim(case, baseline, value, bounds, limits)
    words, span = entry.times, figures.span(*bounds) if bounds else "no interval"
    if entry.choice == "latency":
        value, words = 1 / value, "times as fast"
        span = figures.span(1 / bounds[1], 1 / bounds[0]) if bounds else span
    return f"{figures.significant(value, 2)} {words} ({span})"


def _accuracy_claim(case: CaseSummary, baseline: CaseSummary, value: float, bounds: Bounds | None, limits: ChoiceLimits) -> str:
    span = " to ".join(map(figures.difference, bounds)) if bounds else "no interval"
    text = f"{called(OBJECTIVES[ACCURACY], case)} {figures.difference(value)} ({span})"
    accuracy, base = case.accuracy, baseline.accuracy
    if accuracy is None or base is None:
        return text
    # What the limit allows to lose against the baseline; without a limit as much as it may be.
    allowed = next((limit.value - base.value.median for limit in limits.figures if limit.figure.choice == ACCURACY), None)
    worst = value if bounds is None else bounds[0] if accuracy.better == "higher" else bounds[1]
    loses = gain(worst, accuracy.better) < -MATTERS_ACCURACY
    given_up = worst if allowed is None else allowed
    return f"{text}, if {figures.difference(given_up)} is allowed" if loses and gain(given_up, accuracy.better) < 0 else text

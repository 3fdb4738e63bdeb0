"""The choice among cases, and the findings of a gate, as lines."""

from collections.abc import Iterator, Sequence

from edgemeter.agent.base.decision import Decision
from edgemeter.agent.base.figures import count, significant
from edgemeter.agent.contract.figures import ACCURACY, THROUGHPUT, Figure
from edgemeter.collector.compare.choice import Choice, ChoiceCandidate, Requirement
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.gate import WORST_FIRST, Gate, GateFinding
from edgemeter.collector.compare.limits import FigureLimit, with_unit
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.figure_words import change_with_interval, figure_text, outcome_text, rounded
from edgemeter.collector.show.sentence import amounts, change_words, figure_name, inconclusive_text

FINDINGS_SHOWN = 25
CANDIDATES_SHOWN = 12


def choice_lines(comparison: Comparison, choice: Choice) -> Iterator[str]:
    """Yield the recommended case, those that are similar, and why others are out or undecided."""
    names = {id(row.case): row.name for row in comparison.rows}

    def name_of(candidate: ChoiceCandidate) -> str:
        return names.get(id(candidate.case), candidate.name)

    yield recommended_text(choice, name_of(choice.recommended) if choice.recommended else "")
    if choice.recommended:
        yield from _requirement_lines(choice.recommended)
    for candidate in choice.similar:
        if candidate.against_best:
            change = candidate.against_best
            words = outcome_text(change) if change.outcome == "no difference" else f"inconclusive ({inconclusive_text(change)})"
            yield f"similar: {name_of(candidate)}, {choice.cheapest.title}: {words}"
    not_met = [candidate for candidate in choice.candidates if candidate.outcome != "met"]
    for candidate in not_met[:CANDIDATES_SHOWN]:
        yield f"{candidate.outcome}: {name_of(candidate)}{f', {candidate.out}' if candidate.out else ''}"
        yield from _requirement_lines(candidate)
    if len(not_met) > CANDIDATES_SHOWN:
        yield f"and {count(len(not_met) - CANDIDATES_SHOWN, 'more case')}: see --format json"
    if choice.unlike:
        yield f"{count(choice.unlike, 'case')} of other tasks, data or loads left out"


def recommended_text(choice: Choice, name: str) -> str:
    """Return which case is recommended, called `name`, and by what; or that none is, and why."""
    required = choice.required.text
    if choice.recommended is None:
        return f"recommended: none, because no case surely {f'meets {required}' if required else f'has {choice.cheapest.title}'}"
    extreme = "highest" if choice.cheapest.better == "higher" else "lowest"
    value = figure_text(choice.cheapest, choice.recommended.case.figures[choice.cheapest.name], choice.cheapest.unit)
    return (
        f"recommended: {name}, the case of the {extreme} {choice.cheapest.title}, {value}{f', that meets {required}' if required else ''}"
    )


def amount(entry: Figure, value: float) -> str:
    """Return a value with its unit."""
    return with_unit(entry.shown(value), entry)


def requirement_text(requirement: Requirement) -> str:
    """Return what became of a requirement: `p99<=33ms met: 29.1 ms (28.2 to 30.1)`."""
    return f"{requirement.limit.text} {requirement.outcome}: {requirement_value(requirement)}"


def requirement_value(requirement: Requirement) -> str:
    """Return the value that a requirement is held against, with the interval that decides it, or why there is none."""
    limit: FigureLimit = requirement.limit
    if requirement.value is None:
        return requirement.reason
    bounds = ""
    if requirement.low is not None and requirement.high is not None:
        per, unit = (100, "%") if limit.figure.is_share else (1, "")
        low, high = (rounded(per * bound, 3, per * limit.value, write=significant) for bound in (requirement.low, requirement.high))
        bounds = f" ({low}{unit} to {high}{unit})"
    reason = f", {requirement.reason}" if requirement.reason else ""
    return f"{amount(limit.figure, requirement.value)}{bounds}{reason}"


def _requirement_lines(candidate: ChoiceCandidate) -> Iterator[str]:
    return (f"  {requirement_text(requirement)}" for requirement in candidate.requirements)


def gate_headline(gate: Gate) -> str:
    """Return the outcome in a few words: `fails: 1 limit`, `inconclusive: changes below 42% would not be seen`, `passes`."""
    if gate.outcome == "fail":
        limits = {finding.limit for finding in gate.findings if finding.outcome == "fail"}
        return f"fails: {count(len(limits), 'limit')}"
    if gate.outcome == "pass":
        return "passes"
    unseen = _unseen([finding for finding in gate.findings if finding.outcome == "inconclusive"])
    return f"inconclusive: {unseen or 'nothing could be judged'}"


def gate_lines(comparison: Comparison, gate: Gate) -> Iterator[str]:
    """Yield the outcome, what fails and what is inconclusive, and how many pass."""
    yield f"gate {gate_headline(gate)}"
    rows = {row.name: row for row in comparison.rows}
    findings = sorted(gate.findings, key=lambda finding: WORST_FIRST.index(finding.outcome))
    not_passed = [finding for finding in findings if finding.outcome != "pass"]
    for finding in not_passed[:FINDINGS_SHOWN]:
        yield f"{finding.outcome}: {finding.case}: {finding_text(finding, rows.get(finding.case))}, limit {finding.limit.text}"
    if len(not_passed) > FINDINGS_SHOWN:
        yield f"and {len(not_passed) - FINDINGS_SHOWN} more: see --format json"
    for limit, passed in grouped((finding.limit, finding) for finding in findings if finding.outcome == "pass").items():
        if len(passed) == 1:
            yield f"pass: {passed[0].case}: {finding_text(passed[0], rows.get(passed[0].case))}, limit {limit.text}"
        else:
            yield f"pass: {len(passed)} cases, limit {limit.text}"


def finding_text(finding: GateFinding, row: ComparedCase | None) -> str:
    """Return the change that decided a limit: `7% slower (5.5 to 9%)`; of what is open which changes would not be seen."""
    if finding.change is None or row is None:
        return finding.reason
    name, change = finding.figure, finding.change
    if finding.outcome == "fail":
        return _worse_text(name, change, row, 100 * finding.limit.by)
    text = f"{figure_name(name, row.case)} {change_with_interval(change)}"
    return f"{text}, {_unseen([finding])}" if finding.outcome == "inconclusive" else text


def _worse_text(name: str, change: Decision, row: ComparedCase, limit: float) -> str:
    """Return by how much a figure is worse, counted as its limit is: a rate that halves is worse by 100%."""
    _, words = change_words(name, row.case, is_higher=change.better == "lower", is_better=False)
    if change.scale == "points":
        unit = f" {figure_name(name, row.case)} points" if name == ACCURACY else " points"
        sign = 100 if change.better == "lower" else -100
        return " ".join(amounts(change, lambda value: sign * value, words, unit, limit=limit)).rstrip()
    if change.better == "lower":
        return " ".join(amounts(change, lambda ratio: 100 * (ratio - 1), words, "%", large=100, limit=limit)).rstrip()
    words = "slower" if name == THROUGHPUT else f"worse {figure_name(name, row.case)}"
    return " ".join(amounts(change, lambda ratio: 100 * (1 / ratio - 1), words, "%", large=100, limit=limit)).rstrip()


def _unseen(findings: Sequence[GateFinding]) -> str:
    """Return which changes would not have been seen; empty where nothing was compared."""
    amounts_of_units: dict[str, float] = {}
    for finding in findings:
        if finding.change is None:
            continue
        if finding.worse_by_at_most is None:
            return "too few runs for an interval"
        unit = "%" if finding.change.scale == "ratio" else " points"
        amounts_of_units[unit] = max(amounts_of_units.get(unit, 0.0), 100 * finding.worse_by_at_most)
    limits = [100 * finding.limit.by for finding in findings]
    texts = [f"{rounded(worst, 3 if worst >= 100 else 2, *limits)}{unit}" for unit, worst in amounts_of_units.items()]
    return f"changes below {' or '.join(texts)} would not be seen" if texts else ""

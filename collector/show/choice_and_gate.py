"""The choice among cases, and the findings of a gate, as lines."""

from collections.abc import Iterator

from edgemeter.agent.base.figures import count
from edgemeter.collector.compare.choice import Choice, Requirement
from edgemeter.collector.compare.comparison import WORST_FIRST, ComparedCase, Comparison, Gate, GateFinding
from edgemeter.collector.compare.differences import better_of
from edgemeter.collector.compare.gate import worst_kept
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.figure_words import (
    change_with_interval,
    confidence_text,
    figure_text,
    is_identical,
    outcome_text,
    what_decides,
)
from edgemeter.collector.show.sentence import figure_name
from edgemeter.collector.show.wording import listed

FINDINGS_SHOWN = 25
CANDIDATES_SHOWN = 12


def choice_lines(choice: Choice) -> Iterator[str]:
    """Yield the recommended case, those that are similar, and why others are out or undecided."""
    best = choice.recommended
    yield recommended_text(choice)
    if best:
        yield from (f"  {requirement_text(requirement)}" for requirement in best.requirements)
    for candidate in choice.similar:
        if candidate.against_best:
            yield f"similar: {candidate.name}, {choice.cheapest.title}: {outcome_text(candidate.against_best)}"
    not_met = [candidate for candidate in choice.candidates if candidate.outcome != "met"]
    for candidate in not_met[:CANDIDATES_SHOWN]:
        yield f"{candidate.outcome}: {candidate.name}{f', {candidate.out}' if candidate.out else ''}"
        yield from (f"  {requirement_text(requirement)}" for requirement in candidate.requirements)
    if len(not_met) > CANDIDATES_SHOWN:
        yield f"and {count(len(not_met) - CANDIDATES_SHOWN, 'more case')}: see --format json"
    if choice.unlike:
        yield f"{count(choice.unlike, 'case')} of other tasks, data or loads left out"


def recommended_text(choice: Choice) -> str:
    """Return which case is recommended and by what; or that none is, and why."""
    required = choice.required.text
    if choice.recommended is None:
        # Frames have to be answered in time though nobody asks for it.
        limits = dict.fromkeys(requirement.limit.text for candidate in choice.candidates for requirement in candidate.requirements)
        lacking = f"surely meets {required or listed(list(limits))}" if limits else f"has {choice.cheapest.title}"
        return f"recommended: none, because no case {lacking}{'' if limits else ' (--cheapest takes another figure)'}"
    extreme = "highest" if better_of(choice.cheapest.name, choice.recommended.case) == "higher" else "lowest"
    value = figure_text(choice.cheapest, choice.recommended.case.figures[choice.cheapest.name], choice.cheapest.unit)
    text = f"recommended: {choice.recommended.name}, the case of the {extreme} {choice.cheapest.title}, {value}"
    return f"{text}, that meets {required}" if required else text


def requirement_text(requirement: Requirement) -> str:
    """Return what became of a requirement: `p99<=33ms met: 29.1 ms (97.5% 28.2 to 30.1)`."""
    return f"{requirement.limit.text} {requirement.outcome}: {requirement_value(requirement)}"


def requirement_value(requirement: Requirement) -> str:
    """Return the value that a requirement is held against, with the interval that decides it or why there is none, and what would."""
    limit = requirement.limit
    if requirement.value is None:
        return requirement.reason
    interval = ""
    if requirement.low is not None and requirement.high is not None and requirement.confidence:
        ends = limit.figure.range_text(requirement.low, requirement.high, limit.value)
        interval = f" ({confidence_text(requirement.confidence)} {ends})" if " to " in ends else ""
    reason = f", {requirement.reason}" if requirement.reason else ""
    text = f"{f'{limit.figure.shown(requirement.value)} {limit.figure.unit}'.rstrip()}{interval}{reason}"
    remedy = what_decides(requirement.distance) if requirement.distance else ""
    return f"{text}; {remedy}" if remedy else text


def gate_headline(gate: Gate) -> str:
    """Return the outcome in a few words: `fails slower:5%`, `inconclusive, which fails: slower:5%`."""
    limits = listed(list(dict.fromkeys(finding.limit.text for finding in gate.findings if finding.outcome == gate.outcome)))
    if gate.outcome != "inconclusive":
        return f"{'passes' if gate.outcome == 'pass' else 'fails'} {limits}"
    return f"inconclusive, which {'passes' if gate.is_passed else 'fails'}: {limits or 'nothing could be judged'}"


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
        finding, is_alone = passed[0], len(passed) == 1
        text = f"{finding.case}: {finding_text(finding, rows.get(finding.case))}" if is_alone else f"{len(passed)} cases"
        yield f"pass: {text}, limit {limit.text}"


def finding_text(finding: GateFinding, row: ComparedCase | None) -> str:
    """Return the change that decided a limit: `latency +7.6% (+7.0 to +8.1%)`; of what is open how many more runs would decide."""
    change, limit = finding.change, finding.limit
    if change is None or row is None:
        return finding.reason
    name = figure_name(finding.figure, row.case)
    if is_identical(change):
        return f"{name} is identical on every input"
    text = f"{name} {change_with_interval(finding.figure, change, worst_kept(limit, change.better, change.scale))}"
    return ", ".join(filter(None, (text, what_decides(change) if finding.outcome == "inconclusive" else "")))

"""A comparison in a line: what was decided of each figure, with the interval that decides it, and what was not."""

from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.figures import ACCURACY, ENERGY
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.differences import speed_of, why_not_compared
from edgemeter.collector.compare.summary import OF_TEXT, CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.figure_names import JUDGED, SPOKEN
from edgemeter.collector.show.figure_words import change_with_interval, is_identical, margin_text, what_decides
from edgemeter.collector.show.wording import listed

WITHIN = "within the limit"
IN_PART = "better in part and worse in part"
OUTCOMES = ("worse", IN_PART, "inconclusive", WITHIN, "better", "no difference", "not compared")


def headline(comparison: Comparison) -> str:
    """Return in a line what came of a comparison, of several cases how many are better, worse or neither; and what is recommended."""
    rows = comparison.compared
    if not rows:
        return "There is nothing to compare the reference with." if comparison.rows else "No run could be compared."
    if len(rows) == 1:
        text = f"{rows[0].name}: {decisions_text(rows[0])}"
    else:
        by_outcome = grouped((outcome_of(row), row.name) for row in rows)
        listing = {outcome: listed(names) if has_letters(comparison) else str(len(names)) for outcome, names in by_outcome.items()}
        text = f"{len(rows)} cases compared: {', '.join(f'{listing[outcome]} {outcome}' for outcome in OUTCOMES if outcome in listing)}"
    findings = comparison.gate.findings if comparison.gate else ()
    if lost := list(dict.fromkeys(finding.case for finding in findings if finding.case not in {row.name for row in rows})):
        text += f"; no usable run on the new side: {listed(lost)}"
    choice = comparison.choice
    if choice and choice.recommended and not choice.similar and len(choice.candidates) > 1:
        text += f"; {choice.recommended.name} is recommended"
    return f"{text}."


def has_letters(comparison: Comparison) -> bool:
    """Return whether the cases are called A, B, C, each compared with the first."""
    return bool(comparison.rows) and comparison.rows[0].name == comparison.reference == "A"


def outcome_of(row: ComparedCase) -> str:
    """Return in a word or two what became of a case: one of `OUTCOMES`."""
    outcomes = {outcome_words(name, row) for name in row.decisions} or {"not compared"}
    if {"better", "worse"} <= outcomes:
        return IN_PART
    return next(outcome for outcome in OUTCOMES if outcome in outcomes)


def outcome_words(name: str, row: ComparedCase) -> str:
    """Return the outcome of a figure; where a gate passes what is not decided otherwise, that it is within the limit."""
    return WITHIN if name in row.within_limits else row.decisions[name].outcome


def decisions_text(row: ComparedCase) -> str:
    """Return what was decided on a case: `latency is better, -14% (-19 to -9%); no difference in AP above 0.5 points`."""
    if not row.decisions:
        reasons = [*filter(None, (row.not_ranked,)), *not_compared(row).values()]
        return f"no figure compares ({next(iter(reasons), 'none is on both sides')})"
    equal = grouped(
        (margin_text(change), figure_name(name, row.case))
        for name, change in row.decisions.items()
        if change.outcome == "no difference" and not is_identical(change)
    )
    return "; ".join(
        [
            *(
                f"{figure_name(name, row.case)} is {decision_text(name, row)}"
                for name, change in row.decisions.items()
                if change.outcome != "no difference" or is_identical(change)
            ),
            *(f"no difference in {listed(names)} above {margin}" for margin, names in equal.items()),
            *(["its speed is not ranked"] if row.not_ranked else []),
        ]
    )


def decision_text(name: str, row: ComparedCase) -> str:
    """Return what was decided on a figure: `better, -14% (-19 to -9%)`, `identical on every input`."""
    change = row.decisions[name]
    if is_identical(change):
        return "identical on every input"
    outcome = outcome_words(name, row)
    remedy = what_decides(change) if outcome == "inconclusive" else ""
    return ", ".join(filter(None, (outcome, change_with_interval(name, change), remedy)))


def not_compared(row: ComparedCase) -> dict[str, str]:
    """Return the reasons why figures that an answer takes do not compare, by their names, as far as a side has them."""
    case, other = row.case, row.reference
    speed = speed_of(case)
    names = OF_TEXT if case.generates and other.generates else (speed, ACCURACY, ENERGY)
    having = [name for name in names if name == speed or name in case.figures or name in other.figures]
    reasons = {figure_name(name, case): why_not_compared(name, case, other) for name in having}
    return {name: reason for name, reason in reasons.items() if reason}


def figure_name(name: str, case: CaseSummary) -> str:
    """Return what people call a figure in a sentence: `latency`, `AP`."""
    if name == ACCURACY:
        return metric_name(case.accuracy.metric) if case.accuracy else "accuracy"
    return SPOKEN.get(name, JUDGED[name].title)

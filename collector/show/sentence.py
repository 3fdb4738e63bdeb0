"""A comparison in sentences: what was decided, each with the interval that decides it, and what was not."""

from collections.abc import Sequence
from typing import NamedTuple

from edgemeter.agent.base.decision import Decision
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY, MISSED, TOKEN_ENERGY
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.differences import OF_TEXT, speed_of, why_not_compared
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.figure_names import SPOKEN
from edgemeter.collector.show.figure_words import change_numbers, change_parts, change_with_interval, form_of, margin_text, what_decides
from edgemeter.collector.show.wording import listed

WITHIN = "within the limit"
IN_PART = "better in part and worse in part"
OUTCOMES = ("worse", IN_PART, "inconclusive", WITHIN, "better", "no difference", "not compared")
_PLURAL = {"is": "are", "takes": "take", "uses": "use", "has": "have", "misses": "miss"}


class Clause(NamedTuple):
    """One thing that a sentence says of a case: `is`, `14%`, `faster`, `(9 to 19%)`."""

    verb: str
    amount: str
    words: str
    bounds: str = ""

    @property
    def text(self) -> str:
        """All after the verb."""
        return " ".join(filter(None, self[1:]))


def headline(comparison: Comparison) -> str:
    """Return in a sentence what came of a comparison, of many cases how many are better, worse or neither; and what is recommended."""
    rows = [row for row in comparison.rows if not row.is_reference]
    if not rows:
        return "There is nothing to compare the reference with." if comparison.rows else "No run could be compared."
    if len(rows) == 1:
        text = sentence(rows[0]).removesuffix(".")
    elif has_letters(comparison):
        text = _each_with_first(rows, comparison.rows[0].name)
    else:
        counts = grouped((outcome_of(row), row.name) for row in rows)
        numbers = ", ".join(f"{len(counts[outcome])} {outcome}" for outcome in OUTCOMES if outcome in counts)
        text = f"{len(rows)} cases compared: {numbers}"
    findings = comparison.gate.findings if comparison.gate else ()
    if lost := list(dict.fromkeys(finding.case for finding in findings if finding.case not in {row.name for row in rows})):
        text += f"; {listed(lost)} {'has' if len(lost) == 1 else 'have'} no usable run on the new side"
    choice = comparison.choice
    if choice and choice.recommended and not choice.similar and len(choice.candidates) > 1:
        names = {id(row.case): row.name for row in comparison.rows}
        text += f"; {names.get(id(choice.recommended.case), choice.recommended.name)} is recommended"
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


def sentence(row: ComparedCase, subject: str = "", *, is_alone: bool = True) -> str:
    """Return what was decided on a case, called by its name or as the subject, against its reference.

    One that `is_alone` is not named where no figure of it is better or worse.
    """
    subject = subject or row.name
    if not row.decisions:
        reasons = [*filter(None, (row.not_ranked,)), *not_compared(row).values()]
        return f"{subject} cannot be compared: {next(iter(reasons), 'no figure is on both sides')}."
    clauses = [clause(name, change, row.case) for name, change in row.decisions.items() if change.outcome in ("better", "worse")]
    text = "; ".join([*([f"{subject} {joined(clauses)}"] if clauses else []), *_undecided(row)])
    if clauses or not is_alone:
        return f"{'' if clauses else f'{subject}: '}{text}."
    return f"{text[0].upper()}{text[1:]}."


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


def clause(name: str, change: Decision, case: CaseSummary) -> Clause:
    """Return a change with its interval: `is 14% faster (9 to 19%)`."""
    is_higher = change.value > (1 if change.scale == "ratio" else 0)
    verb, words = change_words(name, case, is_higher=is_higher, is_better=is_higher == (change.better == "higher"))
    form = form_of(name, change)
    amount, *ends = (number.lstrip("+-") for number in change_numbers(change, form))
    unit = f" {figure_name(name, case)}{form.unit}" if name == ACCURACY and form.unit else form.unit
    if form.in_times and name == LATENCY:
        verb, words, unit = "takes" if is_higher else verb, unit.strip(), ""
    elif form.in_times:
        words, unit = f"times the {figure_name(name, case)}", ""
    interval = " to ".join(ends if is_higher or form.in_times else reversed(ends))
    return Clause(verb, f"{amount}{unit}", words, f"({interval}{'%' * (unit == '%')})" if ends else "")


def joined(clauses: Sequence[Clause]) -> str:
    """Return clauses as the predicate of a sentence: `is 14% faster (9 to 19%) and uses 16% less energy (12 to 20%)`."""
    by_verb = grouped((clause.verb, clause.text) for clause in clauses)
    texts = [f"{verb} {listed(texts)}" for verb, texts in by_verb.items()]
    if len(texts) > 1 and len(clauses) > len(texts):
        return f"{', '.join(texts[:-1])}, and {texts[-1]}"
    return listed(texts)


def is_identical(change: Decision) -> bool:
    """Return whether two accuracies are the same in every part of the images."""
    return change.evidence.unit == "image" and change.evidence.error == 0 == change.value


def inconclusive_text(name: str, change: Decision) -> str:
    """Return a change that is not decided, and what would decide it: `+13%, -2 to +30%; about 6 more runs would decide`."""
    amount, interval = change_parts(name, change)
    return "; ".join(filter(None, (f"{amount}, {interval or 'without an interval'}", what_decides(change))))


def _undecided(row: ComparedCase) -> list[str]:
    """Return what is known to differ too little to matter, and what is not known."""
    identical = [name for name, change in row.decisions.items() if is_identical(change)]
    equal = [(name, change) for name, change in row.decisions.items() if change.outcome == "no difference" and name not in identical]
    by_margin = grouped((margin_text(change), figure_name(name, row.case)) for name, change in equal)
    texts = [f"{listed(names)} above {margin}" for margin, names in by_margin.items()]
    without_limit = {*row.decisions} - {finding.figure for finding in row.limited} if row.limited else set()
    within, inconclusive = (
        [(name, change) for name, change in row.decisions.items() if outcome_words(name, row) == outcome]
        for outcome in (WITHIN, "inconclusive")
    )
    return [
        *([f"no difference in {' or in '.join(texts)}"] if texts else []),
        *(f"{figure_name(name, row.case)} is identical on every input" for name in identical),
        *(f"{figure_name(name, row.case)} is {WITHIN}, {change_with_interval(name, change)}" for name, change in within),
        *(
            f"{figure_name(name, row.case)}{', which has no limit,' if name in without_limit else ''} is inconclusive "
            f"({inconclusive_text(name, change)})"
            for name, change in inconclusive
        ),
        *(["its speed is not ranked"] if row.not_ranked else []),
    ]


def _each_with_first(rows: Sequence[ComparedCase], first: str) -> str:
    """Return of several cases which differ from the first, and in what."""
    kinds = grouped((_differences(row), row.name) for row in rows)
    texts = []
    for differences, names in kinds.items():
        if differences is None:
            texts.append(f"{listed(names)} cannot be compared")
        elif differences:
            verbs = [(_PLURAL[verb] if len(names) > 1 else verb, words) for verb, words in differences]
            texts.append(f"{listed(names)} {joined([Clause(verb, '', words) for verb, words in verbs])}")
        elif len(names) == 1:
            texts.append(f"{first} and {names[0]} cannot be told apart")
        else:
            texts.append(f"{listed(names)} cannot be told apart from {first}")
    return "; ".join(texts)


def _differences(row: ComparedCase) -> tuple[tuple[str, str], ...] | None:
    """Return in what a case differs from its reference, as verbs with words; None where nothing compares."""
    if not row.decisions:
        return None
    return tuple(
        change_words(
            name, row.case, is_higher=(change.better == "higher") == (change.outcome == "better"), is_better=change.outcome == "better"
        )
        for name, change in row.decisions.items()
        if change.outcome in ("better", "worse")
    )


def change_words(name: str, case: CaseSummary, *, is_higher: bool, is_better: bool) -> tuple[str, str]:
    """Return a verb with the words for a figure that is higher or lower: `is` `faster`."""
    if name == LATENCY:
        return "is", "faster" if is_better else "slower"
    if name == ACCURACY and case.accuracy and case.accuracy.better == "higher":
        return "is", "more accurate" if is_better else "less accurate"
    if name == MISSED:
        return "misses", "more frames" if is_higher else "fewer frames"
    if name in (ENERGY, TOKEN_ENERGY):
        return "uses", f"{'more' if is_higher else 'less'} {figure_name(name, case)}"
    return "has", f"{'higher' if is_higher else 'lower'} {figure_name(name, case)}"

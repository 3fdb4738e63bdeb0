"""A comparison in words.

These are its headline, the decision on each figure, the choice, the gate, and the names of cases.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from edgemeter.agent.base import number_text
from edgemeter.agent.base.decision import MOST_FURTHER, Decision
from edgemeter.agent.base.evidence import CONFIDENCE
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY, Figure
from edgemeter.collector.compare.case_figure import CaseFigure
from edgemeter.collector.compare.choice import Choice, Requirement
from edgemeter.collector.compare.comparison import (
    WORST_FIRST,
    ComparedCase,
    Comparison,
    Gate,
    GateFinding,
)
from edgemeter.collector.compare.figure_differences import better_of, speed_of, why_not_compared
from edgemeter.collector.compare.gate import worst_kept
from edgemeter.collector.compare.summary import OF_TEXT, CaseSummary
from edgemeter.collector.runs.cases import apart, grouped
from edgemeter.collector.runs.figure_names import JUDGED
from edgemeter.collector.runs.relation import load_text

WITHIN = "within the limit"
IN_PART = "better in part and worse in part"
OUTCOMES = ("worse", IN_PART, "inconclusive", WITHIN, "better", "no difference", "not compared")
FINDINGS_SHOWN = 25
CANDIDATES_SHOWN = 12
# From this factor on a change is given in times, not in per cent.
TIMES = 2.0
# Changes of this size have no decimals, and intervals of this width, unless decimals make a
# difference.
COARSE = 9.95
WIDE = 4.0
SMALLEST = 1e-9  # A ratio next to 0 has no inverse.


def headline(comparison: Comparison) -> str:
    """Return the result of a comparison in a line, with the recommendation.

    For several cases it says how many are better, worse or neither.
    """
    rows = comparison.compared
    if not rows:
        return (
            "There is nothing to compare the reference with."
            if comparison.rows
            else "No run could be compared."
        )
    if len(rows) == 1:
        text = f"{rows[0].name}: {decisions_text(rows[0])}"
    else:
        by_outcome = grouped((outcome_of(row), row.name) for row in rows)
        listing = {
            outcome: listed(names) if has_letters(comparison) else str(len(names))
            for outcome, names in by_outcome.items()
        }
        text = f"""{len(rows)} cases compared: {
            ", ".join(f"{listing[outcome]} {outcome}" for outcome in OUTCOMES if outcome in listing)
        }"""
    if lost := list(
        dict.fromkeys(
            finding.case
            for finding in (comparison.gate.findings if comparison.gate else ())
            if finding.case not in {row.name for row in rows}
        )
    ):
        text += f"; no usable run on the new side: {listed(lost)}"
    choice = comparison.choice
    if choice and choice.recommended and not choice.similar and len(choice.candidates) > 1:
        text += f"; {choice.recommended.name} is recommended"
    return f"{text}."


def has_letters(comparison: Comparison) -> bool:
    """Return whether the cases are called A, B, C, each compared with the first."""
    return bool(comparison.rows) and comparison.rows[0].name == comparison.reference == "A"


def outcome_of(row: ComparedCase) -> str:
    """Return the outcome of a case in a word or two: one of `OUTCOMES`."""
    outcomes = {outcome_words(name, row) for name in row.decisions} or {"not compared"}
    if {"better", "worse"} <= outcomes:
        return IN_PART
    return next(outcome for outcome in OUTCOMES if outcome in outcomes)


def outcome_words(name: str, row: ComparedCase) -> str:
    """Return the outcome of a figure.

    If a gate passes an undecided one, it is that the figure is within the limit.
    """
    return WITHIN if name in row.within_limits else row.decisions[name].outcome


def decisions_text(row: ComparedCase) -> str:
    """Return the decisions on a case.

    An example is `latency is better, -14% (-19 to -9%); no difference in AP above 0.5 points`.
    """
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
            *(
                f"no difference in {listed(names)} above {margin}"
                for margin, names in equal.items()
            ),
            *(["its speed is not ranked"] if row.not_ranked else []),
        ]
    )


def decision_text(name: str, row: ComparedCase) -> str:
    """Return the decision on a figure: `better, -14% (-19 to -9%)`, `identical on every input`."""
    change = row.decisions[name]
    if is_identical(change):
        return "identical on every input"
    outcome = outcome_words(name, row)
    remedy = what_decides(change) if outcome == "inconclusive" else ""
    return ", ".join(filter(None, (outcome, change_with_interval(name, change), remedy)))


def not_compared(row: ComparedCase) -> dict[str, str]:
    """Return the reasons why figures cannot be compared, by their names, if a side has them."""
    case, other = row.case, row.reference
    speed = speed_of(case)
    names = OF_TEXT if case.generates and other.generates else (speed, ACCURACY, ENERGY)
    having = [
        name for name in names if name == speed or name in case.figures or name in other.figures
    ]
    reasons = {figure_name(name, case): why_not_compared(name, case, other) for name in having}
    return {name: reason for name, reason in reasons.items() if reason}


def figure_name(name: str, case: CaseSummary) -> str:
    """Return the name of a figure in a sentence: `latency`, `AP`."""
    if name == ACCURACY:
        return metric_name(case.accuracy.metric) if case.accuracy else "accuracy"
    return JUDGED[name].spoken or JUDGED[name].title


def choice_lines(choice: Choice) -> Iterator[str]:
    """Yield the recommended case, similar ones, and why others are excluded or undecided."""
    best = choice.recommended
    yield recommended_text(choice)
    if best:
        yield from (f"  {requirement_text(requirement)}" for requirement in best.requirements)
    for candidate in choice.similar:
        if candidate.against_best:
            yield (
                f"similar: {candidate.name}, {choice.cheapest.title}: "
                f"{outcome_text(candidate.against_best)}"
            )
    not_met = [candidate for candidate in choice.candidates if candidate.outcome != "met"]
    for candidate in not_met[:CANDIDATES_SHOWN]:
        yield (
            f"{candidate.outcome}: {candidate.name}{f', {candidate.out}' if candidate.out else ''}"
        )
        yield from (f"  {requirement_text(requirement)}" for requirement in candidate.requirements)
    if len(not_met) > CANDIDATES_SHOWN:
        yield f"and {count(len(not_met) - CANDIDATES_SHOWN, 'more case')}: see --format json"
    if choice.unlike:
        yield f"{count(choice.unlike, 'case')} of other tasks, data or loads left out"


def recommended_text(choice: Choice) -> str:
    """Return the recommended case and the deciding figure; or that there is none, and why."""
    required = choice.required.text
    if choice.recommended is None:
        # Frames have to be answered in time without an explicit limit.
        limits = dict.fromkeys(
            requirement.limit.text
            for candidate in choice.candidates
            for requirement in candidate.requirements
        )
        lacking = (
            f"surely meets {required or listed(list(limits))}"
            if limits
            else f"has {choice.cheapest.title}"
        )
        return (
            "recommended: none, because no case "
            f"{lacking}{'' if limits else ' (--cheapest takes another figure)'}"
        )
    extreme = (
        "highest"
        if better_of(choice.cheapest.name, choice.recommended.case) == "higher"
        else "lowest"
    )
    value = figure_text(
        choice.cheapest, choice.recommended.case.figures[choice.cheapest.name], choice.cheapest.unit
    )
    text = (
        f"recommended: {choice.recommended.name}, with the "
        f"{extreme} {choice.cheapest.title}, {value}"
    )
    return f"{text}, of the cases that meet {required}" if required else text


def requirement_text(requirement: Requirement) -> str:
    """Return the outcome of a requirement: `p99<=33ms met: 29.1 ms (97.5% 28.2 to 30.1)`."""
    return f"{requirement.limit.text} {requirement.outcome}: {requirement_value(requirement)}"


def requirement_value(requirement: Requirement) -> str:
    """Return the value for a requirement, with the deciding interval.

    Without an interval it says why there is none, and how to get one.
    """
    limit = requirement.limit
    if requirement.value is None:
        return requirement.reason
    interval = ""
    if requirement.low is not None and requirement.high is not None and requirement.confidence:
        ends = limit.figure.range_text(requirement.low, requirement.high, limit.value)
        interval = f" ({confidence_text(requirement.confidence)} {ends})" if " to " in ends else ""
    reason = f", {requirement.reason}" if requirement.reason else ""
    text = f"{limit.figure.text(requirement.value)}{interval}{reason}"
    remedy = what_decides(requirement.distance) if requirement.distance else ""
    return f"{text}; {remedy}" if remedy else text


def gate_headline(gate: Gate) -> str:
    """Return the outcome in a few words.

    Examples are `fails slower:5%` and `inconclusive, which fails: slower:5%`.
    """
    limits = listed(
        list(
            dict.fromkeys(
                finding.limit.text for finding in gate.findings if finding.outcome == gate.outcome
            )
        )
    )
    if gate.outcome != "inconclusive":
        return f"{'passes' if gate.outcome == 'pass' else 'fails'} {limits}"
    return (
        f"inconclusive, which {'passes' if gate.is_passed else 'fails'}: "
        f"{limits or 'nothing could be judged'}"
    )


def gate_lines(comparison: Comparison, gate: Gate) -> Iterator[str]:
    """Yield the outcome, the failing and inconclusive limits, and how many pass."""
    yield f"gate {gate_headline(gate)}"
    rows = {row.name: row for row in comparison.rows}
    findings = sorted(gate.findings, key=lambda finding: WORST_FIRST.index(finding.outcome))
    not_passed = [finding for finding in findings if finding.outcome != "pass"]
    for finding in not_passed[:FINDINGS_SHOWN]:
        yield (
            f"{finding.outcome}: {finding.case}: "
            f"{finding_text(finding, rows.get(finding.case))}, limit {finding.limit.text}"
        )
    if len(not_passed) > FINDINGS_SHOWN:
        yield f"and {len(not_passed) - FINDINGS_SHOWN} more: see --format json"
    for limit, passed in grouped(
        (finding.limit, finding) for finding in findings if finding.outcome == "pass"
    ).items():
        finding, is_alone = passed[0], len(passed) == 1
        text = (
            f"{finding.case}: {finding_text(finding, rows.get(finding.case))}"
            if is_alone
            else f"{len(passed)} cases"
        )
        yield f"pass: {text}, limit {limit.text}"


def finding_text(finding: GateFinding, row: ComparedCase | None) -> str:
    """Return the change that decided a limit: `latency +7.6% (+7.0 to +8.1%)`.

    If it is open, the text says how many more runs would decide it.
    """
    change, limit = finding.change, finding.limit
    if change is None or row is None:
        return finding.reason
    name = figure_name(finding.figure, row.case)
    if is_identical(change):
        return f"{name} is identical on every input"
    text = f"""{name} {
        change_with_interval(finding.figure, change, worst_kept(limit, change.better, change.scale))
    }"""
    return ", ".join(
        filter(None, (text, what_decides(change) if finding.outcome == "inconclusive" else ""))
    )


def figure_text(entry: Figure, figure: CaseFigure | None, unit: str = "") -> str:
    """Return a figure as `140 ms ± 4%` or `0.404 (0.331 to 0.480)`.

    It is without the unit if none is given, and "-" without a value.
    """
    if figure is None:
        return number_text.ABSENT
    value = f"{entry.shown(figure.value)} {unit}".rstrip()
    if figure.low is None or figure.high is None:
        return value
    if figure.scale == "ratio":
        return number_text.with_interval(value, figure.value, figure.low, figure.high)
    ends = entry.range_text(figure.low, figure.high)
    # An interval of no width means that all runs are equal.
    return f"{value} ({ends})" if " to " in ends else value


def short_figure_text(entry: Figure, figure: CaseFigure | None, unit: str = "") -> str:
    """Return a figure as `figure_text`, but shares and accuracies without their intervals."""
    return (
        entry.shown(figure.value)
        if figure is not None and figure.scale == "points"
        else figure_text(entry, figure, unit)
    )


def change_parts(name: str, change: Decision, *limits: float) -> tuple[str, str]:
    """Return a change and the deciding interval, empty without one: `-14%` and `-19 to -9%`.

    It is in per cent, from a factor of two on in times, for shares and accuracies in points; with
    enough decimals to separate its interval from no change, from the smallest difference that
    matters and from the `limits`. Equal ends are left out.
    """
    # A metric that is not a share, such as a perplexity, has no points.
    per = 1 if name == ACCURACY and change.better == "lower" else 100
    margin = per * change.margin
    convert: Callable[[float], float]
    told_apart: tuple[float, ...]
    if change.scale == "points":
        convert, unit, told_apart = (
            (lambda value: per * value),
            " points" if per == 100 else "",
            (-margin, 0, margin),
        )
    elif change.value >= TIMES:
        convert, unit, told_apart = (
            (lambda ratio: ratio),
            " times as long" if name == LATENCY else " times",
            (1,),
        )
    elif name == LATENCY and change.value <= 1 / TIMES:
        convert, unit, told_apart = (lambda ratio: 1 / max(ratio, SMALLEST)), " times as fast", (1,)
    else:
        convert, unit, told_apart = (
            (lambda ratio: 100 * (ratio - 1)),
            "%",
            (-100, -margin / (1 + change.margin), 0, margin),
        )
    value, *ends = (
        convert(end) for end in (change.value, change.low, change.high) if end is not None
    )
    width = max(ends, default=value) - min(ends, default=value)
    decimals = 0 if change.scale == "ratio" and (abs(value) >= COARSE or width >= WIDE) else 1
    if ends:
        decimals = number_text.telling_decimals(ends, decimals, *told_apart, *map(convert, limits))
    amount, *texts = (
        number_text.with_decimals(number, decimals, "" if "times" in unit else "+")
        for number in (value, *sorted(ends))
    )
    return f"{amount}{unit}", f"{' to '.join(texts)}{'%' * (unit == '%')}" if len(
        set(texts)
    ) > 1 else ""


def change_text(name: str, change: Decision) -> str:
    """Return a change as `-14%`, a large one as `4.9 times as long`.

    For shares and accuracies it is as `-9.9 points`.
    """
    return change_parts(name, change)[0]


def change_with_interval(name: str, change: Decision, *limits: float) -> str:
    """Return a change with the deciding interval, if it has one: `-14% (-19 to -9%)`."""
    text, interval = change_parts(name, change, *limits)
    return f"{text} ({interval})" if interval else text


def is_identical(change: Decision) -> bool:
    """Return whether two accuracies are the same in every part of the images."""
    return change.evidence.unit == "image" and change.evidence.error == 0 == change.value


def outcome_text(decision: Decision) -> str:
    """Return the outcome with its margin or remedy.

    Examples are `no difference above 3%` and `inconclusive; about 4 more runs would decide`.
    """
    if decision.outcome == "no difference":
        return f"no difference above {margin_text(decision)}"
    return "; ".join(filter(None, (decision.outcome, what_decides(decision))))


def margin_text(decision: Decision) -> str:
    """Return the smallest difference that matters: `3%`, `0.5 points`."""
    return f"{100 * decision.margin:g}{' points' if decision.scale == 'points' else '%'}"


def what_decides(decision: Decision) -> str:
    """Return how many more runs would decide; empty if nothing is open.

    An example is `about 6 more runs would decide: measure with --repeats 9`.

    Without an interval that number is unknown: `3 runs give an interval: measure with --repeats 3`.
    """
    unit, further = decision.evidence.unit, decision.further
    if decision.outcome == "inconclusive" and decision.low is not None and unit == "image":
        return "more images would narrow it"
    if (
        decision.outcome == "inconclusive"
        and decision.limit is None
        and further is None
        and decision.low is not None
    ):
        return f"not even {MOST_FURTHER} more {unit}s would decide"
    if not further or further < 0:
        return ""
    # A further pair is a further run of each.
    option = f": measure with --repeats {decision.repeats}" if unit in ("run", "pair") else ""
    if decision.low is None:
        return f"{number_text.count(FEWEST, 'run' if option else unit)} give an interval{option}"
    further_text = number_text.count(further, "more run" if option else f"more {unit}")
    return f"about {further_text} would decide{option}"


def assumed_in_changes(decisions: Iterable[Decision]) -> Iterator[str]:
    """Yield the scatter that is assumed in the intervals of changes.

    It is that between sessions and between days, which too few runs cannot show.
    """
    assumed = [
        (decision.evidence.assumed.between, decision.evidence.assumed.sd)
        for decision in decisions
        if decision.evidence.assumed
    ]
    for between, sds in grouped(assumed).items():
        yield (
            f"changes between {between} include an assumed scatter of {100 * max(sds):.2g}% "
            f"between {between}"
        )


def confidence_text(*confidences: float) -> str:
    """Return the confidence of intervals as `97.5%`, for several as `95% to 98.3%`.

    It is never 100%.
    """
    ends = sorted({100 * confidence for confidence in (min(confidences), max(confidences))})
    decimals = number_text.telling_decimals(ends, 1, 100)
    return " to ".join(f"{round(end, decimals):g}%" for end in ends)


def decided_together(changes: Iterable[Decision]) -> str:
    """Return the confidence of the intervals of a comparison.

    It is empty if each is 95%, or there is none.
    """
    confidences = [
        change.confidence
        for change in changes
        if change.low is not None and change.low != change.high
    ]
    if not confidences or confidence_text(*confidences) == confidence_text(CONFIDENCE):
        return ""
    return (
        f"the intervals of changes have {confidence_text(*confidences)} confidence, so that all "
        "decisions together have 95%"
    )


def only(texts: Iterable[str]) -> str | None:
    """Return the text if all are equal; None if they differ or there are none."""
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else None


def listed(texts: Sequence[str], limit: int = 4) -> str:
    """Return `a, b and c`; with more than `limit` the first ones and the number of others."""
    if len(texts) > limit:
        return f"{', '.join(texts[: limit - 1])} and {len(texts) - limit + 1} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def level_text(case: CaseSummary) -> str:
    """Return since when the runs of a case count, and the number of earlier ones.

    It is empty if all count.
    """
    return (
        f"{case.segment.words}; {number_text.count(case.segment.earlier, 'earlier run')} left out"
        if case.segment
        else ""
    )


def level_of_boards(boards: Sequence[ComparedCase]) -> str:
    """Return since when the runs of boards of one type count, and on how many boards.

    It also has the number of earlier runs, and is empty if all count.
    """
    segments = [board.case.segment for board in boards if board.case.segment]
    days = sorted(number_text.stamp(segment.since_ns)[:10] for segment in segments)
    period = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    earlier = number_text.count(sum(segment.earlier for segment in segments), "earlier run")
    return (
        f"{len(segments)} of {len(boards)} boards since {period}; {earlier} left out"
        if segments
        else ""
    )


def case_names(cases: Sequence[CaseSummary]) -> list[str]:
    """Return a short name for each case.

    It is precision and runtime, and other fields that distinguish cases of one device.
    """
    models = [case.key.model for case in cases]
    parts = [
        *([models] if len(set(models)) > 1 else []),
        [case.key.precision for case in cases],
        [case.key.runtime for case in cases],
    ]
    owners = [f"{case.key.fleet} {case.key.device} {case.key.role}" for case in cases]
    short = [
        " · ".join(texts)
        for texts in zip(*parts, *telling_parts(cases, [owners, *parts]), strict=True)
    ]
    # One device may be the reference too, and devices of two fleets may have one name: used if
    # nothing else distinguishes their cases.
    alike = grouped(
        ((case.key.device, name), case.key) for case, name in zip(cases, short, strict=True)
    )
    distinctions = {
        key: apart(key, keys, [FIELD["role"].text, FIELD["fleet"].text])
        for keys in alike.values()
        for key in keys
    }
    return [
        " · ".join([name, *distinctions[case.key]]) for case, name in zip(cases, short, strict=True)
    ]


def telling_parts(
    cases: Sequence[CaseSummary], shown_texts: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Return the fields that distinguish the cases, each a text for every case.

    `shown_texts` are those that a reader sees anyway.
    """
    names_of_data = {case.key.dataset_sha256: case.subject.dataset.name for case in cases}
    # If two data sets have one name, the start of their hashes distinguishes them.
    is_clear = len(set(names_of_data.values())) == len(names_of_data)
    telling: list[list[str]] = []
    for entry in FIELDS:
        if entry.name in ("device", "model", "precision", "runtime"):
            continue
        texts = [entry.text(case.key) for case in cases]
        if entry.name == "dataset_sha256":
            texts = [
                names_of_data[sha256] + ("" if is_clear else f" ({sha256[:6]})")
                for sha256 in [case.key.dataset_sha256 for case in cases]
            ]
        if _different([*shown_texts, *telling, texts]) > _different([*shown_texts, *telling]):
            telling.append(texts)
    return telling


def load_words(key: CaseKey) -> str:
    """Return the load of a case and its concurrent models, after a comma.

    It is empty for single calls of one model.
    """
    return f", {load}" if (load := load_text(key)) else ""


def work_text(case: CaseSummary) -> str:
    """Return the data and the load of a case: `photos (24 images), single_stream`."""
    dataset = case.subject.dataset
    return (
        f"{dataset.name} ({count(dataset.images, 'image')}), "
        f"{case.key.scenario}{load_words(case.key)}"
    )


def _different(parts: Sequence[Sequence[str]]) -> int:
    return len(set(zip(*parts, strict=True)))

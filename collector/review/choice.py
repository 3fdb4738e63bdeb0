"""The comparison of two sets of runs in one sentence: a case before and after a change, or two candidate cases.

A review pairs the same case only. Where each side holds one case, and they are two (models, precisions, runtimes), they are no baseline of
each other, but something to choose between: that is said of them, and no limit is judged.
"""

from dataclasses import dataclass

from edgemeter.agent.base.decision import Difference, Scale, change_text, decide, difference, sentence
from edgemeter.agent.base.figures import significant
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.case_identity import relation
from edgemeter.agent.contract.record_conditions import rule_of
from edgemeter.collector.compare.judgement import JUDGED, SmallestDifferences, decide_figure, ratios, speed_of, why_not_compared
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted, summaries_of
from edgemeter.collector.runs.cases import group_cases, names_of
from edgemeter.collector.runs.store import StoreContents


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """Two cases of one device or type of board, with their names; `sentence` is about B against A, `marks` are what they differ in."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    sentence: str
    marks: tuple[str, ...] = ()


def find_choice(
    baseline: StoreContents, new: StoreContents, matters: SmallestDifferences, days: DaysCounted = "current"
) -> CaseChoice | None:
    """Return what is to be chosen between, None unless each side has one case, both of one scenario on one device or type of board."""
    sides = [summaries_of(group_cases(side.runs)[0], days) for side in (baseline, new)]
    if [len(side) for side in sides] != [1, 1]:
        return None
    (a,), (b,) = sides
    is_one_type = a.device == b.device or a.around.environment["board"] == b.around.environment["board"]
    if not is_one_type or a.key.scenario != b.key.scenario:
        return None
    names = names_of([a.key, b.key])
    related = relation(b.key, a.key)
    sizes = [
        f"other input size: {field.text(b.key)} against {field.text(a.key)}" for field in related.unlike if field.name == "input_values"
    ]
    marks = (*(difference.words for difference in related.marked), *sizes)
    return CaseChoice(names[a.key], names[b.key], case_differences(a, b, matters), case_sentence("B", "A", a, b, matters), marks)


def choice_lines(choice: CaseChoice) -> list[str]:
    """Return the choice as lines for a terminal, the sentence last."""
    lines = [f"A: {choice.a}", f"B: {choice.b}"]
    for diff in choice.differences:
        if diff.change is None:
            lines.append(f"no {diff.figure}: {diff.note}")
        else:
            lines.append(f"{diff.figure}: A {_value(diff, diff.a)}, B {_value(diff, diff.b)}, {change_text(diff)}")
    return [*lines, *(f"note: {mark}" for mark in choice.marks), f"{choice.sentence}."]


def case_sentence(name: str, other: str, a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> str:
    """Return what case `b`, called `name`, comes to against case `a`, called `other`."""
    doubts = [
        f"{side.suspect} of {len(side.runs)} runs of {called} are suspect ({', '.join(dict.fromkeys(map(rule_of, side.verdict_reasons)))})"
        for called, side in ((other, a), (name, b))
        if side.suspect
    ]
    return sentence(name, other, case_differences(a, b, matters), doubts)


def case_differences(a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> tuple[Difference, ...]:
    """Return the figures of `b` against those of `a`: latency (of an offline case throughput), accuracy, energy."""
    figures: tuple[str, ...] = (speed_of(a), "accuracy", "energy")
    return tuple(_difference(figure, a, b, matters.of(figure)) for figure in figures)


def _difference(figure: str, a: CaseSummary, b: CaseSummary, matters: float) -> Difference:
    scale: Scale = "difference" if figure == "accuracy" else "ratio"
    decision = decide_figure(figure, b, a, ratios(b, a), matters) or decide(None, None, matters, scale, why_not_compared(figure, b, a))
    if figure == "accuracy":
        name = metric_name(a.accuracy.metric) if a.accuracy and decision.value is not None else figure
        values = median_of(a.accuracy_value), median_of(b.accuracy_value)
        return difference(figure, name, decision, values, a.accuracy.better if a.accuracy else "higher")
    entry = JUDGED[figure]
    return difference(figure, entry.unit, decision, (median_of(a.spreads.get(entry.name)), median_of(b.spreads.get(entry.name))))


def _value(diff: Difference, value: float | None) -> str:
    return f"{value:.3f} {diff.unit}" if diff.figure == "accuracy" and value is not None else f"{significant(value)} {diff.unit}"

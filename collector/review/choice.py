"""What two sets of runs come to in one sentence: of a case before and after a change, or of two cases that are chosen between.

A review pairs the same case only. Where each side holds one case, and they are two (models, precisions, runtimes), they are no baseline of
each other, but something to choose between: that is said of them, and no limit is judged.
"""

from dataclasses import dataclass

from edgemeter.agent.base import decision
from edgemeter.agent.base.accuracy_bounds import DifferenceBounds
from edgemeter.agent.base.decision import Difference, Figure, accuracy_difference, state_of
from edgemeter.agent.base.figures import significant
from edgemeter.agent.base.metrics import metric_name
from edgemeter.collector.compare.judgement import Bounds, Ratios, SmallestDifferences, ratios
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted, rule_of, summaries_of
from edgemeter.collector.runs.cases import group_cases, names_of
from edgemeter.collector.runs.store import StoreContents


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """Two cases of one device or type of board, with their names; `sentence` is about B against A."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    sentence: str


def find_choice(
    baseline: StoreContents, new: StoreContents, matters: SmallestDifferences, days: DaysCounted = "current"
) -> CaseChoice | None:
    """Return what is to be chosen between, None unless each side has one case, both of one scenario on one device or type of board."""
    sides = [summaries_of(group_cases(side.runs)[0], days) for side in (baseline, new)]
    if [len(side) for side in sides] != [1, 1]:
        return None
    (a,), (b,) = sides
    is_one_device = (a.key.fleet, a.key.device) == (b.key.fleet, b.key.device)
    if not (is_one_device or a.around.environment["board"] == b.around.environment["board"]) or a.key.scenario != b.key.scenario:
        return None
    names = names_of([a.key, b.key])
    return CaseChoice(names[a.key], names[b.key], case_differences(a, b, matters), case_sentence("B", "A", a, b, matters))


def choice_lines(found: CaseChoice) -> list[str]:
    """Return the choice as lines for a terminal, the sentence last."""
    lines = [f"A: {found.a}", f"B: {found.b}"]
    for one in found.differences:
        if one.state == "absent":
            lines.append(f"no {one.figure}: {one.note}")
        else:
            lines.append(f"{one.figure}: A {_value(one, one.a)}, B {_value(one, one.b)}, {decision.change_text(one)}")
    return [*lines, f"{found.sentence}."]


def case_sentence(name: str, other: str, a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> str:
    """Return what case `b`, called `name`, comes to against case `a`, called `other`."""
    doubts = [
        f"{side.suspect} of {len(side.runs)} runs of {called} are suspect ({', '.join(dict.fromkeys(map(rule_of, side.verdict_reasons)))})"
        for called, side in ((other, a), (name, b))
        if side.suspect
    ]
    return decision.sentence(name, other, case_differences(a, b, matters), doubts)


def case_differences(a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> tuple[Difference, ...]:
    """Return the figures of `b` against those of `a`: latency (of an offline case throughput), accuracy, energy."""
    found = ratios(b, a)
    if a.key.scenario == "offline":
        rates = a.throughput_per_s, b.throughput_per_s
        speed = _of_ratio("throughput", "per s", found.throughput, found.throughput_interval, rates, matters)
    else:
        speed = _of_ratio("latency", "ms", found.p50, found.p50_interval, (a.p50_ms, b.p50_ms), matters)
    return speed, _of_accuracy(a, b, found, matters), _of_energy(a, b, found, matters)


def _of_ratio(
    figure: Figure,
    unit: str,
    ratio: float | None,
    bounds: Bounds | None,
    sides: tuple[Spread | None, Spread | None],
    matters: SmallestDifferences,
    why_absent: str = "too few queries for a median",
) -> Difference:
    values = median_of(sides[0]), median_of(sides[1])
    if ratio is None:
        return decision.absent(figure, unit, matters.ratio, why_absent, *values)
    low, high = bounds or (None, None)
    state = "open" if bounds is None else state_of(*bounds, matters.ratio, 1.0)
    return Difference(
        figure=figure, unit=unit, state=state, matters=matters.ratio, a=values[0], b=values[1], change=ratio, low=low, high=high,
        note="too few runs for an interval" if bounds is None else "",
    )  # fmt: skip


def _of_energy(a: CaseSummary, b: CaseSummary, found: Ratios, matters: SmallestDifferences) -> Difference:
    why = a.energy_reason or b.energy_reason
    if why is None and a.energy and b.energy:
        why = f"{a.energy.ranks_as} against {b.energy.ranks_as} are not compared"
    sides = (a.gross_mj, b.gross_mj)
    return _of_ratio("energy", "mJ", found.energy_gross, found.energy_gross_interval, sides, matters, why or "not measured")


def _of_accuracy(a: CaseSummary, b: CaseSummary, found: Ratios, matters: SmallestDifferences) -> Difference:
    if a.accuracy is None or b.accuracy is None:
        why = a.accuracy_reason or b.accuracy_reason or "not scored"
        return decision.absent("accuracy", "accuracy", matters.accuracy, why, median_of(a.accuracy_value), median_of(b.accuracy_value))
    values = a.accuracy.value.median, b.accuracy.value.median
    if found.accuracy_difference is None:
        return decision.absent("accuracy", "accuracy", matters.accuracy, "not the same metric on the same images", *values)
    bounds = DifferenceBounds(found.accuracy_interval, found.accuracy_reason)
    return accuracy_difference(metric_name(a.accuracy.metric), values, bounds, matters.accuracy, a.accuracy.better)


def _value(one: Difference, value: float | None) -> str:
    return f"{value:.3f} {one.unit}" if one.figure == "accuracy" and value is not None else f"{significant(value)} {one.unit}"

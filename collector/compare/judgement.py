"""Ratios of a case to its reference, and the judgement of each: the decision for machines, its words for people."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TypeAlias

from edgemeter.agent.base import figures
from edgemeter.agent.base.accuracy_bounds import BoundedFigure, DifferenceBounds, difference_bounds
from edgemeter.agent.base.decision import (
    ACCURACY,
    ENERGY,
    LATENCY,
    MEMORY,
    MISSED,
    ONE_DAY,
    THROUGHPUT,
    Bounds,
    Decision,
    Outcome,
    Scale,
    decide,
    decide_accuracy,
    percent,
    points_text,
)
from edgemeter.agent.base.metrics import Better, metric_name
from edgemeter.agent.base.run_statistics import FEWEST, MATTERS_ACCURACY, MATTERS_RATIO, MATTERS_SHARE, interval_of_ratio
from edgemeter.agent.contract.figures import Figure
from edgemeter.agent.contract.same_work import why_other_answers, why_other_questions
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.pairing import is_one_class
from edgemeter.collector.compare.spread import MedianInterval, Spread, widened_interval
from edgemeter.collector.compare.summary import AccuracySummary, CaseSummary
from edgemeter.collector.runs.relation import why_other_load

# Where figures of whole queries stand in a record, which of generated text compare only where the answers are as long.
_OF_WHOLE_QUERIES = ("latency.", "throughput_per_s", "energy.")
# Of runs in turn so many of one side follow each other: those of two rounds, or around one that was lost.
MOST_IN_A_ROW = 2
# What settles a ratio of one day.
ON_MORE_DAYS = f"measure both sides on {FEWEST} days, or in turn on one board"
# More than this nobody measures: then nothing is foreseen.
FORESEEN = 1000


@dataclass(frozen=True, slots=True)
class Ratios:
    """Case / reference, by the names of figures; of shares case - reference (0..1), as of the accuracy in the metric's own unit.

    Energies only have a ratio when they may be ranked together (`energy_class`). `p50_low` and `p50_high` are the extremes that the ranges
    over runs allow.

    `intervals` are 95%: over runs, days or devices; of energy with the uncertainty of the meters, unless one meter measured both; of
    accuracy over the images. None where there are too few runs or a bound is not known: `accuracy_reason`.
    """

    values: Mapping[str, float]
    intervals: Mapping[str, Bounds]
    p50_low: float | None = None
    p50_high: float | None = None
    accuracy_reason: str = ""

    @property
    def p50(self) -> float | None:
        """The ratio of median latencies."""
        return self.values.get(LATENCY)


def ratios(case: CaseSummary, reference: CaseSummary) -> Ratios:
    """Return the ratios of `case` to `reference`; of the reference to itself they are 1."""
    is_itself = case is reference
    values: dict[str, float] = {}
    intervals: dict[str, Bounds] = {}
    for name, entry in JUDGED.items():
        # Most cases have few of the figures.
        if name == ACCURACY or (value := _change(entry, case, reference)) is None or other_work(entry, case, reference):
            continue
        if entry.group == "energy" and not energies_rank(case, reference):
            continue
        values[name] = value
        if not is_itself and (bounds := _bounds(entry, case, reference)) is not None:
            intervals[name] = bounds
    accuracy = DifferenceBounds(None)
    if case.accuracy and reference.accuracy and case.accuracy.measure == reference.accuracy.measure:
        values[ACCURACY] = case.accuracy.value.median - reference.accuracy.value.median
        if not is_itself:
            accuracy = difference_bounds(case.accuracy.bounded, reference.accuracy.bounded)
    if accuracy.bounds is not None:
        intervals[ACCURACY] = accuracy.bounds
    p50 = values.get(LATENCY)
    low = high = p50 if is_itself else None
    if case.p50_ms and reference.p50_ms and not is_itself:
        low, high = _ratio(case.p50_ms.low, reference.p50_ms.high), _ratio(case.p50_ms.high, reference.p50_ms.low)
    return Ratios(values, intervals, low, high, accuracy.reason)


def withheld(compared: Ratios) -> Ratios:
    """Return the ratios of a case whose speed is not ranked: only the difference of accuracy."""
    difference, bounds = compared.values.get(ACCURACY), compared.intervals.get(ACCURACY)
    values = {} if difference is None else {ACCURACY: difference}
    return Ratios(values, {} if bounds is None else {ACCURACY: bounds}, accuracy_reason=compared.accuracy_reason)


def energies_rank(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether both have an energy, at one scope and of one provenance: then the two may be ranked together."""
    energy, other = case.energy, reference.energy
    return energy is not None and other is not None and energy.ranks_as == other.ranks_as


def other_work(entry: Figure, case: CaseSummary, reference: CaseSummary) -> str:
    """Return why a figure does not compare, as of another load or of other generated text; empty where it does."""
    if entry.group != "memory" and (why := why_other_load(case.key, reference.key)):
        return why
    if not (case.generates and reference.generates):
        return ""
    runs = reference.newest, case.newest
    if not entry.path.startswith(_OF_WHOLE_QUERIES):
        return why_other_questions(*runs) if entry.path.startswith("generation.") else ""
    return why_other_answers(*runs)


def is_one_meter(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether one meter measured both, so that its error cancels in the ratio."""
    energy, other = case.energy, reference.energy
    return energy is not None and other is not None and energy.sensor == other.sensor and case.device == reference.device


def _ratio(value: float, other: float) -> float | None:
    return value / other if value > 0 and other > 0 else None


def _change(entry: Figure, case: CaseSummary, reference: CaseSummary) -> float | None:
    figure, other = case.spreads.get(entry.name), reference.spreads.get(entry.name)
    if figure is None or other is None:
        return None
    return figure.median - other.median if entry.is_share else _ratio(figure.median, other.median)


def _bounds(entry: Figure, case: CaseSummary, reference: CaseSummary) -> Bounds | None:
    if entry.is_share:
        return share_bounds(case.spreads[entry.name], reference.spreads[entry.name])
    with_meter = bool(entry.u) and not is_one_meter(case, reference)
    bounded, other = (_side(entry, side, with_meter=with_meter) for side in (case, reference))
    return None if bounded is None or other is None else interval_of_ratio(*bounded, *other)


def share_bounds(share: Spread, other: Spread) -> Bounds | None:
    """Return the 95% bounds of the difference of two shares; None where one has none."""
    sides = [BoundedFigure(side.median, side.interval.low, side.interval.high, ()) for side in (share, other) if side.interval]
    return difference_bounds(*sides).bounds if len(sides) == 2 else None


def _side(entry: Figure, side: CaseSummary, *, with_meter: bool) -> tuple[float, Bounds] | None:
    spread, u = side.spreads.get(entry.name), side.uncertainties.get(entry.name)
    # Of a count, such as that of false detections, the interval may begin at 0.
    if spread is None or spread.interval is None or spread.interval.low <= 0 or (with_meter and u is None):
        return None
    bounds = spread.interval.low, spread.interval.high
    return spread.median, widened_interval(bounds, spread.median, u) if with_meter and u is not None else bounds


@dataclass(frozen=True)
class Judgement:
    """The decision on a figure of a case against its reference's; `verdict` is its outcome in words, `details` says what it rests on."""

    decision: Decision
    verdict: str
    better: Better
    details: Callable[[], str]

    @cached_property
    def words(self) -> str:
        """The verdict and what it rests on, worked out when it is asked for: of thousands most are never shown."""
        return f"{self.verdict}: {self.decision.reason + ', ' if self.decision.reason else ''}{self.details()}"

    @property
    def outcome(self) -> Outcome:
        """The outcome, in the one vocabulary of every view."""
        return self.decision.outcome

    @property
    def is_worse(self) -> bool:
        """Whether the case is worse than its reference."""
        return self.outcome == ("higher" if self.better == "lower" else "lower")

    @property
    def is_better(self) -> bool:
        """Whether the case is better than its reference."""
        return self.outcome == self.better


# None where there is no ratio to judge.
CaseJudgements: TypeAlias = Mapping[str, Judgement | None]


@dataclass(frozen=True, slots=True)
class SmallestDifferences:
    """The smallest differences that matter: of ratios, and of accuracy in its own unit (0..1)."""

    ratio: float = MATTERS_RATIO
    accuracy: float = MATTERS_ACCURACY

    def of(self, figure: str) -> float:
        """Return the smallest difference of this figure that matters."""
        return self.accuracy if figure == ACCURACY else MATTERS_SHARE if in_points(figure) else self.ratio


def in_points(figure: str) -> bool:
    """Return whether two values of a figure differ by points, and are no ratio."""
    return figure == ACCURACY or JUDGED[figure].is_share


def change_text(figure: str, value: float) -> str:
    """Return a change in words: a ratio as `1.07x`, a difference in points."""
    return f"{value * 100:+.2f} points" if in_points(figure) else figures.times(value)


def interval_text(figure: str, bounds: Bounds) -> str:
    """Return the bounds of a ratio, or of a difference in points."""
    return f"{bounds[0] * 100:+.2f} to {bounds[1] * 100:+.2f} points" if in_points(figure) else figures.span(*bounds)


def judge_case(case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: SmallestDifferences) -> CaseJudgements:
    """Return the judgements on `case`; of the reference against itself there are none."""
    return judgements_of(decide_case(case, reference, ratios, matters), case, reference)


def decide_case(case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: SmallestDifferences) -> Mapping[str, Decision]:
    """Return the decisions that judgements on `case` put into words, by figure; without those on which there is nothing to judge."""
    if case is reference:
        return {}
    decided = {figure: _decide_in_class(figure, case, reference, ratios, matters.of(figure)) for figure in ratios.values}
    return {figure: decision for figure, decision in decided.items() if decision is not None}


def judgements_of(decisions: Mapping[str, Decision], case: CaseSummary, reference: CaseSummary) -> CaseJudgements:
    """Return the judgements that these decisions on `case` are."""
    return {figure: _judged(figure, decisions[figure], case, reference) if figure in decisions else None for figure in JUDGED}


def judge_figure(figure: str, case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: float) -> Judgement | None:
    """Return the judgement on a figure, None where there is nothing to judge; a ratio of two classes of precision is not judged."""
    decision = _decide_in_class(figure, case, reference, ratios, matters)
    return None if decision is None else _judged(figure, decision, case, reference)


def _judged(figure: str, decision: Decision, case: CaseSummary, reference: CaseSummary) -> Judgement | None:
    return _judged_accuracy(decision, case, reference) if figure == ACCURACY else _judged_ratio(figure, decision, case, reference)


def _decide_in_class(figure: str, case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: float) -> Decision | None:
    decision = decide_figure(figure, case, reference, ratios, matters)
    if decision is None or figure == ACCURACY or is_one_class(case, reference):
        return decision
    return replace(decision, outcome="not judged", reason=f"{case.key.precision} against {reference.key.precision}")


def decide_figure(figure: str, case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: float) -> Decision | None:
    """Return the decision on a figure, whatever the precision of the two, None where there is no ratio and no difference."""
    if figure == ACCURACY:
        over_images = DifferenceBounds(ratios.intervals.get(ACCURACY), ratios.accuracy_reason)
        return None if (difference := ratios.values.get(ACCURACY)) is None else decide_accuracy(difference, over_images, matters)
    ratio = ratios.values.get(figure)
    if ratio is None:
        return None
    sides, bounds = _sides(figure, case, reference), ratios.intervals.get(figure)
    is_of_meter = JUDGED[figure].u and all(side.interval for side in sides)
    reason = "" if bounds else "the uncertainty of the meters is unknown" if is_of_meter else _few_runs(sides)
    scale: Scale = "difference" if in_points(figure) else "ratio"
    suspicions = dict.fromkeys(interval.suspicion for interval in _intervals(sides) if interval.suspicion)
    caution = f"{' and '.join(suspicions)}: the ratio is of both levels" if suspicions else ""
    decision = decide(ratio, bounds, matters, scale, reason)
    decision = replace(decision, caution=caution) if caution else decision
    is_of_one_day = any(is_within_a_day(figure, interval) for interval in _intervals(sides))
    return decision.of_one_day() if is_of_one_day and not is_in_turn(case, reference) else decision


def is_within_a_day(figure: str, interval: MedianInterval) -> bool:
    """Return whether an interval says nothing of other days; what a program takes in memory is no matter of the day."""
    return figure != MEMORY and interval.level != "device" and interval.days == 1


def is_in_turn(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether both were measured on one device in turn (AB BA ...), so that what a day does to one it does to the other."""
    if case.device != reference.device:
        return False
    starts = sorted([*((run.started_at_ns, 0) for run in case.runs), *((run.started_at_ns, 1) for run in reference.runs)])
    return all(len(list(runs_of_side)) <= MOST_IN_A_ROW for _, runs_of_side in groupby(side for _, side in starts))


def _few_runs(sides: Sequence[Spread]) -> str:
    missing = max(FEWEST - min(side.n for side in sides), 0)
    runs = " against ".join(f"{side.n}" for side in sides)
    return f"{figures.count(missing, 'run')} too few ({runs}; an interval takes {FEWEST} each)" if missing else "the runs lie too far apart"


def speed_of(case: CaseSummary) -> str:
    """Return the figure that a case's speed is: of an offline load throughput."""
    return THROUGHPUT if case.key.scenario == "offline" else LATENCY


def verdict_lines(case: CaseSummary, judgements: CaseJudgements) -> list[str]:
    """Return the judgements on `case` in words, latency first; throughput only of offline loads, frames of such runs."""
    lines = {figure: judged.words for figure, judged in judgements.items() if judged}
    names = dict.fromkeys((LATENCY, speed_of(case), MISSED, ENERGY, ACCURACY))
    return [f"{JUDGED[figure].title}: {lines[figure]}" for figure in names if figure in lines]


def why_not_compared(figure: str, case: CaseSummary, reference: CaseSummary) -> str:
    """Return why a figure is not judged."""
    if figure != ACCURACY and (why := other_work(JUDGED[figure], case, reference)):
        return why
    if figure == ENERGY:
        classes = [side.energy.ranks_as for side in (reference, case) if side.energy]
        reason = f"{classes[0]} against {classes[1]} are not compared" if len(classes) == 2 else "not measured"
        return reference.energy_reason or case.energy_reason or reason
    if figure == ACCURACY:
        reason = "not the same metric on the same images" if case.accuracy and reference.accuracy else "not scored"
        return reference.accuracy_reason or case.accuracy_reason or reason
    entry, sides = JUDGED[figure], _sides(figure, case, reference)
    if len(sides) < 2 or min(side.median for side in sides) > 0:
        return entry.why_absent
    return "one side is 0: no ratio"


def _judged_ratio(figure: str, decision: Decision, case: CaseSummary, reference: CaseSummary) -> Judgement:
    entry = JUDGED[figure]
    better: Better = "higher" if entry.better == "higher" else "lower"
    margin = points_text(decision.matters) if entry.is_share else percent(decision.matters)
    return _judgement(decision, better, margin, partial(_details_of_ratio, figure, decision, case, reference))


def _details_of_ratio(figure: str, decision: Decision, case: CaseSummary, reference: CaseSummary) -> str:
    entry, sides = JUDGED[figure], _sides(figure, case, reference)
    details = f"{_rounded(decision.value or 0.0)} times the {entry.title}"
    if entry.is_share:
        details = f"{' against '.join(figures.share(side.median) for side in sides)}, {change_text(figure, decision.value or 0.0)}"
    if decision.bounds:
        # What the interval rests on, and what therefore is not in it.
        over, within = " against ".join(interval.over for interval in _intervals(sides)), within_of(sides)
        basis = f"{over}; within {within}" if within else over
        ends = interval_text(figure, decision.bounds) if entry.is_share else " to ".join(map(_rounded, decision.bounds))
        details += f" (95%: {ends}, {basis})"
    if decision.reason == ONE_DAY:
        details += f"; {ON_MORE_DAYS}"
    elif decision.outcome == "not settled":
        details += "; measure longer" if entry.over_runs else _foresight(decision, sides)
    if entry.group == "energy" and decision.outcome != "not judged":
        details += "; one meter measured both" if is_one_meter(case, reference) else "; including the uncertainty of the meters"
    return details


def _judged_accuracy(decision: Decision, case: CaseSummary, reference: CaseSummary) -> Judgement | None:
    accuracy, baseline = case.accuracy, reference.accuracy
    if accuracy is None or baseline is None or decision.value is None:
        return None
    details = partial(_details_of_accuracy, decision, decision.value, accuracy, baseline)
    return _judgement(decision, accuracy.better, f"{decision.matters * 100:g} points", details)


def _details_of_accuracy(decision: Decision, difference: float, accuracy: AccuracySummary, baseline: AccuracySummary) -> str:
    details = f"{metric_name(accuracy.metric)} {accuracy.value.median:.3f} against {baseline.value.median:.3f}, {difference:+.3f}"
    if decision.bounds:
        details += f" (95%: {decision.bounds[0]:+.3f} to {decision.bounds[1]:+.3f} over {accuracy.images} images)"
    return details


def _judgement(decision: Decision, better: Better, margin: str, details: Callable[[], str]) -> Judgement:
    verdict: str = decision.outcome
    if verdict in ("lower", "higher"):
        doubt = "" if decision.is_beyond_margin else f", perhaps by less than the {margin} that matter"
        verdict = f"{'better' if verdict == better else 'worse'}{doubt}"
    verdict += f" ({decision.caution})" if decision.caution else ""
    return Judgement(decision, verdict, better, details)


def _sides(figure: str, case: CaseSummary, reference: CaseSummary) -> list[Spread]:
    return [side for side in (case.spreads.get(figure), reference.spreads.get(figure)) if side is not None]


def _rounded(ratio: float) -> str:
    # Near 1 the third decimal distinguishes 2% from 3%.
    return f"{ratio:.3f}" if 0.5 < ratio < 2 else f"{ratio:.3g}"


def _intervals(sides: Sequence[Spread]) -> list[MedianInterval]:
    return [side.interval for side in sides if side.interval]


def within_of(sides: Sequence[Spread | None]) -> str:
    """Return what neither side sampled, in words: `this day, this board`; two that differ stand against each other, equal ones once."""
    return " against ".join(dict.fromkeys(side.interval.within for side in sides if side and side.interval and side.interval.within))


def _foresight(decision: Decision, sides: Sequence[Spread]) -> str:
    """Return about how many more members would settle it, if the ratio and the spread are what they seem."""
    if decision.value is None or decision.bounds is None:
        return ""
    ratio, bounds, limit = decision.value, decision.bounds, math.log1p(decision.matters)
    reach = max(math.log(bounds[1] / ratio), math.log(ratio / bounds[0]))
    room = abs(abs(math.log(ratio)) - limit)
    least = min(_intervals(sides), key=lambda interval: interval.members)
    members = least.members * (reach / room) ** 2 if room > 0 else math.inf
    if members > FORESEEN:
        return "; with this spread, so close to the limit, no reasonable number of runs would settle it"
    additional = max(1, math.ceil(members) - least.members)
    return f"; about {additional} more {least.level}{'s' * (additional > 1)} on each side would settle it"

"""Certainty: whether a case meets a limit, by an interval that is wide enough for everything that is decided with it.

A choice decides much at once: each limit of each case, and for the pick each other case. At 95% each, one of twenty such statements would
be false by chance; so each interval has the confidence 1 - 0.05 / n (Bonferroni), where n is the number of limits times cases with an
interval plus the number of cases that the pick is compared with. Then "meets", "does not meet" and "is not the best" are all true together
in at least 95 of 100 choices, whatever depends on whatever. (Holm's procedure would decide a little more, but has no intervals to show.)

The stored interval of a median has 95%. A wider one is the stored reach to the farther side, on logarithms, times the ratio of Student's
quantiles of the days (or devices, runs) that it rests on; three or four of them may be skewed unnoticed, and reach `FEW` times as far. The
uncertainty of a meter, which repeating does not shrink, is widened by the normal quantile and added in quadrature. An accuracy is widened
about its value by the quantile of the parts of its images. `tests/collector/choose/test_choice.py` counts
how often it holds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from edgemeter.agent.base import figures
from edgemeter.agent.base.accuracy_bounds import BoundedFigure, difference_bounds
from edgemeter.agent.base.decision import ACCURACY, MEMORY, MISSED, Bounds
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.run_statistics import CONFIDENCE, FEWEST, interval_of_ratio
from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile
from edgemeter.agent.contract.figures import Figure
from edgemeter.agent.contract.pooled_misses import MOST_MISSED_RATIO
from edgemeter.collector.choose.limits import FigureLimit, with_unit
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import energies_rank, is_in_turn, is_one_meter, share_bounds
from edgemeter.collector.compare.spread import MedianInterval, Spread, widened_interval
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import EnergyClass

Certainty = Literal["meets", "may meet", "does not meet"]
# From worst to best: a case is as certain as its worst limit.
ORDER: tuple[Certainty, ...] = ("does not meet", "may meet", "meets")
FEW, FEW_MEMBERS = 1.3, 5
MISSED_FRAMES = JUDGED[MISSED]


@dataclass(frozen=True, slots=True)
class LimitFinding:
    """The result of a limit for a case: the value with its simultaneous bounds where known, and why it is not certain."""

    limit: FigureLimit
    state: Certainty
    value: float | None
    bounds: Bounds | None
    reason: str = ""

    @property
    def words(self) -> str:
        """The figure, its interval and the limit: `latency p99 31.2 ms (29.8 to 32.6) of at most 33 ms`."""
        if self.value is None:
            return f"{self.limit.title} not measured: {self.reason}"
        value = figure_text(self.limit.figure, self.value, self.bounds)
        return f"{self.limit.title} {value} of {self.limit.side} {self.limit.amount}{f': {self.reason}' if self.reason else ''}"

    @property
    def share(self) -> float:
        """How far it is from the limit, relative to it: the least is what decides; negative where the value is beyond the limit."""
        if self.value is None:
            return 0.0
        return self.limit.room(self.value) / abs(self.limit.value) if self.limit.value else self.limit.room(self.value)


def figure_text(entry: Figure, value: float, bounds: Bounds | None) -> str:
    """Return a value with its unit and its bounds: `31.2 ms (29.8 to 32.6)`."""
    if entry.is_share:
        return f"{figures.share(value)} ({entry.range_text(*bounds) if bounds else 'no interval'})"
    is_accuracy = entry.name == ACCURACY
    rounded = figures.accuracy(value) if is_accuracy else figures.significant(value)
    ends = "no interval" if bounds is None else " to ".join(map(figures.accuracy, bounds)) if is_accuracy else figures.span(*bounds)
    return f"{with_unit(rounded, entry)} ({ends})"


def decisions(cases: Sequence[CaseSummary], limits: Sequence[FigureLimit]) -> int:
    """Return how many statements a choice among these cases makes: what the confidence of each interval is worked out from."""
    limited = sum(has_interval(case, limit.figure) for case in cases for limit in limits)
    gated = 0 if limits_missed(limits) else sum(value_of(case, MISSED_FRAMES) is not None for case in cases)
    return max(1, limited + gated + len(cases) - 1)


def confidence_of(statements: int) -> float:
    """Return the confidence of each of so many intervals that all of them hold together in 95%."""
    return 1 - (1 - CONFIDENCE) / max(1, statements)


def has_interval(case: CaseSummary, entry: Figure) -> bool:
    """Return whether a case has an interval of a figure."""
    return bounds_of(case, entry, CONFIDENCE) is not None


def value_of(case: CaseSummary, entry: Figure) -> float | None:
    """Return the median of a figure over the runs of a case."""
    if entry.name == ACCURACY:
        return case.accuracy.value.median if case.accuracy else None
    spread = case.spreads.get(entry.name)
    return spread.median if spread else None


def bounds_of(case: CaseSummary, entry: Figure, confidence: float) -> Bounds | None:
    """Return the bounds of a figure of a case at a confidence, None where it has none, or where its meter's uncertainty is unknown."""
    if entry.name == ACCURACY:
        return _accuracy_bounds(case, confidence)
    spread = case.spreads.get(entry.name)
    if spread is None or spread.interval is None or (spread.median <= 0 and not entry.over_runs):
        return None
    if entry.over_runs:
        return _widened_count(entry, spread.median, (spread.interval.low, spread.interval.high), confidence)
    bounds = _widened(spread, spread.interval, confidence)
    if not entry.u:
        return bounds
    u = case.uncertainties.get(entry.name)
    return None if u is None else widened_interval(bounds, spread.median, u * _normal_widening(confidence))


def _widened_count(entry: Figure, value: float, bounds: Bounds, confidence: float) -> Bounds:
    low, high = (value + _normal_widening(confidence) * (end - value) for end in bounds)
    return max(0.0, low), min(entry.most, high)


def reach_of(spread: Spread, interval: MedianInterval) -> float:
    """Return how far the 95% interval reaches from the median, on logarithms, to the farther side."""
    few = FEW if interval.members < FEW_MEMBERS else 1.0
    return few * max(math.log(spread.median / interval.low), math.log(interval.high / spread.median), 0.0)


def _widened(spread: Spread, interval: MedianInterval, confidence: float) -> Bounds:
    freedom = interval.members - 1
    reach = reach_of(spread, interval) * student_quantile(confidence, freedom) / student_quantile(CONFIDENCE, freedom)
    # Beyond this nothing is said anyway, and no float holds it.
    factor = math.exp(min(reach, 100.0))
    return spread.median / factor, spread.median * factor


def _normal_widening(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2) / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def _accuracy_widening(parts: Sequence[float], confidence: float) -> float:
    if len(parts) < 2 or jackknife_error(parts) is None:
        return _normal_widening(confidence)
    freedom = jackknife_freedom(parts)
    return student_quantile(confidence, freedom) / student_quantile(CONFIDENCE, freedom)


def _accuracy_bounds(case: CaseSummary, confidence: float) -> Bounds | None:
    accuracy = case.accuracy
    if accuracy is None or accuracy.low is None or accuracy.high is None:
        return None
    middle, by = accuracy.value.median, _accuracy_widening(accuracy.without_parts, confidence)
    return middle - by * max(0.0, middle - accuracy.low), middle + by * max(0.0, accuracy.high - middle)


def find(case: CaseSummary, limit: FigureLimit, confidence: float, ranks_as: EnergyClass | None = None) -> LimitFinding:
    """Return what becomes of a limit for a case; `ranks_as` is the class of energies that the others have."""
    entry, value = limit.figure, value_of(case, limit.figure)
    if value is None:
        return LimitFinding(limit, "may meet", None, None, why_absent(case, entry))
    if limit.metric and case.accuracy and metric_name(case.accuracy.metric) != limit.metric:
        return LimitFinding(limit, "may meet", None, None, f"its accuracy is {metric_name(case.accuracy.metric)}")
    bounds = bounds_of(case, entry, confidence)
    if reason := _doubt(case, entry, ranks_as) or ("" if bounds else _why_no_bounds(case, entry)):
        return LimitFinding(limit, "may meet", value, bounds, reason)
    low, high = bounds or (value, value)
    worse, better = (high, low) if limit.side == "at most" else (low, high)
    state: Certainty = "meets" if limit.room(worse) >= 0 else "does not meet" if limit.room(better) < 0 else "may meet"
    return LimitFinding(limit, state, value, bounds)


def limits_missed(limits: Sequence[FigureLimit]) -> bool:
    """Return whether one of the limits is of missed frames."""
    return any(limit.figure is MISSED_FRAMES for limit in limits)


def not_in_time(case: CaseSummary, confidence: float) -> str:
    """Return that a case misses more frames than a rate that is held may, empty if that is not certain of its runs.

    Latency and energy are of frames that were answered: who misses many is no faster.
    """
    value = value_of(case, MISSED_FRAMES)
    if value is None:
        return ""
    # Few runs have no interval: then each of them has to miss so many.
    shares = [run.steady.missed_ratio for run in case.runs if run.steady]
    bounds = bounds_of(case, MISSED_FRAMES, confidence) or ((min(shares), max(shares)) if shares else None)
    if bounds is None or bounds[0] <= MOST_MISSED_RATIO:
        return ""
    finding = LimitFinding(FigureLimit(MISSED_FRAMES, "at most", MOST_MISSED_RATIO), "does not meet", value, bounds)
    return f"{finding.words}: give another limit such as missed<=5% to allow more"


def why_absent(case: CaseSummary, entry: Figure) -> str:
    """Return why a case has no value of a figure."""
    reason = {"energy": case.energy_reason, "accuracy": case.accuracy_reason}.get(entry.group)
    return reason or ("it generates no text" if entry.is_of_text and not case.generates else entry.why_absent)


def _doubt(case: CaseSummary, entry: Figure, ranks_as: EnergyClass | None) -> str:
    """Return why nothing is certain of a figure, whatever its interval is."""
    if case.disturbed:
        return f"{case.disturbed} of {figures.count(len(case.run_ids), 'run')} disturbed"
    if entry.group == "energy" and ranks_as and case.energy and case.energy.ranks_as != ranks_as:
        return f"measured at {case.energy.ranks_as}, the others at {ranks_as}"
    interval = interval_of(case, entry)
    return interval.suspicion or few_days(interval, entry) if interval else ""


def interval_of(case: CaseSummary, entry: Figure) -> MedianInterval | None:
    """Return the interval of a figure over days, devices or runs; of an accuracy, which is over images, None."""
    spread = None if entry.name == ACCURACY else case.spreads.get(entry.name)
    return spread.interval if spread else None


def few_days(interval: MedianInterval, entry: Figure) -> str:
    """Return that runs of a day or two say nothing of other days, where they are such; a program's memory is no matter of the day."""
    if interval.level != "run" or entry.name == MEMORY:
        return ""
    return f"measured on {figures.count(interval.days, 'day')}, other days may differ"


def _why_no_bounds(case: CaseSummary, entry: Figure) -> str:
    if entry.name == ACCURACY:
        return (case.accuracy.interval_reason if case.accuracy else None) or "no bounds recorded"
    spread = case.spreads.get(entry.name)
    if spread and spread.interval is None:
        return f"{figures.count(spread.n, 'run')}, an interval takes {FEWEST}" if spread.n < FEWEST else "the runs lie too far apart"
    return "the uncertainty of the meter is unknown"


def change(entry: Figure, case: CaseSummary, other: CaseSummary, confidence: float) -> tuple[float, Bounds | None] | None:
    """Return a figure of `case` against `other`'s with its bounds: a ratio, of accuracies and shares the difference; None without one."""
    value, base = value_of(case, entry), value_of(other, entry)
    if value is None or base is None:
        return None
    if entry.name == ACCURACY:
        return _accuracy_change(case, other, confidence)
    if entry.is_share:
        difference, within = value - base, share_bounds(case.spreads[entry.name], other.spreads[entry.name])
        by = _normal_widening(confidence)
        return difference, within and (difference - by * (difference - within[0]), difference + by * (within[1] - difference))
    if value <= 0 or base <= 0 or (entry.group == "energy" and not energies_rank(case, other)):
        return None
    sides = []
    for side in (case, other):
        spread = side.spreads[entry.name]
        if entry.u and not is_one_meter(case, other):
            bounds = bounds_of(side, entry, confidence)
        else:
            bounds = _widened(spread, spread.interval, confidence) if spread.interval else None
        sides.append(bounds)
    bounded, base_bounded = sides
    return value / base, None if bounded is None or base_bounded is None else interval_of_ratio(value, bounded, base, base_bounded)


def _accuracy_change(case: CaseSummary, other: CaseSummary, confidence: float) -> tuple[float, Bounds | None] | None:
    if case.accuracy is None or other.accuracy is None or case.accuracy.measure != other.accuracy.measure:
        return None
    bounded, base = case.accuracy.bounded, other.accuracy.bounded
    value = bounded.value - base.value
    bounds = difference_bounds(bounded, base).bounds
    if bounds is None:
        return value, None
    by = _accuracy_widening(_differences(bounded, base), confidence)
    return value, (value - by * (value - bounds[0]), value + by * (bounds[1] - value))


def _differences(bounded: BoundedFigure, base: BoundedFigure) -> Sequence[float]:
    if len(bounded.without_parts) != len(base.without_parts):
        return ()
    return [part - other for part, other in zip(bounded.without_parts, base.without_parts, strict=True)]


def is_told_apart(entry: Figure, better: CaseSummary, case: CaseSummary, confidence: float) -> bool:
    """Return whether a figure of `case` is worse than that of `better` with certainty."""
    changed = change(entry, case, better, confidence)
    if changed is None or changed[1] is None or case.disturbed or better.disturbed:
        return False
    intervals = [interval for side in (case, better) if (interval := interval_of(side, entry))]
    if any(interval.suspicion for interval in intervals):
        return False
    if any(few_days(interval, entry) for interval in intervals) and not is_in_turn(case, better):
        return False
    low, high = changed[1]
    if entry.name == ACCURACY:
        is_higher_better = case.accuracy is None or case.accuracy.better == "higher"
        return high < 0 if is_higher_better else low > 0
    same = 0 if entry.is_share else 1
    return high < same if entry.better == "higher" else low > same


def classes_of_energy(cases: Sequence[CaseSummary]) -> EnergyClass | None:
    """Return the class that energies are decided in: the measured one of the widest scope; None where no case has an energy."""
    return min((case.energy.ranks_as for case in cases if case.energy), key=lambda ranks: ranks.preference, default=None)

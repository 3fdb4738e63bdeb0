"""The current segment of a case: from which of its runs on it shows the level that the board has now, and why.

A case of months holds several levels; their median over all days is a level that the board never had. Steps are found as the trend finds
them. With too few days for that, a change of the fingerprint begins a segment if the runs after it differ from those before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from edgemeter.agent.base.evidence import FEWEST, RunValue, mean_of
from edgemeter.agent.contract.run_figures import RunFigures, figures_of
from edgemeter.agent.contract.run_subject import subject_of
from edgemeter.agent.contract.series import Fingerprint
from edgemeter.collector.runs.cases import CaseRuns, CurrentSegment
from edgemeter.collector.trend.change_points import ChangePoints, change_points
from edgemeter.collector.trend.days import days_of
from edgemeter.collector.trend.history import Points
from edgemeter.collector.trend.metrics import METRICS, TrendMetric, difference, on_scale
from edgemeter.collector.trend.series_trend import newest_step
from edgemeter.collector.trend.trend_text import amount_text

# A step in any of these begins a segment of all figures: one sentence then holds for the whole row.
LEVELS = ("latency_p50_ms", "energy_gross_mj", "accuracy_value")
# Only the newest segment is wanted, so history is scanned in larger strides than a monitor's; every split is still scanned while recent.
EVERY = 30
# A change of the fingerprint carries a step if Welch's p of the runs (or days) around it is below this, and the step matters.
CARRIED_P = 0.01


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The index of the first run of the current segment, and why it begins there."""

    place: int
    reason: str


def current_cases(cases: Sequence[CaseRuns]) -> list[CaseRuns]:
    """Return each case with the runs of its current segment; the others are its `earlier` runs."""
    starts = segment_starts([[(level_figures(figures_of(run)), subject_of(run).fingerprint) for run in case.runs] for case in cases])
    return [current_case(case, start) for case, start in zip(cases, starts, strict=True)]


def segment_starts(cases: Sequence[Points]) -> list[SegmentStart | None]:
    """Return where the current segment of each case (runs of any verdict, oldest first) begins; None where all runs are of one level."""
    counted = [
        [(figures if figures.verdict == "ok" else figures._replace(verdict="ok"), below) for figures, below in points] for points in cases
    ]
    starts: list[SegmentStart | None] = [None] * len(cases)
    for name in LEVELS:
        metric = METRICS[name]
        # A figure that never changes has no step: most accuracies.
        moving = [index for index, points in enumerate(counted) if len({metric.value(figures) for figures, _ in points} - {None}) > 1]
        days = [days_of(metric, counted[index]) for index in moving]
        for index, changes in zip(moving, change_points(days, stride=EVERY), strict=True):
            stepped = _stepped(name, counted[index], changes)
            start = _carried(name, counted[index], stepped.place if stepped else 0) or stepped
            newest = starts[index]
            if start is not None and (newest is None or start.place > newest.place):
                starts[index] = start
    return starts


def current_case(case: CaseRuns, start: SegmentStart | None) -> CaseRuns:
    """Return the case with the runs from `start` on; the others are its `earlier` runs. None: all are of one level."""
    if start is None:
        return case
    runs = case.runs[start.place :]
    return CaseRuns(case.key, runs, CurrentSegment(runs[0].started_at_ns, start.reason, start.place), case.runs[: start.place])


def level_figures(figures: RunFigures) -> RunFigures:
    """Return the figures with the time of one inference for a run that has no median: too few queries, as in `offline`."""
    throughput_per_s = figures.value("throughput_per_s")
    if figures.value("latency_p50_ms") is not None or not throughput_per_s:
        return figures
    return figures.with_value("latency_p50_ms", 1000 / throughput_per_s)


def _stepped(name: str, points: Points, changes: ChangePoints) -> SegmentStart | None:
    """Return the start of the level after the newest step that the trend confirms, or after the newest episode."""
    step, away = newest_step(changes), max(changes.episodes, key=lambda episode: episode.end, default=None)
    if away is not None and (step is None or step.day < changes.days.day[away.end]):
        back = next(index for index, (figures, _) in enumerate(points) if figures.day >= changes.days.day[away.end])
        return SegmentStart(back, _reason(name, difference(METRICS[name], -away.size), ()))
    if step is None:
        return None
    # The first run of the day that certainly has the new level; with a change of the fingerprint, its first run: that may be during a day,
    # which then is of both levels.
    sure = next(index for index, (figures, _) in enumerate(points) if figures.day >= step.day_high)
    near = [index for index in range(1, len(points)) if step.day_low - 1 <= points[index][0].day <= step.day_high]
    changed = next((index for index in reversed(near) if _changes(points[index - 1][1], points[index][1])), None)
    if changed is None:
        return SegmentStart(sure, _reason(name, step.size, step.candidates))
    return SegmentStart(changed, _reason(name, step.size, step.candidates or _changes(points[changed - 1][1], points[changed][1])))


def _carried(name: str, points: Points, begin: int) -> SegmentStart | None:
    """Return the newest change of the fingerprint after `begin` that carries a step; None where none does."""
    metric = METRICS[name]
    value = [metric.value(figures) for figures, _ in points]
    kind = next((metric.kind(figures) for figures, _ in reversed(points) if metric.value(figures) is not None), None)
    places = [index for index in range(begin, len(points)) if value[index] is not None and metric.kind(points[index][0]) == kind]
    edges = [0, *(at for at in range(1, len(places)) if _changes(points[places[at - 1]][1], points[places[at]][1])), len(places)]
    for before, edge in zip(edges[-3::-1], edges[-2:0:-1], strict=True):
        sides = [places[before:edge], places[edge:]]
        if min(map(len, sides)) < FEWEST:
            continue
        earlier, other = (_members(metric, [points[index][0] for index in side]) for side in sides)
        size = float(np.mean(other) - np.mean(earlier))
        before_change, after_change = (mean_of([RunValue(value, "", 0) for value in values]) for values in (earlier, other))
        if abs(size) >= metric.rule.matters and after_change.minus(before_change).p < CARRIED_P:
            texts = _changes(points[places[edge - 1]][1], points[places[edge]][1])
            return SegmentStart(places[edge], _reason(name, difference(metric, size), texts))
    return None


def _changes(before: Fingerprint, after: Fingerprint) -> Sequence[str]:
    return before.changes_to(after) if before != after else ()


def _members(metric: TrendMetric, runs: Sequence[RunFigures]) -> list[float]:
    """Return the mean of each day on the metric's scale, with fewer than three days every run."""
    valued = [(run.day, on_scale(metric, value)) for run in runs if (value := metric.value(run)) is not None]
    by_day = [[value for _, value in of_day] for _, of_day in groupby(valued, lambda day_value: day_value[0])]
    return [float(np.mean(values)) for values in by_day] if len(by_day) >= FEWEST else [value for values in by_day for value in values]


def _reason(name: str, size: float, changed: Sequence[str]) -> str:
    amount = f"{METRICS[name].figure.title} {amount_text(name, size)}"
    return f"{', '.join(changed)} ({amount})" if changed else f"{amount}, no known change"

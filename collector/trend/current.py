"""The current segment of a case: from which of its runs on it shows the level that the board has now, and why.

A case of months holds several levels; their median over all days is a level that the board never had. Steps are found as the trend finds
them. With too few days for that, a change of the fingerprint begins a segment if the runs after it differ from those before.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from edgemeter.agent.base.evidence import FEWEST, RunValue, mean_of
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.collector.runs.cases import CurrentSegment
from edgemeter.collector.trend.change_points import ChangePoints, change_points
from edgemeter.collector.trend.days import days_of
from edgemeter.collector.trend.metrics import METRICS, TrendMetric, difference, on_scale
from edgemeter.collector.trend.run_columns import common_facts
from edgemeter.collector.trend.series_trend import newest_step
from edgemeter.collector.trend.trend_text import amount_text

# A step in any of these begins a segment of all figures: one sentence then holds for the whole row.
LEVELS = ("latency_p50_ms", "energy_gross_mj", "accuracy_value")
# Only the newest segment is wanted, so history is scanned in larger strides than a monitor's; every split is still scanned while recent.
EVERY = 30
# A change of the fingerprint carries a step if Welch's p of the runs (or days) around it is below this, and the step matters.
CARRIED_P = 0.01
_OK = Verdict(state="ok")


class _Start(NamedTuple):
    """The index of the first run of the current segment, and why it begins there."""

    place: int
    reason: str


def current_segments(cases: Sequence[Sequence[RunFigures]]) -> list[CurrentSegment | None]:
    """Return the current segment of each case (usable runs of any verdict, oldest first); None where all runs are of one level."""
    placed = [list(map(_in_case, runs)) for runs in cases]
    starts: list[_Start | None] = [None] * len(cases)
    for name in LEVELS:
        metric = METRICS[name]
        # A figure that never changes has no step: most accuracies.
        moving = [index for index, runs in enumerate(placed) if len({metric.value(run) for run in runs} - {None}) > 1]
        days = [days_of(metric, placed[index]) for index in moving]
        for index, changes in zip(moving, change_points(days, stride=EVERY), strict=True):
            stepped = _stepped(name, placed[index], changes)
            start = _carried(name, placed[index], stepped.place if stepped else 0) or stepped
            newest = starts[index]
            if start is not None and (newest is None or start.place > newest.place):
                starts[index] = start
    return [
        start and CurrentSegment(runs[start.place].started_at_ns, start.reason, start.place)
        for runs, start in zip(cases, starts, strict=True)
    ]


def _in_case(run: RunFigures) -> RunFigures:
    """Return a run at the time that it states; for one without a median, of too few queries as in `offline`, with that of one inference."""
    run = run._replace(at_ns=run.started_at_ns, verdict=_OK)
    throughput_per_s = run.value("throughput_per_s")
    if run.value("latency_p50_ms") is not None or not throughput_per_s:
        return run
    return run.with_value("latency_p50_ms", 1000 / throughput_per_s)


def _stepped(name: str, runs: Sequence[RunFigures], changes: ChangePoints) -> _Start | None:
    """Return the start of the level after the newest step that the trend confirms, or after the newest episode."""
    step, away = newest_step(changes), max(changes.episodes, key=lambda episode: episode.end, default=None)
    if away is not None and (step is None or step.day < changes.days.day[away.end]):
        back = next(index for index, run in enumerate(runs) if run.day >= changes.days.day[away.end])
        return _Start(back, _reason(name, difference(METRICS[name], -away.size), ()))
    if step is None:
        return None
    # The first run of the day that certainly has the new level; with a change of the fingerprint, its first run: that may be during a day,
    # which then is of both levels.
    sure = next(index for index, run in enumerate(runs) if run.day >= step.day_high)
    near = [index for index in range(1, len(runs)) if step.day_low - 1 <= runs[index].day <= step.day_high]
    changed = next((index for index in reversed(near) if _changes(runs[index - 1], runs[index])), None)
    if changed is None:
        return _Start(sure, _reason(name, step.size, step.candidates))
    return _Start(changed, _reason(name, step.size, step.candidates or _changes(runs[changed - 1], runs[changed])))


def _carried(name: str, runs: Sequence[RunFigures], begin: int) -> _Start | None:
    """Return the newest change of the fingerprint after `begin` that carries a step; None where none does."""
    metric = METRICS[name]
    value = [metric.value(run) for run in runs]
    kinds = [metric.kind(common_facts(run.subject)) for run in runs]
    kind = next((of_run for of_run, figure in zip(reversed(kinds), reversed(value), strict=True) if figure is not None), None)
    places = [index for index in range(begin, len(runs)) if value[index] is not None and kinds[index] == kind]
    edges = [0, *(at for at in range(1, len(places)) if _changes(runs[places[at - 1]], runs[places[at]])), len(places)]
    for before, edge in zip(edges[-3::-1], edges[-2:0:-1], strict=True):
        sides = [places[before:edge], places[edge:]]
        if min(map(len, sides)) < FEWEST:
            continue
        earlier, other = (_members(metric, [runs[index] for index in side]) for side in sides)
        size = float(np.mean(other) - np.mean(earlier))
        before_change, after_change = (mean_of([RunValue(value, "", 0) for value in values]) for values in (earlier, other))
        if abs(size) >= metric.rule.matters and after_change.minus(before_change).p < CARRIED_P:
            texts = _changes(runs[places[edge - 1]], runs[places[edge]])
            return _Start(places[edge], _reason(name, difference(metric, size), texts))
    return None


def _changes(before: RunFigures, after: RunFigures) -> Sequence[str]:
    return () if before.subject is after.subject else before.subject.fingerprint.changes_to(after.subject.fingerprint)


def _members(metric: TrendMetric, runs: Sequence[RunFigures]) -> list[float]:
    """Return the mean of each day on the metric's scale, with fewer than three days every run."""
    valued = [(run.day, on_scale(metric, value)) for run in runs if (value := metric.value(run)) is not None]
    by_day = [[value for _, value in of_day] for _, of_day in groupby(valued, lambda day_value: day_value[0])]
    return [float(np.mean(values)) for values in by_day] if len(by_day) >= FEWEST else [value for values in by_day for value in values]


def _reason(name: str, size: float, changed: Sequence[str]) -> str:
    amount = f"{METRICS[name].figure.title} {amount_text(name, size)}"
    return f"{', '.join(changed)} ({amount})" if changed else f"{amount}, no known change"

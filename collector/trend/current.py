"""The current segment of a case is its runs at the present level of the board.

It also has the reason why it begins there.

A case of months has several levels; their median over all days is a level that the board never had.
Steps are found as in the trend. With too few days for that, a change of the fingerprint begins a
segment if the runs after it differ from those before.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.evidence import RunValue, mean_of
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.collector.runs.case_runs import CaseRuns
from edgemeter.collector.runs.cases import CurrentSegment
from edgemeter.collector.trend.change_points import ChangePoints, change_points
from edgemeter.collector.trend.days import days_of_series
from edgemeter.collector.trend.metrics import METRICS, TrendMetric, difference, on_scale
from edgemeter.collector.trend.run_columns import RunColumns, names_of, run_columns
from edgemeter.collector.trend.series_trend import newest_step
from edgemeter.collector.trend.thresholds import CARRIED_P, SCAN_EVERY_FOR_NEWEST
from edgemeter.collector.trend.trend_text import amount_text

# A step in any of these begins a segment of all figures, so that one sentence holds for the whole
# row.
LEVELS = ("latency_p50_ms", "energy_gross_mj", "accuracy_value")
_NAMES = names_of(METRICS[name] for name in LEVELS)
LEVEL_COLUMNS = (*_NAMES, "throughput_per_s")


class _Start(NamedTuple):
    """The index of the first run of the current segment, and why it begins there."""

    place: int
    reason: str


def current_segments(cases: Sequence[CaseRuns]) -> list[CurrentSegment | None]:
    """Return the current segment of each case; None if all runs are of one level.

    The runs are usable ones of any verdict, oldest first.
    """
    starts: list[_Start | None] = [None] * len(cases)
    all_runs = _columns(cases)
    for name in LEVELS:
        metric = METRICS[name]
        # A figure that never changes has no step: most accuracies.
        moving = [
            index
            for index in range(len(cases))
            if _moves(all_runs.part(index, index + 1).values(metric))
        ]
        if not moving:
            continue
        runs = (
            all_runs if len(moving) == len(cases) else _columns([cases[index] for index in moving])
        )
        for number, (index, changes) in enumerate(
            zip(
                moving,
                change_points(days_of_series(metric, runs), stride=SCAN_EVERY_FOR_NEWEST),
                strict=True,
            )
        ):
            of_case = runs.part(number, number + 1)
            stepped = _stepped(name, of_case, changes)
            start = _carried(name, of_case, stepped.place if stepped else 0) or stepped
            newest = starts[index]
            if start is not None and (newest is None or start.place > newest.place):
                starts[index] = start
    return [
        start
        and CurrentSegment(
            int(runs.columns["started_at_ns"][start.place]), start.reason, start.place
        )
        for runs, start in zip(cases, starts, strict=True)
    ]


def _columns(cases: Sequence[CaseRuns]) -> RunColumns:
    """Return the runs at their own times.

    Those without a median, of too few queries as in `offline`, have one inference's.
    """
    columns = {
        name: np.concatenate([runs.columns[name] for runs in cases])
        for name in ("started_at_ns", "subject", *LEVEL_COLUMNS)
    }
    p50_ms, throughput_per_s = columns["latency_p50_ms"], columns["throughput_per_s"]
    lacks_p50 = np.isnan(p50_ms) & (np.nan_to_num(throughput_per_s) != 0)
    p50_ms[lacks_p50] = 1000 / throughput_per_s[lacks_p50]
    edges = np.cumsum([0, *map(len, cases)], dtype=np.intp)
    are_ok = np.ones(len(p50_ms), np.bool_)
    figures = {name: columns[name] for name in _NAMES}
    numbers, subject_of_run = np.unique(columns["subject"], return_inverse=True)
    subjects = [cases[0].subjects[number] for number in numbers.tolist()]
    return run_columns(edges, columns["started_at_ns"], are_ok, subject_of_run, subjects, figures)


def _moves(values: NDArray[np.float64]) -> bool:
    present = values[~np.isnan(values)]
    return len(present) > 1 and bool(present.min() < present.max())


def _stepped(name: str, runs: RunColumns, changes: ChangePoints) -> _Start | None:
    """Return the start of the level after the newest confirmed step or episode."""
    step, away = (
        newest_step(changes),
        max(changes.episodes, key=lambda episode: episode.end, default=None),
    )
    if away is not None and (step is None or step.day < changes.days.day[away.end]):
        return _Start(
            int(np.searchsorted(runs.day, changes.days.day[away.end])),
            _reason(name, difference(METRICS[name], -away.size), ()),
        )
    if step is None:
        return None
    # The first run of the day that certainly has the new level; with a change of the fingerprint,
    # its first run, possibly within a day with both levels.
    sure = int(np.searchsorted(runs.day, step.day_high))
    near = range(
        max(1, int(np.searchsorted(runs.day, step.day_low - 1))),
        int(np.searchsorted(runs.day, step.day_high, side="right")),
    )
    changed = next((index for index in reversed(near) if _changes(runs, index - 1, index)), None)
    if changed is None:
        return _Start(sure, _reason(name, step.size, step.candidates))
    return _Start(
        changed, _reason(name, step.size, step.candidates or _changes(runs, changed - 1, changed))
    )


def _carried(name: str, runs: RunColumns, begin: int) -> _Start | None:
    """Return the newest change of the fingerprint after `begin` that carries a step.

    It is None without any.
    """
    if (runs.common == runs.common[0]).all():
        return None
    metric = METRICS[name]
    value, (kinds, _) = runs.values(metric), runs.kinds(metric)
    valued = np.flatnonzero(~np.isnan(value))
    places = valued[(valued >= begin) & (kinds[valued] == kinds[valued[-1]])].tolist()
    edges = [
        0,
        *(at for at in range(1, len(places)) if _changes(runs, places[at - 1], places[at])),
        len(places),
    ]
    for before, edge in zip(edges[-3::-1], edges[-2:0:-1], strict=True):
        sides = [places[before:edge], places[edge:]]
        if min(map(len, sides)) < FEWEST:
            continue
        earlier, other = (_members(metric, runs, side) for side in sides)
        size = float(np.mean(other) - np.mean(earlier))
        before_change, after_change = (
            mean_of([RunValue(value, "", 0) for value in values]) for values in (earlier, other)
        )
        if abs(size) >= metric.rule.matters and after_change.minus(before_change).p < CARRIED_P:
            texts = _changes(runs, places[edge - 1], places[edge])
            return _Start(places[edge], _reason(name, difference(metric, size), texts))
    return None


def _changes(runs: RunColumns, before: int, after: int) -> Sequence[str]:
    earlier, later = runs.facts[runs.common[before]].below, runs.facts[runs.common[after]].below
    return () if earlier is later else earlier.changes_to(later)


def _members(metric: TrendMetric, runs: RunColumns, places: Sequence[int]) -> list[float]:
    """Return the mean of each day on the metric's scale, with fewer than three days every run."""
    valued = [
        (day, on_scale(metric, value))
        for day, value in zip(runs.day[places], runs.values(metric)[places].tolist(), strict=True)
    ]
    by_day = [
        [value for _, value in of_day]
        for _, of_day in groupby(valued, lambda day_value: day_value[0])
    ]
    return (
        [float(np.mean(values)) for values in by_day]
        if len(by_day) >= FEWEST
        else [value for values in by_day for value in values]
    )


def _reason(name: str, size: float, changed: Sequence[str]) -> str:
    amount = f"{METRICS[name].figure.title} {amount_text(name, size)}"
    return f"{', '.join(changed)} ({amount})" if changed else f"{amount}, no known change"

"""The trend of one series and metric, as findings.

It has the points, the steps in them, and the current state.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from edgemeter.agent.contract.series import SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.change_points import (
    Break,
    BreakSpan,
    ChangePoints,
    PlacedBreak,
    at_breaks,
    change_points,
)
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.finding import Drift, FindingState, Missing, Modes, Step
from edgemeter.collector.trend.metrics import METRICS, difference, off_scale
from edgemeter.collector.trend.modes import TwoModes
from edgemeter.collector.trend.noise import row_medians
from edgemeter.collector.trend.slow import Ramp
from edgemeter.collector.trend.thresholds import (
    AFTER,
    BEFORE,
    CONFIDENCE_Z,
    MISSED_DAYS,
    OVER_DAYS,
    RECENT,
    SLOW_RATIO,
    SPREAD_DAYS,
)

GAPS = 20


class _CurrentLevel(NamedTuple):
    """The present level: its start, its value on the metric's scale, and the rhythm of the runs."""

    begin: int
    level: float
    every_days: float
    runs: int


class _FoundBreak(NamedTuple):
    """A break of a series, and how sure it is."""

    changes: ChangePoints
    step_break: Break
    state: FindingState


class _DaySpan(NamedTuple):
    """The days of a series from one index to before another."""

    days: Days
    begin: int
    end: int


class SeriesTrend(msgspec.Struct, frozen=True, kw_only=True):
    """The trend of `metric` in one series; `key.device` is empty for a board type.

    Days count from 1970. `begin_day` is the first one after the last annotation or step, `level`
    the present level in the metric's unit. `temperature_slope` is per cent (or points) a degree of
    the board, with its standard error; null if the temperature explains nothing. `left_out` runs
    were measured as another kind (`kind` is the newest), `not_ok` ones do not count, the newest of
    them on the day `not_ok_until` (0: there is none).
    """

    key: SeriesKey
    metric: str
    kind: str | None = None
    devices: int = 1
    points: int
    runs: int
    first_day: int
    last_day: int
    every_days: float
    begin_day: int
    level: float
    steps: tuple[Step, ...] = ()
    unconfirmed: Step | None = None
    drift: Drift | None = None
    modes: Modes | None = None
    temperature_slope: float | None = None
    temperature_slope_u: float | None = None
    left_out: int = 0
    not_ok: int = 0
    not_ok_until: int = 0

    def missing(self, until: int) -> Missing | None:
        """Return the gap at the end, if points are missing by the day `until`.

        After some weeks a series counts as ended.
        """
        silent, patience = until - self.last_day, max(MISSED_DAYS, 4 * self.every_days)
        if self.points < 2 or not patience < silent <= OVER_DAYS:
            return None
        return Missing(
            self.last_day, silent, self.every_days, has_runs=until - self.not_ok_until <= patience
        )


def trends(
    keys: Sequence[SeriesKey],
    series: Sequence[Days],
    cuts: Sequence[Mapping[int, str]] | None = None,
) -> list[SeriesTrend]:
    """Return the trend of each series that has a point.

    `cuts` has for each the days of declared new levels, with the reasons.
    """
    places = [
        {int(np.searchsorted(days.day, day)): text for day, text in texts.items()}
        for days, texts in zip(
            series, cuts if cuts is not None else [{}] * len(series), strict=True
        )
    ]
    results = change_points(series, [list(texts) for texts in places])
    breaks = [
        (row, _FoundBreak(changes, step_break, state))
        for row, changes in enumerate(results)
        for step_break, state in _breaks(changes)
    ]
    by_row = grouped(
        zip((row for row, _ in breaks), _steps([about for _, about in breaks]), strict=True)
    )
    rows = [row for row, changes in enumerate(results) if len(changes.days.day)]
    begins = [
        max([*results[row].cuts, *(step_break.place for step_break in results[row].breaks)])
        for row in rows
    ]
    levels = _levels(
        [
            _DaySpan(results[row].days, begin, len(results[row].days.day))
            for row, begin in zip(rows, begins, strict=True)
        ]
    )
    current = zip(
        rows,
        zip(begins, levels, *_rhythm([results[row].days for row in rows]), strict=True),
        strict=True,
    )
    return [
        _trend(keys[row], results[row], by_row.get(row, []), places[row], _CurrentLevel(*of_row))
        for row, of_row in current
    ]


def _breaks(changes: ChangePoints) -> Iterator[tuple[Break, FindingState]]:
    size = len(changes.days.day)
    yield from ((step_break, "confirmed") for step_break in changes.breaks)
    yield from (
        (Break(cut, cut, cut, 0.0), "declared")
        for cut in changes.cuts[1:]
        if size - cut >= AFTER and cut >= BEFORE
    )
    if changes.unconfirmed is not None:
        yield changes.unconfirmed, "unconfirmed"


def _trend(
    key: SeriesKey,
    changes: ChangePoints,
    steps: Sequence[Step],
    cuts: Mapping[int, str],
    current: _CurrentLevel,
) -> SeriesTrend:
    days, (begin, level, every_days, runs) = changes.days, current
    steps = [
        replace(step, candidates=(cuts[int(np.searchsorted(days.day, step.day))],))
        if step.state == "declared"
        else step
        for step in steps
    ]
    has_slope = math.isfinite(changes.slope)
    return SeriesTrend(
        key=key,
        metric=days.metric.figure.name,
        kind=days.kind,
        devices=days.devices,
        points=len(days.day),
        runs=runs,
        first_day=int(days.day[0]),
        last_day=int(days.day[-1]),
        every_days=every_days,
        begin_day=int(days.day[begin]),
        level=off_scale(days.metric, level),
        steps=tuple(
            sorted(
                (step for step in steps if step.state != "unconfirmed"), key=lambda step: step.day
            )
        ),
        # A step too small to matter is not worth confirming.
        unconfirmed=next(
            (step for step in steps if step.state == "unconfirmed" and step.matters is not False),
            None,
        ),
        drift=_drift(days, changes.ramp) if changes.ramp else None,
        modes=_modes(changes, changes.modes) if changes.modes else None,
        temperature_slope=changes.slope if has_slope else None,
        temperature_slope_u=changes.slope_error if has_slope else None,
        left_out=days.left_out,
        not_ok=days.not_ok,
        not_ok_until=days.not_ok_until,
    )


def _levels(parts: Sequence[_DaySpan]) -> list[float]:
    """Return the level of each of these spans of days, on the metric's scale."""
    levels = [0.0] * len(parts)
    for size, indices in grouped(
        (end - begin, index) for index, (_, begin, end) in enumerate(parts)
    ).items():
        x, known_variance = (
            np.concatenate(
                [
                    getattr(days, name)[begin:end]
                    for days, begin, end in map(parts.__getitem__, indices)
                ]
            ).reshape(-1, size)
            for name in ("x", "known")
        )
        weight = 1 / (
            known_variance + np.array([[parts[index].days.floor ** 2] for index in indices])
        )
        for index, level in zip(
            indices, ((x * weight).sum(axis=1) / weight.sum(axis=1)).tolist(), strict=True
        ):
            levels[index] = level
    return levels


def _rhythm(series: Sequence[Days]) -> tuple[list[float], list[int]]:
    """Return for each series the usual days between its newest points, and its number of runs."""
    if not series:
        return [], []
    size = np.array([len(days.day) for days in series])
    end, day = np.cumsum(size), np.concatenate([days.day for days in series])
    newest = np.maximum(end[:, None] - 1 - np.arange(GAPS - 1), 0)
    count = np.minimum(size, GAPS) - 1
    gaps = np.where(np.arange(GAPS - 1) < count[:, None], day[newest] - day[newest - 1], np.inf)
    return np.nan_to_num(row_medians(gaps, count), nan=1.0).tolist(), np.add.reduceat(
        np.concatenate([days.runs for days in series]), end - size
    ).tolist()


def is_event(metric: str, step: Step) -> bool:
    """Return whether a step is reported.

    It is if it is confirmed and, as far as is known, large enough to matter.
    """
    return (
        step.state == "confirmed"
        and step.matters is not False
        and abs(step.size) >= METRICS[metric].reported_from
    )


def newest_step(changes: ChangePoints) -> Step | None:
    return next(
        iter(
            _steps(
                [
                    _FoundBreak(changes, step_break, "confirmed")
                    for step_break in changes.breaks[-1:]
                ]
            )
        ),
        None,
    )


def _steps(breaks: Sequence[_FoundBreak]) -> list[Step]:
    spans = []
    for changes, step_break, _ in breaks:
        edges = [*changes.cuts, *(other.place for other in changes.breaks), len(changes.days.day)]
        begin, end = (
            max(edge for edge in edges if edge < step_break.place),
            min(edge for edge in edges if edge > step_break.place),
        )
        spans.append(BreakSpan(changes.days, begin, step_break, end))
    placed = at_breaks(spans)
    before = _levels(
        [
            _DaySpan(span.days, span.begin, settled.step_break.place)
            for span, settled in zip(spans, placed, strict=True)
        ]
    )
    return [
        _step(entry.changes, entry.state, (span.begin, span.end), estimate, level)
        for entry, span, estimate, level in zip(breaks, spans, placed, before, strict=True)
    ]


def _step(
    changes: ChangePoints,
    state: FindingState,
    span: tuple[int, int],
    estimate: PlacedBreak,
    before: float,
) -> Step:
    days, metric = changes.days, changes.days.metric
    (begin, end), (settled, size, error) = span, estimate
    index, low, high = settled.place, settled.low, settled.high
    if changes.ramp is not None:
        near_days = (
            days.day[max(begin, index - RECENT) : index],
            days.day[index : min(end, index + RECENT)],
        )
        error = math.hypot(error, changes.ramp.error_of_step(*near_days))
    reach = CONFIDENCE_Z * error
    is_above, is_below = (
        abs(size) - reach >= metric.rule.matters,
        abs(size) + reach <= metric.rule.matters,
    )
    level = before + (float(changes.ramp.of(days.day[[index, -1]])[0]) if changes.ramp else 0.0)
    # The boards of a type do not all change on the same day.
    near = 1 if days.devices > 1 else 0
    changed = _changed(days, range(max(low - near, begin + 1), min(high + near + 1, end)))
    first, last = np.searchsorted(
        days.day, (days.day[low] - SPREAD_DAYS, days.day[high] + SPREAD_DAYS + 1)
    ).tolist()
    changed_near = _changed(days, range(max(first, begin + 1), min(last, end)))
    return Step(
        state=state,
        day=int(days.day[index]),
        day_low=int(days.day[low]),
        day_high=int(days.day[high]),
        size=difference(metric, size),
        low=difference(metric, size - reach),
        high=difference(metric, size + reach),
        before=off_scale(metric, level),
        after=off_scale(metric, level + size),
        days_before=index - begin,
        days_after=end - index,
        runs_before=int(days.runs[begin:index].sum()),
        runs_after=int(days.runs[index:end].sum()),
        score=settled.score,
        is_worse=metric.is_worse(size, days.kind),
        matters=True if is_above else False if is_below else None,
        candidates=changed,
        changed_near=tuple(text for text in changed_near if text not in changed),
    )


def _changed(days: Days, points: range) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for point in points for text in days.changed.get(point, ())))


def _modes(changes: ChangePoints, modes: TwoModes) -> Modes:
    metric, day = changes.days.metric, changes.days.day[changes.cuts[-1] :]
    return Modes(
        low=off_scale(metric, modes.low),
        high=off_scale(metric, modes.high),
        size=difference(metric, modes.high - modes.low),
        high_ratio=float(modes.is_high.mean()),
        changes=modes.changes,
        day=int(day[modes.first]),
        last_day=int(day[modes.last]),
    )


def _drift(days: Days, ramp: Ramp) -> Drift | None:
    """Return the drift, if it has reached half of the smallest step that is reported.

    A drift goes on, so half is enough.
    """
    metric = days.metric
    total = ramp.a_day * (ramp.last_day - ramp.first_day)
    if abs(total) < SLOW_RATIO * metric.reported_from:
        return None
    reach = CONFIDENCE_Z * ramp.error
    return Drift(
        per_30_days=difference(metric, 30 * ramp.a_day),
        low=difference(metric, 30 * (ramp.a_day - reach)),
        high=difference(metric, 30 * (ramp.a_day + reach)),
        day=ramp.first_day,
        days=int(np.count_nonzero((days.day >= ramp.first_day) & (days.day <= ramp.last_day))),
        score=ramp.score,
        is_worse=metric.is_worse(ramp.a_day, days.kind),
        last_day=ramp.last_day,
        total=difference(metric, total),
        is_over=ramp.last_day < int(days.day[-1]),
    )

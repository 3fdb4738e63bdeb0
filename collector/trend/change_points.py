"""The change points of a series are its steps in order, and its current level.

Each step is found with the data of its time.

History is scanned as a monitor would have done: the last points up to a day, back to the last step;
at every fifth point, and at the newest. Many series are scanned together, so that thousands take
seconds. The same records always give the same change points.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.covariate import without_gaps, without_jump
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.levels import Levels
from edgemeter.collector.trend.modes import TwoModes, modes_adjusted_for_heat
from edgemeter.collector.trend.scan import Scan, less_where_confirmed, scan_series, step_score
from edgemeter.collector.trend.screen import Screen, is_even
from edgemeter.collector.trend.slow import Ramp, is_slow, may_be_slow, may_have_ramp, without_slow
from edgemeter.collector.trend.thresholds import (
    AFTER,
    BEFORE,
    CONFIDENCE_Z,
    DECLARED_SCORE,
    EPISODE_DAYS,
    HIDDEN_BY_WEATHER,
    MOVES_POINTS,
    RECENT,
    SCAN_EVERY,
    SETTLED,
    SLOW_RATIO,
    SURVIVING_RATIO,
    UNCONFIRMED_SCORE,
    WINDOW,
)

# A group size whose intermediate results stay in the processor's cache.
_TOGETHER, _BREAKS_TOGETHER = 400, 20


@dataclass(frozen=True, slots=True)
class Break:
    """A step at an index of the days, the first point of the new level.

    It also has the earliest and latest index that fit nearly as well.
    """

    place: int
    low: int
    high: int
    score: float


@dataclass(frozen=True, slots=True)
class Away:
    """The points from `begin` to before `end` are at another level, by `size`.

    Later points are back at the level before.
    """

    begin: int
    end: int
    size: float


class BreakSpan(NamedTuple):
    """A break, and the days between its neighbours: from index `begin` to before `end`."""

    days: Days
    begin: int
    step_break: Break
    end: int


class PlacedBreak(NamedTuple):
    """A break at its final place, with the size of its step and the standard error of that."""

    step_break: Break
    size: float
    error: float


class _DeclaredStep(NamedTuple):
    """A step at a declared place, with its score, size and standard error."""

    place: int
    score: float
    size: float
    error: float


class _FittedStep(NamedTuple):
    """A step as a scan fitted it: size, standard error, and slope of the temperature."""

    size: float
    error: float
    slope: float


@dataclass(slots=True)
class ChangePoints:
    """The result for one series, with its `breaks` in order.

    `unconfirmed` and `slope` (of the temperature) are from the newest scan. `cuts` are the indexes
    at which a person declared a new level; the first is always 0. In `days`, changes that are not
    steps are removed: the two `modes` (since the newest cut), the `episodes`, recurring levels, and
    the slow change (`ramp`, the newest). The days are moved to the level of the last one.
    """

    cuts: tuple[int, ...]
    days: Days
    breaks: list[Break] = field(default_factory=list)
    unconfirmed: Break | None = None
    slope: float = math.nan
    slope_error: float = math.nan
    modes: TwoModes | None = None
    episodes: list[Away] = field(default_factory=list)
    ramp: Ramp | None = None

    def spans(self) -> Iterator[tuple[int, int]]:
        return pairwise([*self.cuts, len(self.days.day)])

    def take(self, part: slice, apart: NDArray[np.float64] | float) -> None:
        """Remove a change that is not a step from the days."""
        x = self.days.x.copy()
        x[part] -= apart
        self.days = replace(self.days, x=x)


@dataclass(slots=True)
class _Walk:
    """The progress through the points between two cuts.

    `begin` starts the present level, `stop` is the end.

    History is scanned at the `scheduled` ends; those that may find a step are among the `ends` to
    come once the present level is screened. `changed` are the indexes where the fingerprint
    changed, `is_warm` is whether the temperature is a regressor.
    """

    changes: ChangePoints
    begin: int
    stop: int
    scheduled: range
    changed: Sequence[int]
    is_warm: bool
    ends: list[int] = field(default_factory=list)
    is_screened: bool = False

    @property
    def days(self) -> Days:
        return self.changes.days


def change_points(
    series: Sequence[Days], cuts: Sequence[Sequence[int]] | None = None, stride: int = SCAN_EVERY
) -> list[ChangePoints]:
    """Return the change points of each series, scanned at every `stride` points.

    At each of its `cuts` (annotations) a new level begins.
    """
    results = []
    for index, days in enumerate(series):
        begins = {cut for cut in (cuts[index] if cuts else ()) if 0 < cut < len(days.day)}
        results.append(ChangePoints((0, *sorted(begins)), days))
    spans = [
        (row, slice(*span))
        for row, changes in enumerate(results)
        for span in changes.spans()
        if len(changes.days.day)
    ]
    # A figure that never changes (most accuracies) has no step to find, but may have a slope.
    x = np.concatenate([[], *(changes.days.x for changes in results)])
    first = np.cumsum([0, *(part.stop - part.start for _, part in spans)])[:-1]
    moves = (
        (np.maximum.reduceat(x, first) > np.minimum.reduceat(x, first)).tolist() if spans else []
    )
    moving = [span for span, may_step in zip(spans, moves, strict=True) if may_step]
    are_warm = [days.is_warm for days in series]
    _take_modes(results, moving, are_warm)
    walks = []
    for (row, part), may_step in zip(spans, moves, strict=True):
        earliest, is_warm = part.start + BEFORE + AFTER, are_warm[row]
        if part.stop >= earliest and (may_step or is_warm):
            # Multiples of the index, so that tomorrow's scans include today's.
            scheduled = range(
                earliest + -earliest % stride, part.stop if may_step else earliest, stride
            )
            walks.append(
                _Walk(
                    results[row],
                    part.start,
                    part.stop,
                    scheduled,
                    sorted(series[row].changed),
                    is_warm,
                )
            )
    _scan_all(walks)
    for changes in results:
        changes.breaks.sort(key=lambda step: step.place)
    _scan_all([walk for changes in _unsettled(results, moving) if (walk := _settled(changes))])
    return results


def _scan_all(walks: Sequence[_Walk]) -> None:
    while walks := [walk for walk in walks if walk.ends or not walk.is_screened]:
        for first in range(0, len(walks), _TOGETHER):
            together = walks[first : first + _TOGETHER]
            for is_warm in (True, False):
                if part := [walk for walk in together if walk.is_warm == is_warm]:
                    _screen([walk for walk in part if not walk.is_screened])
                    _scan_next(part)


def _screen(walks: Sequence[_Walk]) -> None:
    """Select the scans of the present levels.

    Those of history that cannot confirm a step are left out.
    """
    for walk in walks:
        walk.ends, walk.is_screened = [walk.stop], True
    walks = [walk for walk in walks if walk.scheduled]
    if not walks:
        return
    begin, stop, start = np.array(
        [(walk.begin, walk.stop, walk.scheduled.start) for walk in walks]
    ).T
    present = np.arange(stop.max())[None, :] < stop[:, None]
    names = ("x", "known", "temperature_c") if walks[0].is_warm else ("x", "known")
    columns = [
        _rows([getattr(walk.days, name)[: walk.stop] for walk in walks], present).T.copy()
        for name in names
    ]
    even = is_even(
        columns[0], columns[1], present.T & (np.arange(len(columns[0]))[:, None] >= begin)
    )
    floor = np.array([walk.days.floor for walk in walks])
    ends = np.arange(
        start.min(), max(walk.scheduled[-1] for walk in walks) + 1, walks[0].scheduled.step
    )
    may_step = np.ones((len(ends), len(walks)), np.bool_)
    if even.any():
        x, known_variance, *heat = (column[:, even] for column in columns)
        screen = Screen(
            x, known_variance, floor[even], heat[0] if heat else None, begin[even], stop[even]
        )
        may_step[:, even] = [screen.may_step(end, WINDOW) for end in ends.tolist()]
    for row, walk in enumerate(walks):
        for changed in walk.changed:
            may_step[:, row] |= (np.maximum(walk.begin, ends - WINDOW) + BEFORE <= changed) & (
                changed <= ends - AFTER
            )
    may_step &= (ends[:, None] >= start) & (ends[:, None] < stop)
    for row in np.flatnonzero(may_step.any(axis=0)).tolist():
        walks[row].ends = [*ends[may_step[:, row]].tolist(), walks[row].stop]


def _take_modes(
    results: Sequence[ChangePoints], spans: Sequence[tuple[int, slice]], are_warm: Sequence[bool]
) -> None:
    """Remove the two modes from the days of these spans of series.

    They stay if the temperature explains them.
    """
    for alike in _of_one_length(spans):
        x, heat = (
            _figures(results, alike),
            np.zeros((len(alike), alike[0][1].stop - alike[0][1].start)),
        )
        for index, (row, part) in enumerate(alike):
            if are_warm[row]:
                heat[index] = without_gaps(results[row].days.temperature_c)[part]
        for (row, part), modes in zip(
            alike,
            modes_adjusted_for_heat(x, heat, results[0].days.metric.reported_from),
            strict=True,
        ):
            if modes is not None:
                changes = results[row]
                changes.take(part, modes.apart())
                newest = max(
                    begin for begin, stop in changes.spans() if stop - begin >= BEFORE + AFTER
                )
                changes.modes = modes if part.start == newest else changes.modes


def _of_one_length(spans: Sequence[tuple[int, slice]]) -> Iterator[Sequence[tuple[int, slice]]]:
    """Yield the spans of series that are long enough to have a step, in groups of one length."""
    for length, alike in grouped(
        (part.stop - part.start, (row, part)) for row, part in spans
    ).items():
        if length >= BEFORE + AFTER:
            yield from (
                alike[first : first + _TOGETHER] for first in range(0, len(alike), _TOGETHER)
            )


def _figures(
    results: Sequence[ChangePoints], spans: Sequence[tuple[int, slice]]
) -> NDArray[np.float64]:
    """Return the figures of spans of one length [spans, days]."""
    return np.concatenate([results[row].days.x[part] for row, part in spans]).reshape(
        len(spans), -1
    )


def _unsettled(
    results: Sequence[ChangePoints], spans: Sequence[tuple[int, slice]]
) -> list[ChangePoints]:
    """Return the series that may contain changes other than steps.

    They are those with breaks, and those that may move slowly.
    """
    unsettled = {row for row, changes in enumerate(results) if changes.breaks}
    for alike in _of_one_length([span for span in spans if span[0] not in unsettled]):
        x = _figures(results, alike)
        daily = []
        for index in np.flatnonzero(
            may_be_slow(x, SLOW_RATIO * results[0].days.metric.reported_from)
        ).tolist():
            row, part = alike[index]
            days, day = results[row].days, results[row].days.day[part]
            if day[-1] - day[0] == len(day) - 1 and not days.is_warm:
                daily.append((row, x[index], days.known[part], days.floor))
            else:
                unsettled.add(row)
        if daily:
            rows, x_of_rows, known_variance, floor = zip(*daily, strict=True)
            may_have = may_have_ramp(np.stack(x_of_rows), np.stack(known_variance), np.array(floor))
            unsettled.update(row for row, may_move in zip(rows, may_have, strict=True) if may_move)
    return [results[row] for row in sorted(unsettled)]


def _settled(changes: ChangePoints) -> _Walk | None:
    """Remove changes that are not steps from the days; return the scan that is then needed.

    The breaks that these changes caused are removed too.
    """
    days, size = changes.days, len(changes.days.day)
    for span in changes.spans():
        _take_episodes(changes, span)
        if not _settle_span(changes, span):
            # A scan of one level among many would find the next one.
            changes.unconfirmed = None
            days = changes.days
    if changes.days is days:
        return None
    begin, changes.unconfirmed = (
        max([*changes.cuts, *(step.place for step in changes.breaks)]),
        None,
    )
    changes.slope = changes.slope_error = math.nan
    return (
        _Walk(changes, begin, size, range(0), (), days.is_warm)
        if size - begin >= BEFORE + AFTER
        else None
    )


def _settle_span(changes: ChangePoints, span: tuple[int, int]) -> bool:
    """Remove the slow change of a span, or its recurring levels, from the days.

    Return whether there are no recurring levels.
    """
    days, (begin, stop) = changes.days, span
    breaks = [step for step in changes.breaks if begin <= step.place < stop]
    if stop - begin < BEFORE + AFTER or not (
        breaks or may_be_slow(days.x[begin:stop], SLOW_RATIO * days.metric.reported_from)
    ):
        return True
    doubted = [step.place for step in breaks if not _is_explained(days, step)]

    def levels() -> Levels:
        return Levels(days, span, [step.place for step in breaks])

    # Shares of single days, 0 or 1, have no levels.
    has_levels = days.metric.rule.scale != "share"
    recurring = levels().recurring(doubted) if has_levels and doubted else []
    steps = [step.place for step in breaks if step.place not in recurring]
    remaining, ramp = without_slow(days, span, steps, [at for at in doubted if at not in recurring])
    if ramp is not None and (not has_levels or levels().follow(ramp, remaining)):
        changes.breaks = [
            step for step in changes.breaks if step.place in remaining or step not in breaks
        ]
        changes.ramp = ramp
        changes.take(slice(begin, stop), ramp.of(days.day[begin:stop]))
        return True
    if recurring:
        _take_levels(changes, span, recurring)
    return not recurring


def _take_episodes(changes: ChangePoints, span: tuple[int, int]) -> None:
    """Turn two breaks within weeks into an episode, if the second reverses the first.

    Breaks with a known cause stay.
    """
    breaks = [step for step in changes.breaks if span[0] < step.place < span[1]]
    edges = [span[0], *(step.place for step in breaks), span[1]]
    for index, (first, last) in enumerate(pairwise(breaks)):
        lasted = changes.days.day[last.place] - changes.days.day[first.place]
        if (
            lasted > EPISODE_DAYS
            or first not in changes.breaks
            or _is_explained(changes.days, first)
            or _is_explained(changes.days, last)
        ):
            continue
        (begin, away, away_error), (end, back, back_error) = at_breaks(
            [
                BreakSpan(changes.days, edges[index], first, last.place),
                BreakSpan(changes.days, first.place, last, edges[index + 3]),
            ]
        )
        if away * back < 0 and abs(away + back) <= max(
            CONFIDENCE_Z * math.hypot(away_error, back_error), changes.days.metric.rule.matters / 2
        ):
            episode = Away(begin.place, end.place, (away - back) / 2)
            changes.episodes.append(episode)
            changes.breaks = [step for step in changes.breaks if step not in (first, last)]
            changes.take(slice(episode.begin, episode.end), episode.size)


def _take_levels(changes: ChangePoints, span: tuple[int, int], recurring: Collection[int]) -> None:
    """Remove the `recurring` breaks from the days.

    The differences of the levels between them from the mean of all are removed too.
    """
    changes.breaks, breaks = (
        [step for step in changes.breaks if step.place not in recurring],
        changes.breaks,
    )
    for begin, end in pairwise(
        [
            span[0],
            *(step.place for step in changes.breaks if span[0] < step.place < span[1]),
            span[1],
        ]
    ):
        mean = changes.days.x[begin:end].mean()
        for first, last in pairwise(
            [begin, *(step.place for step in breaks if begin < step.place < end), end]
        ):
            changes.take(slice(first, last), changes.days.x[first:last].mean() - mean)


def _is_explained(days: Days, step: Break) -> bool:
    return any(step.low <= index <= step.high for index in days.changed)


def _scan_next(walks: Sequence[_Walk]) -> None:
    """Run the next scan of each series, and continue after a confirmed step."""
    spans = [(max(walk.begin, end - WINDOW), end) for walk in walks for end in [walk.ends.pop(0)]]
    declared = _declared(walks, spans)
    result = _scan([walk.days for walk in walks], spans)
    of_walks = zip(
        walks,
        spans,
        result.score.tolist(),
        result.slope.tolist(),
        result.slope_error.tolist(),
        strict=True,
    )
    for row, (walk, span, score, slope, slope_error) in enumerate(of_walks):
        if score >= UNCONFIRMED_SCORE or declared[row]:
            _record(walk, span, (result, row), declared[row])
        elif span[1] == len(walk.days.day):
            walk.changes.unconfirmed, walk.changes.slope, walk.changes.slope_error = (
                None,
                slope,
                slope_error,
            )


def _scan(
    series: Sequence[Days], spans: Sequence[tuple[int, int]], only: NDArray[np.intp] | None = None
) -> Scan:
    """Scan the spans, each at the end of a row.

    They are scanned with temperatures or all without; `only` are indexes of the series.
    """
    begins, ends = np.array(spans).T
    longest = int((ends - begins).max())
    present = np.arange(longest)[None, :] >= longest - (ends - begins)[:, None]
    parts = list(zip(series, spans, strict=True))
    x = _rows([days.x[begin:end] for days, (begin, end) in parts], present)
    known_variance = _rows([days.known[begin:end] for days, (begin, end) in parts], present)
    heat = None
    if series[0].is_warm:
        heat = _rows([days.temperature_c[begin:end] for days, (begin, end) in parts], present)
        for row in np.flatnonzero(np.isnan(heat).any(axis=1)):
            heat[row, present[row]] = without_gaps(heat[row, present[row]])
    if only is not None:
        only = only - ends + longest
    return scan_series(
        x, known_variance, present, np.array([days.floor for days in series]), heat, only
    )


def _rows(parts: Sequence[NDArray[np.float64]], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    values = np.concatenate(parts)
    if len(values) == present.size:
        return values.reshape(present.shape)
    rows = np.zeros(present.shape)
    rows[present] = values
    return rows


def _declared(
    walks: Sequence[_Walk], spans: Sequence[tuple[int, int]]
) -> list[_DeclaredStep | None]:
    """Return the step at the newest change of each series' fingerprint.

    It is None without a change, or without a step there.
    """
    newest = [
        bisect_right(walk.changed, end - AFTER) - 1
        for walk, (_, end) in zip(walks, spans, strict=True)
    ]
    places = {row: walks[row].changed[index] for row, index in enumerate(newest) if index >= 0}
    rows = [row for row, first_day in places.items() if first_day >= spans[row][0] + BEFORE]
    steps: list[_DeclaredStep | None] = [None] * len(walks)
    if rows:
        result = _scan(
            [walks[row].days for row in rows],
            [spans[row] for row in rows],
            np.array([places[row] for row in rows]),
        )
        for row, score, step, error in zip(
            rows, result.score.tolist(), result.step.tolist(), result.error.tolist(), strict=True
        ):
            if score >= DECLARED_SCORE:
                steps[row] = _DeclaredStep(places[row], score, step, error)
    return steps


def _record(
    walk: _Walk, span: tuple[int, int], scanned: tuple[Scan, int], declared: _DeclaredStep | None
) -> None:
    """Process one scan.

    A confirmed step begins a new level, the newest scan gives the current one.
    """
    begin, end = span
    result, row = scanned
    score, line = float(result.score[row]), float(result.line[row])
    step, error = float(result.step[row]), float(result.error[row])
    split, is_step = None, False
    if score >= UNCONFIRMED_SCORE:
        index = int(result.split[row]) - result.scores.shape[1] + end
        # The candidates whose step fits nearly as well as the best: chi-squared within 3.84.
        scores = result.scores[row]
        near = (
            np.flatnonzero(scores**2 >= max(float(scores.max()) ** 2 - CONFIDENCE_Z**2, 1e-12))
            - len(scores)
            + end
        )
        split = Break(index, int(near[0]), int(near[-1]), score)
        part = slice(begin, end)
        lowered = less_where_confirmed(
            walk.days.runs[part],
            walk.days.known[part],
            float(result.day_variance[row]),
            index - begin,
        )
        is_step = score >= max(step_score(end - begin) - lowered, line)
    if (
        declared
        and declared.score >= line
        and (split is None or split.low <= declared.place <= split.high)
    ):
        index, score, step, error = declared
        split, is_step = Break(index, index, index, score), True
    slope, slope_error = float(result.slope[row]), float(result.slope_error[row])
    if (
        split is not None
        and is_step
        and _is_new_level(walk, span, split, _FittedStep(step, error, slope))
    ):
        _begin_level(walk, split, end)
    elif end == len(walk.days.day):
        walk.changes.unconfirmed, walk.changes.slope, walk.changes.slope_error = (
            split,
            slope,
            slope_error,
        )


def _is_new_level(walk: _Walk, span: tuple[int, int], split: Break, fitted: _FittedStep) -> bool:
    """Return whether a step is large enough to report, and not due to heat or drift.

    Steps that are clearly too small to matter count too; others wait for more points. Waiting until
    a step is clearly larger takes 30 days for one of just that size, and finds no fewer false ones:
    the score decides those.
    """
    step, error, slope = fitted
    metric, after = walk.days.metric, span[1] - split.place
    if (
        abs(step) < metric.reported_from
        and abs(step) + CONFIDENCE_Z * error > metric.rule.matters
        and after < SETTLED
    ):
        return False
    return not is_slow(walk.days, (walk.begin, span[1]), split.place) and _survives(
        walk, span, split, step, slope
    )


def _survives(
    walk: _Walk, span: tuple[int, int], candidate: Break, step: float, slope: float
) -> bool:
    """Return whether a step remains with both forms of the temperature readings.

    These are the readings as they are, and after removing a jump of theirs near the step.

    An exchanged sensor shows a jump that the metric does not follow, a warmer board one that it
    does. Jumps of the size of the weather cannot be distinguished, so a change that either of the
    two explains is not a step.
    """
    if not math.isfinite(slope):
        return True
    days, (begin, end) = walk.days, span
    used = without_gaps(days.temperature_c[begin:end])
    last = max(candidate.place, min(candidate.high, candidate.place + MOVES_POINTS, end - AFTER))
    places = range(
        max(candidate.low, candidate.place - MOVES_POINTS, begin + BEFORE) - begin, last - begin + 1
    )
    sign = -math.copysign(1.0, step * slope)
    anywhere = range(BEFORE, end - begin - AFTER + 1)
    # A jump elsewhere distorts the estimate of how the metric follows the temperature.
    temperatures_c = [
        without_jump(used, places, sign, HIDDEN_BY_WEATHER),
        without_jump(used, anywhere, 1.0),
        without_jump(used, anywhere, -1.0),
    ]
    temperatures_c += [] if days.read_c is None else [without_gaps(days.read_c[begin:end])]
    repeated = _scan(
        [
            replace(
                days,
                temperature_c=np.concatenate(
                    [days.temperature_c[:begin], other, days.temperature_c[end:]]
                ),
            )
            for other in temperatures_c
        ],
        [span] * len(temperatures_c),
        np.full(len(temperatures_c), candidate.place),
    )
    return bool(
        ((repeated.step * step > 0) & (repeated.score >= SURVIVING_RATIO * candidate.score)).all()
    )


def _begin_level(walk: _Walk, step: Break, end: int) -> None:
    walk.changes.breaks.append(step)
    walk.begin, stride = step.place, walk.scheduled.step
    first = walk.begin + BEFORE + AFTER
    # The newest scan is repeated on the new level alone.
    start = max(first, end + 1)
    walk.scheduled, walk.ends, walk.is_screened = (
        range(start + -start % stride, walk.stop, stride),
        [],
        first > walk.stop,
    )


def at_breaks(breaks: Sequence[BreakSpan]) -> list[PlacedBreak]:
    """Return breaks, located by all later points, with the step and its standard error.

    Each is within some days between its neighbours.
    """
    placed: dict[int, PlacedBreak] = {}
    for indices in grouped(
        (days.is_warm, index) for index, (days, *_) in enumerate(breaks)
    ).values():
        for first in range(0, len(indices), _BREAKS_TOGETHER):
            part = indices[first : first + _BREAKS_TOGETHER]
            placed.update(zip(part, _placed([breaks[index] for index in part]), strict=True))
    return [placed[index] for index in range(len(breaks))]


def _placed(breaks: Sequence[BreakSpan]) -> Iterator[PlacedBreak]:
    tried = [_places_near(*about) for about in breaks]
    rows = [
        (days, span, split)
        for (days, *_), (span, places) in zip(breaks, tried, strict=True)
        for split in places
    ]
    scanned = _scan(
        [days for days, _, _ in rows],
        [span for _, span, _ in rows],
        np.array([split for _, _, split in rows]),
    )
    last = 0
    for (days, _, step_break, _), (span, places) in zip(breaks, tried, strict=True):
        part, last = slice(last, last + len(places)), last + len(places)
        # For each index, residuals are clipped around its own two levels, so that a high day next
        # to a step does not move it. If no step can be estimated there is nothing to locate. A
        # wrong index seems to have more noise: all are compared by the least.
        variance = days.known[slice(*span)] + scanned.day_variance[part, None]
        residuals = scanned.left[part, scanned.left.shape[1] - (span[1] - span[0]) :]
        squares = np.where(
            np.isfinite(scanned.error[part]),
            (residuals**2 * variance / variance.min(axis=0)).sum(axis=1),
            np.inf,
        )
        best = int(np.argmin(squares))
        near = [
            index
            for index, square in zip(places, squares, strict=True)
            if square <= squares[best] + CONFIDENCE_Z**2
        ]
        settled = replace(step_break, place=places[best], low=near[0], high=near[-1])
        yield PlacedBreak(
            settled, float(scanned.step[part][best]), float(scanned.error[part][best])
        )


def _places_near(
    days: Days, begin: int, step_break: Break, end: int
) -> tuple[tuple[int, int], list[int]]:
    """Return the days around a break that show its position, and the possible indexes.

    A declared break does not move.
    """
    span = (max(begin, step_break.place - RECENT), min(end, step_break.place + RECENT))
    if step_break.score == 0 or (
        step_break.low == step_break.high and step_break.place in days.changed
    ):
        return span, [step_break.place]
    first, last = (
        max(span[0] + BEFORE, step_break.place - MOVES_POINTS),
        min(span[1] - AFTER, step_break.place + MOVES_POINTS),
    )
    return span, sorted({step_break.place, *range(first, last + 1)})

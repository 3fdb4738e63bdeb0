"""The change points of a series: its steps in order, each found as it would have been at the time, and the current level.

History is scanned as a monitor would have: the last points up to a day, back to the last step; at every fifth point, and at the newest.
Many series are scanned together, so that thousands take seconds. The same records always give the same change points.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.covariate import without_gaps, without_jump
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.levels import Levels
from edgemeter.collector.trend.metrics import TrendMetric
from edgemeter.collector.trend.modes import TwoModes, modes_beside_heat
from edgemeter.collector.trend.scan import (
    AFTER,
    BEFORE,
    DECLARED_SCORE,
    RECENT,
    UNCONFIRMED_SCORE,
    Scan,
    less_where_confirmed,
    scan_series,
    step_score,
)
from edgemeter.collector.trend.slow import Ramp, is_slow, may_be_slow, without_slow

WINDOW = 120
EVERY = 5
# After this many points a step is accepted even if it is smaller than what matters, but not clearly so.
SETTLED = 30
CONFIDENCE_Z = 1.959964
# By this many points the place of a step may move when later points are known.
NEAR = 10
# A slow change is looked for, and reported, from this share of the smallest step that is reported.
SLOW_RATIO = 0.5
# Up, and back within so many days, is no step.
EPISODE_DAYS = 30
# Without what the thermometer showed, a step that was its work has little of its score left, and a true one most of it.
SURVIVING_RATIO = 0.6
# The weather hides so much of a jump, in spreads of neighbouring days.
HIDDEN_BY_WEATHER = 1.0
# So many that what is computed of them stays in the processor's cache.
_TOGETHER = 400
# A step at a declared place: the place, its score, the step's size and standard error.
_DeclaredStep = tuple[int, float, float, float]


@dataclass(frozen=True, slots=True)
class Break:
    """A step at a place of the days: the first point of the new level, and the earliest and latest place that fit nearly as well."""

    place: int
    low: int
    high: int
    score: float


@dataclass(frozen=True, slots=True)
class CurrentLevel:
    """The newest scan: a split that is not confirmed yet, and the coefficient of the temperature."""

    unconfirmed: Break | None
    slope: float
    slope_error: float


@dataclass(frozen=True, slots=True)
class Away:
    """The points from the place `begin` to before `end` are at another level, by `size`; those after are back."""

    begin: int
    end: int
    size: float


@dataclass(slots=True)
class ChangePoints:
    """The result for one series: `breaks` in order, and the current level, None if there are too few points.

    `cuts` are the places at which a person declared a new level; the first is always 0. `days` are the
    days without what is no step: the two `modes` (since the newest cut), the `episodes`, levels that come and go,
    and the slow change (`ramp`, the newest), at the level of the last day.
    """

    cuts: tuple[int, ...]
    days: Days
    breaks: list[Break] = field(default_factory=list)
    now: CurrentLevel | None = None
    modes: TwoModes | None = None
    episodes: list[Away] = field(default_factory=list)
    ramp: Ramp | None = None


@dataclass(slots=True)
class _Walk:
    """The progress through the points between two cuts: `begin` starts the present level, `stop` is the end, `ends` the scans to come.

    `changed` are the places where the fingerprint changed, `is_warm` is whether the temperature is a regressor.
    """

    days: Days
    changes: ChangePoints
    begin: int
    stop: int
    ends: list[int]
    changed: list[int]
    is_warm: bool


def change_points(
    metric: TrendMetric, series: Sequence[Days], cuts: Sequence[Sequence[int]] | None = None, stride: int = EVERY
) -> list[ChangePoints]:
    """Return the change points of each series, scanned at every `stride` points; at each of its `cuts` (annotations) a new level begins."""
    results, walks = [], []
    for index, days in enumerate(series):
        begins = sorted({0, *(cut for cut in (cuts[index] if cuts else ()) if 0 < cut < len(days.day))})
        changes = _without_modes(metric, days, begins)
        results.append(changes)
        changed = [at for at, texts in enumerate(days.changed) if texts]
        is_warm = metric.rule.scale == "log" and days.has_temperature()
        for begin, stop in pairwise([*begins, len(days.day)]):
            walks.append(_Walk(changes.days, changes, begin, stop, _ends(days, begin, stop, stride), changed, is_warm))
    _scan_all(metric, walks)
    for changes in results:
        changes.breaks.sort(key=lambda step: step.place)
    _scan_all(metric, [walk for changes in results if (walk := _settled(metric, changes))])
    return results


def _scan_all(metric: TrendMetric, walks: Sequence[_Walk]) -> None:
    while walks := [walk for walk in walks if walk.ends]:
        for first in range(0, len(walks), _TOGETHER):
            _scan_next(metric, walks[first : first + _TOGETHER])


def _without_modes(metric: TrendMetric, days: Days, begins: Sequence[int]) -> ChangePoints:
    """Return the changes of a series before it is scanned: without its two modes, as far as the temperature does not explain them."""
    x, modes = days.x.copy(), None
    heat = without_gaps(days.temperature_c) if metric.rule.scale == "log" and days.has_temperature() else np.zeros(len(x))
    for begin, stop in pairwise([*begins, len(x)]):
        if stop - begin < BEFORE + AFTER:
            continue
        modes = modes_beside_heat(days.x[begin:stop], heat[begin:stop], metric.reported_from)
        if modes is not None:
            x[begin:stop] -= modes.apart()
    return ChangePoints(tuple(begins), replace(days, x=x) if (x != days.x).any() else days, modes=modes)


def _settled(metric: TrendMetric, changes: ChangePoints) -> _Walk | None:
    """Take what is no step, and the breaks that were its work, out of the days; return the scan that this calls for."""
    days, size = changes.days, len(changes.days.day)
    is_warm = metric.rule.scale == "log" and days.has_temperature()
    for span in pairwise([*changes.cuts, size]):
        _take_episodes(metric, changes, span)
        if not _settle_span(metric, changes, span, is_warm=is_warm) and changes.now is not None:
            # A scan of one level among many would find the next one.
            changes.now = replace(changes.now, unconfirmed=None)
            days = changes.days
    if changes.days is days:
        return None
    begin, changes.now = max([*changes.cuts, *(step.place for step in changes.breaks)]), None
    return _Walk(changes.days, changes, begin, size, [size] if size - begin >= BEFORE + AFTER else [], [], is_warm)


def _settle_span(metric: TrendMetric, changes: ChangePoints, span: tuple[int, int], *, is_warm: bool) -> bool:
    """Take the slow change of a span, or its levels that come and go, out of the days; return whether no such levels were found."""
    days, (begin, stop) = changes.days, span
    breaks = [step for step in changes.breaks if begin <= step.place < stop]
    if stop - begin < BEFORE + AFTER or not (breaks or may_be_slow(days.x[begin:stop], SLOW_RATIO * metric.reported_from)):
        return True
    # Shares of single days, 0 or 1, have no levels.
    levels = Levels(days, span, [step.place for step in breaks], with_heat=is_warm) if metric.rule.scale != "share" else None
    doubted = [step.place for step in breaks if not _is_explained(days, step)]
    recurring = levels.recurring(doubted) if levels else []
    steps = [step.place for step in breaks if step.place not in recurring]
    remaining, ramp = without_slow(days, span, steps, [at for at in doubted if at not in recurring], with_heat=is_warm)
    if ramp is not None and (levels is None or levels.follow(ramp, remaining)):
        changes.breaks = [step for step in changes.breaks if step.place in remaining or step not in breaks]
        changes.ramp = ramp
        _take(changes, slice(begin, stop), ramp.of(days.day[begin:stop]))
        return True
    if recurring:
        _take_levels(changes, span, recurring)
    return not recurring


def _take(changes: ChangePoints, part: slice, apart: NDArray[np.float64] | float) -> None:
    x = changes.days.x.copy()
    x[part] -= apart
    changes.days = replace(changes.days, x=x)


def _take_episodes(metric: TrendMetric, changes: ChangePoints, span: tuple[int, int]) -> None:
    """Make an episode of two breaks without a known cause, within weeks, of which the second takes back the first."""
    breaks = [step for step in changes.breaks if span[0] < step.place < span[1]]
    edges = [span[0], *(step.place for step in breaks), span[1]]
    for index, (first, last) in enumerate(pairwise(breaks)):
        lasted = changes.days.day[last.place] - changes.days.day[first.place]
        if lasted > EPISODE_DAYS or first not in changes.breaks or _is_explained(changes.days, first) or _is_explained(changes.days, last):
            continue
        begin, away, away_error = at_break(metric, changes.days, edges[index], first, last.place)
        end, back, back_error = at_break(metric, changes.days, first.place, last, edges[index + 3])
        if away * back < 0 and abs(away + back) <= max(CONFIDENCE_Z * math.hypot(away_error, back_error), metric.rule.matters / 2):
            episode = Away(begin.place, end.place, (away - back) / 2)
            changes.episodes.append(episode)
            changes.breaks = [step for step in changes.breaks if step not in (first, last)]
            _take(changes, slice(episode.begin, episode.end), episode.size)


def _take_levels(changes: ChangePoints, span: tuple[int, int], recurring: Collection[int]) -> None:
    """Take the `recurring` breaks out, and the levels between them as far as they differ from the mean of all."""
    changes.breaks, breaks = [step for step in changes.breaks if step.place not in recurring], changes.breaks
    for begin, end in pairwise([span[0], *(step.place for step in changes.breaks if span[0] < step.place < span[1]), span[1]]):
        mean = changes.days.x[begin:end].mean()
        for first, last in pairwise([begin, *(step.place for step in breaks if begin < step.place < end), end]):
            _take(changes, slice(first, last), changes.days.x[first:last].mean() - mean)


def _is_explained(days: Days, step: Break) -> bool:
    return any(days.changed[step.low : step.high + 1])


def _ends(days: Days, begin: int, stop: int, stride: int) -> list[int]:
    first = begin + BEFORE + AFTER
    # Multiples of the index, so that tomorrow's scans include today's. A figure that never changes (most accuracies) has no step to find.
    if stop < first:
        return []
    moves = days.x[begin:stop].min() < days.x[begin:stop].max()
    return [*(range(first + -first % stride, stop, stride) if moves else ()), stop]


def _scan_next(metric: TrendMetric, walks: Sequence[_Walk]) -> None:
    """Run the next scan of each series, and continue after a confirmed step."""
    for with_heat in (True, False):
        part = [walk for walk in walks if walk.is_warm == with_heat]
        if not part:
            continue
        ends = [walk.ends.pop(0) for walk in part]
        spans = [(max(walk.begin, end - WINDOW), end) for walk, end in zip(part, ends, strict=True)]
        declared = _declared(part, spans, with_heat=with_heat)
        is_newest = [end == len(walk.days.day) for walk, end in zip(part, ends, strict=True)]
        is_requested = np.array([newest or declared_step is not None for newest, declared_step in zip(is_newest, declared, strict=True)])
        result = _scan([walk.days for walk in part], spans, with_heat=with_heat, is_requested=is_requested)
        for row, index in enumerate(result.rows.tolist()):
            _record(metric, part[index], spans[index], (result, row), declared[index])


def _scan(
    series: Sequence[Days],
    spans: Sequence[tuple[int, int]],
    *,
    with_heat: bool,
    only: NDArray[np.intp] | None = None,
    is_requested: NDArray[np.bool_] | None = None,
) -> Scan:
    """Scan the spans, each at the end of a row; `only` are places of the series."""
    begins, ends = np.array(spans).T
    longest = int((ends - begins).max())
    present = np.arange(longest)[None, :] >= longest - (ends - begins)[:, None]
    parts = list(zip(series, spans, strict=True))
    x = _rows([days.x[begin:end] for days, (begin, end) in parts], present)
    known_variance = _rows([days.known[begin:end] for days, (begin, end) in parts], present)
    heat = None
    if with_heat:
        heat = _rows([days.temperature_c[begin:end] for days, (begin, end) in parts], present)
        for row in np.flatnonzero(np.isnan(heat).any(axis=1)):
            heat[row, present[row]] = without_gaps(heat[row, present[row]])
    if only is not None:
        only = only - ends + longest
    return scan_series(x, known_variance, present, np.array([days.floor for days in series]), heat, only, is_requested)


def _rows(parts: Sequence[NDArray[np.float64]], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    values = np.concatenate(parts)
    if len(values) == present.size:
        return values.reshape(present.shape)
    rows = np.zeros(present.shape)
    rows[present] = values
    return rows


def _declared(walks: Sequence[_Walk], spans: Sequence[tuple[int, int]], *, with_heat: bool) -> list[_DeclaredStep | None]:
    """Return for each series the step at the newest place where its fingerprint changed; None if it did not, or nothing stepped there."""
    newest = [bisect_right(walk.changed, end - AFTER) - 1 for walk, (_, end) in zip(walks, spans, strict=True)]
    places = {row: walks[row].changed[index] for row, index in enumerate(newest) if index >= 0}
    rows = [row for row, first_day in places.items() if first_day >= spans[row][0] + BEFORE]
    steps: list[_DeclaredStep | None] = [None] * len(walks)
    if rows:
        only = np.array([places[row] for row in rows])
        result = _scan([walks[row].days for row in rows], [spans[row] for row in rows], with_heat=with_heat, only=only)
        for row, score, step, error in zip(rows, result.score.tolist(), result.step.tolist(), result.error.tolist(), strict=True):
            steps[row] = (places[row], score, step, error) if score >= DECLARED_SCORE else None
    return steps


def _record(metric: TrendMetric, walk: _Walk, span: tuple[int, int], scanned: tuple[Scan, int], declared: _DeclaredStep | None) -> None:
    """Record one scan: a confirmed step begins a new level, the newest scan gives the current one."""
    begin, end = span
    result, row = scanned
    score, line = float(result.score[row]), float(result.line[row])
    step, error = float(result.step[row]), float(result.error[row])
    split, is_step = None, False
    if score >= UNCONFIRMED_SCORE:
        index = int(result.split[row]) - result.scores.shape[1] + end
        split = Break(index, *_around(result.scores[row], end), score)
        runs, known_variance = walk.days.runs[None, begin:end], walk.days.known[None, begin:end]
        lowered = float(less_where_confirmed(runs, known_variance, result.day_variance[row : row + 1], np.array([index - begin]))[0])
        is_step = score >= max(step_score(end - begin) - lowered, line)
    if declared and declared[1] >= line and (split is None or split.low <= declared[0] <= split.high):
        index, score, step, error = declared
        split, is_step = Break(index, index, index, score), True
    is_settled = split is not None and is_step and _is_settled(metric, step, error, end - split.place)
    if (
        split is not None
        and is_settled
        and not is_slow(walk.days, (walk.begin, end), split.place, with_heat=walk.is_warm)
        and _survives(walk, span, split, step, float(result.slope[row]))
    ):
        _begin_level(walk, split, end)
    elif end == len(walk.days.day):
        walk.changes.now = CurrentLevel(split, float(result.slope[row]), float(result.slope_error[row]))


def _survives(walk: _Walk, span: tuple[int, int], candidate: Break, step: float, slope: float) -> bool:
    """Return whether a step remains both with the temperature readings as they are and after removing a jump of theirs next to it.

    An exchanged sensor shows a jump that the metric does not follow, a warmer board one that it does. Jumps of the size of the weather
    cannot be distinguished, so a change that either of the two explains is not a step.
    """
    if not math.isfinite(slope):
        return True
    days, (begin, end) = walk.days, span
    used = without_gaps(days.temperature_c[begin:end])
    last = max(candidate.place, min(candidate.high, candidate.place + NEAR, end - AFTER))
    places = range(max(candidate.low, candidate.place - NEAR, begin + BEFORE) - begin, last - begin + 1)
    sign = -math.copysign(1.0, step * slope)
    anywhere = range(BEFORE, end - begin - AFTER + 1)
    # A jump elsewhere misleads about how the metric follows the temperature.
    temperatures_c = [
        without_jump(used, places, sign, HIDDEN_BY_WEATHER),
        without_jump(used, anywhere, 1.0),
        without_jump(used, anywhere, -1.0),
    ]
    temperatures_c += [] if days.read_c is None else [without_gaps(days.read_c[begin:end])]
    repeated = _scan(
        [replace(days, temperature_c=np.concatenate([days.temperature_c[:begin], other])) for other in temperatures_c],
        [span] * len(temperatures_c),
        with_heat=True,
        only=np.full(len(temperatures_c), candidate.place),
    )
    return bool(((repeated.step * step > 0) & (repeated.score >= SURVIVING_RATIO * candidate.score)).all())


def _begin_level(walk: _Walk, step: Break, end: int) -> None:
    walk.changes.breaks.append(step)
    walk.begin = step.place
    first = walk.begin + BEFORE + AFTER
    # The newest scan is repeated, on the new level alone.
    newest_end = [end] if end == walk.stop and end >= first else []
    walk.ends = [later for later in walk.ends if later >= first] or newest_end


def _around(scores: NDArray[np.float64], end: int) -> tuple[int, int]:
    """Return the first and the last place whose step fits nearly as well as the best: chi-squared within 3.84."""
    near = np.flatnonzero(scores**2 >= max(float(scores.max()) ** 2 - CONFIDENCE_Z**2, 1e-12)) - len(scores) + end
    return int(near[0]), int(near[-1])


def _is_settled(metric: TrendMetric, step: float, error: float, after: int) -> bool:
    """Return whether the step is large enough to report or clearly too small to matter; others wait for more points.

    To wait until a step is clearly more takes 30 days for one of just that size, and finds no fewer false ones: the score decides those.
    """
    return abs(step) >= metric.reported_from or abs(step) + CONFIDENCE_Z * error <= metric.rule.matters or after >= SETTLED


def at_break(metric: TrendMetric, days: Days, begin: int, step_break: Break, end: int) -> tuple[Break, float, float]:
    """Return a break between its neighbours as all later points place it (not a declared one), the step and its standard error."""
    span = (max(begin, step_break.place - RECENT), min(end, step_break.place + RECENT))
    is_named = step_break.score == 0 or (step_break.low == step_break.high and bool(days.changed[step_break.place]))
    first, last = max(span[0] + BEFORE, step_break.place - NEAR), min(span[1] - AFTER, step_break.place + NEAR)
    places = [step_break.place] if is_named else sorted({step_break.place, *range(first, last + 1)})
    with_heat = metric.rule.scale == "log" and days.has_temperature()
    scanned = _scan([days] * len(places), [span] * len(places), with_heat=with_heat, only=np.array(places))
    # Each place with residuals clipped around its own two levels: a high day beside a step does not move it.
    # Where no step can be estimated there is nothing to date. A wrong place seems to have more noise: all are measured by the least.
    variance = days.known[slice(*span)] + scanned.day_variance[:, None]
    squares = np.where(np.isfinite(scanned.error), (scanned.left**2 * variance / variance.min(axis=0)).sum(axis=1), np.inf)
    best = int(np.argmin(squares))
    near = [index for index, square in zip(places, squares, strict=True) if square <= squares[best] + CONFIDENCE_Z**2]
    settled = replace(step_break, place=places[best], low=near[0], high=near[-1])
    return settled, float(scanned.step[best]), float(scanned.error[best])

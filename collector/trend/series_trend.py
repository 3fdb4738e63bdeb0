"""The trend of one series and metric: its points, the steps in them, and what is going on now, as findings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.collector.trend import thresholds
from edgemeter.collector.trend.course import CONFIDENCE_Z, Break, Course, Now, at_break, changed_at, follow
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.finding import Drift, Missing, Scatter, Step
from edgemeter.collector.trend.metrics import Metric, difference, off_scale
from edgemeter.collector.trend.run_figures import SeriesKey

# The scatter of so many last points is compared with that of at least as many before.
SCATTER_POINTS = 30
SCATTER_Z = 4.5
SCATTER_RATIO = 1.5
# Half of the days closer to their level than this share of a standard deviation: figures that never change.
NO_SCATTER = 0.05
# Days without a point, beside four times the usual gap, from which on one is missed; beyond the last, the series is over.
MISSED_DAYS, OVER_DAYS = 3, 60
GAPS = 20


@dataclass(frozen=True, slots=True)
class SeriesTrend:
    """The trend of `metric` in one series; `key.device` is empty for a board type.

    `begin` is the place of the first point that counts (after an annotation). `temperature_slope` is per cent (or points) a degree of
    the board, with its standard error; None where temperature says nothing. `hidden_ratio` is the share of the newest splits that cannot
    be told from the temperature. `chance` is how often noise alone looks like the newest look.
    """

    key: SeriesKey
    metric: str
    days: Days
    begin: int
    steps: tuple[Step, ...]
    suspect: Step | None
    drift: Drift | None
    scatter: Scatter | None
    missing: Missing | None
    temperature_slope: float | None
    temperature_slope_u: float | None
    hidden_ratio: float
    chance: float

    @property
    def has_findings(self) -> bool:
        """Return whether there is anything to say of it."""
        return bool(self.steps or self.suspect or self.drift or self.scatter or self.missing)


def trends(
    name: str, metric: Metric, keys: Sequence[SeriesKey], series: Sequence[Days], *, until: int, begins: Sequence[int] | None = None
) -> list[SeriesTrend]:
    """Return the trend of each series; `until` is the day (since 1970) up to which points could have come."""
    courses = follow(metric, series, begins)
    return [_trend(name, metric, key, days, course, until) for key, days, course in zip(keys, series, courses, strict=True)]


def _trend(name: str, metric: Metric, key: SeriesKey, days: Days, course: Course, until: int) -> SeriesTrend:
    now = course.now
    edges = [course.begin, *(found.place for found in course.breaks), len(days.day)]
    steps = tuple(
        _step(metric, days, found, (edges[place], edges[place + 2]), is_confirmed=True) for place, found in enumerate(course.breaks)
    )
    suspect = None
    if now is not None and now.suspect is not None:
        found = _step(metric, days, now.suspect, (max(now.begin, edges[-2]), len(days.day)), is_confirmed=False)
        # What is too small to matter needs no more runs.
        suspect = None if found.matters is False else found
    drift = _drift(metric, days, now) if now is not None else None
    tells = now is not None and math.isfinite(now.slope)
    return SeriesTrend(
        key=key,
        metric=name,
        days=days,
        begin=course.begin,
        steps=steps,
        suspect=None if drift is not None else suspect,
        drift=drift,
        scatter=_scatter(days, now) if now is not None and metric.scale != "share" else None,
        missing=_missing(days, until),
        temperature_slope=now.slope if now is not None and tells else None,
        temperature_slope_u=now.slope_error if now is not None and tells else None,
        hidden_ratio=now.hidden if now is not None else 0.0,
        chance=now.chance if now is not None else 1.0,
    )


def _step(metric: Metric, days: Days, found: Break, edges: tuple[int, int], *, is_confirmed: bool) -> Step:
    begin, end = edges
    size, error = at_break(metric, days, begin, found.place, end)
    reach = CONFIDENCE_Z * error
    if abs(size) - reach >= metric.matters:
        matters: bool | None = True
    else:
        matters = False if abs(size) + reach <= metric.matters else None
    weight = 1 / (days.known[begin : found.place] + days.floor**2)
    level = float(np.average(days.x[begin : found.place], weights=weight))
    low, high = found.low, found.high
    changed = {text: None for place in range(low, high + 1) if begin < place < end for text in changed_at(days, place)}
    return Step(
        state="confirmed" if is_confirmed else "suspect",
        day=int(days.day[found.place]),
        day_low=int(days.day[low]),
        day_high=int(days.day[high]),
        size=difference(metric, size),
        low=difference(metric, size - reach),
        high=difference(metric, size + reach),
        before=off_scale(metric, level),
        after=off_scale(metric, level + size),
        days_before=found.place - begin,
        days_after=end - found.place,
        runs_before=int(days.runs[begin : found.place].sum()),
        runs_after=int(days.runs[found.place : end].sum()),
        score=found.score,
        chance=found.chance,
        is_worse=(size > 0) == (metric.worse == "higher"),
        matters=matters,
        candidates=tuple(changed),
    )


def _drift(metric: Metric, days: Days, now: Now) -> Drift | None:
    """Return the drift, where a straight line explains more than any step does and its whole way matters."""
    size = now.end - now.begin
    score = now.suspect.score if now.suspect else 0.0
    if now.drift < max(thresholds.step_score(size), score):
        return None
    way = abs(now.drift_a_point) - CONFIDENCE_Z * now.drift_error
    if way * size < metric.matters:
        return None
    points_a_day = (size - 1) / max(int(days.day[now.end - 1] - days.day[now.begin]), 1)
    month = 30 * points_a_day
    reach = CONFIDENCE_Z * now.drift_error
    return Drift(
        per_30_days=difference(metric, now.drift_a_point * month),
        low=difference(metric, (now.drift_a_point - reach) * month),
        high=difference(metric, (now.drift_a_point + reach) * month),
        day=int(days.day[now.begin]),
        days=size,
        score=now.drift,
        is_worse=(now.drift_a_point > 0) == (metric.worse == "higher"),
    )


def _scatter(days: Days, now: Now) -> Scatter | None:
    """Return the change of scatter, by the ranks of what level, temperature and step leave: no single day makes one."""
    size = np.abs(now.left)
    if len(size) < 2 * SCATTER_POINTS:
        return None
    late, early = size[-SCATTER_POINTS:], size[:-SCATTER_POINTS]
    if max(np.median(late), np.median(early)) < NO_SCATTER:
        return None
    both = np.concatenate([early, late])
    _, place, count = np.unique(both, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    expected = len(late) * (len(both) + 1) / 2
    z = (rank[-len(late) :].sum() - expected) / math.sqrt(len(early) * len(late) * (len(both) + 1) / 12)
    ratio = float(np.median(late) / max(np.median(early), 1e-12))
    if abs(z) < SCATTER_Z or not (ratio > SCATTER_RATIO or ratio < 1 / SCATTER_RATIO):
        return None
    return Scatter(ratio, int(days.day[now.end - SCATTER_POINTS]), len(early), len(late))


def _missing(days: Days, until: int) -> Missing | None:
    if len(days.day) < 2:
        return None
    every = float(np.median(np.diff(days.day[-GAPS:])))
    silent = until - int(days.day[-1])
    return Missing(int(days.day[-1]), silent, every) if max(MISSED_DAYS, 4 * every) < silent <= OVER_DAYS else None

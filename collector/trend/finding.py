"""Findings of the trend analysis, as figures."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

# `declared`: an annotation names the day; the step is estimated whatever its size.
FindingState = Literal["unconfirmed", "confirmed", "declared"]
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Step:
    """The level changed from one day to the next.

    `size`, `low` and `high` (95%) are per cent of the level before, or points; `day`, `day_low` and
    `day_high` (days since 1970) the first day of the new level with its interval. `before` and
    `after` are the levels in the metric's own unit, `days_before` and `days_after` the numbers of
    points, `runs_before` and `runs_after` of runs. `candidates` are changes on the same day,
    `changed_near` the others within some days of it: noise may move a step beyond its interval.
    `matters` is None while the interval holds the smallest difference that matters.
    """

    state: FindingState
    day: int
    day_low: int
    day_high: int
    size: float
    low: float
    high: float
    before: float
    after: float
    days_before: int
    days_after: int
    runs_before: int
    runs_after: int
    score: float
    is_worse: bool
    matters: bool | None
    candidates: tuple[str, ...] = ()
    changed_near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drift:
    """The level moves steadily from `day` to `last_day`, over `days` points.

    `per_30_days` is the size with its bounds (95%), per cent or points. `total` is the difference
    over all of them.
    """

    per_30_days: float
    low: float
    high: float
    day: int
    days: int
    score: float
    is_worse: bool
    last_day: int
    total: float
    is_over: bool


@dataclass(frozen=True, slots=True)
class Modes:
    """The level goes back and forth between `low` and `high`, in the metric's unit.

    They are `size` apart, per cent or points.

    `high_ratio` is the share of days at the higher one, `changes` is how often the level changed
    since `day`, most recently on `last_day`.
    """

    low: float
    high: float
    size: float
    high_ratio: float
    changes: int
    day: int
    last_day: int


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no point since `day`, after one every `every_days` days.

    With `has_runs` there were runs, but they do not count.
    """

    day: int
    silent_days: int
    every_days: float
    has_runs: bool = False


def iso(day: int) -> str:
    """Return a day (since 1970) as 2026-11-20; as a number outside the calendar."""
    try:
        return (_EPOCH + timedelta(days=day)).isoformat()
    except OverflowError:
        return f"day {day}"

"""How often stable series raise an alarm, and how soon a step is found: our alerts on series of known truth.

Each series has 230 days and is looked at every day from the 31st on, 200 times; a step of 3%, the smallest difference that matters, comes
on day 101. It goes the whole way of the product: temperatures, scan, confirmation, size, and what the rule `step` tells people. The unit is
the standard deviation of the days of the case without outliers and temperature (by the median of absolute deviations), of 1 or 3%: the
step is of 3 or 1 of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend import noise
from edgemeter.collector.trend.change_points import change_points
from edgemeter.collector.trend.covariate import regressor
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import is_event, newest_step

Array = NDArray[np.float64]
# The day of the first alarm of each series.
FirstAlarms = NDArray[np.int64]
DAYS, FIRST_LOOK, STEP_DAY = 230, 30, 100
NEVER = 10**6

# The step, and the noise of a day in per cent at which it is of one standard deviation and of three.
STEP = METRICS["latency_p50_ms"].rule.matters
MUCH_NOISE, LITTLE_NOISE = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Series [series, days]: what a day is, how far its runs scatter, what is known of that, and the board's temperature (read)."""

    day: Array
    run_sd: Array
    u: Array
    temperature_c: Array | None = None


def autoregressive(draw: np.random.Generator, series: int, lag1: float) -> Array:
    """Return series of unit variance whose neighbours share `lag1`."""
    x = draw.normal(size=(series, DAYS + 40))
    for day in range(1, DAYS + 40):
        x[:, day] = lag1 * x[:, day - 1] + math.sqrt(1 - lag1**2) * x[:, day]
    return x[:, 40:]


def outlying(draw: np.random.Generator, series: int) -> Array:
    """Return what outliers add: 3% of the days, upwards."""
    return (draw.random((series, DAYS)) < 0.03) * np.abs(draw.normal(0, 6, (series, DAYS)))


def season(draw: np.random.Generator, series: int) -> Array:
    """Return a board's temperature: a year of +-4 degrees, and weather of one degree that lasts some days."""
    year = 4 * np.sin(2 * np.pi * (np.arange(DAYS) / 365 + draw.random((series, 1))))
    return year + autoregressive(draw, series, 0.7)


def clean(draw: np.random.Generator, series: int) -> Drawn:
    """Return days that differ by 0.5 and runs that differ by 0.87."""
    return Drawn(0.5 * draw.normal(size=(series, DAYS)), np.full((series, DAYS), math.sqrt(0.75)), np.zeros((series, DAYS)))


def mix(draw: np.random.Generator, series: int) -> Drawn:
    """Return all of it at once: temperature, neighbours, unequal noise, outliers."""
    warmth = season(draw, series)
    u = np.where(draw.random((series, DAYS)) < 0.25, 2.0, 0.4)
    day = 0.917 * autoregressive(draw, series, 0.36) + 0.15 * warmth + outlying(draw, series)
    return Drawn(day, u, u, warmth + 0.5 * draw.normal(size=(series, DAYS)))


CASES: dict[str, Callable[[np.random.Generator, int], Drawn]] = {"clean": clean, "mix": mix}


def sigma(case: str) -> float:
    """Return the unit of a case: the robust spread of its days of one run, without outliers and temperature."""
    draw = np.random.default_rng(7)
    series_days = CASES[case](draw, 300)
    x = series_days.day + series_days.run_sd * draw.normal(size=series_days.day.shape)
    if case == "mix":
        x = 0.917 * autoregressive(draw, 300, 0.36) + series_days.run_sd * draw.normal(size=x.shape)
    return float(np.median(np.abs(x - np.median(x))) / noise.HALF_NORMAL)


def edgemeter_alerts(series_days: Drawn, draw: np.random.Generator) -> FirstAlarms:
    """Watch as the product does. A series is over with its first alert."""
    x = series_days.day + series_days.run_sd * draw.normal(size=series_days.day.shape)
    first = np.full(len(x), NEVER)
    for day in range(FIRST_LOOK, DAYS):
        rows = np.flatnonzero(first == NEVER)
        days = [_days(series_days, row, x[row, : day + 1]) for row in rows]
        # Only the newest look: those before it were had on their days.
        for row, look in zip(rows, change_points(days, stride=DAYS + 1), strict=True):
            step = newest_step(look)
            if step is not None and is_event("latency_p50_ms", step):
                first[row] = day
    return first


def _days(series_days: Drawn, row: int, x: Array) -> Days:
    """Return the days of one series as the product has them."""
    size, metric = len(x), METRICS["latency_p50_ms"]
    read_c = np.full(size, np.nan) if series_days.temperature_c is None else series_days.temperature_c[row, :size]
    known_variance, runs = series_days.u[row, :size] ** 2, np.ones(size, dtype=np.int64)
    return Days(metric, np.arange(size), x, known_variance, runs, regressor(read_c, x), ((),) * size, metric.rule.floor, read_c=read_c)


def scaled(series_days: Drawn, factor: float) -> Drawn:
    """Return the series with so many times the noise."""
    return replace(series_days, day=factor * series_days.day, run_sd=factor * series_days.run_sd, u=factor * series_days.u)


def stepped(series_days: Drawn, size: float) -> Drawn:
    """Return the series with a step of so many per cent on its day."""
    day = series_days.day.copy()
    day[:, STEP_DAY:] += size
    return replace(series_days, day=day)


def judged(case: str, series: int) -> dict[str, float]:
    """Return false alarms at 3% of noise and at 1%; at 1% the days until half of the steps are found, and the share found in 30 days."""
    draw = np.random.default_rng([1, *case.encode()])
    unit = sigma(case)
    # What matters is less than the noise then: every step that the scan confirms is told.
    stable = edgemeter_alerts(scaled(CASES[case](draw, series), MUCH_NOISE / unit), draw)
    quiet = edgemeter_alerts(scaled(CASES[case](draw, series), LITTLE_NOISE / unit), draw)
    late = edgemeter_alerts(stepped(scaled(CASES[case](draw, max(series // 2, 10)), LITTLE_NOISE / unit), STEP), draw)
    # A series that had cried before the step has nothing left to find it with.
    is_late = (late >= STEP_DAY) & (late < NEVER)
    days = np.where(is_late, late - STEP_DAY + 1, NEVER)
    return {
        "false_alarm_ratio": float(np.mean(stable < NEVER)),
        "false_alarm_ratio_at_1_per_cent": float(np.mean(quiet < NEVER)),
        "days_to_3_sigma": float(np.median(days)),
        "found_3_sigma_in_30": float(np.mean(days <= 30)),
    }

"""Worlds of a year that the trend's noise model does not know.

They have drifts, two modes, steps and nothing at all.

A world is a signal under a noise: days that share with their neighbours (an autoregression of .3 to
.6), a weekly rhythm, heavy tails, days without a run, one to four runs a day; 1% of a day in all.
Everything goes the way of the product, from runs to findings.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.series import Fingerprint, series_of
from edgemeter.collector.trend.days import Days, days_of_series
from edgemeter.collector.trend.finding import Drift, Step
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_columns import TEMPERATURE, CommonFacts, RunColumns
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event, trends
from tests.fixtures.record_factory import make_record

Array = NDArray[np.float64]
DAYS = 400
METRIC = "latency_p50_ms"
_FACTS = CommonFacts(Fingerprint("1", "litert 2", None, "6", None, None, "sha", None), None, None)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a day, in per cent, and how the days are measured.

    `tails` are degrees of freedom.
    """

    day: float = 0.85
    lag1: float = 0.0
    weekly: float = 0.0
    tails: float | None = None
    run: float = 0.5
    missing_ratio: float = 0.0
    most_runs: int = 1

    def of(self, draw: np.random.Generator, series: int) -> Array:
        """Return what the days of so many series have beside their signal, in per cent."""
        x = autoregressive(draw, series, self.lag1, self.tails)
        week = (np.arange(DAYS)[None, :] + draw.integers(7, size=(series, 1))) % 7 >= 5
        return self.day * x + self.weekly * week


def autoregressive(
    draw: np.random.Generator, series: int, lag1: float, tails: float | None = None
) -> Array:
    """Return days of unit variance that share `lag1` with their neighbours."""
    size = (series, DAYS + 60)
    x = (
        draw.normal(size=size)
        if tails is None
        else draw.standard_t(tails, size) / math.sqrt(tails / (tails - 2))
    )
    for day in range(1, size[1]):
        x[:, day] = lag1 * x[:, day - 1] + math.sqrt(1 - lag1**2) * x[:, day]
    return x[:, 60:]


NOISES = {
    "white": Noise(),
    "ar .6": Noise(lag1=0.6, most_runs=3),
    "heavy": Noise(tails=3.0, most_runs=2),
    "all": Noise(0.7, 0.45, 0.7, 4.0, 0.5, 0.2, 4),
}

Signal = Callable[[np.random.Generator, Array], tuple[Array, Array | None]]


def drift(per_month: float, begin: int = 0, end: int = DAYS) -> Signal:
    """Return a drift by so many per cent a month, from a day to another."""
    return lambda _, day: (per_month / 30 * (np.clip(day, begin, end) - begin), None)


def steps(*sizes: tuple[int, float]) -> Signal:
    """Return steps, each on its day by its size in per cent."""
    return lambda _, day: (
        sum((np.where(day >= at, size, 0.0) for at, size in sizes), np.zeros_like(day)),
        None,
    )


def both(*signals: Signal) -> Signal:
    """Return the sum of signals, with the temperature of the first."""

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, Array | None]:
        parts = [of(draw, day) for of in signals]
        return sum((level for level, _ in parts), np.zeros_like(day)), parts[0][1]

    return signal


def modes(apart: float, stay_days: float) -> Signal:
    """Return two levels that a series goes back and forth between.

    It stays in each for so many days on average.
    """

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, None]:
        is_high = np.zeros(day.shape, dtype=bool)
        for row in is_high:
            at, state = 0, draw.random() < 0.5
            while at < len(row):
                stay = int(draw.geometric(1 / stay_days))
                row[at : at + stay] = state
                at, state = at + stay, not state
        return apart * is_high, None

    return signal


def boots(spread: float, stay_days: float) -> Signal:
    """Return a level for each boot, drawn anew with this standard deviation.

    One boot follows another after so many days on average.
    """

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, None]:
        level = np.zeros(day.shape)
        for row in level:
            at = 0
            while at < len(row):
                stay = int(draw.geometric(1 / stay_days))
                row[at : at + stay] = draw.normal(0, spread)
                at += stay
        return level, None

    return signal


def hot_days(days: int, warmer_c: float, a_degree: float, *, is_read: bool) -> Signal:
    """Return a level that follows the room, which is warmer for some of the last days.

    With `is_read` the board has a thermometer.
    """

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, Array | None]:
        begin = draw.integers(DAYS - 90, DAYS - days - 10, (len(day), 1))
        room_c = 45 + draw.normal(size=day.shape)
        for at in range(1, DAYS):
            room_c[:, at] = 45 + 0.7 * (room_c[:, at - 1] - 45) + 0.7 * (room_c[:, at] - 45)
        room_c += warmer_c * ((day >= begin) & (day < begin + days))
        return a_degree * room_c, room_c + 0.3 * draw.normal(size=day.shape) if is_read else None

    return signal


def weather(a_degree: float, exchanged_c: float = 0.0) -> Signal:
    """Return a level that follows a year of +-4 degrees and weather of some days.

    The sensor, exchanged on day 115, shows so much more.
    """

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, Array]:
        year = 4 * np.sin(2 * np.pi * (day / 365 + draw.random((len(day), 1))))
        warmth = year + autoregressive(draw, len(day), 0.7)
        return a_degree * warmth, 45 + warmth + 0.5 * draw.normal(size=day.shape) + exchanged_c * (
            day >= 115
        )

    return signal


def season(size: float) -> Signal:
    """Return a year's rhythm that nothing recorded explains."""
    return lambda draw, day: (
        size * np.sin(2 * np.pi * (day / 365 + draw.random((len(day), 1)))),
        None,
    )


def episode(days: int, size: float) -> Signal:
    """Return some days at another level, and back."""

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, None]:
        begin = draw.integers(150, 360, (len(day), 1))
        return size * ((day >= begin) & (day < begin + days)), None

    return signal


SIGNALS: Mapping[str, Signal] = {
    "flat": steps(),
    "drift 0.25": drift(0.25),
    "drift 2.0": drift(2.0),
    "drift 2 from day 300": drift(2.0, 300),
    "drift 2 until day 150": drift(2.0, 0, 150),
    "steps 4 at 100 200 300": steps((100, 4.0), (200, 4.0), (300, 4.0)),
    "step 6 in drift .5": both(drift(0.5), steps((250, 6.0))),
    "modes 5 of 6 days": modes(5.0, 6.0),
    "modes 5 of 40 days": modes(5.0, 40.0),
    "boots 3 of 10 days": boots(3.0, 10.0),
    "boots 3 of 20 days": boots(3.0, 20.0),
    "boots 5 of 30 days": boots(5.0, 30.0),
    "step 10 in boots 2 of 10 days": both(boots(2.0, 10.0), steps((370, 10.0))),
    "step 10 in modes 5 of 6 days": both(modes(5.0, 6.0), steps((370, 10.0))),
    "hot 14 days": hot_days(14, 12.0, 0.5, is_read=True),
    "hot 14 days, unread": hot_days(14, 12.0, 0.5, is_read=False),
    "episode 20": episode(20, 6.0),
    "season 2": season(2.0),
    "step 3 at 100": steps((100, 3.0)),
    "weather": weather(0.15),
    "step 3 at 100 in weather": both(weather(0.15), steps((100, 3.0))),
}


def columns(signal: Signal, noise: Noise, draw: np.random.Generator, series: int) -> RunColumns:
    day = np.tile(np.arange(DAYS, dtype=float), (series, 1))
    level, temperature_c = signal(draw, day)
    level = level + noise.of(draw, series)
    runs = draw.integers(1, noise.most_runs + 1, day.shape) * (
        draw.random(day.shape) >= noise.missing_ratio
    )
    repeats = runs.ravel()
    x = np.repeat(level.ravel(), repeats) + noise.run * draw.normal(size=repeats.sum())
    celsius = (
        np.full(len(x), np.nan)
        if temperature_c is None
        else np.repeat(temperature_c.ravel(), repeats)
    )
    metric = METRICS[METRIC]
    figures = {metric.figure.name: 20 * np.exp(x / 100), TEMPERATURE: celsius}
    return RunColumns(
        edges=np.concatenate([[0], np.cumsum(runs.sum(axis=1))]).astype(np.intp),
        day=np.repeat(day.ravel().astype(np.int64) + 20_000, repeats),
        is_ok=np.ones(len(x), dtype=bool),
        common=np.zeros(len(x), dtype=np.intp),
        facts=[_FACTS],
        figures=figures,
    )


def world(name: str, noise: str, series: int, seed: int = 1) -> list[Days]:
    draw = np.random.default_rng([seed, *f"{name}|{noise}".encode()])
    return days_of_series(METRICS[METRIC], columns(SIGNALS[name], NOISES[noise], draw, series))


def until(days: Days, points: int) -> Days:
    fields = ("day", "x", "known", "runs", "temperature_c")
    read_c = None if days.read_c is None else days.read_c[:points]
    changed = {index: texts for index, texts in days.changed.items() if index < points}
    return replace(
        days,
        read_c=read_c,
        changed=changed,
        **{name: getattr(days, name)[:points] for name in fields},
    )


def reported(trend: SeriesTrend) -> list[Drift | Step]:
    """Return what a trend tells people: its drift, and the steps that matter."""
    return [
        *([trend.drift] if trend.drift else []),
        *(step for step in trend.steps if is_event(METRIC, step)),
    ]


def findings(series: Sequence[Days]) -> list[SeriesTrend]:
    return trends([series_of(make_record())] * len(series), series)

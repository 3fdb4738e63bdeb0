"""What the trend makes of a year of worlds that its noise model does not know: drifts, two modes, warm spells, steps and nothing at all.

A world is a signal under a noise: days that share with their neighbours (an autoregression of .3 to .6), a weekly rhythm, heavy tails,
days without a run, one to four runs a day; 1% of a day in all. Everything goes the way of the product, from runs to findings.
`python -m tests.benchmarks.trend_worlds [SERIES] [LOOK_EVERY] [NOISE ...] [START OF A NAME ...]` prints a line for each world: the share of
the series with a step (and steps a series), with a drift (how often its 95% interval holds the rate, its median and width), with two modes,
with an episode; with LOOK_EVERY also what looks at every so many points saw at any time.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.runs.cases import NO_SERIES, Fingerprint
from edgemeter.collector.trend.days import Days, days_of_series
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_columns import TEMPERATURE, CommonFacts, RunColumns
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event, trends

Array = NDArray[np.float64]
DAYS = 400
METRIC = "latency"
_FACTS = CommonFacts(Fingerprint("1", "litert 2", None, "6", None, None, "sha", None), None, None)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a day, in per cent, and how the days are measured; `tails` are degrees of freedom."""

    day: float = 0.85
    lag1: float = 0.0
    weekly: float = 0.0
    tails: float | None = None
    run: float = 0.5
    missing_ratio: float = 0.0
    most_runs: int = 1

    def of(self, draw: np.random.Generator, series: int) -> Array:
        """Return what the days of so many series have beside their signal, in per cent."""
        size = (series, DAYS + 60)
        shocks = (
            draw.normal(size=size) if self.tails is None else draw.standard_t(self.tails, size) / math.sqrt(self.tails / (self.tails - 2))
        )
        x = shocks
        for day in range(1, size[1]):
            x[:, day] = self.lag1 * x[:, day - 1] + math.sqrt(1 - self.lag1**2) * shocks[:, day]
        week = (np.arange(DAYS)[None, :] + draw.integers(7, size=(series, 1))) % 7 >= 5
        return self.day * x[:, 60:] + self.weekly * week


NOISES = {
    "white": Noise(),
    "ar .3": Noise(lag1=0.3, most_runs=2),
    "ar .6": Noise(lag1=0.6, most_runs=3),
    "weekly": Noise(lag1=0.3, weekly=1.0),
    "heavy": Noise(tails=3.0, most_runs=2),
    "missing": Noise(lag1=0.3, missing_ratio=0.4),
    "all": Noise(0.7, 0.45, 0.7, 4.0, 0.5, 0.2, 4),
}

Signal = Callable[[np.random.Generator, Array], tuple[Array, Array | None]]


def drift(per_month: float, begin: int = 0, end: int = DAYS) -> Signal:
    """Return a drift by so many per cent a month, from a day to another."""
    return lambda _, day: (per_month / 30 * (np.clip(day, begin, end) - begin), None)


def steps(*sizes: tuple[int, float]) -> Signal:
    """Return steps, each on its day by its size in per cent."""
    return lambda _, day: (sum((np.where(day >= at, size, 0.0) for at, size in sizes), np.zeros_like(day)), None)


def both(*signals: Signal) -> Signal:
    """Return the sum of signals without temperature."""
    return lambda draw, day: (sum((signal(draw, day)[0] for signal in signals), np.zeros_like(day)), None)


def modes(apart: float, low_days: float, high_days: float) -> Signal:
    """Return two levels that a series goes back and forth between, staying in each for so many days on average."""

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, None]:
        is_high = np.zeros(day.shape, dtype=bool)
        for row in is_high:
            at, state = 0, draw.random() < high_days / (low_days + high_days)
            while at < len(row):
                stay = int(draw.geometric(1 / (high_days if state else low_days)))
                row[at : at + stay] = state
                at, state = at + stay, not state
        return apart * is_high, None

    return signal


def settling(size: float, days: float) -> Signal:
    """Return a level that approaches another ever more slowly."""
    return lambda _, day: (size * (1 - np.exp(-day / days)), None)


def weather(draw: np.random.Generator, day: Array) -> Array:
    """Return the temperature of a room: weather of 1.2 degrees that lasts some days, around 0."""
    x = draw.normal(size=day.shape)
    for at in range(1, day.shape[1]):
        x[:, at] = 0.75 * x[:, at - 1] + math.sqrt(1 - 0.75**2) * x[:, at]
    return 1.2 * x


def heat_wave(degrees: float, *, is_read: bool, edge: float = 1.5, weather_ratio: float = 1.0, knee: float = 0.0) -> Signal:
    """Return days that follow the temperature of a room by 0.5% a degree (above `knee` degrees more than usual), with two warm weeks."""

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, Array | None]:
        begin = draw.uniform(200, 360, (len(day), 1))
        warm = np.clip(np.minimum(day - begin, begin + 14 - day) / edge, 0, 1)
        room_c = weather_ratio * weather(draw, day) + degrees * warm
        read_c = np.round(room_c + 30 + 0.3 * draw.normal(size=day.shape))
        return 0.5 * (np.maximum(room_c, knee) if knee else room_c), read_c if is_read else None

    return signal


def season(size: float) -> Signal:
    """Return a year's rhythm that nothing recorded explains."""
    return lambda draw, day: (size * np.sin(2 * np.pi * (day / 365 + draw.random((len(day), 1)))), None)


def wandering(a_day: float) -> Signal:
    """Return a random walk."""
    return lambda draw, day: (np.cumsum(draw.normal(0, a_day, day.shape), axis=1), None)


def episode(days: int, size: float) -> Signal:
    """Return some days at another level, and back."""

    def signal(draw: np.random.Generator, day: Array) -> tuple[Array, None]:
        begin = draw.integers(150, 360, (len(day), 1))
        return size * ((day >= begin) & (day < begin + days)), None

    return signal


SIGNALS: Mapping[str, Signal] = {
    "flat": steps(),
    **{f"drift {rate}": drift(rate) for rate in (0.25, 0.5, 1.0, 2.0, 4.0)},
    "drift 1 from day 200": drift(1.0, 200),
    "drift 2 from day 300": drift(2.0, 300),
    "drift 2 until day 150": drift(2.0, 0, 150),
    "settling 6% in 60": settling(6.0, 60.0),
    "step 5 at 300": steps((300, 5.0)),
    "step 3 at 370": steps((370, 3.0)),
    "steps 4 at 100 200 300": steps((100, 4.0), (200, 4.0), (300, 4.0)),
    "steps 6 at 300 330": steps((300, 6.0), (330, 6.0)),
    "step 6 in drift .5": both(drift(0.5), steps((250, 6.0))),
    "modes 5 of 6 days": modes(5.0, 6.0, 6.0),
    "modes 5 of 15 days": modes(5.0, 15.0, 15.0),
    "modes 8 of 20 and 5": modes(8.0, 20.0, 5.0),
    "modes 3 of 8 days": modes(3.0, 8.0, 8.0),
    "modes 5 then step 6": both(modes(5.0, 8.0, 8.0), steps((340, 6.0))),
    "heat wave read": heat_wave(8.0, is_read=True),
    "heat wave read sharp": heat_wave(10.0, is_read=True, edge=0.5),
    "heat wave read alone": heat_wave(10.0, is_read=True, edge=0.5, weather_ratio=0.2),
    "heat wave read knee": heat_wave(12.0, is_read=True, knee=3.0),
    "heat wave not read": heat_wave(10.0, is_read=False),
    "episode 10": episode(10, 5.0),
    "episode 20": episode(20, 6.0),
    "season 2": season(2.0),
    "wandering .1": wandering(0.1),
}


def columns(signal: Signal, noise: Noise, draw: np.random.Generator, series: int) -> RunColumns:
    """Return the runs of series of a world, as the index has them."""
    day = np.tile(np.arange(DAYS, dtype=float), (series, 1))
    level, temperature_c = signal(draw, day)
    level = level + noise.of(draw, series)
    runs = draw.integers(1, noise.most_runs + 1, day.shape) * (draw.random(day.shape) >= noise.missing_ratio)
    if noise.missing_ratio > 0.3:
        runs[:, 120:134] = 0
    repeats = runs.ravel()
    x = np.repeat(level.ravel(), repeats) + noise.run * draw.normal(size=repeats.sum())
    celsius = np.full(len(x), np.nan) if temperature_c is None else np.repeat(temperature_c.ravel(), repeats)
    metric = METRICS[METRIC]
    figures = {metric.figure.key: 20 * np.exp(x / 100), TEMPERATURE: celsius}
    if metric.u_column is not None:
        figures[metric.u_column] = np.full(len(x), 0.002)
    return RunColumns(
        edges=np.concatenate([[0], np.cumsum(runs.sum(axis=1))]).astype(np.intp),
        day=np.repeat(day.ravel().astype(np.int64) + 20_000, repeats),
        is_valid=np.ones(len(x), dtype=bool),
        common=np.zeros(len(x), dtype=np.intp),
        facts=[_FACTS],
        figures=figures,
    )


def world(name: str, noise: str, series: int, seed: int = 1) -> list[Days]:
    """Return the days of the series of a world."""
    draw = np.random.default_rng([seed, *f"{name}|{noise}".encode()])
    return days_of_series(METRICS[METRIC], columns(SIGNALS[name], NOISES[noise], draw, series))


def until(days: Days, points: int) -> Days:
    """Return the series as it was after so many points."""
    fields = ("day", "x", "known", "runs", "temperature_c", "changed")
    read_c = None if days.read_c is None else days.read_c[:points]
    return replace(days, read_c=read_c, **{name: getattr(days, name)[:points] for name in fields})


def findings(series: Sequence[Days]) -> list[SeriesTrend]:
    """Return the trend of each series."""
    return trends(METRIC, [NO_SERIES] * len(series), series)


def line(name: str, noise: str, series: int, *, look_every: int | None = None) -> str:
    """Return what the trend finds in a world as a line; with `look_every` also by looks at every so many points."""
    days = world(name, noise, series)
    begin = time.process_time()
    results = findings(days)
    took_ms = 1000 * (time.process_time() - begin) / series
    stepped = [[step for step in trend.steps if is_event(METRIC, step)] for trend in results]
    drifts = [trend.drift for trend in results if trend.drift]
    cells = [
        f"{name:24} {noise:8}",
        f"steps {np.mean([bool(of_series) for of_series in stepped]):4.2f} ({np.mean([*map(len, stepped)]):4.1f})",
    ]
    rate = next((float(word) for word in name.split() if name.startswith("drift") and word[0].isdigit()), 0.0)
    rate = 100 * math.expm1(rate / 100)
    coverage = np.mean([drift.low <= rate <= drift.high for drift in drifts]) if drifts else math.nan
    width = np.median([drift.high - drift.low for drift in drifts]) if drifts else math.nan
    rates = np.median([drift.per_30_days for drift in drifts]) if drifts else math.nan
    cells.append(f"drift {len(drifts) / series:4.2f} (holds {coverage:4.2f}, rate {rates:5.2f}, width {width:4.2f})")
    cells += [f"{kind} {np.mean([bool(getattr(trend, kind)) for trend in results]):4.2f}" for kind in ("modes", "episodes", "suspect")]
    if look_every is not None:
        has_stepped = np.zeros(series, dtype=bool)
        drifted = np.full(series, 9999)
        for points in range(30, DAYS, look_every):
            looks = findings([until(one_series, points) for one_series in days])
            has_stepped |= [any(is_event(METRIC, step) for step in trend.steps) for trend in looks]
            drifted = np.minimum(drifted, [points if trend.drift else 9999 for trend in looks])
        cells.append(f"at any look: steps {has_stepped.mean():4.2f}, drift {np.mean(drifted < 9999):4.2f} from {np.median(drifted):.0f}")
    return "; ".join([*cells, f"{took_ms:.1f} ms"])


def main() -> int:
    """Print a line for each world."""
    series = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    noises = [word for word in sys.argv[2:] if word in NOISES] or ["white", "ar .6", "all"]
    prefixes = [word for word in sys.argv[2:] if word not in NOISES and not word.isdigit()]
    look_every = next((int(word) for word in sys.argv[2:] if word.isdigit()), None)
    for name in SIGNALS:
        if not prefixes or any(name.startswith(prefix) for prefix in prefixes):
            for noise in noises:
                sys.stdout.write(line(name, noise, series, look_every=look_every) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

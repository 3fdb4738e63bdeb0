"""How often stable series raise an alarm, and how soon a step is found: our alerts beside rules of other tools, on series of known truth.

Each series has 230 days and is looked at every day from the 31st on, 200 times; a step of 3%, the smallest difference that matters, comes
on day 101. Ours goes the whole way of the product: temperatures, scan, confirmation, size, and what the rule `step` tells people. The unit
is the standard deviation of the days of the case without outliers and temperature (by the median of absolute deviations), of 1, 1.5 or 3%:
the step is of 3, 2 or 1 of them.

The rivals: Bencher's default, a t-test of the newest point at .99 on up to 64 points; a CUSUM (k = 0.5, h = 5) on the first 30 days.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.statistics import student_quantile
from edgemeter.collector.trend import noise
from edgemeter.collector.trend.change_points import change_points
from edgemeter.collector.trend.covariate import regressor
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import is_event, newest_step
from edgemeter.collector.units.odd_boards import LIMIT, scores
from tests.benchmarks.comparison import Comparison, against

Array = NDArray[np.float64]
# The day of the first alarm of each series.
FirstAlarms = NDArray[np.int64]
DAYS, FIRST_LOOK, STEP_DAY = 230, 30, 100
SERIES = 200
NEVER = 10**6
CLEAN, MIXED = 0.01, 0.04

# The step in per cent, and the noise of a day at which it is of 3, 2 and 1 standard deviations; the days within which half are found.
STEP = METRICS["latency"].rule.matters
NOISE = {3: 1.0, 2: 1.5, 1: 3.0}
LATEST = {3: 10, 2: 14}

# The cases whose delays are published.
DATED = ("clean", "mix")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Series [series, days]: what a day is, how far its runs scatter, what is known of that, and the board's temperature (read)."""

    day: Array
    run_sd: Array
    u: Array
    temperature_c: Array | None = None
    heavy: bool = False


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


def with_outliers(draw: np.random.Generator, series: int) -> Drawn:
    """Return clean days of which 3% are outliers."""
    series_days = clean(draw, series)
    return replace(series_days, day=series_days.day + outlying(draw, series))


def autocorrelated(draw: np.random.Generator, series: int) -> Drawn:
    """Return days whose neighbours share 0.3 of the variance of a day of one run."""
    zero = np.zeros((series, DAYS))
    return Drawn(0.8 * autoregressive(draw, series, 0.3 / 0.64), np.full((series, DAYS), 0.6), zero)


def unequal(draw: np.random.Generator, series: int) -> Drawn:
    """Return days of which a quarter is measured five times worse, and says so."""
    u = np.where(draw.random((series, DAYS)) < 0.25, 4.0, 0.8)
    return Drawn(0.6 * draw.normal(size=(series, DAYS)), u, u)


def heavy_tailed(draw: np.random.Generator, series: int) -> Drawn:
    """Return days and runs with Student's t of 3 degrees of freedom."""
    series_days = clean(draw, series)
    return replace(series_days, day=0.5 * draw.standard_t(3, size=(series, DAYS)), heavy=True)


def seasonal(draw: np.random.Generator, series: int) -> Drawn:
    """Return days that follow the board's temperature, which is read with 0.5 degrees of noise."""
    series_days, warmth = clean(draw, series), season(draw, series)
    return replace(series_days, day=series_days.day + 0.25 * warmth, temperature_c=warmth + 0.5 * draw.normal(size=(series, DAYS)))


def mix(draw: np.random.Generator, series: int) -> Drawn:
    """Return all of it at once: temperature, neighbours, unequal noise, outliers."""
    warmth = season(draw, series)
    u = np.where(draw.random((series, DAYS)) < 0.25, 2.0, 0.4)
    day = 0.917 * autoregressive(draw, series, 0.36) + 0.15 * warmth + outlying(draw, series)
    return Drawn(day, u, u, warmth + 0.5 * draw.normal(size=(series, DAYS)))


CASES: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    "clean": clean,
    "outliers": with_outliers,
    "autocorrelated": autocorrelated,
    "unequal noise": unequal,
    "heavy tails": heavy_tailed,
    "seasonal temperature": seasonal,
    "mix": mix,
}


def sigma(case: str) -> float:
    """Return the unit of a case: the robust spread of its days of one run, without outliers and temperature."""
    draw = np.random.default_rng(7)
    series_days = CASES[case if case in {"autocorrelated", "unequal noise", "heavy tails", "mix"} else "clean"](draw, 300)
    x = series_days.day + series_days.run_sd * _tails(series_days, draw)
    if case == "mix":
        x = 0.917 * autoregressive(draw, 300, 0.36) + series_days.run_sd * draw.normal(size=x.shape)
    return float(np.median(np.abs(x - np.median(x))) / noise.HALF_NORMAL)


def _tails(series_days: Drawn, draw: np.random.Generator) -> Array:
    shape = series_days.day.shape
    tails: Array = draw.standard_t(3, size=shape) if series_days.heavy else draw.normal(size=shape)
    return tails


def edgemeter_alerts(series_days: Drawn, draw: np.random.Generator) -> FirstAlarms:
    """Watch as the product does. A series is over with its first alert."""
    x = series_days.day + series_days.run_sd * _tails(series_days, draw)
    first = np.full(len(x), NEVER)
    for day in range(FIRST_LOOK, DAYS):
        rows = np.flatnonzero(first == NEVER)
        days = [_days(series_days, row, x[row, : day + 1]) for row in rows]
        # Only the newest look: those before it were had on their days.
        for row, series, look in zip(rows, days, change_points(METRICS["latency"], days, stride=DAYS + 1), strict=True):
            step = newest_step(METRICS["latency"], series, look)
            if step is not None and is_event("latency", step):
                first[row] = day
    return first


def _days(series_days: Drawn, row: int, x: Array) -> Days:
    """Return the days of one series as the product has them."""
    size, floor = len(x), METRICS["latency"].rule.floor
    read_c = np.full(size, np.nan) if series_days.temperature_c is None else series_days.temperature_c[row, :size]
    known_variance, runs = series_days.u[row, :size] ** 2, np.ones(size, dtype=np.int64)
    return Days(np.arange(size), x, known_variance, runs, regressor(read_c, x), ((),) * size, floor, read_c=read_c)


def bencher(series_days: Drawn, draw: np.random.Generator) -> FirstAlarms:
    """Watch each newest point against the .99 boundary of the up to 64 before it, as Bencher does by default."""
    x = series_days.day + series_days.run_sd * _tails(series_days, draw)
    first = np.full(len(x), NEVER)
    for day in range(FIRST_LOOK, DAYS):
        before = x[:, max(0, day - 64) : day]
        # From both sides together .98, so .99 from each.
        limit = student_quantile(0.98, before.shape[1] - 1)
        is_out = np.abs(x[:, day] - before.mean(axis=1)) > limit * before.std(axis=1, ddof=1)
        first = np.where(is_out & (first == NEVER), day, first)
    return first


def cusum(series_days: Drawn, draw: np.random.Generator) -> FirstAlarms:
    """Watch with two-sided cumulative sums around the level of the first 30 days."""
    x = series_days.day + series_days.run_sd * _tails(series_days, draw)
    z = (x - x[:, :FIRST_LOOK].mean(axis=1, keepdims=True)) / x[:, :FIRST_LOOK].std(axis=1, ddof=1, keepdims=True)
    first, up, down = np.full(len(x), NEVER), np.zeros(len(x)), np.zeros(len(x))
    for day in range(FIRST_LOOK, DAYS):
        up, down = np.maximum(0, up + z[:, day] - 0.5), np.maximum(0, down - z[:, day] - 0.5)
        first = np.where((np.maximum(up, down) > 5) & (first == NEVER), day, first)
    return first


def stepped(series_days: Drawn, size: float) -> Drawn:
    """Return the series with a step on day 101."""
    day = series_days.day.copy()
    day[:, STEP_DAY:] += size
    return replace(series_days, day=day)


def scaled(series_days: Drawn, factor: float) -> Drawn:
    """Return the series with so many times the noise."""
    return replace(series_days, day=factor * series_days.day, run_sd=factor * series_days.run_sd, u=factor * series_days.u)


Watch = Callable[[Drawn, np.random.Generator], FirstAlarms]
WATCHES: dict[str, Watch] = {
    "ours": edgemeter_alerts,
    "bencher t .99": bencher,
    "cusum": cusum,
}


def judged(case: str, name: str, series: int) -> dict[str, object]:
    """Return what came of a case under a watch: false alarms at 3% of noise (and at 1%), the days until half of the steps are found."""
    draw = np.random.default_rng([1, *case.encode()])
    unit = sigma(case)
    # What matters is less than the noise then: every step that the scan confirms is told.
    stable = WATCHES[name](scaled(CASES[case](draw, series), NOISE[1] / unit), draw)
    result: dict[str, object] = {
        "case": case,
        "watch": name,
        "series": series,
        "sigma": unit,
        "false_alarm_ratio": float(np.mean(stable < NEVER)),
    }
    if case not in DATED:
        return result
    quiet = WATCHES[name](scaled(CASES[case](draw, series), NOISE[3] / unit), draw)
    result["false_alarm_ratio_at_1_per_cent"] = float(np.mean(quiet < NEVER))
    for size, noise_ratio in NOISE.items():
        part = max(series // 2, 10)
        late = WATCHES[name](stepped(scaled(CASES[case](draw, part), noise_ratio / unit), STEP), draw)
        # A series that had cried before the step has nothing left to find it with.
        is_late = (late >= STEP_DAY) & (late < NEVER)
        days = np.where(is_late, late - STEP_DAY + 1, NEVER)
        middle = float(np.median(days))
        result[f"days_to_{size}_sigma"] = middle if middle < NEVER else None
        result[f"found_{size}_sigma_in_30"] = float(np.mean(days <= 30))
    return result


def _odd(values: Array) -> set[str]:
    return {board for board, _, score in scores({str(board): value for board, value in enumerate(values.tolist())}, 1.5) if score > LIMIT}


def sick_units(fleets: int = 2000) -> dict[str, float]:
    """Return how often a board at +10% among 20 that spread by 2% is found, and how often a healthy fleet is accused."""
    draw = np.random.default_rng(2)
    healthy = 2 * draw.normal(size=(fleets, 20))
    sick = healthy.copy()
    sick[:, 0] += 10
    return {
        "found_ratio": statistics.fmean("0" in _odd(values) for values in sick),
        "accused_ratio": statistics.fmean(bool(_odd(values)) for values in healthy),
    }


def comparisons(series: int = SERIES) -> Iterator[Comparison]:
    """Yield our false alarms and delays beside the best rival's, and what is found among boards."""
    for case in CASES:
        rows = {name: judged(case, name, series) for name in WATCHES}
        rivals = {name: row for name, row in rows.items() if name != "ours"}
        best = min(rivals, key=lambda name: float(str(rivals[name]["false_alarm_ratio"])))
        mine = rows["ours"]
        limit = CLEAN if case == "clean" else MIXED
        rival = float(str(rivals[best]["false_alarm_ratio"]))
        yield _line(
            f"trend: {case}: stable series with an alarm in 200 days", "of the series", mine["false_alarm_ratio"], (best, rival), limit
        )
        if case in DATED:
            quiet, sigmas = mine["false_alarm_ratio_at_1_per_cent"], LATEST if case == "clean" else {3: LATEST[3]}
            yield _line(f"trend: {case}: the same at 1% of noise", "of the series", quiet, (best, rival), limit)
            for size, days in sigmas.items():
                title = f"trend: {case}: days until half of the steps of 3% are told at {NOISE[size]:g}% of noise ({size} sigma)"
                yield _line(title, "days", mine[f"days_to_{size}_sigma"], ("limit", days), days)
    boards = sick_units()
    yield _line("units: healthy fleets of 20 accused", "of the fleets", boards["accused_ratio"], ("limit", 0.05), 0.05)
    yield _line("units: sick boards (+10% at 2%) not found", "of the fleets", 1 - boards["found_ratio"], ("limit", 0.2), 0.2)


def _line(name: str, unit: str, value: object, peer: tuple[str, float], limit: float) -> Comparison:
    figure = float("inf") if value is None else float(str(value))
    return against(name, unit, figure, peer, f"<= {limit:g} {unit}", met=figure <= limit)

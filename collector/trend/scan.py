"""The scan: where in a series of days, if anywhere, its level stepped. Weighted regression over every split, many series at once.

Noise is how far days scatter by themselves, beyond what is known of each point; it is robust: steps and outliers hardly move it.
Thresholds are the scores from which a step is suspected, and from which it is confirmed.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# The median of the absolute value of a standard normal variable.
HALF_NORMAL = 0.6744897501960817
_BISECTIONS = 14

# The largest lag-1 correlation assumed: beyond it, a series has hardly any level.
LAG1_MOST = 0.7

# How many points' worth of lag-1 the fit of level, temperature and step removes.
TAKEN_BY_FIT = 2.0

# The lag-1 is assumed to be at least this many of its standard errors.
UNSEEN = 0.3

# The lag-1 is itself estimated from few points: at its largest, standard errors grow by this factor.
POORLY_KNOWN = 0.3

# The spread of runs needs this many differences within days.
ENOUGH_DIFFERENCES = 8


def masked_median(values: Array, present: Mask) -> Array:
    """Return the median of the present values of each row, NaN where a row has none."""
    ordered = np.sort(np.where(present, values, np.inf), axis=1)
    count = present.sum(axis=1)
    row = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[1] - 1)
    return np.where(count > 0, (ordered[row, low] + ordered[row, high]) / 2, np.nan)


def packed_days(values: Array, present: Mask) -> Array:
    """Return each row's present values, in order, at its end, with 0 before them."""
    place = np.argsort(present, axis=1, kind="stable")
    return np.where(np.take_along_axis(present, place, axis=1), np.take_along_axis(values, place, axis=1), 0.0)


def day_variances(x: Array, known: Array, present: Mask, floor: Array) -> tuple[Array, Array]:
    """Return the own variance of each point, and the scatter of days beside it, one for each series.

    Where days scatter less than the points' own variances promise, those are taken down: a meter's common error moves no day against
    another. `floor` [series] is the smallest standard deviation that any point has: figures are rounded.
    Source: the median of absolute differences of neighbours, as a step moves only one of them.
    """
    size = present.sum(axis=1)
    values, variances = packed_days(x, present), packed_days(known, present)
    follows = np.arange(x.shape[1] - 1)[None, :] >= (x.shape[1] - size)[:, None]
    difference = np.abs(np.diff(values, axis=1))
    both = variances[:, 1:] + variances[:, :-1]
    tiny = np.maximum(floor, 1e-9)[:, None] ** 2
    ratio_alone = masked_median(difference / np.sqrt(both + tiny), follows) / HALF_NORMAL
    low = np.zeros(len(x))
    high = np.nan_to_num(masked_median(difference, follows)) / HALF_NORMAL + 1e-12
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        ratio = masked_median(difference / np.sqrt(both + 2 * middle[:, None] ** 2 + 1e-30), follows)
        too_small = ratio > HALF_NORMAL
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    between = ((low + high) / 2)[:, None] ** 2
    taken_down = np.clip(np.nan_to_num(ratio_alone, nan=1.0), 0.0, 1.0)[:, None] ** 2
    return np.maximum(known * taken_down, tiny / 2), np.maximum(between[:, 0], tiny[:, 0] / 2)


def run_variance(values: Array, day: NDArray[np.int64], known: Array) -> float | None:
    """Return how far runs of one day scatter beyond what is `known` of each [runs], one series; None if too few share a day."""
    same = day[1:] == day[:-1]
    if np.count_nonzero(same) < ENOUGH_DIFFERENCES:
        return None
    scale = float(np.median(np.abs(np.diff(values))[same])) / HALF_NORMAL
    return max(0.0, scale**2 / 2 - float(np.median(known)))


def shared_variance(residuals: Array, variance: Array, present: Mask) -> Array:
    """Return the share of its variance that a point has in common with its neighbour [series]: the weighted mean of their products.

    `residuals` are what a level and a step leave, which takes a part of what neighbours share away: that is added again. Where nothing
    is seen, a part of what could have stayed unseen in so few points is taken.
    """
    values, spread = packed_days(residuals, present), packed_days(1 / variance, present)
    weight = spread[:, 1:] * spread[:, :-1]
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean_product = (weight * values[:, 1:] * values[:, :-1]).sum(axis=1) / total
    mean_square = (weight * values[:, 1:] ** 2).sum(axis=1) / total
    pairs = np.maximum(total**2 / np.maximum((weight**2).sum(axis=1), 1e-300), 1.0)
    taken = TAKEN_BY_FIT * mean_square / np.maximum(present.sum(axis=1), 1)
    shared: Array = np.maximum(mean_product + taken, UNSEEN * mean_square / np.sqrt(pairs))
    return shared


def long_run(between: Array, shared: Array) -> Array:
    """Return the variance of days as it counts in a mean of many, where neighbours share `shared` of it [series].

    `between` was estimated from differences of neighbours, in which what they share cancels. Source: an autoregression of order one.
    """
    whole = between + shared
    ratio = np.minimum(shared / np.maximum(whole, 1e-300), LAG1_MOST)
    lasting: Array = whole * (1 + ratio) / (1 - ratio) * (1 + POORLY_KNOWN * ratio) ** 2
    return lasting


# Number of points, and the score from which a step is confirmed.
STEP_SCORE = ((20, 9.0), (30, 8.0), (40, 7.0), (60, 5.8), (80, 5.1), (100, 4.8), (120, 4.7))

# From this score on more runs are requested.
SUSPECT_SCORE = 2.7

# A change that was declared, or that the fingerprint shows: one test of one day, no search.
DECLARED_SCORE = 3.3

# If a suspect had more runs on this many days since its split, and runs are this share of the scatter of days with one run, then runs
# that did not raise the suspicion have confirmed the step: the threshold is lowered by this much.
CONFIRMING_DAYS, RUN_SHARE, CONFIRMED_LESS = 5, 0.55, 0.85

# Days with several runs before the split do not count as an answer to a suspicion: up to this share of them.
_USUAL_RATIO = 0.25

_PROBABILITIES = (0.5, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
CHANCE = {
    12: (0.74, 1.68, 2.33, 2.94, 3.64, 4.20, 4.88, 5.32),
    20: (1.21, 2.14, 2.75, 3.29, 3.85, 4.32, 4.96, 5.68),
    30: (1.41, 2.30, 2.86, 3.33, 3.83, 4.29, 4.77, 5.28),
    40: (1.52, 2.39, 2.91, 3.36, 3.82, 4.26, 4.67, 5.14),
    60: (1.64, 2.49, 2.98, 3.40, 3.81, 4.18, 4.54, 4.89),
    80: (1.63, 2.47, 2.95, 3.33, 3.74, 4.09, 4.46, 4.80),
    120: (1.59, 2.43, 2.90, 3.27, 3.65, 3.94, 4.23, 4.62),
}


@overload
def step_score(points: int) -> float: ...


@overload
def step_score(points: NDArray[np.int64]) -> NDArray[np.float64]: ...


def step_score(points: NDArray[np.int64] | int) -> NDArray[np.float64] | float:
    """Return the score from which a step is confirmed, for a series of this many points."""
    at, score = zip(*STEP_SCORE, strict=True)
    found: NDArray[np.float64] = np.interp(points, at, score)
    return float(found) if isinstance(points, int) else found


def less_where_confirmed(
    runs: NDArray[np.int64], known: NDArray[np.float64], day_variance: NDArray[np.float64], split: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return by how much the threshold is lowered, 0 or `CONFIRMED_LESS` [series].

    `runs` and `known` [series, days] are how many runs a day has (0: it has no point) and the variance that is known of it.
    """
    after = np.arange(runs.shape[1])[None, :] >= split[:, None]
    is_repeated, is_there = runs > 1, runs > 0
    confirming = (is_repeated & after).sum(axis=1) >= CONFIRMING_DAYS
    before = (is_there & ~after).sum(axis=1)
    unusual = (is_repeated & ~after).sum(axis=1) <= _USUAL_RATIO * np.maximum(before, 1)
    single = np.nan_to_num(masked_median(known * runs, is_there))
    mostly_runs = single >= RUN_SHARE * (single + day_variance)
    return np.where(confirming & unusual & mostly_runs, CONFIRMED_LESS, 0.0)


def chance(score: float, points: int) -> float:
    """Return the probability that a series of this many points without a step has this score or a higher one, in one scan.

    Beyond the table it goes on as a straight line on logarithms, which overstates it.
    """
    columns, logs = _quantiles(points), _LOG_PROBABILITIES
    if score <= columns[-1]:
        return math.exp(float(np.interp(score, [0.0, *columns], [0.0, *logs])))
    rate = (logs[-1] - logs[-2]) / (columns[-1] - columns[-2])
    return math.exp(max(logs[-1] + rate * (score - columns[-1]), -700.0))


_LOG_PROBABILITIES = [math.log(probability) for probability in _PROBABILITIES]


@lru_cache(maxsize=256)
def _quantiles(points: int) -> list[float]:
    """Return the scores that noise of so many points exceeds with `_PROBABILITIES`."""
    return [float(np.interp(points, list(CHANCE), [row[place] for row in CHANCE.values()])) for place in range(len(_PROBABILITIES))]


CLIP = 3.0

# The fewest points after a split for a level, and before it for a baseline.
AFTER = 3
BEFORE = 8

# Splits older than this many points were scanned when they were new.
RECENT = 60

# A split of which the temperature explains more than this share is not distinguishable from it.
HIDDEN_RATIO = 0.85

# A temperature that varies less than this (degrees) is constant.
LEAST_TEMPERATURE_SD = 0.01
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of the scan; arrays [series], in the unit of x.

    `score` is the largest |t| of a step, 0 where no split is allowed; `split` is the place of its first point, `step` its size and `error`
    the standard error. `scores` [series, days] are the |t| of every split. `drift` is the |t| of a straight line over the points and
    `drift_a_point` its slope with `drift_error`; a line that explains more than the step does is a drift. `hidden` is the share of the
    splits that the temperature hides, `slope` the coefficient per degree with its error, NaN without temperature. `left` [series, days]
    is what level, temperature and step leave, in standard deviations of a point. `day_variance` is what days scatter beside what is known.
    """

    score: Array
    split: NDArray[np.intp]
    step: Array
    error: Array
    scores: Array
    drift: Array
    drift_a_point: Array
    drift_error: Array
    slope: Array
    slope_error: Array
    hidden: Array
    left: Array
    day_variance: Array


def scan_series(
    x: Array, known: Array, present: Mask, floor: Array, temperature: Array | None = None, only: NDArray[np.intp] | None = None
) -> Scan:
    """Return the best split of each series; with `only` [series] that place is tested, once.

    `known` is the variance that is known of each point, `floor` [series] the smallest standard deviation that one can have.
    """
    known, between = day_variances(x, known, present, floor)
    sd = np.sqrt(known + between[:, None])
    first = _fit(x, 1 / sd**2, sd, present, temperature, only)
    shared = shared_variance(first.left * sd, sd**2, present)
    sd = np.sqrt(known + (between + shared)[:, None])
    found = _fit(x, 1 / (known + long_run(between, shared)[:, None]), sd, present, temperature, only)
    return replace(found, day_variance=between + shared)


def _fit(x: Array, weight: Array, sd: Array, present: Mask, temperature: Array | None, only: NDArray[np.intp] | None) -> Scan:
    weight = np.where(present, weight, 0.0)
    heat = None if temperature is None else _varying(_beside_mean(np.where(present, temperature, 0.0), weight), weight)
    residual, slope = _clipped_residual(x, weight, sd, heat)
    scored, size = _every_split(residual, weight, heat)
    allowed, hidden = _allowed(present, size, weight, is_named=only is not None)
    scores = np.where(allowed, np.abs(scored), 0.0)
    row = np.arange(len(x))
    split = np.argmax(scores, axis=1) if only is None else only
    found = allowed[row, split]
    information = np.where(found, size[row, split], 1.0)
    after = _beside((np.arange(x.shape[1])[None, :] >= split[:, None]).astype(np.float64), weight, heat)
    step, left = _with_step(x, np.where(found[:, None], after, 0.0), weight, sd, heat)
    line, line_information = _line(residual, weight, heat, present)
    heat_information = np.zeros(len(x)) if heat is None else (weight * heat * heat).sum(axis=1)
    is_known = heat_information > 0
    return Scan(
        score=scores[row, split],
        split=split,
        step=step,
        error=np.where(found, 1 / np.sqrt(information), np.inf),
        scores=scores,
        drift=np.abs(line) * np.sqrt(line_information),
        drift_a_point=line,
        drift_error=1 / np.sqrt(np.where(line_information > 0, line_information, np.inf)),
        slope=np.where(is_known, slope, np.nan),
        slope_error=np.where(is_known, 1 / np.sqrt(np.where(is_known, heat_information, 1.0)), np.nan),
        hidden=hidden,
        left=np.where(present, left, 0.0),
        day_variance=np.zeros(len(x)),
    )


def _beside_mean(values: Array, weight: Array) -> Array:
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    beside: Array = values - (weight * values).sum(axis=1, keepdims=True) / total
    return beside


def _varying(heat: Array, weight: Array) -> Array:
    """Return the temperature beside its mean, 0 for a series that hardly varies: rounding errors are no regressor."""
    variance = (weight * heat**2).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
    return np.where((variance >= LEAST_TEMPERATURE_SD**2)[:, None], heat, 0.0)


def _beside(values: Array, weight: Array, heat: Array | None) -> Array:
    """Return the residuals of `values` after mean and temperature."""
    beside = _beside_mean(values, weight)
    return beside if heat is None else beside - _coefficient(beside, weight, heat)[:, None] * heat


def _coefficient(values: Array, weight: Array, regressor: Array) -> Array:
    square = (weight * regressor * regressor).sum(axis=1)
    found: Array = (weight * regressor * values).sum(axis=1) / np.where(square > 0, square, 1.0)
    return found


def _clipped_residual(x: Array, weight: Array, sd: Array, heat: Array | None) -> tuple[Array, Array]:
    clipped = np.where(weight > 0, x, 0.0)
    for _ in range(_ROUNDS):
        residual = _beside(clipped, weight, heat)
        fitted = clipped - residual
        clipped = np.where(weight > 0, fitted + np.clip(x - fitted, -CLIP * sd, CLIP * sd), 0.0)
    slope = np.zeros(len(x)) if heat is None else _coefficient(_beside_mean(clipped, weight), weight, heat)
    return _beside(clipped, weight, heat), slope


def _suffix(values: Array) -> Array:
    summed: Array = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return summed


def _every_split(residual: Array, weight: Array, heat: Array | None) -> tuple[Array, Array]:
    """Return t of a step at every place, and the information (1 / variance) that there is about its size."""
    later = _suffix(weight)
    size = later * (1 - later / np.maximum(later[:, :1], 1e-300))
    if heat is not None:
        square = (weight * heat * heat).sum(axis=1, keepdims=True)
        size = size - _suffix(weight * heat) ** 2 / np.where(square > 0, square, 1.0)
    return _suffix(weight * residual) / np.sqrt(np.maximum(size, 1e-12)), size


def _allowed(present: Mask, size: Array, weight: Array, *, is_named: bool) -> tuple[Mask, Array]:
    """Return where a step is possible, and how many of these places the temperature hides; a declared place may be hidden."""
    later = _suffix(present.astype(np.float64))
    far = present & (later >= AFTER) & (later <= RECENT) & (later[:, :1] - later >= BEFORE)
    mass = _suffix(weight)
    without_heat = mass * (1 - mass / np.maximum(mass[:, :1], 1e-300))
    is_visible = size >= (1 - HIDDEN_RATIO) * without_heat
    hidden = (far & ~is_visible).sum(axis=1) / np.maximum(far.sum(axis=1), 1)
    return far & (is_visible | is_named) & (size > 1e-9), hidden


def _with_step(x: Array, after: Array, weight: Array, sd: Array, heat: Array | None) -> tuple[Array, Array]:
    """Return the size of the step, and the residuals in standard deviations, clipped.

    Residuals are clipped around both levels, so that a large step does not count as outliers.
    """
    clipped = np.where(weight > 0, x, 0.0)
    for _ in range(_ROUNDS + 1):
        residual = _beside(clipped, weight, heat)
        step = _coefficient(residual, weight, after)
        fitted = clipped - residual + step[:, None] * after
        left = np.clip((x - fitted) / sd, -CLIP, CLIP)
        clipped = np.where(weight > 0, fitted + left * sd, 0.0)
    return step, left


def _line(residual: Array, weight: Array, heat: Array | None, present: Mask) -> tuple[Array, Array]:
    """Return the slope of a straight line over the points, and the information about it."""
    time = _beside(np.where(present, np.cumsum(present, axis=1), 0).astype(np.float64), weight, heat)
    return _coefficient(residual, weight, time), (weight * time * time).sum(axis=1)

"""The scan: where in a series of days, if anywhere, its level stepped. Weighted regression over every split, many series at once.

Each point has a variance of its own; the temperature of the board is a regressor; residuals beyond three standard deviations count as
three; what neighbouring days share (lag-1) widens the standard error. The cost of all splits is that of one, by suffix sums of the
regression's residuals (Frisch, Waugh, Lovell).

Arrays are float64 [series, days], the newest day last; `present` says which days have a point, the others may hold anything finite.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend import noise

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

CLIP = 3.0
# Fewer points than these after a split are no level yet, and fewer before it no baseline.
AFTER = 3
BEFORE = 8
# Splits older than this many points were looked at when they were new.
RECENT = 60
# A split of which the temperature explains more than this cannot be told from it.
HIDDEN_RATIO = 0.85
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Scan:
    """What the scan of each series found; arrays [series], in the unit of x.

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


def scan(
    x: Array, known: Array, present: Mask, floor: Array, temperature: Array | None = None, only: NDArray[np.intp] | None = None
) -> Scan:
    """Return the best split of each series; with `only` [series] none is sought: that place is looked at, once.

    `known` is the variance that is known of each point, `floor` [series] the smallest standard deviation that one can have.
    """
    known, between = noise.day_variances(x, known, present, floor)
    sd = np.sqrt(known + between[:, None])
    first = _fit(x, 1 / sd**2, sd, present, temperature, only)
    shared = noise.shared_variance(first.left * sd, sd**2, present)
    sd = np.sqrt(known + (between + shared)[:, None])
    found = _fit(x, 1 / (known + noise.long_run(between, shared)[:, None]), sd, present, temperature, only)
    return replace(found, day_variance=between + shared)


def _fit(x: Array, weight: Array, sd: Array, present: Mask, temperature: Array | None, only: NDArray[np.intp] | None) -> Scan:
    weight = np.where(present, weight, 0.0)
    heat = None if temperature is None else _beside_mean(np.where(present, temperature, 0.0), weight)
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
    told = heat_information > 0
    return Scan(
        score=scores[row, split],
        split=split,
        step=step,
        error=np.where(found, 1 / np.sqrt(information), np.inf),
        scores=scores,
        drift=np.abs(line) * np.sqrt(line_information),
        drift_a_point=line,
        drift_error=1 / np.sqrt(np.where(line_information > 0, line_information, np.inf)),
        slope=np.where(told, slope, np.nan),
        slope_error=np.where(told, 1 / np.sqrt(np.where(told, heat_information, 1.0)), np.nan),
        hidden=hidden,
        left=np.where(present, left, 0.0),
        day_variance=np.zeros(len(x)),
    )


def _beside_mean(values: Array, weight: Array) -> Array:
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    beside: Array = values - (weight * values).sum(axis=1, keepdims=True) / total
    return beside


def _beside(values: Array, weight: Array, heat: Array | None) -> Array:
    """Return what the mean and the temperature leave of `values`."""
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
    """Return at which places a step may be, and how many of them the temperature hides; a place that was named may be hidden."""
    later = _suffix(present.astype(np.float64))
    far = present & (later >= AFTER) & (later <= RECENT) & (later[:, :1] - later >= BEFORE)
    mass = _suffix(weight)
    without_heat = mass * (1 - mass / np.maximum(mass[:, :1], 1e-300))
    told = size >= (1 - HIDDEN_RATIO) * without_heat
    hidden = (far & ~told).sum(axis=1) / np.maximum(far.sum(axis=1), 1)
    return far & (told | is_named) & (size > 1e-9), hidden


def _with_step(x: Array, after: Array, weight: Array, sd: Array, heat: Array | None) -> tuple[Array, Array]:
    """Return the size of the step, and what it leaves in standard deviations, clipped.

    Residuals are clipped around both levels, so that a large step is not taken for outliers.
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

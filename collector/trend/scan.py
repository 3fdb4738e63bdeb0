"""The scan: whether and where the level of a series of days stepped. Many series at once.

Every split of a series is fitted: its levels before and after each day, adjusted for temperature,
by weighted regression. Thresholds are the scores from which a step is worth confirming, and from
which it is confirmed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.noise import (
    Array,
    Mask,
    day_variances,
    long_run,
    median,
    shared_variance,
)
from edgemeter.collector.trend.thresholds import (
    AFTER,
    BEFORE,
    CLIP,
    CONFIRMED_LESS,
    CONFIRMING_DAYS,
    HIDDEN_RATIO,
    LEAST_TEMPERATURE_SD,
    RECENT,
    RUN_SHARE,
    STEP_SCORE,
    USUAL_RATIO,
)

_ROUNDS = 2


def step_score(points: int) -> float:
    """Return the score from which a step is confirmed, for a series of this many points."""
    return float(np.interp(points, *STEP_SCORE))


def less_where_confirmed(
    runs: NDArray[np.int64], known_variance: Array, day_variance: float, split: int
) -> float:
    """Return by how much the threshold is lowered: 0 or `CONFIRMED_LESS`.

    `runs` are the runs per day of one series [days].
    """
    is_repeated = runs > 1
    is_confirmed = np.count_nonzero(is_repeated[split:]) >= CONFIRMING_DAYS
    if not is_confirmed or np.count_nonzero(is_repeated[:split]) > USUAL_RATIO * max(split, 1):
        return 0.0
    single = median(known_variance * runs)
    return CONFIRMED_LESS if single >= RUN_SHARE * (single + day_variance) else 0.0


class _Regressors:
    """The regressors of a fit: a weighted mean, and the temperature if there is one.

    `heat_square` is its weighted sum of squares.
    """

    def __init__(self, weight: Array, temperature: Array | None) -> None:
        self.weight, self.heat = weight, None
        self._total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        self.weighted_heat, self.heat_square = np.zeros_like(weight), np.zeros(len(weight))
        if temperature is not None:
            heat = self.centred(np.where(weight > 0, temperature, 0.0))
            variance = (weight * heat**2).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
            # Rounding errors of a nearly constant temperature must not become a regressor.
            self.heat = np.where((variance >= LEAST_TEMPERATURE_SD**2)[:, None], heat, 0.0)
            self.weighted_heat = weight * self.heat
            self.heat_square = (self.weighted_heat * self.heat).sum(axis=1)

    def centred(self, values: Array) -> Array:
        centred: Array = values - (self.weight * values).sum(axis=1, keepdims=True) / self._total
        return centred

    def slope(self, centred: Array) -> Array:
        slope: Array = (self.weighted_heat * centred).sum(axis=1) / np.where(
            self.heat_square > 0, self.heat_square, 1.0
        )
        return slope

    def residuals(self, values: Array) -> Array:
        centred = self.centred(values)
        return centred if self.heat is None else centred - self.slope(centred)[:, None] * self.heat


@dataclass(frozen=True, slots=True)
class SplitFit:
    """Every split of each series, and the best.

    `clipped` are the points with outliers moved near, `residual` their residuals.

    `scores` [series, days] are |t| of a step at each index, 0 if none is possible, `error` is the
    standard error of the best one.
    """

    x: Array
    sd: Array
    present: Mask
    regressors: _Regressors
    clipped: Array
    residual: Array
    scores: Array
    split: NDArray[np.intp]
    found: Mask
    error: Array


def fit_splits(
    x: Array,
    weight: Array,
    sd: Array,
    present: Mask,
    temperature: Array | None,
    only: NDArray[np.intp] | None,
) -> SplitFit:
    """Return the fit of the series; with `only` [series] the split is at that index.

    Points further off than some `sd` are moved near.
    """
    weight = np.where(present, weight, 0.0)
    regressors = _Regressors(weight, temperature)
    is_present, reach = weight > 0, CLIP * sd
    clipped = np.where(is_present, x, 0.0)
    for _ in range(_ROUNDS):
        fitted = clipped - regressors.residuals(clipped)
        clipped = np.where(is_present, fitted + np.clip(x - fitted, -reach, reach), 0.0)
    residual = regressors.residuals(clipped)
    # The information (1 / variance) about the size of a step at each index, from the weight from
    # there on.
    later = _suffix(weight)
    size = without_heat = later * (1 - later / np.maximum(later[:, :1], 1e-300))
    if regressors.heat is not None:
        square = regressors.heat_square[:, None]
        size = size - _suffix(regressors.weighted_heat) ** 2 / np.where(square > 0, square, 1.0)
    # The points of a row are at its end.
    points = np.minimum(np.arange(x.shape[1], 0, -1), present.sum(axis=1, keepdims=True))
    allowed = (
        present
        & (points >= AFTER)
        & (points <= RECENT)
        & (points[:, :1] - points >= BEFORE)
        & (size > 1e-9)
    )
    if only is None:
        # The temperature may hide a declared step.
        allowed &= size >= (1 - HIDDEN_RATIO) * without_heat
    scores = np.where(
        allowed, np.abs(_suffix(weight * residual) / np.sqrt(np.maximum(size, 1e-12))), 0.0
    )
    row = np.arange(len(x))
    split = np.argmax(scores, axis=1) if only is None else only
    is_possible = allowed[row, split]
    error = np.where(is_possible, 1 / np.sqrt(np.where(is_possible, size[row, split], 1.0)), np.inf)
    return SplitFit(
        x, sd, present, regressors, clipped, residual, scores, split, is_possible, error
    )


def _suffix(values: Array) -> Array:
    summed: Array = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return summed


def with_step(fit: SplitFit) -> tuple[Array, Array]:
    """Return the size of the step, and the clipped residuals in standard deviations.

    They are clipped around both levels: a large step is not an outlier.
    """
    x, sd, weight = fit.x, fit.sd, fit.regressors.weight
    is_later = np.arange(x.shape[1])[None, :] >= fit.split[:, None]
    after = np.where(fit.found[:, None], fit.regressors.residuals(is_later.astype(np.float64)), 0.0)
    weighted = weight * after
    square = (weighted * after).sum(axis=1)
    square = np.where(square > 0, square, 1.0)
    is_present = weight > 0
    clipped = np.where(is_present, x, 0.0)
    for _ in range(_ROUNDS + 1):
        residual = fit.regressors.residuals(clipped)
        step = (weighted * residual).sum(axis=1) / square
        fitted = clipped - residual + step[:, None] * after
        residuals = np.clip((x - fitted) / sd, -CLIP, CLIP)
        clipped = np.where(is_present, fitted + residuals * sd, 0.0)
    return step, residuals


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of the scan; arrays [series], in the unit of x.

    `score` is the largest |t| of a step, 0 if no split is allowed; `split` is the index of its
    first point, `step` its size and `error` the standard error. `scores` [series, days] are the |t|
    of every split, `line` is that of a straight line over the points. `slope` is the coefficient
    per degree with its error, NaN without temperature. `left` [series, days] are the residuals of
    level, temperature and step, in standard deviations of a point. `day_variance` is the
    unexplained variance of days.
    """

    score: Array
    split: NDArray[np.intp]
    step: Array
    error: Array
    scores: Array
    line: Array
    slope: Array
    slope_error: Array
    left: Array
    day_variance: Array


def scan_series(
    x: Array,
    known_variance: Array,
    present: Mask,
    floor: Array,
    temperature: Array | None = None,
    only: NDArray[np.intp] | None = None,
) -> Scan:
    """Return the best split of each series; with `only` [series] that index is tested, once.

    `known_variance` is the known variance of each point, `floor` [series] the smallest standard
    deviation of a point.
    """
    known_variance, between = day_variances(x, known_variance, present, floor)
    spread = np.sqrt(known_variance + between[:, None])
    first = fit_splits(x, 1 / spread**2, spread, present, temperature, only)
    shared = shared_variance(with_step(first)[1] * spread, spread**2, present)
    sd = np.sqrt(known_variance + (between + shared)[:, None])
    fit = fit_splits(
        x, 1 / (known_variance + long_run(between, shared)[:, None]), sd, present, temperature, only
    )
    step, residuals = with_step(fit)
    regressors = fit.regressors
    time = regressors.residuals(np.where(present, np.cumsum(present, axis=1), 0).astype(np.float64))
    weighted_time = regressors.weight * time
    is_known = regressors.heat_square > 0
    return Scan(
        score=fit.scores[np.arange(len(fit.x)), fit.split],
        split=fit.split,
        step=step,
        error=fit.error,
        scores=fit.scores,
        line=np.abs((weighted_time * fit.residual).sum(axis=1))
        / np.sqrt(np.maximum((weighted_time * time).sum(axis=1), 1e-12)),
        slope=np.where(is_known, regressors.slope(regressors.centred(fit.clipped)), np.nan),
        slope_error=np.where(
            is_known, 1 / np.sqrt(np.where(is_known, regressors.heat_square, 1.0)), np.nan
        ),
        left=np.where(fit.present, residuals, 0.0),
        day_variance=between + shared,
    )

"""The fit of every split: a series' levels before and after each day, adjusted for temperature, by weighted regression."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.noise import Array, Mask

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
class _Regressors:
    """The regressors of a fit: a weighted mean, and the temperature if there is one; `heat_square` is its weighted sum of squares."""

    weight: Array
    total: Array
    heat: Array | None
    weighted_heat: Array
    heat_square: Array

    def centred(self, values: Array) -> Array:
        centred: Array = values - (self.weight * values).sum(axis=1, keepdims=True) / self.total
        return centred

    def slope(self, centred: Array) -> Array:
        """Return the coefficient of the temperature."""
        slope: Array = (self.weighted_heat * centred).sum(axis=1) / np.where(self.heat_square > 0, self.heat_square, 1.0)
        return slope

    def residuals(self, values: Array) -> Array:
        """Return the residuals of `values` after mean and temperature."""
        centred = self.centred(values)
        return centred if self.heat is None else centred - self.slope(centred)[:, None] * self.heat


def _regressors(weight: Array, temperature: Array | None) -> _Regressors:
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    none = np.zeros(len(weight))
    plain = _Regressors(weight, total, None, np.zeros_like(weight), none)
    if temperature is None:
        return plain
    heat = _varying(plain.centred(np.where(weight > 0, temperature, 0.0)), weight)
    weighted = weight * heat
    return _Regressors(weight, total, heat, weighted, (weighted * heat).sum(axis=1))


@dataclass(frozen=True, slots=True)
class SplitFit:
    """Every split of each series, and the best; `clipped` are the points with those far off drawn near, `residual` what they leave."""

    x: Array
    sd: Array
    present: Mask
    regressors: _Regressors
    clipped: Array
    residual: Array
    scores: Array
    split: NDArray[np.intp]
    found: Mask
    information: Array
    hidden: Array

    def of(self, rows: NDArray[np.intp]) -> "SplitFit":
        """Return the fit of these series alone."""
        regressors = self.regressors
        heat = None if regressors.heat is None else regressors.heat[rows]
        of_rows = _Regressors(
            regressors.weight[rows], regressors.total[rows], heat, regressors.weighted_heat[rows], regressors.heat_square[rows]
        )
        return SplitFit(
            self.x[rows],
            self.sd[rows],
            self.present[rows],
            of_rows,
            self.clipped[rows],
            self.residual[rows],
            self.scores[rows],
            self.split[rows],
            self.found[rows],
            self.information[rows],
            self.hidden[rows],
        )


def fit_splits(x: Array, weight: Array, sd: Array, present: Mask, temperature: Array | None, only: NDArray[np.intp] | None) -> SplitFit:
    """Return the fit of the series; with `only` [series] that place is the split. Points further off than some `sd` are drawn near."""
    weight = np.where(present, weight, 0.0)
    regressors = _regressors(weight, temperature)
    clipped, residual = _clipped_residual(x, sd, regressors)
    later = _suffix(weight)
    scored, size = _every_split(residual, regressors, later)
    allowed, hidden = _allowed(present, size, later, is_named=only is not None)
    scores = np.where(allowed, np.abs(scored), 0.0)
    row = np.arange(len(x))
    split = np.argmax(scores, axis=1) if only is None else only
    found = allowed[row, split]
    return SplitFit(x, sd, present, regressors, clipped, residual, scores, split, found, np.where(found, size[row, split], 1.0), hidden)


def _varying(heat: Array, weight: Array) -> Array:
    """Return the temperature minus its mean, 0 for a series that hardly varies: rounding errors must not become a regressor."""
    variance = (weight * heat**2).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
    return np.where((variance >= LEAST_TEMPERATURE_SD**2)[:, None], heat, 0.0)


def _coefficient(values: Array, weight: Array, regressor: Array) -> Array:
    weighted = weight * regressor
    square = (weighted * regressor).sum(axis=1)
    found: Array = (weighted * values).sum(axis=1) / np.where(square > 0, square, 1.0)
    return found


def _clipped_residual(x: Array, sd: Array, regressors: _Regressors) -> tuple[Array, Array]:
    there, reach = regressors.weight > 0, CLIP * sd
    clipped = np.where(there, x, 0.0)
    for _ in range(_ROUNDS):
        fitted = clipped - regressors.residuals(clipped)
        clipped = np.where(there, fitted + np.clip(x - fitted, -reach, reach), 0.0)
    return clipped, regressors.residuals(clipped)


def _suffix(values: Array) -> Array:
    summed: Array = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return summed


def _every_split(residual: Array, regressors: _Regressors, later: Array) -> tuple[Array, Array]:
    """Return t of a step at every place, and the information (1 / variance) about its size; `later` is the weight from there on."""
    size = later * (1 - later / np.maximum(later[:, :1], 1e-300))
    if regressors.heat is not None:
        square = regressors.heat_square[:, None]
        size = size - _suffix(regressors.weighted_heat) ** 2 / np.where(square > 0, square, 1.0)
    return _suffix(regressors.weight * residual) / np.sqrt(np.maximum(size, 1e-12)), size


def _allowed(present: Mask, size: Array, mass: Array, *, is_named: bool) -> tuple[Mask, Array]:
    """Return where a step is possible, and how many of these places the temperature hides; a declared place may be hidden."""
    later = _suffix(present.astype(np.float64))
    far = present & (later >= AFTER) & (later <= RECENT) & (later[:, :1] - later >= BEFORE)
    without_heat = mass * (1 - mass / np.maximum(mass[:, :1], 1e-300))
    is_visible = size >= (1 - HIDDEN_RATIO) * without_heat
    hidden = (far & ~is_visible).sum(axis=1) / np.maximum(far.sum(axis=1), 1)
    return far & (is_visible | is_named) & (size > 1e-9), hidden


def with_step(fit: SplitFit) -> tuple[Array, Array]:
    """Return the size of the step, and the residuals in standard deviations, clipped.

    Residuals are clipped around both levels, so that a large step does not count as outliers.
    """
    x, sd, weight = fit.x, fit.sd, fit.regressors.weight
    is_later = np.arange(x.shape[1])[None, :] >= fit.split[:, None]
    after = np.where(fit.found[:, None], fit.regressors.residuals(is_later.astype(np.float64)), 0.0)
    weighted = weight * after
    square = (weighted * after).sum(axis=1)
    square = np.where(square > 0, square, 1.0)
    there = weight > 0
    clipped = np.where(there, x, 0.0)
    for _ in range(_ROUNDS + 1):
        residual = fit.regressors.residuals(clipped)
        step = (weighted * residual).sum(axis=1) / square
        fitted = clipped - residual + step[:, None] * after
        left = np.clip((x - fitted) / sd, -CLIP, CLIP)
        clipped = np.where(there, fitted + left * sd, 0.0)
    return step, left


def straight_line(fit: SplitFit) -> tuple[Array, Array]:
    """Return the slope of a straight line over the points, and the information about it."""
    weight = fit.regressors.weight
    time = fit.regressors.residuals(np.where(fit.present, np.cumsum(fit.present, axis=1), 0).astype(np.float64))
    return _coefficient(fit.residual, weight, time), (weight * time * time).sum(axis=1)

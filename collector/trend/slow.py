"""A slow change is a ramp of a month or more that explains the days beside their steps.

This also decides whether it does so better than a step.

A ramp is level, then moves steadily, then is level again; it may start on the first day and
continue beyond the last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.covariate import without_gaps
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.noise import Array, Mask, day_variances, long_run, shared_variance
from edgemeter.collector.trend.scan import step_score
from edgemeter.collector.trend.thresholds import (
    AFTER,
    AROUND,
    BEFORE,
    BEND,
    CLIP,
    PART_DAYS,
    PARTS,
    RAMP_OF_STEP,
    REPLACING,
    SHORTEST_RAMP_DAYS,
)

_Integers = NDArray[np.int64]
KNOTS, NEAR_KNOTS = 14, 13
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Ramp:
    """A ramp between two days, its size in the unit of x a day.

    `score` is |t|, `gain` the chi-squared that it explains, `step_gain` that of a step at most.
    """

    first_day: int
    last_day: int
    a_day: float
    error: float
    score: float
    gain: float
    step_gain: float

    def of(self, day: _Integers) -> Array:
        """Return the ramp's value on each day, 0 on the last one."""
        return _moved(day, self.first_day, self.last_day, self.a_day)

    def error_of_step(self, before: _Integers, after: _Integers) -> float:
        """Return the contribution of the slope's error to that of a step between these days."""
        ends = self.first_day, self.last_day
        return self.error * float(np.clip(after, *ends).mean() - np.clip(before, *ends).mean())


class _Best(NamedTuple):
    """The ramp that explains most.

    It has its days, the size a day, its chi-squared, and its column after removing the basis.
    """

    first_day: int
    last_day: int
    a_day: float
    gain: float
    column: Array


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Days in standard deviations after removing level, temperature and steps.

    `basis` spans these, `remainder` are the residuals.
    """

    day: _Integers
    root: Array
    basis: Array
    remainder: Array

    @property
    def square(self) -> float:
        return float(self.remainder @ self.remainder)

    def without_basis(self, columns: Array) -> Array:
        """Return columns [.., days] in standard deviations, after removing the basis."""
        weighted = columns * self.root
        cleaned: Array = weighted - (weighted @ self.basis) @ self.basis.T
        return cleaned


class SlowSpan:
    """The days of a span with their noise, so that fits of it are comparable.

    The noise is that which remains after steps at the indexes `breaks` and a ramp.
    """

    def __init__(self, days: Days, span: tuple[int, int], breaks: Sequence[int]) -> None:
        part = slice(*span)
        x = days.x[None, part]
        self._known, self._between = day_variances(
            x, days.known[None, part], np.ones_like(x, np.bool_), np.array([days.floor])
        )
        self.day, self._places = days.day[part], np.arange(*span)
        self._heat = [without_gaps(days.temperature_c[part])] if days.is_warm else []
        self._own_variance = self._known + self._between[:, None]
        self._x = drawn_near(x, CLIP * np.sqrt(self._own_variance))[0]
        self._first = self._weighted(breaks, self._own_variance[0])

    def may_have_ramp(self, least: float) -> bool:
        """Return whether a ramp may explain `least` (chi-squared).

        The correlation of neighbours only reduces the weight of the days.
        """
        return bool(self._heat) or self._first.square * (1 + _ROUNDING) >= least

    def squares(self, breaks: Sequence[int]) -> tuple[float, float]:
        """Return the chi-squared that remains after steps at these indexes.

        It is without a ramp, and with the best one.
        """
        weighted = self._weighted(breaks, self._variance)
        best = _best(weighted, *self._knots)
        return weighted.square, weighted.square - (best.gain if best else 0.0)

    def ramp(self, breaks: Sequence[int]) -> Ramp | None:
        """Return the best ramp, of any days, in addition to steps at these indexes.

        It is None with too few days.
        """
        weighted = self._weighted(breaks, self._variance)
        best = _best(weighted, *self._knots)
        best = best and _best(weighted, *_knots_near(self.day, best))
        return best and _ramp_of(weighted, best)

    @cached_property
    def _knots(self) -> tuple[_Integers, _Integers]:
        """Return the first and last days of the ramps to try.

        They are the line over all days, and others of a month or more.
        """
        knots = np.unique(np.linspace(self.day[0], self.day[-1], KNOTS).round().astype(np.int64))
        first, last = (knots[side] for side in np.triu_indices(len(knots), 1))
        is_tried = (last - first >= SHORTEST_RAMP_DAYS) | (
            last - first == self.day[-1] - self.day[0]
        )
        return first[is_tried], last[is_tried]

    @cached_property
    def _variance(self) -> Array:
        best, first = _best(self._first, *self._knots), self._first
        moved = (
            None if best is None else _moved(self.day, best.first_day, best.last_day, best.a_day)
        )
        remainder = (
            first.remainder if moved is None else first.remainder - first.without_basis(moved)
        )
        shared = shared_variance(
            (remainder / first.root)[None],
            self._own_variance,
            np.ones_like(self._own_variance, np.bool_),
        )
        variance: Array = (self._known + long_run(self._between, shared)[:, None])[0]
        return variance

    def _weighted(self, breaks: Sequence[int], variance: Array) -> _Weighted:
        columns = [
            np.ones(len(self.day)),
            *((self._places >= at).astype(np.float64) for at in breaks),
            *self._heat,
        ]
        root = 1 / np.sqrt(variance)
        basis, scale = np.linalg.qr(np.stack(columns, axis=1) * root[:, None])
        # A temperature that never changes cannot be a regressor.
        basis = basis[:, np.abs(np.diag(scale)) > 1e-6 * np.abs(scale[0, 0])]
        remainder = self._x * root
        return _Weighted(self.day, root, basis, remainder - basis @ (basis.T @ remainder))


def drawn_near(x: Array, reach: Array) -> Array:
    """Return the values with outliers moved near the median of their neighbourhood.

    Steps and ramps do not move.
    """
    half = min(AROUND, x.shape[1] - 1) // 2
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (half, half)), mode="reflect"), 2 * half + 1, axis=1
    )
    middle = np.partition(around, half, axis=2)[:, :, half]
    near: Array = middle + np.clip(x - middle, -reach, reach)
    return near


def _knots_near(day: _Integers, ramp: _Best) -> tuple[_Integers, _Integers]:
    """Return the first and last days near those of a ramp.

    The first and the last of all days stay.
    """
    spacing = (day[-1] - day[0]) / (KNOTS - 1)
    around = np.linspace(-spacing, spacing, NEAR_KNOTS).round().astype(np.int64)
    first = (
        np.array([ramp.first_day])
        if ramp.first_day == day[0]
        else np.clip(ramp.first_day + around, day[0] + 1, None)
    )
    last = (
        np.array([ramp.last_day])
        if ramp.last_day == day[-1]
        else np.clip(ramp.last_day + around, None, day[-1] - 1)
    )
    every_first, every_last = np.repeat(first, len(last)), np.tile(last, len(first))
    is_tried = (every_last - every_first >= SHORTEST_RAMP_DAYS) | (
        (every_first == ramp.first_day) & (every_last == ramp.last_day)
    )
    return every_first[is_tried], every_last[is_tried]


def _moved(day: _Integers, first_day: int, last_day: int, a_day: float) -> Array:
    moved: Array = a_day * (
        np.clip(day, first_day, last_day).astype(np.float64) - min(int(day[-1]), last_day)
    )
    return moved


def _best(fit: _Weighted, first: _Integers, last: _Integers) -> _Best | None:
    """Return the best ramp from one of these first to one of these last days."""
    day = fit.day
    if day[-1] - day[0] < 2 or not len(first):
        return None
    ramps = fit.without_basis(
        (np.clip(day, first[:, None], last[:, None]) - first[:, None]).astype(np.float64)
    )
    square, product = (ramps**2).sum(axis=1), ramps @ fit.remainder
    # If steps explain all of a ramp, it explains nothing.
    gain = np.where(square > 1e-6, product**2 / np.maximum(square, 1e-6), 0.0)
    best = int(np.argmax(gain - BEND * np.add(first > day[0], last < day[-1], dtype=np.int64)))
    a_day = float(product[best] / max(float(square[best]), 1e-6))
    return _Best(int(first[best]), int(last[best]), a_day, float(gain[best]), ramps[best])


def _ramp_of(fit: _Weighted, best: _Best) -> Ramp:
    day, (first_day, last_day, a_day, gain, column) = fit.day, best
    remainder = fit.remainder - a_day * column
    fixed = _error(column, remainder, day, fit.basis.shape[1] + 1)
    # The ends are estimated too, and so is their effect.
    is_bent = np.array([first_day > day[0], last_day < day[-1]])
    moves = np.stack([(day > first_day) & (day < last_day), day >= last_day])[is_bent]
    if len(moves):
        free_basis = np.linalg.qr(fit.without_basis(moves.astype(np.float64)).T)[0]
        freed = column - free_basis @ (free_basis.T @ column)
    error = (
        _error(freed, remainder, day, fit.basis.shape[1] + 1 + len(moves)) if len(moves) else fixed
    )
    return Ramp(first_day, last_day, a_day, error, abs(a_day) / fixed, gain, _step_gain(fit))


def _error(regressor: Array, remainder: Array, day: _Integers, coefficients: int) -> float:
    """Return the standard error of a coefficient.

    It is that of the noise model, or that of the sums of many days, which assume no model.
    """
    square = max(float(regressor @ regressor), 1e-9)
    part_days = max(PART_DAYS, (int(day[-1] - day[0]) + 1) / PARTS)
    sums = np.bincount(((day - day[0]) / part_days).astype(np.int64), regressor * remainder)
    by_parts = float(sums @ sums) * len(sums) / max(len(sums) - coefficients, 1)
    return math.sqrt(max(square, by_parts)) / square


def _step_gain(fit: _Weighted) -> float:
    of_basis, weight, product = (
        np.cumsum(values[::-1], axis=0)[::-1]
        for values in (fit.basis * fit.root[:, None], fit.root**2, fit.root * fit.remainder)
    )
    square = weight - (of_basis**2).sum(axis=1)
    places = np.arange(len(weight))
    is_possible = (places >= BEFORE) & (len(places) - places >= AFTER) & (square > 1e-6)
    return float((product**2 / np.maximum(square, 1e-6))[is_possible].max(initial=0.0))


def may_be_slow(x: Array, least: float) -> Mask:
    """Return whether the level of series may have moved slowly by `least` or more.

    This is judged by the means of some parts; series are [.., days].
    """
    size = x.shape[-1]
    parts = int(np.clip(size // 20, 2, 8))
    first = np.arange(parts) * size // parts
    means = np.add.reduceat(x, first, axis=-1) / np.diff(np.append(first, size))
    may_be: Mask = means.max(axis=-1) - means.min(axis=-1) >= 0.8 * (1 - 1 / parts) * least
    return may_be


def may_have_ramp(x: Array, known_variance: Array, floor: Array) -> Mask:
    """Return in which series [series, days] a ramp may be confirmed.

    Their days are consecutive, without steps and temperature.

    A ramp is a sum of steps on the days of its move, so its score exceeds the largest of a step by
    a limited share.
    """
    known_variance, between = day_variances(x, known_variance, np.ones_like(x, np.bool_), floor)
    variance = known_variance + between[:, None]
    near, size = drawn_near(x, CLIP * np.sqrt(variance)), x.shape[1]
    after = np.arange(size - 1, 0, -1)
    sums = np.cumsum((near - near.mean(axis=1, keepdims=True))[:, :0:-1], axis=1)[:, ::-1]
    square = (sums**2 / (after * (1 - after / size))).max(axis=1) / variance.min(axis=1)
    is_even = variance.max(axis=1) <= variance.min(axis=1) * (1 + _ROUNDING)
    may_have: Mask = ~is_even | (
        RAMP_OF_STEP**2 * square * (1 + 3 * _ROUNDING) >= step_score(size) ** 2
    )
    return may_have


def is_slow(days: Days, span: tuple[int, int], split: int) -> bool:
    """Return whether a ramp explains the days of a span clearly better than a step.

    The step at the index `split` then explains nothing.
    """
    slow, limit = SlowSpan(days, span, (split,)), step_score(span[1] - span[0]) ** 2
    (step_alone, both), (_, ramp_alone) = slow.squares((split,)), slow.squares(())
    return ramp_alone < (both + limit if step_alone - both >= limit else step_alone - REPLACING)


def without_slow(
    days: Days, span: tuple[int, int], breaks: Sequence[int], doubted: Sequence[int]
) -> tuple[list[int], Ramp | None]:
    """Return the breaks of a span that no slow change explains, and that change or None.

    Only `doubted` ones may be removed.
    """
    least = step_score(span[1] - span[0])
    slow = SlowSpan(days, span, breaks)
    remaining = best = list(breaks)
    if not doubted:
        return best, _confirmed(slow, best, least)
    steps_alone, with_ramp = slow.squares(breaks)
    # The scan would confirm each of the steps, and the ramp in addition to them.
    cost = min(steps_alone, with_ramp + REPLACING + least**2) + len(breaks) * least**2
    while candidates := [split for split in doubted if split in remaining]:
        squares = {
            split: slow.squares([at for at in remaining if at != split])[1] for split in candidates
        }
        weakest = min(squares, key=lambda split: squares[split])
        remaining = [at for at in remaining if at != weakest]
        without_it = squares[weakest] + REPLACING + (1 + len(remaining)) * least**2
        if without_it < cost:
            best, cost = remaining, without_it
    ramp = _confirmed(slow, best, least)
    return (list(breaks) if ramp is None else best), ramp


def _confirmed(slow: SlowSpan, breaks: Sequence[int], least: float) -> Ramp | None:
    """Return the ramp in addition to these steps, if it is confirmed.

    It is None if its score is below `least` or a step explains the days as well.
    """
    ramp = slow.ramp(breaks) if breaks or slow.may_have_ramp(least**2) else None
    return (
        ramp
        if ramp is not None and ramp.score >= least and ramp.gain > ramp.step_gain + REPLACING
        else None
    )

"""The board's temperature is a regressor.

Misread days are left out, and the jump of an exchanged sensor is removed.

When a sensor is exchanged, moved or calibrated, its readings jump from one day to the next although
the board's temperature does not. Later readings are shifted back by the size of the jump. The
adjacent days give that size up to the weather of those days; within this margin the metric decides,
since it follows the temperature before and after the jump.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.noise import HALF_NORMAL, Array, median, row_medians
from edgemeter.collector.trend.thresholds import (
    FORETOLD,
    JUMP,
    JUMP_FOLLOWING_DAYS,
    JUMP_LEVEL_DAYS,
    LEAST_SPREAD,
    MARGIN,
    MISREAD,
)

_ROUNDING_C = 1e-5


def regressors(temperature_c: Array, x: Array, edges: NDArray[np.intp]) -> Array:
    """Return the temperatures that the step search in `x` adjusts for.

    They are as of `regressor`, for series between the `edges`.
    """
    adjusted: Array = temperature_c.copy()
    for row in _may_change(temperature_c, edges):
        part = slice(edges[row], edges[row + 1])
        adjusted[part] = regressor(temperature_c[part], x[part])
    return adjusted


def _may_change(temperature_c: Array, edges: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the series whose temperatures may need a correction.

    They may have a misread day or an exchanged sensor, or lack some temperatures: most have none of
    these.
    """
    size, series = np.diff(edges), np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    readings = np.bincount(series[np.isfinite(temperature_c)], minlength=len(size))
    moved = np.full((len(size), size.max(initial=1)), np.inf)
    index = np.arange(len(series)) - edges[series]
    steps = np.abs(np.diff(temperature_c, append=np.nan))
    moved[series, index] = np.where(
        index < size[series] - 1, np.nan_to_num(steps, nan=np.inf), np.inf
    )
    spread = np.maximum(
        np.nan_to_num(row_medians(moved, np.maximum(size - 1, 0)), posinf=0.0) / HALF_NORMAL,
        LEAST_SPREAD,
    )
    day = np.flatnonzero((steps > JUMP * spread[series]) & (index < size[series] - 1)) + 1
    row, total = series[day], np.concatenate([[0.0], np.cumsum(np.nan_to_num(temperature_c))])
    begin, end = (
        np.maximum(edges[row], day - JUMP_LEVEL_DAYS),
        np.minimum(edges[row + 1], day + JUMP_LEVEL_DAYS),
    )
    shift = (total[end] - total[day]) / (end - day) - (total[day] - total[begin]) / (day - begin)
    # The least difference of a misread day from a neighbour.
    may_change = (np.abs(shift) > JUMP * spread[row] - _ROUNDING_C) | (
        steps[day - 1] > MISREAD * spread[row]
    )
    return np.union1d(row[may_change], np.flatnonzero((readings > 0) & (readings < size)))


def regressor(temperature_c: Array, x: Array) -> Array:
    """Return the temperatures of days that the step search in `x` adjusts for; all [days].

    They are of its newest sensor; NaN is an unknown temperature.
    """
    days_with_heat = np.flatnonzero(np.isfinite(temperature_c))
    heat = temperature_c[days_with_heat]
    spread = _spread(heat)
    # The days on either side of each, the first and the last repeated.
    neighbours = np.clip(np.arange(len(heat))[:, None] + np.arange(-2, 3), 0, len(heat) - 1)
    middle = np.sort(heat[neighbours], axis=1)[:, 2]
    heat = np.where(np.abs(heat - middle) > MISREAD * spread, middle, heat)
    jumps: dict[int, float] = {}
    while (index := _largest_jump(heat, spread, jumps)) is not None:
        jumps[index] = _shift(heat, index)
        heat[:index] += jumps[index]
    for index, jump in sorted(jumps.items()):
        heat[:index] -= _true_part(heat, x[days_with_heat], index, jump, MARGIN * spread)
    adjusted: Array = temperature_c.copy()
    adjusted[days_with_heat] = heat
    return adjusted


def without_jump(heat: Array, places: range, sign: float, beyond: float = 0.0) -> Array:
    """Return the temperatures of days without the largest jump of a sign (1, -1).

    The jump is at one of the indexes; without one the temperatures are unchanged. They have no NaN.

    Its size is estimated from the adjacent days, up to the weather of these days: it is assumed to
    be larger by `beyond` times the spread of neighbouring days.
    """
    weather = sign * beyond * _spread(heat)
    jumps = {index: _shift(heat, index) + weather for index in places}
    largest = max(jumps, key=lambda index: sign * jumps[index], default=None)
    adjusted: Array = heat.copy()
    if largest is not None and sign * jumps[largest] > 0:
        adjusted[:largest] += jumps[largest]
    return adjusted


def without_gaps(temperature_c: Array) -> Array:
    """Return the temperatures, with their mean for unknown ones."""
    is_known = np.isfinite(temperature_c)
    if is_known.all():
        return temperature_c
    return np.where(
        is_known, temperature_c, temperature_c[is_known].mean() if is_known.any() else 0.0
    )


def _spread(heat: Array) -> float:
    """Return the robust standard deviation of the differences of neighbouring days."""
    return (
        max(median(np.abs(heat[1:] - heat[:-1])) / HALF_NORMAL, LEAST_SPREAD)
        if len(heat) > 1
        else LEAST_SPREAD
    )


def _largest_jump(heat: Array, spread: float, removed: Collection[int]) -> int | None:
    """Return the first day of the level that differs most from the previous one.

    It is None if none lasts.
    """
    near = np.flatnonzero(np.abs(heat[1:] - heat[:-1]) > JUMP * spread) + 1
    sizes = {
        int(index): abs(_shift(heat, int(index))) for index in near if int(index) not in removed
    }
    best = max(sizes, key=lambda index: sizes[index], default=None)
    return best if best is not None and sizes[best] > JUMP * spread else None


def _shift(values: Array, index: int) -> float:
    after, before = (
        values[index : index + JUMP_LEVEL_DAYS],
        values[max(0, index - JUMP_LEVEL_DAYS) : index],
    )
    return float(np.add.reduce(after) / len(after) - np.add.reduce(before) / len(before))


def _true_part(heat: Array, x: Array, index: int, jump: float, margin: float) -> float:
    """Return the warming of the board itself at `index`, according to the metric.

    A `jump` was removed from `heat` there.

    If the metric moved as such a jump predicts, all of it; else its own estimate, but no more than
    the weather of some days (`margin`).
    """
    sides = (
        slice(max(0, index - JUMP_FOLLOWING_DAYS), index),
        slice(index, index + JUMP_FOLLOWING_DAYS),
    )
    warmth, response = (
        np.concatenate([values[side] - values[side].mean() for side in sides])
        for values in (heat, x)
    )
    square = float((warmth**2).sum())
    slope = float((warmth * response).sum()) / square if square > 0 else 0.0
    if slope == 0:
        return 0.0
    before, after = sides
    moved = float(x[after].mean() - x[before].mean()) - slope * float(
        heat[after].mean() - heat[before].mean()
    )
    variance = float(np.var(response - slope * warmth))
    of_mean = variance * (1 / len(x[before]) + 1 / len(x[after]))
    reach = FORETOLD * np.sqrt(of_mean + jump**2 * variance / square)
    if abs(moved - slope * jump) < min(reach, abs(moved)):
        return jump
    return float(np.clip(moved / slope, -margin, margin))

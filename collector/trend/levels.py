"""Recurring levels, for example from memory placement at each boot.

A step or a drift counts only if it exceeds their scatter. Each level is one sample, however many
days it lasted.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from edgemeter.collector.trend.covariate import without_gaps
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.noise import Array, day_variances
from edgemeter.collector.trend.slow import Ramp, drawn_near
from edgemeter.collector.trend.thresholds import (
    AFTER,
    ASSUMED,
    CLIP,
    LEVEL_SCORE,
    LEVELS_APART,
    LEVELS_APART_SLOWLY,
    OFF_DAYS,
    REVERSALS,
)


class Levels:
    """The levels of the days of a span in which steps were found at the indexes `breaks`."""

    def __init__(self, days: Days, span: tuple[int, int], breaks: Sequence[int]) -> None:
        x, variance = _without_heat(days, span, breaks)
        starts = _starts(x, variance, 0, len(x))
        weight, total = np.cumsum([0.0, *(1 / variance)]), np.cumsum([0.0, *(x / variance)])
        placed: dict[int, int] = {}
        for at in breaks:
            # A step found some days too early or too late makes no level of these days.
            edges = np.array([*starts, len(x)])
            means = np.diff(total[edges]) / np.diff(weight[edges])
            sizes = {
                start: size
                for start, size in zip(starts[1:], np.abs(np.diff(means)).tolist(), strict=True)
                if abs(start - at + span[0]) <= OFF_DAYS and start not in placed.values()
            }
            placed[at] = max(sizes, key=lambda start: sizes[start], default=at - span[0])
            starts = sorted({*starts, placed[at]})
        edges = np.array([*starts, len(x)])
        self.means = np.diff(total[edges]) / np.diff(weight[edges])
        self._own_variance = float(np.mean(1 / np.diff(weight[edges])))
        self._middle = (days.day[span[0] + edges[:-1]] + days.day[span[0] + edges[1:] - 1]) / 2
        self._places = {at: starts.index(start) for at, start in placed.items()}

    def recurring(self, doubted: Collection[int]) -> list[int]:
        """Return those of the `doubted` breaks that are no larger than the scatter of the levels.

        If the series goes back and forth between them, they count as samples of one level, until a
        step exceeds them; otherwise their scatter is that between two steps.
        """
        segments = np.array(
            [part.mean() for part in np.split(self.means, sorted(self._places.values()))]
        )
        directions = np.sign(np.diff(segments))
        fixed = set(self._places) - set(doubted)
        counted = (
            set()
            if np.count_nonzero(directions[1:] != directions[:-1]) >= REVERSALS
            else set(doubted)
        )
        if counted:
            scores = {at: self._score(fixed | counted, at) for at in counted}
            while scores and min(scores.values()) < LEVELS_APART:
                counted.remove(min(scores, key=lambda at: scores[at]))
                scores = {at: self._score(fixed | counted, at) for at in counted}
        else:
            while scores := {
                at: self._score({*fixed, *counted, at}, at) for at in set(doubted) - counted
            }:
                best = max(scores, key=lambda at: scores[at])
                if scores[best] < LEVELS_APART:
                    break
                counted.add(best)
        return sorted(set(doubted) - counted)

    def _score(self, breaks: Collection[int], at: int) -> float:
        """Return t of one of the breaks, if these are the steps."""
        places = sorted(self._places[other] for other in breaks)
        parts = np.split(self.means, places)
        scatter = self._scatter(
            sum(float(((part - part.mean()) ** 2).sum()) for part in parts), len(parts)
        )
        index = places.index(self._places[at])
        before, after = parts[index], parts[index + 1]
        return abs(float(after.mean() - before.mean())) / math.sqrt(
            scatter * (1 / len(before) + 1 / len(after))
        )

    def follow(self, ramp: Ramp, breaks: Collection[int]) -> bool:
        """Return whether the levels follow a ramp, in addition to steps at these breaks."""
        steps = [np.arange(len(self.means)) >= self._places[at] for at in breaks]
        design = np.stack(
            [
                np.clip(self._middle, ramp.first_day, ramp.last_day) - ramp.first_day,
                np.ones(len(self.means)),
                *steps,
            ],
            axis=1,
        )
        inverse = np.linalg.pinv(design.T @ design)
        coefficients = inverse @ design.T @ self.means
        square = float(((self.means - design @ coefficients) ** 2).sum())
        error = math.sqrt(self._scatter(square, design.shape[1]) * float(inverse[0, 0]))
        return abs(float(coefficients[0])) >= LEVELS_APART_SLOWLY * error

    def _scatter(self, square: float, coefficients: int) -> float:
        return (square + ASSUMED * self._own_variance) / (
            max(len(self.means) - coefficients, 0) + ASSUMED
        )


def _without_heat(days: Days, span: tuple[int, int], breaks: Sequence[int]) -> tuple[Array, Array]:
    """Return a span's figures without the effect of the temperature and without outliers.

    It also returns the variances of its days.
    """
    part = slice(*span)
    x = days.x[part]
    if days.is_warm:
        heat = without_gaps(days.temperature_c[part])
        sides = np.split(heat, [at - span[0] for at in breaks])
        within = np.concatenate([side - side.mean() for side in sides])
        x = x - (heat - heat.mean()) * (float(within @ x) / max(float(within @ within), 1e-9))
    own_variance, between = day_variances(
        x[None], days.known[None, part], np.ones((1, len(x)), np.bool_), np.array([days.floor])
    )
    variance = (own_variance + between[:, None])[0]
    return drawn_near(x[None], CLIP * np.sqrt(variance)[None])[0], variance


def _starts(x: Array, variance: Array, begin: int, end: int) -> list[int]:
    """Return the first day of each level from one day to before another."""
    weight = np.cumsum(1 / variance[begin:end])
    total = np.cumsum(x[begin:end] / variance[begin:end])
    places = np.arange(AFTER, end - begin - AFTER + 1)
    if not len(places):
        return [begin]
    before, after = weight[places - 1], weight[-1] - weight[places - 1]
    scores = np.abs((total[-1] - total[places - 1]) / after - total[places - 1] / before) / np.sqrt(
        1 / before + 1 / after
    )
    best = int(np.argmax(scores))
    if scores[best] < LEVEL_SCORE:
        return [begin]
    middle = begin + int(places[best])
    return [*_starts(x, variance, begin, middle), *_starts(x, variance, middle, end)]

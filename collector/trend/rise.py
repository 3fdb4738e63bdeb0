"""A rise: the newest days lie beyond those before by a stated ratio. Sooner than a step is confirmed, and for large changes only."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.finding import Rise
from edgemeter.collector.trend.metrics import TrendMetric, difference, off_scale
from edgemeter.collector.trend.noise import HALF_NORMAL

# The days before must have at least so many points.
FEWEST_BEFORE = 5
# The newest days must also lie so many standard errors of their mean beyond: scatter alone is no rise.
BEYOND = 5.0
# How far days scatter is known from so many of them.
USUAL = 60
# Each of the newest days lies beyond by this share of the ratio, so that one wild day is no rise.
EACH_DAY = 0.5


@dataclass(frozen=True, slots=True)
class RiseLimits:
    """By how many per cent at least, against the median of how many days, over how many newest days."""

    by: float
    against_days: int
    over_days: int


def rise_of(metric: TrendMetric, days: Days, limits: RiseLimits, begin_day: int = 0) -> Rise | None:
    """Return the rise (or the fall) of the last `against_days` that still lasts; days before `begin_day` do not count.

    Of several the oldest, so that its first day stays; it lasts while the newest days keep half of the ratio. The metric is one of ratios.
    """
    size = len(days.day)
    recent = int(np.searchsorted(days.day, days.day[-1] - limits.against_days)) if size else 0
    for begin in range(max(recent, 1), size - limits.over_days + 1):
        before = _before(days, begin, limits, begin_day)
        if len(before) < FEWEST_BEFORE or days.day[begin] < begin_day:
            continue
        level = float(np.median(before))
        moved, lately = float(days.x[begin:].mean()) - level, float(days.x[-limits.over_days :].mean()) - level
        if lately * moved > 0 and abs(lately) >= EACH_DAY * _least(limits.by, lately) and _has_risen(days, begin, level, limits):
            return Rise(
                size=difference(metric, moved),
                before=off_scale(metric, level),
                after=off_scale(metric, level + moved),
                day=int(days.day[begin]),
                last_day=int(days.day[-1]),
                over_days=size - begin,
                against_days=limits.against_days,
                is_worse=metric.is_worse(moved, days.kind),
            )
    return None


def _before(days: Days, begin: int, limits: RiseLimits, begin_day: int) -> NDArray[np.float64]:
    first = int(days.day[begin])
    return days.x[(days.day < first) & (days.day >= max(first - limits.against_days, begin_day))]


def _has_risen(days: Days, begin: int, level: float, limits: RiseLimits) -> bool:
    """Return whether the first days from `begin` on lie beyond the level by the ratio, and by more than days scatter."""
    before, apart = _before(days, begin, limits, 0), days.x[begin : begin + limits.over_days] - level
    moved = float(apart.mean())
    least = _least(limits.by, moved)
    # From the differences of neighbours, which a step hardly moves; there are at least as many days before as give the level.
    usual = float(np.median(np.abs(np.diff(days.x[:begin][-USUAL:])))) / HALF_NORMAL / math.sqrt(2)
    spread = max(float(np.median(np.abs(before - level))) / HALF_NORMAL, usual, days.floor)
    error = spread * math.sqrt(1 / len(apart) + math.pi / 2 / len(before))
    return abs(moved) >= max(least, BEYOND * error) and bool((apart * math.copysign(1, moved) >= EACH_DAY * least).all())


def _least(by: float, moved: float) -> float:
    """Return the ratio on the metric's scale; a fall by 100% or more is none that can be."""
    if moved < 0 and by >= 100:
        return math.inf
    return abs(100 * math.log1p(math.copysign(by, moved) / 100))

"""95 % intervals over what was repeated: runs, or days and devices where there are enough of them.

Queries of one run say nothing about the next run, runs of one day little about the next day, and days of one board nothing about another
board. So the members of the highest level of which there are at least three are counted (devices, else days, else runs), each by its
median. From one day or device the interval speaks of that one only, and says so. Two give a hint of how much the next may differ, which
widens it: twice the logarithm of their ratio, added in squares. The ratio of two cases, two days each, then holds the truth in 95.6 to
99.8 % of 4,000 simulated pairs (2 to 10 runs a day, days up to three times as noisy as runs); without it in 57 to 98 %.

The interval of the median is that of `edgemeter ab` and of `agent.engine.run_statistics`: interpolated order statistics from six members
on, their widened range for five, Student's t on logarithms for three and four. A ratio's interval is put together from those of its two
sides on logarithms (method of variance estimates recovery, Zou and Donner 2008).
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Literal

Level = Literal["device", "day", "run"]

CONFIDENCE = 0.95
FEWEST = 3
# Student's t that bounds 95 % from both sides, by degrees of freedom.
_T = {2: 4.302652729911275, 3: 3.182446305284263}
# By so much of the range of five members (on logarithms) it is widened each way, to go from 93.75 to 95 %.
_WIDENING = 0.05
# What the distance between two days, or two devices, adds: see above.
_TWO_APART = 2.0
NS_PER_DAY = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """One figure (> 0) of one run, with the device and the day (UTC, counted from 1970) that it belongs to."""

    value: float
    device: str
    day: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a median over `members` of a level; `devices`, `days` and `runs` is what it rests on in all."""

    low: float
    high: float
    level: Level
    members: int
    devices: int
    days: int
    runs: int

    @property
    def over(self) -> str:
        """What was counted: `6 runs`, `5 days`, of two devices `10 device-days`."""
        prefix = "device-" if self.level == "day" and self.devices > 1 else ""
        return f"{self.members} {prefix}{self.level}s"


def of_points(points: Sequence[Point]) -> Interval | None:
    """Return the interval of the median over the highest level that has enough members, holding that median; None below three runs."""
    if any(point.value <= 0 for point in points):
        return None
    level, values = _members(points)
    bounds = of_median(values)
    if bounds is None:
        return None
    # Where members count unequally the median over all runs, which is what is shown, may lie outside of what is over days or devices.
    middle = median(point.value for point in points)
    bounds = min(bounds[0], middle), max(bounds[1], middle)
    if (apart := _apart(points)) > 0:
        bounds = widened(bounds, middle, middle * math.expm1(_TWO_APART * apart))
    devices, days = {point.device for point in points}, {point.day for point in points}
    return Interval(*bounds, level, len(values), len(devices), len(days), len(points))


def of_median(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the bounds of the median of `values` (> 0), None below three."""
    ordered, count = sorted(values), len(values)
    if count < FEWEST:
        return None
    if count < 5:
        # A case has twenty of these: the exact arithmetic of `statistics` would take most of the time of a comparison.
        logs = [math.log(value) for value in ordered]
        centre = math.fsum(logs) / count
        variance = math.fsum((value - centre) ** 2 for value in logs) / (count - 1)
        reach = _T[count - 1] * math.sqrt(variance / count)
        return math.exp(centre - reach), math.exp(centre + reach)
    if count == 5:
        wider = (ordered[-1] / ordered[0]) ** _WIDENING
        return ordered[0] / wider, ordered[-1] * wider
    return _by_order(ordered)


def of_ratio(own: float, own_bounds: tuple[float, float], other: float, other_bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds of `own` / `other`, which always hold the ratio itself; all are > 0."""
    below = math.hypot(_reach(own_bounds[0], own), _reach(other, other_bounds[1]))
    above = math.hypot(_reach(own, own_bounds[1]), _reach(other_bounds[0], other))
    return own / other * math.exp(-below), own / other * math.exp(above)


def widened(bounds: tuple[float, float], value: float, u_value: float) -> tuple[float, float]:
    """Return `bounds` of `value` (> 0) with an expanded uncertainty (95 %) that repeating does not shrink."""
    also = math.log1p(u_value / value)
    below, above = math.hypot(_reach(bounds[0], value), also), math.hypot(_reach(value, bounds[1]), also)
    return value * math.exp(-below), value * math.exp(above)


def _reach(low: float, high: float) -> float:
    return max(0.0, math.log(high / low))


def _members(points: Sequence[Point]) -> tuple[Level, list[float]]:
    if len(points) < FEWEST or len({(point.device, point.day) for point in points}) < FEWEST:
        return "run", [point.value for point in points]
    days = _medians(points, lambda point: (point.device, point.day))
    by_device: dict[Hashable, list[float]] = {}
    for (device, _), value in days.items():
        by_device.setdefault(device, []).append(value)
    if len(by_device) >= FEWEST:
        return "device", [median(values) for values in by_device.values()]
    if len({point.day for point in points}) >= FEWEST:
        return "day", list(days.values())
    return "run", [point.value for point in points]


def _apart(points: Sequence[Point]) -> float:
    """Return by how much two devices, or else two days, differ, as a logarithm; 0 where there are more or fewer of them."""
    devices = {point.device for point in points}
    halves = [[point.value for point in points if point.device == device] for device in devices]
    if len(devices) == 1:
        days = {point.day for point in points}
        halves = [[point.value for point in points if point.day == day] for day in days]
    if len(halves) != 2:
        return 0.0
    one, other = (median(half) for half in halves)
    return abs(math.log(one / other))


def _medians(points: Sequence[Point], key: Callable[[Point], tuple[str, int]]) -> dict[tuple[str, int], float]:
    grouped: dict[tuple[str, int], list[float]] = {}
    for point in points:
        grouped.setdefault(key(point), []).append(point.value)
    return {name: median(values) for name, values in grouped.items()}


def _by_order(ordered: Sequence[float]) -> tuple[float, float]:
    outer, weight = _places(len(ordered))
    low = (1 - weight) * ordered[outer] + weight * ordered[outer + 1]
    return low, (1 - weight) * ordered[-1 - outer] + weight * ordered[-2 - outer]


@lru_cache(maxsize=4096)
def _places(count: int) -> tuple[int, float]:
    """Return the outer of the two pairs of order statistics that have just more and just less than 95 %, and the share of the inner.

    Source: Hettmansperger and Sheather 1986.
    """
    held, below = [], 0.0
    for place in range(count // 2 + 1):
        below += _binomial(count, place)
        held.append(1 - 2 * below)
    inner = next(place for place, share in enumerate(held) if share < CONFIDENCE)
    outer = inner - 1
    share = (held[outer] - CONFIDENCE) / (held[outer] - held[inner])
    return outer, (count - inner) * share / (inner + (count - 2 * inner) * share)


def _binomial(count: int, place: int) -> float:
    """Return the probability of `place` heads in `count` throws; by logarithms, since 2**count is no float beyond 1,023."""
    return math.exp(math.lgamma(count + 1) - math.lgamma(place + 1) - math.lgamma(count - place + 1) - count * math.log(2))

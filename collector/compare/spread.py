"""The spread of one figure over the runs of a case, with the 95% interval of its median over runs, or over days and devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from edgemeter.agent.base.figures import stamp
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.run_statistics import CONFIDENCE, FEWEST, TELLING_NEIGHBOURS, log_reach, median_interval, neighbour_widening
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.figures import Group
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.runs.cases import grouped, not_measured
from edgemeter.collector.runs.run_figures import kind_of
from edgemeter.collector.runs.store import LeftOut

IntervalLevel = Literal["device", "day", "run"]
# What the distance between two days, or two devices, adds: see above.
_TWO_APART = 2.0
# A sum of squares of logarithms below this is rounding.
_NO_SPREAD = 1e-20


class RunPoint(NamedTuple):
    """One figure (> 0) of one run, with the device and the day (UTC, counted from 1970) that it belongs to; a tuple, as there are many."""

    value: float
    device: str
    day: int


# A ledger has tens of thousands of them, none of which is part of a cycle: the garbage collector need not look at them.
class MedianInterval(msgspec.Struct, frozen=True, gc=False):
    """A 95% interval of a median over `members` of a level; `devices`, `days` and `runs` is what it rests on in all.

    `step_day` is the day (UTC, counted from 1970) from which another level is suspected: the median is of both, and so is the interval.
    `days_depend` is whether each day takes after the day before, and the interval is wider for it; None: too few days to show it.
    """

    low: float
    high: float
    level: IntervalLevel
    members: int
    devices: int
    days: int
    runs: int
    step_day: int | None = None
    days_depend: bool | None = None

    @property
    def over(self) -> str:
        """The sample in words: `6 runs`, `5 days`, of two devices `10 device-days`."""
        prefix = "device-" if self.level == "day" and self.devices > 1 else ""
        return f"{self.members} {prefix}{self.level}s"

    @property
    def within(self) -> str:
        """The unsampled population, and how days are taken: `this board, days taken as independent`; empty over three devices and more."""
        days = "this day" if self.days == 1 else f"these {self.days} days"
        boards = "this board" if self.devices == 1 else f"these {self.devices} boards"
        days_are = {None: ", days taken as independent", True: ", days that depend on each other", False: ""}[self.days_depend]
        return {"run": f"{days}, {boards}", "day": f"{boards}{days_are}", "device": ""}[self.level]

    @property
    def suspicion(self) -> str:
        """The suspected step in words, empty where there is none."""
        return "" if self.step_day is None else f"a step is suspected on {stamp(self.step_day * NS_PER_DAY)[:10]}"


@dataclass(frozen=True, slots=True)
class Split:
    """Two levels that fit days better than one: the first day since, its 95% bounds; `is_suspect` if even days that depend show it."""

    begin: int
    low: float
    high: float
    is_suspect: bool


# The t value that the best split of independent days reaches in 5 of 100 series: this, and this by the number of days.
_OF_CHANCE, _OF_CHANCE_WITH_FEW = 3.0, 5.0
# So many times that value it has in at most 2 of 100 series whose days have an autocorrelation of 0.5.
SUSPECT_SPLIT = 2.0
# The mean of such days is known worse by this factor (at an autocorrelation of a quarter).
_DEPENDENT = 1.3
# The fewest days on either side of a split: a single day may be an outlier.
_FEWEST_DAYS = 2


def interval_of_points(points: Sequence[RunPoint]) -> MedianInterval | None:
    """Return the interval of the median over the highest level that has enough members, holding that median.

    None below three runs, and where they lie so far apart that no float holds a bound.
    """
    try:
        interval = None if any(point.value <= 0 for point in points) else _interval_of_points(points)
    except (OverflowError, ZeroDivisionError):
        return None
    return interval if interval is not None and math.isfinite(interval.high) else None


def _interval_of_points(points: Sequence[RunPoint]) -> MedianInterval | None:
    level, values = _members(points)
    interval = median_interval(values)
    if interval is None:
        return None
    # Where members count unequally the median over all runs, which is what is shown, may lie outside of what is over days or devices.
    middle = median(point.value for point in points)
    bounds = min(interval.low, middle), max(interval.high, middle)
    if (apart := _apart(points)) > 0:
        bounds = widened_interval(bounds, middle, middle * math.expm1(_TWO_APART * apart))
    devices, days = {point.device for point in points}, sorted({point.day for point in points})
    of_board = MedianInterval(*bounds, level, len(values), len(devices), len(days), len(points))
    return _over_days(of_board, middle, values, days) if level == "day" and len(devices) == 1 else of_board


def _over_days(independent: MedianInterval, middle: float, values: Sequence[float], days: Sequence[int]) -> MedianInterval:
    """Return the interval of one board's days (oldest first), wider where days depend on each other or another level is suspected."""
    logs = [math.log(value) for value in values]
    widening = neighbour_widening(logs)
    low = middle * math.exp(-widening * log_reach(independent.low, middle))
    high = middle * math.exp(widening * log_reach(middle, independent.high))
    if (split := best_split(logs)) is not None:
        low, high = min(low, split.low), max(high, split.high)
    step_day = days[split.begin] if split is not None and split.is_suspect else None
    days_depend = True if widening > 1 else False if len(values) >= TELLING_NEIGHBOURS else None
    return replace(independent, low=low, high=high, step_day=step_day, days_depend=days_depend)


def best_split(logs: Sequence[float]) -> Split | None:
    """Return the split of the days' levels (logarithms, oldest first) that fits best; None where chance explains it, and below five days.

    Source: the largest t value over all splits, held against what chance reaches, simulated for 5 to 40 days.
    """
    count, middle = len(logs), math.fsum(logs) / len(logs)
    centred = [value - middle for value in logs]
    gain, begin, before = 0.0, 0, 0.0
    for index in range(1, count - _FEWEST_DAYS + 1):
        before += centred[index - 1]
        # What two levels take off the sum of squares.
        explained = before * before * count / (index * (count - index))
        if index >= _FEWEST_DAYS and explained > gain:
            gain, begin = explained, index
    if count <= 2 * _FEWEST_DAYS or gain <= _NO_SPREAD:
        return None
    variance = max(math.fsum(value * value for value in centred) - gain, _NO_SPREAD) / (count - 2)
    score = math.sqrt(gain / variance) / (_OF_CHANCE + _OF_CHANCE_WITH_FEW / count)
    if score <= 1:
        return None
    since = math.fsum(logs[begin:]) / (count - begin)
    reach = _DEPENDENT * student_quantile(CONFIDENCE, count - 2) * math.sqrt(variance / (count - begin))
    return Split(begin, math.exp(since - reach), math.exp(since + reach), score > SUSPECT_SPLIT)


def widened_interval(bounds: tuple[float, float], value: float, u_value: float) -> tuple[float, float]:
    """Return `bounds` of `value` (> 0) with an expanded uncertainty (95%) that repeating does not shrink."""
    also = math.log1p(u_value / value)
    below, above = math.hypot(log_reach(bounds[0], value), also), math.hypot(log_reach(value, bounds[1]), also)
    return value * math.exp(-below), value * math.exp(above)


def _members(points: Sequence[RunPoint]) -> tuple[IntervalLevel, list[float]]:
    days = grouped(((device, day), value) for value, device, day in points)
    of_days = {device_day: values[0] if len(values) == 1 else median(values) for device_day, values in days.items()}
    by_device = grouped((device, value) for (device, _), value in of_days.items())
    if len(by_device) >= FEWEST:
        return "device", [median(values) for values in by_device.values()]
    if len({point.day for point in points}) >= FEWEST:
        return "day", [of_days[device_day] for device_day in sorted(of_days)]
    return "run", [point.value for point in points]


def _apart(points: Sequence[RunPoint]) -> float:
    """Return by how much two devices, or else two days, differ, as a logarithm; 0 where there are more or fewer of them."""
    apart = "day" if len({point.device for point in points}) == 1 else "device"
    names = [getattr(point, apart) for point in points]
    if len(set(names)) != 2:
        return 0.0
    first, second = map(median, grouped(zip(names, (point.value for point in points), strict=True)).values())
    return abs(math.log(first / second))


class Spread(msgspec.Struct, frozen=True, gc=False):
    """The median of one figure over the runs that have it, its range, how many they are, and the 95% interval where there are enough.

    Of missed frames `median` is the share of the frames of all runs.
    """

    median: float
    low: float
    high: float
    n: int
    interval: MedianInterval | None = None


def of_points(points: Sequence[RunPoint]) -> Spread | None:
    """Return the spread of the points, None when there are none."""
    values = [point.value for point in points]
    return Spread(median(values), min(values), max(values), len(values), interval_of_points(points)) if values else None


def of_counted(points: Sequence[RunPoint], share: float, bounds: tuple[float, float] | None, limit: float = 1.0) -> Spread:
    """Return the spread of a share or rate (0 to `limit`, often 0): that of all runs together stands in place of their median.

    `bounds` (95%) are those of what was counted; where runs, days or devices lie further apart, they are wider. Below three runs there
    is no interval.
    """
    values = [point.value for point in points]
    spread = Spread(share, min(values), max(values), len(values))
    if len(points) < FEWEST:
        return spread
    level, members = _members(points)
    reach = student_quantile(CONFIDENCE, len(members) - 1) * stdev(members) / math.sqrt(len(members))
    middle, bounds = fmean(members), bounds or (share, share)
    if bounds[0] == bounds[1] and not reach:
        return spread
    low, high = max(0.0, min(bounds[0], middle - reach)), min(limit, max(bounds[1], middle + reach))
    devices, days = {point.device for point in points}, {point.day for point in points}
    return replace(spread, interval=MedianInterval(low, high, level, len(members), len(devices), len(days), len(points)))


def point_of(run: RunRecord, value: float) -> RunPoint:
    """Return a figure of `run` with the device and the day that it belongs to."""
    return RunPoint(value, run.device, run.started_at_ns // NS_PER_DAY)


def median_of(spread: Spread | None) -> float | None:
    """Return the median, None where there is no spread."""
    return spread.median if spread else None


def of_one_kind(runs: Sequence[RunRecord], group: Group) -> tuple[list[RunRecord], list[LeftOut]]:
    """Return the runs (oldest first) whose figures of a group were measured and are of the newest one's kind, and what is left out.

    Merging two kinds (another meter, another metric) would give a median of nothing; the newest is the one that the user means.
    """
    having = [(run, kind, not_measured(run, group)) for run in runs if (kind := kind_of(run, group)) is not None]
    newest = next((kind for _, kind, reason in reversed(having) if reason is None), None)
    other_kind = f"is not what the newest run of the case has, {newest}"
    reasons = [reason or (None if kind == newest else f"{group}: {kind} {other_kind}") for _, kind, reason in having]
    of_newest = [run for (run, _, _), reason in zip(having, reasons, strict=True) if reason is None]
    return of_newest, [LeftOut(run.id, reason) for (run, _, _), reason in zip(having, reasons, strict=True) if reason is not None]

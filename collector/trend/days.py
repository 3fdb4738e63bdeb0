"""Days: the points of one series and metric, one a day, made of the runs of that day; and of a board type, made of its devices."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.runs.cases import Fingerprint
from edgemeter.collector.runs.run_figures import RunFigures
from edgemeter.collector.trend.covariate import regressor
from edgemeter.collector.trend.metrics import TrendMetric
from edgemeter.collector.trend.noise import ENOUGH_DIFFERENCES, run_variance
from edgemeter.collector.trend.run_columns import TEMPERATURE, RunColumns, columns_of, names_of, scaled

Array = NDArray[np.float64]
# Temperature is a regressor only if at least this share of the days have one.
ENOUGH_TEMPERATURES = 0.8


@dataclass(frozen=True, slots=True)
class Days:
    """The points of a series; arrays [days], oldest first.

    `x` is the figure on its metric's scale, `known` the variance that is known of it, `floor` the least standard deviation that a day has,
    `runs` how many it is the mean of; `temperature_c` is NaN if unknown, and before an exchange of the sensor as the newest would read.
    `read_c` are the temperatures as they were read, None if these are they.
    `changed` are changes of the fingerprint since the previous point. `left_out` runs are of another
    kind than the newest, `not_valid` ones do not count.
    """

    day: NDArray[np.int64]
    x: Array
    known: Array
    runs: NDArray[np.int64]
    temperature_c: Array
    changed: tuple[tuple[str, ...], ...]
    floor: float
    kind: str | None = None
    devices: int = 1
    left_out: int = 0
    not_valid: int = 0
    read_c: Array | None = None

    def has_temperature(self) -> bool:
        """Return whether enough days have a temperature to use it as a regressor."""
        return len(self.day) > 0 and float(np.count_nonzero(np.isfinite(self.temperature_c))) / len(self.day) >= ENOUGH_TEMPERATURES


def days_of(metric: TrendMetric, runs: Sequence[tuple[RunFigures, Fingerprint]]) -> Days:
    """Return the points of `runs` of one series; those of another kind than the newest, and those not valid, are left out."""
    return days_of_series(metric, columns_of([runs], names_of([metric])))[0]


def days_of_series(metric: TrendMetric, runs: RunColumns) -> list[Days]:
    """Return the points of each series; runs of another kind than its newest, and those not valid, are left out."""
    size = len(runs.edges) - 1
    series = np.repeat(np.arange(size), np.diff(runs.edges))
    value = runs.values(metric)
    has_value = ~np.isnan(value)
    counts = has_value & runs.is_valid if metric.rule.only_valid else has_value
    kind, kinds = runs.kinds(metric)
    counted = np.flatnonzero(counts)
    newest = np.full(size, -1)
    # Of several values for one place the last stays, that of the newest run.
    newest[series[counted]] = kind[counted]
    kept = counted[kind[counted] == newest[series[counted]]]
    left_out = np.bincount(series[counted], minlength=size) - np.bincount(series[kept], minlength=size)
    not_valid = np.bincount(series[has_value & ~counts], minlength=size)
    found = _Points(metric, runs, series, kept, value[kept])
    return [
        found.of(place, kinds[own] if own >= 0 else None, left, invalid)
        for place, (own, left, invalid) in enumerate(zip(newest.tolist(), left_out.tolist(), not_valid.tolist(), strict=True))
    ]


class _Points:
    """The points of every series, one after the other, made of the runs at the places `kept`; `value` are the figures of these."""

    def __init__(self, metric: TrendMetric, runs: RunColumns, series: NDArray[np.intp], kept: NDArray[np.intp], value: Array) -> None:
        size, own, day = len(runs.edges) - 1, series[kept], runs.day[kept]
        is_first = np.ones(len(kept), dtype=np.bool_)
        is_first[1:] = (own[1:] != own[:-1]) | (day[1:] != day[:-1])
        first = np.flatnonzero(is_first)
        x = scaled(metric, value)
        u_square = np.zeros(len(kept)) if metric.u_column is None else np.nan_to_num(100 * runs.figures[metric.u_column][kept]) ** 2
        self._metric, self._series = metric, own[first]
        self._edges = np.searchsorted(self._series, np.arange(size + 1)).tolist()
        self._day, self._runs = day[first], np.diff(np.append(first, len(kept)))
        within = np.zeros(size)
        of_series = np.searchsorted(own, np.arange(size + 1))
        if metric.scale != "share":
            for place in np.flatnonzero(np.bincount(own[~is_first], minlength=size) >= ENOUGH_DIFFERENCES):
                part = slice(of_series[place], of_series[place + 1])
                within[place] = run_variance(x[part], day[part], u_square[part]) or 0.0
        self._x = _sums(x, first) / self._runs
        self._known = (_sums(u_square, first) / self._runs + within[self._series]) / self._runs
        self._read_c = _means(runs.figures[TEMPERATURE][kept], first)
        self._floor = np.full(size, metric.rule.floor)
        if metric.scale == "share":
            # A share that is nearly always 0 shows no scatter, but has that of a coin with its mean.
            mean = (np.bincount(own, x, minlength=size) / 100 + 1) / (np.diff(of_series) + 2)
            self._floor = 100 * np.sqrt(mean * (1 - mean))
        self._changed = _changes(runs, self._series, runs.common[kept[np.append(first[1:], len(kept)) - 1]] if len(kept) else first)

    def of(self, place: int, kind: str | None, left_out: int, not_valid: int) -> Days:
        """Return the points of one series."""
        part = slice(self._edges[place], self._edges[place + 1])
        x, read_c = self._x[part], self._read_c[part]
        heat = regressor(read_c, x) if self._metric.rule.follows_temperature else read_c
        return Days(
            self._day[part],
            x,
            self._known[part],
            self._runs[part],
            heat,
            tuple(self._changed[part]),
            float(self._floor[place]),
            kind,
            left_out=left_out,
            not_valid=not_valid,
            read_c=read_c,
        )


def _sums(values: Array, first: NDArray[np.intp]) -> Array:
    return np.add.reduceat(values, first) if len(first) else values


def _means(values: Array, first: NDArray[np.intp]) -> Array:
    there = ~np.isnan(values)
    count = _sums(there.astype(np.float64), first)
    return np.where(count > 0, _sums(np.where(there, values, 0.0), first) / np.maximum(count, 1), np.nan)


def _changes(runs: RunColumns, series: NDArray[np.intp], common: NDArray[np.intp]) -> list[tuple[str, ...]]:
    """Return for each point what changed since the one before in its series; `common` are of the last run of each."""
    found: list[tuple[str, ...]] = [()] * len(series)
    for place in np.flatnonzero((series[1:] == series[:-1]) & (common[1:] != common[:-1])) + 1:
        earlier, later = (runs.facts[common[one]].below for one in (place - 1, place))
        found[place] = tuple(earlier.changes_to(later)) if earlier is not later else ()
    return found


def of_type(members: Sequence[Days]) -> Days:
    """Return the points of a board type: each day the mean of its devices, each device counted from its own level."""
    usable = [member for member in members if len(member.day)]
    if not usable:
        empty = np.zeros(0)
        return Days(np.zeros(0, np.int64), empty, empty, np.zeros(0, np.int64), empty, (), 0.0)
    floor = float(np.median([member.floor for member in usable])) / math.sqrt(len(usable))
    level = float(np.median([np.median(member.x) for member in usable]))
    every = np.unique(np.concatenate([member.day for member in usable]))
    total, variance, warmth = np.zeros(len(every)), np.zeros(len(every)), np.zeros(len(every))
    devices, runs, warm = np.zeros(len(every)), np.zeros(len(every), np.int64), np.zeros(len(every))
    for member in usable:
        place = np.searchsorted(every, member.day)
        total[place] += member.x - np.median(member.x)
        variance[place] += member.known
        devices[place] += 1
        runs[place] += member.runs
        there = np.isfinite(member.temperature_c)
        if not there.any():
            continue
        warmth[place[there]] += member.temperature_c[there] - np.median(member.temperature_c[there])
        warm[place[there]] += 1
    temperature_c = np.where(warm > 0, warmth / np.maximum(warm, 1), np.nan)
    return Days(
        every,
        level + total / devices,
        variance / devices**2,
        runs,
        temperature_c,
        _common_changes(usable, every),
        floor,
        usable[0].kind,
        len(usable),
    )


def _common_changes(members: Sequence[Days], every: NDArray[np.int64]) -> tuple[tuple[str, ...], ...]:
    """Return for each day of a board type what changed on at least half of its devices, on the day when most of them changed."""
    seen: dict[str, Counter[int]] = {}
    for member in members:
        for day, texts in zip(member.day, member.changed, strict=True):
            for text in texts:
                seen.setdefault(text, Counter())[int(day)] += 1
    found: dict[int, list[str]] = {}
    for text, days in seen.items():
        if 2 * days.total() >= len(members):
            found.setdefault(days.most_common(1)[0][0], []).append(f"{text} on {days.total()} of {len(members)} devices")
    return tuple(tuple(found.get(int(day), ())) for day in every)

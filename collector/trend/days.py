"""Days are the points of one series and metric, one a day, from the runs of that day.

Those of a board type are from its devices.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.covariate import regressors
from edgemeter.collector.trend.metrics import TrendMetric
from edgemeter.collector.trend.noise import run_variance
from edgemeter.collector.trend.run_columns import TEMPERATURE, RunColumns, scaled
from edgemeter.collector.trend.thresholds import ENOUGH_DIFFERENCES, ENOUGH_TEMPERATURES

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Days:
    """The points of a metric in a series; arrays [days], oldest first.

    `x` is the figure on the metric's scale, `known` its known variance, `floor` the least standard
    deviation of a day, `runs` the number of runs in the mean; `temperature_c` is NaN if unknown,
    and before an exchange of the sensor as the newest would read. `read_c` are the temperatures as
    they were read, None if these are they. `changed` are the changes of the fingerprint since the
    previous point, by index. `left_out` runs are of another kind than the newest, `not_ok` ones do
    not count, the newest of them on the day `not_ok_until` (0: there is none).
    """

    metric: TrendMetric
    day: NDArray[np.int64]
    x: Array
    known: Array
    runs: NDArray[np.int64]
    temperature_c: Array
    changed: Mapping[int, Sequence[str]]
    floor: float
    kind: str | None = None
    devices: int = 1
    left_out: int = 0
    not_ok: int = 0
    not_ok_until: int = 0
    read_c: Array | None = None

    @property
    def is_warm(self) -> bool:
        """Whether the temperature is a regressor: enough days have one."""
        if self.metric.rule.scale != "log" or not len(self.day):
            return False
        return (
            float(np.count_nonzero(np.isfinite(self.temperature_c))) / len(self.day)
            >= ENOUGH_TEMPERATURES
        )


class _SeriesFacts(NamedTuple):
    """The kind of a series, and its runs of another kind and not ok, the latter until a day."""

    kind: str | None
    left_out: int
    not_ok: int
    not_ok_until: int


def days_of_series(metric: TrendMetric, runs: RunColumns) -> list[Days]:
    """Return the points of each series.

    Runs of another kind than its newest, and those not ok, are left out.
    """
    size = len(runs.edges) - 1
    series = np.repeat(np.arange(size), np.diff(runs.edges))
    value = runs.values(metric)
    has_value = ~np.isnan(value)
    counts = has_value & runs.is_ok if metric.rule.scale != "share" else has_value
    kind, kinds = runs.kinds(metric)
    counted = np.flatnonzero(counts)
    newest = np.full(size, -1)
    # If several values have the same index, the last stays: that of the newest run.
    newest[series[counted]] = kind[counted]
    used = counted[kind[counted] == newest[series[counted]]]
    left_out = np.bincount(series[counted], minlength=size) - np.bincount(
        series[used], minlength=size
    )
    refused = np.flatnonzero(has_value & ~counts)
    not_ok, until = np.bincount(series[refused], minlength=size), np.zeros(size, np.int64)
    np.maximum.at(until, series[refused], runs.day[refused])
    names = [kinds[number] if number >= 0 else None for number in newest.tolist()]
    facts = list(map(_SeriesFacts, names, left_out.tolist(), not_ok.tolist(), until.tolist()))
    return _points(metric, runs, series[used], used, scaled(metric, value[used]), facts)


def _points(
    metric: TrendMetric,
    runs: RunColumns,
    series: NDArray[np.intp],
    used: NDArray[np.intp],
    x: Array,
    facts: Sequence[_SeriesFacts],
) -> list[Days]:
    """Return the points of each series.

    They are from the runs at the indexes `used`, with their `series` and figures `x`.
    """
    size, day = len(runs.edges) - 1, runs.day[used]
    is_first = np.ones(len(used), dtype=np.bool_)
    is_first[1:] = (series[1:] != series[:-1]) | (day[1:] != day[:-1])
    first = np.flatnonzero(is_first)
    count = np.diff(np.append(first, len(used)))
    u_square = (100 * runs.u_ratios(metric)[used]) ** 2
    within, floor = np.zeros(size), np.full(size, metric.rule.floor)
    if metric.rule.scale == "share":
        # A share that is nearly always 0 shows no scatter, but has that of a coin with its mean.
        mean = (np.bincount(series, x, minlength=size) / 100 + 1) / (
            np.bincount(series, minlength=size) + 2
        )
        floor = 100 * np.sqrt(mean * (1 - mean))
    else:
        edges = np.searchsorted(series, np.arange(size + 1))
        for row in np.flatnonzero(
            np.bincount(series[~is_first], minlength=size) >= ENOUGH_DIFFERENCES
        ):
            part = slice(edges[row], edges[row + 1])
            within[row] = run_variance(x[part], day[part], u_square[part]) or 0.0
    of_points = series[first]
    mean_x, known_variance = (
        _sums(x, first) / count,
        (_sums(u_square, first) / count + within[of_points]) / count,
    )
    used_c = runs.figures[TEMPERATURE][used]
    readings = _sums((~np.isnan(used_c)).astype(np.float64), first)
    read_c = np.where(
        readings > 0, _sums(np.nan_to_num(used_c), first) / np.maximum(readings, 1), np.nan
    )
    edges = np.searchsorted(of_points, np.arange(size + 1))
    heat = regressors(read_c, mean_x, edges) if metric.rule.scale == "log" else read_c
    changed = _changes(
        runs,
        of_points,
        runs.common[used[np.append(first[1:], len(used)) - 1]] if len(used) else first,
    )
    dates, points = day[first], []
    for begin, end, least, (kind, left_out, not_ok, until) in zip(
        edges.tolist(), edges[1:].tolist(), floor.tolist(), facts, strict=False
    ):
        texts = (
            {point - begin: changed[point] for point in range(begin, end) if point in changed}
            if changed
            else {}
        )
        part = slice(begin, end)
        columns = dates[part], mean_x[part], known_variance[part], count[part], heat[part]
        points.append(
            Days(metric, *columns, texts, least, kind, 1, left_out, not_ok, until, read_c[part])
        )
    return points


def _sums(values: Array, first: NDArray[np.intp]) -> Array:
    return np.add.reduceat(values, first) if len(first) else values


def _changes(
    runs: RunColumns, series: NDArray[np.intp], common: NDArray[np.intp]
) -> dict[int, Sequence[str]]:
    """Return the points at which something changed since the previous one of the series.

    `common` are those of the last run of each.
    """
    changed = {}
    for point in (
        np.flatnonzero((series[1:] == series[:-1]) & (common[1:] != common[:-1])) + 1
    ).tolist():
        earlier, later = (runs.facts[common[index]].below for index in (point - 1, point))
        if texts := earlier.changes_to(later) if earlier is not later else ():
            changed[point] = texts
    return changed


def of_type(members: Sequence[Days]) -> Days:
    """Return the points of a board type.

    Each day has the mean of its devices, each relative to its own level.
    """
    usable = [member for member in members if len(member.day)]
    if not usable:
        empty, no_days = np.zeros(0), np.zeros(0, np.int64)
        return Days(members[0].metric, no_days, empty, empty, no_days, empty, {}, 0.0)
    floor = float(np.median([member.floor for member in usable])) / math.sqrt(len(usable))
    level = float(np.median([np.median(member.x) for member in usable]))
    all_days = np.unique(np.concatenate([member.day for member in usable]))
    total, variance, warmth = (
        np.zeros(len(all_days)),
        np.zeros(len(all_days)),
        np.zeros(len(all_days)),
    )
    devices, runs, warm = (
        np.zeros(len(all_days)),
        np.zeros(len(all_days), np.int64),
        np.zeros(len(all_days)),
    )
    for member in usable:
        indices = np.searchsorted(all_days, member.day)
        total[indices] += member.x - np.median(member.x)
        variance[indices] += member.known
        devices[indices] += 1
        runs[indices] += member.runs
        has_heat = np.isfinite(member.temperature_c)
        if has_heat.any():
            warmth[indices[has_heat]] += member.temperature_c[has_heat] - np.median(
                member.temperature_c[has_heat]
            )
            warm[indices[has_heat]] += 1
    points = (
        all_days,
        level + total / devices,
        variance / devices**2,
        runs,
        np.where(warm > 0, warmth / np.maximum(warm, 1), np.nan),
        _common_changes(usable, all_days),
    )
    return Days(members[0].metric, *points, floor, usable[0].kind, len(usable))


def _common_changes(
    members: Sequence[Days], all_days: NDArray[np.int64]
) -> Mapping[int, Sequence[str]]:
    """Return for days of a board type the changes on at least half of its devices.

    They are on the day when most of the devices changed.
    """
    days_of_text: dict[str, Counter[int]] = defaultdict(Counter)
    for member in members:
        for index, texts in member.changed.items():
            for text in texts:
                days_of_text[text][int(member.day[index])] += 1
    shared = {text: days for text, days in days_of_text.items() if 2 * days.total() >= len(members)}
    return grouped(
        (
            int(np.searchsorted(all_days, days.most_common(1)[0][0])),
            f"{text} on {days.total()} of {len(members)} devices",
        )
        for text, days in shared.items()
    )

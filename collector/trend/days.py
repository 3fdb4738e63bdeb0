"""Days: the points of one series and metric, one a day, made of the runs of that day; and of a board type, made of its devices."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.runs.cases import Fingerprint
from edgemeter.collector.trend.covariate import regressor
from edgemeter.collector.trend.metrics import Metric, RunFigures, on_scale
from edgemeter.collector.trend.scan import run_variance

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
        return len(self.day) > 0 and float(np.isfinite(self.temperature_c).mean()) >= ENOUGH_TEMPERATURES


def days_of(metric: Metric, runs: Sequence[tuple[RunFigures, Fingerprint]]) -> Days:
    """Return the points of `runs` of one series; those of another kind than the newest, and those not valid, are left out."""
    ordered = sorted((pair for pair in runs if metric.value(pair[0]) is not None), key=lambda pair: pair[0].started_at_ns)
    counted = [pair for pair in ordered if not metric.only_valid or pair[0].verdict == "valid"]
    kind = metric.kind(counted[-1][0]) if counted else None
    kept = [pair for pair in counted if metric.kind(pair[0]) == kind]
    figures = [figure for figure, _ in kept]
    value = np.array([on_scale(metric, metric.value(figure) or 0.0) for figure in figures])
    u_square = np.array([(metric.u(figure) or 0.0) ** 2 for figure in figures])
    day = np.array([figure.day for figure in figures], dtype=np.int64)
    temperature_c = np.array([np.nan if figure.temperature_c is None else figure.temperature_c for figure in figures])
    days = _gather(metric, day, value, u_square, temperature_c, [below for _, below in kept])
    return replace(days, kind=kind, left_out=len(counted) - len(kept), not_valid=len(ordered) - len(counted))


def _gather(
    metric: Metric,
    day: NDArray[np.int64],
    value: Array,
    u_square: Array,
    temperature_c: Array,
    below: Sequence[Fingerprint],
) -> Days:
    days, first, runs = np.unique(day, return_index=True, return_counts=True)
    last = first + runs - 1
    floor = metric.floor
    if metric.scale == "share" and len(value):
        # A share that is nearly always 0 shows no scatter, but has that of a coin with its mean.
        mean = (float(value.sum()) / 100 + 1) / (len(value) + 2)
        floor = 100 * math.sqrt(mean * (1 - mean))
    within = (run_variance(value, day, u_square) or 0.0) if len(day) > 1 and metric.scale != "share" else 0.0
    x = np.add.reduceat(value, first) / runs if len(days) else value
    known = (np.add.reduceat(u_square, first) / runs + within) / runs if len(days) else value
    read_c = _means(temperature_c, first)
    heat = regressor(read_c, x) if metric.follows_temperature else read_c
    return Days(days, x, known, runs, heat, _changes([below[place] for place in last]), floor, read_c=read_c)


def _means(values: Array, first: NDArray[np.intp]) -> Array:
    if not len(first):
        return values
    there = np.isfinite(values)
    count = np.add.reduceat(there.astype(np.float64), first)
    total = np.add.reduceat(np.where(there, values, 0.0), first)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _changes(below: Sequence[Fingerprint]) -> tuple[tuple[str, ...], ...]:
    # Most runs have the fingerprint of the one before, often the same object.
    pairs = pairwise(below)
    return ((), *(() if earlier is later else tuple(earlier.changes_to(later)) for earlier, later in pairs)) if below else ()


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

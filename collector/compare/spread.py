"""The spread of one figure over the runs of a case: median, range, number of runs, and the interval of the median."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare import interval
from edgemeter.collector.compare.cases import not_measured
from edgemeter.collector.compare.interval import NS_PER_DAY, Interval, Point
from edgemeter.collector.compare.store import LeftOut

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of one figure over the runs that have it, its range, how many they are, and the 95 % interval where there are enough."""

    median: float
    low: float
    high: float
    n: int
    interval: Interval | None = None


def spread(runs: Sequence[RunRecord], figure: Callable[[RunRecord], float | None]) -> Spread | None:
    """Return the spread of the runs' `figure` where they have it, None when none has."""
    return of_points([point_of(run, value) for run in runs if (value := figure(run)) is not None])


def of_points(points: Sequence[Point]) -> Spread | None:
    """Return the spread of the points, None when there are none."""
    values = [point.value for point in points]
    return Spread(median(values), min(values), max(values), len(values), interval.of_points(points)) if values else None


def point_of(run: RunRecord, value: float) -> Point:
    """Return a figure of `run` with the device and the day that it belongs to."""
    return Point(value, run.device, run.started_at_ns // NS_PER_DAY)


def median_of(found: Spread | None) -> float | None:
    """Return the median, None where there is no spread."""
    return found.median if found else None


def of_one_kind(
    runs: Sequence[RunRecord],
    group: str,
    part: Callable[[RunRecord], Part | None],
    kind: Callable[[Part], Hashable],
) -> tuple[list[tuple[RunRecord, Part]], list[LeftOut]]:
    """Return the runs (oldest first) with their `part` where it was measured and is of the newest one's kind, and what is left out.

    `group` names the part in the record's provenance and in the reasons. Merging two kinds (another meter, another metric) would give a
    median of nothing; the newest is the one that the user means.
    """
    kept: list[tuple[RunRecord, Part]] = []
    left_out: list[LeftOut] = []
    newest: Hashable = None
    for run in reversed(runs):
        value = part(run)
        if value is None:
            continue
        reason = not_measured(run, group)
        if reason is None and kept and kind(value) != newest:
            reason = f"{group}: {kind(value)} is not what the newest run of the case has, {newest}"
        if reason is not None:
            left_out.append(LeftOut(run.id, reason))
            continue
        newest = kind(value)
        kept.append((run, value))
    return kept[::-1], left_out[::-1]

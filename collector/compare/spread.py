"""The spread of one figure over the runs of a case: median, range and number of runs."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.cases import not_measured
from edgemeter.collector.compare.store import LeftOut

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of one figure over the runs that have it, its range, and how many they are."""

    median: float
    low: float
    high: float
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the values that are there, None when there are none."""
    present = [value for value in values if value is not None]
    return Spread(median(present), min(present), max(present), len(present)) if present else None


def median_of(found: Spread | None) -> float | None:
    """Return the median, None where there is no spread."""
    return found.median if found else None


def of_one_kind(
    runs: Sequence[RunRecord],
    group: str,
    part: Callable[[RunRecord], Part | None],
    kind: Callable[[Part], Hashable],
) -> tuple[list[Part], list[LeftOut]]:
    """Return `part` of the runs (oldest first) where it was measured and is of the newest one's kind, and what is left out of the others.

    `group` names the part in the record's provenance and in the reasons. Merging two kinds (another meter, another metric) would give a
    median of nothing; the newest is the one that the user means.
    """
    kept: list[Part] = []
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
        kept.append(value)
    return kept[::-1], left_out[::-1]

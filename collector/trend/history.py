"""History: the figures of all runs by series, in memory (a document); of a ledger they are columns of its rows (`ledger_history`)."""

import contextlib
import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.run_figures import RunFigures, figures_of
from edgemeter.agent.contract.run_subject import subject_of
from edgemeter.agent.contract.series import Fingerprint, SeriesKey, series_of
from edgemeter.agent.verdict.siblings import judged_together
from edgemeter.collector.trend.run_columns import RunColumns, columns_of

Points = list[tuple[RunFigures, Fingerprint]]
# Several threads read at once: the one that found it on leaves it on.
_switching = threading.Lock()


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off for the block: of a million objects that are read it would scan all repeatedly, and free none."""
    with _switching:
        was_on = gc.isenabled()
        gc.disable()
    try:
        yield
    finally:
        with _switching:
            if was_on:
                gc.enable()


class History(Protocol):
    """Figures by series. Read from one thread."""

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day (counted from 1970), oldest first."""

    def columns(self, keys: Sequence[SeriesKey], names: Sequence[str], since_day: int = 0) -> RunColumns:
        """Return the runs of each series since a day, with the figures of these names."""

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series, 0 if there is none."""

    def newest_day(self) -> int:
        """Return the day of the newest run of all that are known, 0 if there is none."""

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""

    def runs(self, key: SeriesKey) -> int:
        """Return how many runs a series has."""

    def version(self, key: SeriesKey) -> object:
        """Return what changes with the runs of a series."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The history of `records` in memory."""

    records: Sequence[RunRecord]
    _series: dict[SeriesKey, Points] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for run in sorted(judged_together(self.records), key=lambda run: run.started_at_ns):
            self._series.setdefault(series_of(run), []).append((figures_of(run), subject_of(run).fingerprint))

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        return sorted(self._series, key=series_order)

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day, oldest first."""
        return [pair for pair in self._series.get(key, []) if pair[0].day >= since_day]

    def columns(self, keys: Sequence[SeriesKey], names: Sequence[str], since_day: int = 0) -> RunColumns:
        """Return the runs of each series since a day, with the figures of these names."""
        return columns_of([self.points(key, since_day) for key in keys], names)

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series."""
        return max((run.day for run, _ in self.points(key)), default=0)

    def newest_day(self) -> int:
        """Return the day of the newest run of all, 0 if there is none."""
        return max(map(self.last_day, self._series), default=0)

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        return max((run.received_ns for run, _ in self.points(key)), default=0)

    def runs(self, key: SeriesKey) -> int:
        """Return how many runs a series has."""
        return len(self._series.get(key, ()))

    def version(self, key: SeriesKey) -> object:
        """Return what changes with the runs of a series."""
        return [run.id for run, _ in self._series.get(key, ())]


def series_order(key: SeriesKey) -> tuple[str, ...]:
    """Return what series are sorted by."""
    return (key.fleet, key.board, key.model, key.device, *(str(value) for value in msgspec.structs.astuple(key)))

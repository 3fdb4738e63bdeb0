"""History: the figures of all runs by series, in memory (a document); of a ledger they are in its index (`collector/index/history.py`).

Figures of many series are arrays: a million runs as objects take a hundred times longer to group by day.
"""

import contextlib
import gc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.runs.cases import Fingerprint, SeriesKey, fingerprint_of, series_of
from edgemeter.collector.runs.run_figures import RUN_COLUMNS, RunFigures, figures_of
from edgemeter.collector.trend.metrics import FOLLOWED, TrendMetric, followed_value

TEMPERATURE = "temperature_before_c"


class CommonFacts(NamedTuple):
    """The facts that many runs share: their fingerprint, and the kinds of their figures."""

    below: Fingerprint
    energy_kind: str | None
    accuracy_kind: str | None


@dataclass(frozen=True, slots=True)
class RunColumns:
    """Runs of series; arrays [runs], those of one series together, oldest first: of the series n those from `edges[n]` to `edges[n + 1]`.

    `figures` are by the columns of the index, NaN where a run has none; `common` are places in `facts`.
    """

    edges: NDArray[np.intp]
    day: NDArray[np.int64]
    is_valid: NDArray[np.bool_]
    common: NDArray[np.intp]
    facts: Sequence[CommonFacts]
    figures: Mapping[str, NDArray[np.float64]]

    def values(self, metric: TrendMetric) -> NDArray[np.float64]:
        """Return the metric's figure of each run, NaN where it has none."""
        takes = np.array([metric.takes(metric.kind(facts)) for facts in self.facts], dtype=np.bool_)
        return np.where(takes[self.common], self.figures[metric.figure.key], np.nan)

    def kinds(self, metric: TrendMetric) -> tuple[NDArray[np.intp], Sequence[str | None]]:
        """Return of what kind each run's figure is, as a place among the kinds that there are, and these."""
        numbers: dict[str | None, int] = {}
        number_of_facts = [numbers.setdefault(metric.kind(facts), len(numbers)) for facts in self.facts]
        return np.array(number_of_facts, dtype=np.intp)[self.common], list(numbers)


def scaled(metric: TrendMetric, value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return figures on the metric's scale of differences."""
    # Not numpy's logarithm, whose last digit depends on the processor.
    return 100 * (np.array(list(map(math.log, value.tolist())), dtype=np.float64) if metric.rule.scale == "log" else value)


def names_of(metrics: Iterable[TrendMetric]) -> list[str]:
    """Return the columns of the index that the metrics read."""
    return list(dict.fromkeys(name for metric in metrics for name in (TEMPERATURE, metric.figure.key, metric.u_column) if name))


def columns_of(series: Sequence[Sequence[tuple[RunFigures, Fingerprint]]], names: Iterable[str]) -> RunColumns:
    """Return the runs of each series, in any order, with the figures of these names."""
    runs = [pair for runs_of_series in series for pair in sorted(runs_of_series, key=lambda pair: pair[0].at_ns)]
    facts: dict[CommonFacts, int] = {}
    common = [facts.setdefault(CommonFacts(below, run.energy_kind, run.accuracy_kind), len(facts)) for run, below in runs]
    return RunColumns(
        edges=np.cumsum([0, *map(len, series)], dtype=np.intp),
        day=np.array([run.day for run, _ in runs], dtype=np.int64),
        is_valid=np.array([run.verdict == "valid" for run, _ in runs], dtype=np.bool_),
        common=np.array(common, dtype=np.intp),
        facts=list(facts),
        figures={name: np.array([_column(run, name) for run, _ in runs], dtype=np.float64) for name in names},
    )


def _column(run: RunFigures, name: str) -> float | None:
    if name in FOLLOWED:
        return followed_value(FOLLOWED[name], run)
    value: float | None = getattr(run, name) if name in RUN_COLUMNS else run.value(name)
    return value


Points = list[tuple[RunFigures, Fingerprint]]


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off for the block: of a million objects that are read it would scan all repeatedly, and free none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
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

    def kept(self, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[SeriesKey, str, bytes]]:
        """Yield the results kept under `name` that are still true: the series or board type, what else they hang on, and the result."""

    def keep(self, name: str, results: Iterable[tuple[SeriesKey, str, bytes]]) -> None:
        """Keep results of series or board types as they are now; they may be dropped at any time."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The history of `runs` in memory."""

    runs: Sequence[RunRecord]
    _series: dict[SeriesKey, Points] = field(default_factory=dict)
    _found: dict[tuple[str, SeriesKey], tuple[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for run in sorted(self.runs, key=lambda run: run.started_at_ns):
            self._series.setdefault(series_of(run), []).append((figures_of(run), fingerprint_of(run)))

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

    def kept(self, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[SeriesKey, str, bytes]]:
        """Yield the results kept under `name`: a document does not change."""
        for key in keys:
            if (name, key) in self._found:
                yield key, *self._found[name, key]

    def keep(self, name: str, results: Iterable[tuple[SeriesKey, str, bytes]]) -> None:
        """Keep results of series or board types."""
        self._found.update({(name, key): (beside_it, body) for key, beside_it, body in results})


def series_order(key: SeriesKey) -> tuple[str, ...]:
    """Return what series are sorted by."""
    return (key.fleet, key.board, key.model, key.device, *(str(value) for value in msgspec.structs.astuple(key)))

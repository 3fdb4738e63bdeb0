"""One run in figures, as the index keeps it, so that no record is read again to compare it or to follow it over time."""

from collections.abc import Sequence
from typing import NamedTuple

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import FIGURES, Figure, kind_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_time import off_by_ns, placed
from edgemeter.collector.runs.cases import not_measured, unusable

INDEXED = tuple(entry for entry in FIGURES if entry.is_indexed)


def u_column(entry: Figure) -> str:
    """Return the name of the index's column of a figure's relative standard uncertainty (k = 1)."""
    return f"{entry.key}_u"


def bound_columns(entry: Figure) -> tuple[str, str]:
    """Return the names of the index's columns of a figure's 95% bounds."""
    return f"{entry.key}_low", f"{entry.key}_high"


VALUE_COLUMNS = tuple(
    name for entry in INDEXED for name in (entry.key, *((u_column(entry), *bound_columns(entry)) if entry.has_bounds else ()))
)
# What `figures_of` does once for each group, and for each figure: of one without bounds their readers are None.
_GROUPS = {entry.group: entry.provenance_group for entry in INDEXED}
_READ = tuple((entry.group, entry.value, entry.bounds if entry.has_bounds else None, entry.coverage) for entry in INDEXED)
_PLACES = {name: index for index, name in enumerate(VALUE_COLUMNS)}


class RunFigures(NamedTuple):
    """One run in figures; a figure is None where the run has none, or has one that was not measured (estimated, published).

    `started_at_ns` is when the run says that it began, where that can be true; `at_ns` the same by a synchronised clock, else its receipt.
    `is_usable` is whether it may be compared at all. `*_kind` and `energy_by` are what was measured, and by what:
    figures of two kinds are never merged. `has_own_energy` is False of an energy that was replayed beside measured queries.
    `temperature_before_c` is the regressor of the trend. `values` are by `VALUE_COLUMNS`. `fingerprint` is its number in the index.
    """

    id: str
    started_at_ns: int
    at_ns: int
    received_ns: int
    verdict: str
    is_usable: bool
    temperature_before_c: float | None
    has_own_energy: bool | None
    fingerprint: int
    energy_kind: str | None
    energy_by: str | None
    energy_provenance: str | None
    accuracy_kind: str | None
    job: str | None
    values: tuple[float | None, ...]

    @property
    def day(self) -> int:
        """The day that it belongs to, counted from 1970."""
        return self.at_ns // NS_PER_DAY

    def value(self, key: str) -> float | None:
        """Return the value in a column of the index: of a figure, its uncertainty or a bound."""
        return self.values[_PLACES[key]]

    def bounds(self, entry: Figure) -> tuple[float | None, float | None]:
        """Return the 95% bounds of a figure, None where it has none."""
        if not entry.has_bounds:
            return None, None
        low, high = bound_columns(entry)
        return self.value(low), self.value(high)

    def u(self, entry: Figure) -> float | None:
        """Return the expanded uncertainty (95%) of a figure that has one."""
        value, (_, high) = self.value(entry.key), self.bounds(entry)
        return None if value is None or high is None else high - value

    def with_value(self, key: str, value: float | None) -> "RunFigures":
        """Return the same with another value in a column."""
        index = _PLACES[key]
        return self._replace(values=(*self.values[:index], value, *self.values[index + 1 :]))

    def kind(self, entry: Figure) -> tuple[str | None, str | None] | None:
        """Return what was measured and by what, of a figure that has kinds."""
        if entry.group == "energy":
            return None if self.energy_kind is None else (self.energy_kind, self.energy_by)
        return None if entry.group != "accuracy" or self.accuracy_kind is None else (self.accuracy_kind, None)


# The fields of a run that stand in columns of their own.
RUN_COLUMNS = RunFigures._fields[:-1]


def run_of_row(row: Sequence[object]) -> RunFigures:
    """Return the run of a row of `RUN_COLUMNS` and `VALUE_COLUMNS`."""
    edge = len(RUN_COLUMNS)
    return RunFigures._make((*row[:edge], tuple(row[edge:])))


def figures_of(run: RunRecord, received_ns: int | None = None) -> RunFigures:
    """Return the figures of `run`; without a synchronised, plausible clock it is placed at the time of receipt, if known."""
    placed_run = run if received_ns is None else placed(run, received_ns)
    is_wrong = received_ns is not None and (run.clock_synchronised is False or off_by_ns(run.started_at_ns, received_ns) is not None)
    at_ns = received_ns if received_ns is not None and is_wrong else run.started_at_ns
    measured = {group: group == "conditions" or not_measured(run, name) is None for group, name in _GROUPS.items()}
    values: list[float | None] = []
    for group, value_of, bounds_of, coverage_of in _READ:
        value = value_of(run) if measured[group] else None
        values.append(None if value is None else float(value))
        if bounds_of is not None:
            ends = bounds_of(run) if value is not None else None
            u_ratio = float((ends[1] - ends[0]) / (2 * coverage_of(run)) / value) if value and ends is not None else None
            values += u_ratio, *(ends or (None, None))
    energy = kind_of(run, "energy") if measured["energy"] else None
    accuracy = kind_of(run, "accuracy") if measured["accuracy"] else None
    provenance = energy_provenance(run) if energy else None
    return RunFigures(
        id=run.id,
        started_at_ns=placed_run.started_at_ns,
        at_ns=at_ns,
        received_ns=at_ns if received_ns is None else received_ns,
        verdict=run.verdict.state,
        is_usable=unusable(run) is None,
        temperature_before_c=_temperature_before_c(run),
        has_own_energy=provenance == run.provenance.get("latency") if energy else None,
        fingerprint=0,
        energy_kind=energy.text if energy else None,
        energy_by=energy.by if energy else None,
        energy_provenance=provenance,
        accuracy_kind=accuracy.text if accuracy else None,
        job=run.job,
        values=tuple(values),
    )


def _temperature_before_c(run: RunRecord) -> float | None:
    """Return the highest temperature before the run, which excludes the load's own heat; without one, the highest of any reading."""
    for when in ("before", "during", "after"):
        readings_c = [
            max(condition.temperatures_c.values()) for condition in run.conditions if condition.when == when and condition.temperatures_c
        ]
        if readings_c:
            return max(readings_c)
    return None


def of_newest_kind(runs: Sequence[RunFigures], entry: Figure) -> list[RunFigures]:
    """Return the runs (oldest first) whose figure is of one kind, the newest's; all of a figure that has no kinds."""
    if entry.group not in ("energy", "accuracy"):
        return list(runs)
    newest = next((kind for run in reversed(runs) if (kind := run.kind(entry)) is not None), None)
    return [run for run in runs if run.kind(entry) == newest] if newest is not None else []

"""One run in figures, as the index keeps it, so that no record is read again to compare it or to follow it over time."""

from collections.abc import Sequence
from typing import NamedTuple

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.energy_provenance import energy_provenance, not_measured
from edgemeter.agent.contract.figures import FIGURES, Figure, Group, field_name, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_time import off_by_ns, placed

INDEXED = tuple(entry for entry in FIGURES if entry.is_indexed)


VALUE_COLUMNS = tuple(name for entry in INDEXED for name in (entry.name, *entry.bound_names))
# What `figures_of` does once for each group, and for each figure.
_GROUPS = frozenset(name for entry in INDEXED for name in entry.provenance_groups)
_READ = tuple(
    (entry.provenance_groups, entry.value, [reader(path) for path in (entry.low, entry.high, entry.u) if path]) for entry in INDEXED
)
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

    def value(self, name: str) -> float | None:
        """Return the value in a column of the index: of a figure, its uncertainty or a bound."""
        return self.values[_PLACES[name]]

    def bounds(self, entry: Figure) -> tuple[float | None, float | None]:
        """Return the 95% bounds of a figure, None where it has none."""
        if entry.low:
            return self.value(field_name(entry.low)), self.value(field_name(entry.high))
        value, u = self.value(entry.name), self.u(entry)
        return (None, None) if value is None or u is None else (value - u, value + u)

    def u(self, entry: Figure) -> float | None:
        """Return the expanded uncertainty (95%) of a figure that has one."""
        return self.value(field_name(entry.u)) if entry.u else None

    def with_value(self, name: str, value: float | None) -> "RunFigures":
        """Return the same with another value in a column."""
        index = _PLACES[name]
        return self._replace(values=(*self.values[:index], value, *self.values[index + 1 :]))

    def kind(self, entry: Figure) -> tuple[str | None, str | None] | None:
        """Return what was measured and by what, of a figure that has kinds."""
        if entry.group == "energy":
            return None if self.energy_kind is None else (self.energy_kind, self.energy_by)
        return None if entry.group != "accuracy" or self.accuracy_kind is None else (self.accuracy_kind, None)


class FigureKind(NamedTuple):
    """The kind that two values must share to be compared: what was measured, and by what; `text` is the former in words."""

    text: str
    by: str = ""

    def __str__(self) -> str:
        return f"{self.text} by {self.by}" if self.by else self.text


LOWER_IS_BETTER = " (lower is better)"  # Stands in the kind of an accuracy whose lower value is the better one.


def kind_of(run: RunRecord, group: Group) -> FigureKind | None:
    """Return of what kind the figures of a group are, None where a run has none of the group, or the group has no kinds.

    Of an energy it is the scope, and the sensor with its provenance; of an accuracy metric, data and rule of comparing.
    """
    if group == "energy" and run.energy is not None:
        excludes = f" without {', '.join(run.energy.excludes)}" if run.energy.excludes else ""
        provenance = energy_provenance(run)
        return FigureKind(f"{run.energy.scope}{excludes}", run.energy.sensor + ("" if provenance == "measured" else f", {provenance}"))
    if group == "accuracy" and run.accuracy is not None:
        better = LOWER_IS_BETTER if run.accuracy.better == "lower" else ""
        rule = f" by {run.accuracy.normalisation}" if run.accuracy.normalisation else ""
        return FigureKind(f"{run.accuracy.metric}{better} over {run.accuracy.images} images {run.accuracy.dataset_sha256[:12]}{rule}")
    return None


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
    unmeasured = {group for group in _GROUPS if not_measured(run, group)}
    values: list[float | None] = []
    for groups, value_of, bound_readers in _READ:
        value = value_of(run) if groups.isdisjoint(unmeasured) else None
        values.append(None if value is None else float(value))
        values += [None if value is None else read(run) for read in bound_readers]
    energy = kind_of(run, "energy") if "energy" not in unmeasured else None
    accuracy = kind_of(run, "accuracy") if "accuracy" not in unmeasured else None
    provenance = energy_provenance(run) if energy else None
    return RunFigures(
        id=run.id,
        started_at_ns=placed_run.started_at_ns,
        at_ns=at_ns,
        received_ns=at_ns if received_ns is None else received_ns,
        verdict=run.verdict.state,
        is_usable=is_usable(run),
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


def is_usable(run: RunRecord) -> bool:
    """Return whether `run` may be compared at all: it is not invalid, and its latency and throughput were measured or replayed."""
    return run.verdict.state != "invalid" and not (not_measured(run, "latency") or not_measured(run, "throughput"))


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

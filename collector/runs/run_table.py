"""Runs as a table for other programs, as CSV.

The columns follow the record's schema; figures and tags have the same names in InfluxDB. CSV
follows RFC 4180, header first: absent is empty, floats keep every digit, a list is JSON.
"""

import csv
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import msgspec

from edgemeter.agent.base.documents import csv_cell
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import FIGURES, field_name, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.influx.points import CASE_TAGS, ENERGY_PROVENANCE, TAGS, case_tags

ColumnKind = Literal["float", "integer", "boolean", "text", "json"]

# The default columns besides tags and figures: what distinguishes runs, and what a figure means.
_FACTS = (
    "id", "session", "seq", "started_at_ns", "stamped_by", "batch", "runtime_threads",
    "latency_count", "verdict_state", "generation_prompt_tokens", "generation_output_tokens",
    "case", "mode", "repeat", "model_sha256", "model_task", "runtime_package", "runtime_version",
    "dataset_name", "dataset_sha256", "energy_sensor", "energy_scope", "energy_net_state",
    "accuracy_metric", "generation_counts", "steady_rate_per_s", "steady_deadline_ms",
    "steady_frames", "steady_dropped", "steady_late", "steady_effective", "environment_agent",
    "environment_firmware", "environment_kernel", "environment_power_mode", "verdict_violations",
    "provenance",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One column: its name, its type, and how it is read from a record (None: absent)."""

    name: str
    kind: ColumnKind
    value: Callable[[RunRecord], Any]


def every_column() -> tuple[RunColumn, ...]:
    """Return all columns: tags first, then by group."""
    tags = [RunColumn(name, "text", reader(path)) for name, path in TAGS.items()]
    worked_out = [
        RunColumn(entry.name, "boolean" if entry.is_truth else "float", entry.value)
        for entry in FIGURES
        if entry.reads
    ]
    derived = [
        RunColumn(name, "text", _mapped(case_tags, operator.itemgetter(index)))
        for index, name in enumerate(CASE_TAGS)
    ]
    provenance = RunColumn(ENERGY_PROVENANCE, "text", energy_provenance)
    return (
        *tags,
        *derived,
        *(
            column
            for column in _columns_of(msgspec.inspect.type_info(RunRecord))
            if column.name not in TAGS
        ),
        provenance,
        *worked_out,
    )


def chosen_columns(names: Sequence[str] | None = None) -> tuple[RunColumn, ...]:
    """Return the columns called `names`, in that order; None are the default ones.

    Raises ConfigError if there is no such column.
    """
    columns = {column.name: column for column in every_column()}
    if names is None:
        figures = {name for entry in FIGURES for name in (entry.name, *entry.bound_names)}
        usual = {*TAGS, *CASE_TAGS, ENERGY_PROVENANCE, *figures, *_FACTS}
        return tuple(column for name, column in columns.items() if name in usual)
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise ConfigError(
            f"{unknown[0]!r} is not a column: {near(unknown[0], columns)}; "
            "`--columns all` writes all"
        )
    return tuple(columns[name] for name in names)


_KIND_OF_TYPE: dict[type, ColumnKind] = {
    msgspec.inspect.FloatType: "float",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.StrType: "text",
    msgspec.inspect.LiteralType: "text",
}


def _columns_of(kind: msgspec.inspect.Type, prefix: str = "") -> Iterator[RunColumn]:
    """Yield the columns of a struct of the record, without the raw samples.

    Those of nested structs come last.
    """
    structs = []
    for member in kind.fields if isinstance(kind, msgspec.inspect.StructType) else ():
        path, inner = f"{prefix}{member.name}", member.type
        if isinstance(inner, msgspec.inspect.UnionType):
            options = [
                option for option in inner.types if not isinstance(option, msgspec.inspect.NoneType)
            ]
            inner = options[0] if len(options) == 1 else inner
        if isinstance(inner, msgspec.inspect.StructType):
            structs.append((inner, f"{path}."))
        elif path != "samples":
            column_kind = _KIND_OF_TYPE.get(type(inner), "json")
            value = reader(path)
            if column_kind == "json":
                value = _mapped(value, lambda part: msgspec.json.encode(part).decode())
            yield RunColumn(field_name(path), column_kind, value)
    for inner, below in structs:
        yield from _columns_of(inner, below)


def _mapped(
    get: Callable[[RunRecord], Any], convert: Callable[[Any], Any]
) -> Callable[[RunRecord], Any]:
    return lambda run: None if (value := get(run)) is None else convert(value)


def write_csv(runs: Iterable[RunRecord], columns: Sequence[RunColumn], file: TextIO) -> int:
    """Write the runs to a text file that was opened with `newline=""`; return their number."""
    writer = csv.writer(file)
    writer.writerow([column.name for column in columns])
    written = 0
    for run in runs:
        writer.writerow([csv_cell(column.value(run)) for column in columns])
        written += 1
    return written

"""The columns of a run outside of Edgemeter: names and types by the record's schema, the same as the fields and tags in InfluxDB.

Lists, and values by name, are JSON texts. `started_at` is the start in UTC as a time; the exact nanoseconds are `started_at_ns`.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.summary import hottest_c
from edgemeter.collector.keep import point_schema
from edgemeter.collector.keep.point_schema import FIGURES, Group, Kind

# Beside tags and figures: what tells runs apart, and what a figure means.
_BESIDE = (
    "case",
    "mode",
    "repeat",
    "model_sha256",
    "model_task",
    "runtime_package",
    "runtime_version",
    "dataset_name",
    "dataset_sha256",
    "latency_p50_low_ms",
    "latency_p50_high_ms",
    "latency_mean_ms",
    "energy_sensor",
    "energy_scope",
    "energy_net_state",
    "accuracy_metric",
    "accuracy_low",
    "accuracy_high",
    "environment_agent",
    "environment_firmware",
    "environment_kernel",
    "environment_power_mode",
    "verdict_reasons",
    "provenance",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type, and how it is read from a record (None: absent)."""

    name: str
    kind: Kind
    value: Callable[[RunRecord], Any]


def every() -> tuple[Column, ...]:
    """Return all columns: tags first, then by group."""
    tags = [Column(name, "text", _at(path)) for name, path in point_schema.TAGS.items()]
    temperature = Column("temperature_max_c", "float", lambda run: hottest_c([run]))
    return (*tags, *_of_group(point_schema.RECORD, ()), temperature)


def chosen(names: Sequence[str] | None = None) -> tuple[Column, ...]:
    """Return the columns called `names`, in that order; None are the usual ones.

    Raises:
        ConfigError: there is no such column.
    """
    known = {column.name: column for column in every()}
    if names is None:
        usual = {*point_schema.TAGS, *FIGURES, *_BESIDE, "temperature_max_c"}
        return tuple(column for name, column in known.items() if name in usual)
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"{unknown[0]!r} is no column: `edgemeter export --list` names them"
        raise ConfigError(message)
    return tuple(known[name] for name in names)


def _of_group(group: Group, path: tuple[str, ...]) -> Iterator[Column]:
    for one in group.fields:
        get = _at(".".join((*path, one.attribute)))
        yield Column(one.name, one.kind, _as_json(get) if one.kind == "json" else get)
    for inner in group.groups:
        yield from _of_group(inner, (*path, inner.attribute))


def _at(path: str) -> Callable[[RunRecord], Any]:
    first, *rest = path.split(".")
    if not rest:
        return operator.attrgetter(path)
    outer, inner = operator.attrgetter(first), _at(".".join(rest))
    return lambda run: None if (group := outer(run)) is None else inner(group)


def _as_json(get: Callable[[RunRecord], Any]) -> Callable[[RunRecord], str | None]:
    return lambda run: None if (value := get(run)) is None else msgspec.json.encode(value).decode()

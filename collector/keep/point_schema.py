"""Which fields a record's point has, by the record's schema: one name and one type each, for whoever writes and whoever reads them.

A field is named as in the record with `_` for `.` (`latency_p50_ms`). Floats, integers, booleans and texts are fields of that type; lists,
texts by name and numbers by name are one field of JSON. Numbers by name are a field each as well (`accuracy_ap50`, from
`accuracy.detail`): these are for whoever draws them, the JSON is what is read back.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.records import RunRecord

Kind = Literal["float", "integer", "boolean", "text", "json"]

MEASUREMENT = "run"
# Tag by what it holds in the record. Tags alone: a field of the same name would hide them.
TAGS = {
    "backend": "runtime.backend",
    "board": "environment.board",
    "device": "device",
    "fleet": "fleet",
    "model": "model.name",
    "precision": "precision",
    "role": "role",
    "runtime": "runtime.name",
    "scenario": "scenario",
    "suite": "suite",
}
AS_TAGS = frozenset({"device", "fleet", "precision", "role", "scenario", "suite"})
# Free texts among them, which a tag may not hold as they are; then the exact text is a field.
EXACT = {name: f"exact_{name}" for name in ("precision", "scenario", "suite")}
FIGURES = frozenset(
    {
        "id",
        "session",
        "seq",
        "started_at_ns",
        "stamped_by",
        "batch",
        "runtime_threads",
        "latency_count",
        "latency_p50_ms",
        "latency_p90_ms",
        "latency_p99_ms",
        "throughput_per_s",
        "cold_start_load_ms",
        "cold_start_first_ms",
        "memory_peak_mb",
        "energy_gross_mj",
        "energy_gross_u_mj",
        "energy_net_mj",
        "energy_net_u_mj",
        "energy_mean_power_w",
        "accuracy_value",
        "verdict_state",
    }
)


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a group. `by_name` is the prefix of the fields, of type `by_name_kind`, that numbers by name have beside the JSON."""

    attribute: str
    name: str
    kind: Kind
    is_nullable: bool
    is_list: bool = False
    by_name: str | None = None
    by_name_kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A struct of the record: its values, its tags, and the groups in it."""

    attribute: str
    is_nullable: bool
    fields: tuple[Field, ...]
    tags: tuple[str, ...]
    groups: tuple["Group", ...]


_KINDS: dict[type, Kind] = {
    msgspec.inspect.FloatType: "float",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.StrType: "text",
    msgspec.inspect.LiteralType: "text",
}


def every_field(group: Group) -> Iterator[Field]:
    """Yield the fields of `group` and of all groups in it."""
    yield from group.fields
    for inner in group.groups:
        yield from every_field(inner)


def figures_of(group: Group) -> Group:
    """Return `group` with the fields of `FIGURES` alone."""
    fields = tuple(one for one in group.fields if one.name in FIGURES)
    groups = tuple(inner for one in group.groups if (inner := figures_of(one)).fields or inner.groups)
    return dataclasses.replace(group, fields=fields, groups=groups)


def _group(kind: msgspec.inspect.Type, attribute: str, prefix: str, *, is_nullable: bool) -> Group:
    fields: list[Field] = []
    groups: list[Group] = []
    tags: list[str] = []
    for one in kind.fields if isinstance(kind, msgspec.inspect.StructType) else ():
        name = f"{prefix}{one.name}"
        inner = _without_none(one.type)
        if name in AS_TAGS:
            tags.append(name)
        elif isinstance(inner, msgspec.inspect.StructType):
            groups.append(_group(inner, one.name, f"{name}_", is_nullable=inner is not one.type))
        elif name != "samples":
            fields.append(_field(inner, one.name, name, is_nullable=inner is not one.type))
    return Group(attribute, is_nullable, tuple(fields), tuple(tags), tuple(groups))


def _field(kind: msgspec.inspect.Type, attribute: str, name: str, *, is_nullable: bool) -> Field:
    of_values = _KINDS.get(type(_without_none(kind.value_type))) if isinstance(kind, msgspec.inspect.DictType) else None
    by_name = name.removesuffix("_detail") if of_values in {"float", "integer"} else None
    return Field(
        attribute,
        name,
        _KINDS.get(type(kind), "json"),
        is_nullable,
        is_list=not isinstance(kind, msgspec.inspect.DictType),
        by_name=by_name,
        by_name_kind=of_values if by_name else None,
    )


def _without_none(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if isinstance(kind, msgspec.inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)]
        return others[0] if len(others) == 1 else kind
    return kind


RECORD = _group(msgspec.inspect.type_info(RunRecord), "", "", is_nullable=False)
NAMES = frozenset(field.name for field in every_field(RECORD)) | frozenset(EXACT.values())

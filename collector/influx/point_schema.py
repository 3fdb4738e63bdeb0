"""The fields of a record's point, from the record's schema: one name and one type each, for writing."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Literal

import msgspec

from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance, sensor_provenance
from edgemeter.agent.contract.figures import FIGURES as TABLE_OF_FIGURES
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Tensor
from edgemeter.agent.contract.record_figures import PowerTrace

FieldKind = Literal["float", "integer", "boolean", "text", "json"]

MEASUREMENT = "run"
HISTOGRAM = "latency_histogram"

# Tag by what it holds in the record. Tags alone: a field of the same name would hide them.
TAGS = {
    "backend": "runtime.backend",
    "board": "environment.board",
    "dataset": "dataset.name",
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

# The part of the record that no point has: samples are no figures, and most of the bytes.
NOT_WRITTEN = "samples"

# The numbers by name that have fields of their own, by the list they are in: whatever else a record holds stays in the list's text, because
# every name makes a field that InfluxDB keeps for good.
_PERCENTILES = frozenset({"p50", "p90", "p99"})
BY_NAME = {
    "accuracy_detail": frozenset({
        "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar_1", "ar_10", "ar_100", "ar_small", "ar_medium", "ar_large",
        "ar", "ar50", "ar75", "pixel_accuracy", "class_accuracy",
        "top5", "top5_low", "top5_high",
    }),
    "latency_early_stopping_ms": _PERCENTILES,
}  # fmt: skip

# Free texts among them, which a tag may not hold as they are; then the exact text is a field.
EXACT = {name: f"exact_{name}" for name in ("precision", "scenario", "suite")}

# Where the energy comes from, worked out from the record: the one field that the record does not have under this name.
ENERGY_PROVENANCE = "energy_provenance"
# Figures that are worked out from the record; facts about the machine are in the text of its conditions.
WORKED_OUT = tuple(entry for entry in TABLE_OF_FIGURES if entry.reads and entry.group != "conditions")
_READ = [entry for entry in TABLE_OF_FIGURES if not entry.reads]
# What `--influx-fields figures` writes: which run it is, what its figures mean, and the figures with their bounds and uncertainties.
FIGURES = {name for entry in _READ for name in (entry.name, *entry.bound_names)} | {entry.name for entry in WORKED_OUT} | {
    "id", "session", "seq", "started_at_ns", "stamped_by", "batch", "runtime_threads", "latency_count", "energy_scope", "energy_sensor",
    "verdict_state", "generation_prompt_tokens", "generation_output_tokens",
}  # fmt: skip

# The tags beside `TAGS`, so that no two cases on a device, and no two kinds of energies, are ever one series; and the fields of a case
# in `variant`: what no tag of its own holds, but for what may change within a series of the trend.
VARIANT = (
    "backend", "threads", "batch", "input_values", "target_per_s", "concurrency", "power_mode", "provenance",
    "settings", "served_model", "operating_point", "deadline", "together",
)  # fmt: skip

# Characters; a tag holds 200.
LONGEST_PART = 60

# What is read of a record for the tags beside `TAGS`.
_OF_ENERGY = ("energy.scope", "energy.sensor")
PATHS = sorted({*(path for field in FIELDS for path in field.paths), *_OF_ENERGY})


def energy_source(record: RunRecord) -> str | None:
    """Return the scope, sensor and provenance of the energy: `board-input, ina219, measured`; None without an energy."""
    energy = record.energy
    return None if energy is None else _source(energy.scope, energy.sensor, energy_provenance(record))


def trace_source(record: RunRecord, trace: PowerTrace) -> str:
    """Return the same of a sensor's readings."""
    return _source(trace.scope, trace.sensor, sensor_provenance(trace.sensor, record.provenance.get("latency")))


def _source(scope: str, sensor: str, provenance: str | None) -> str:
    return f"{scope}, {sensor}, {provenance or 'not stated to be measured'}"


# `case` is a field, the name in the suite.
CASE_TAGS = ("case_hash", "energy_source", "variant")


def case_tags(record: RunRecord) -> tuple[str, str | None, str]:
    """Return the values of `CASE_TAGS`: the hash of the case, the source of the energy, and the case in words.

    The words are what distinguishes it from others of its model, runtime, precision, scenario and data: `cuda, 4 threads, batch 8`.
    """
    hashed, words = _case(key_of(record), record.inputs)
    # Of latency and energy other tags say it: a panel averages the fields of a series.
    unmeasured = [
        f"{name} {origin}" for name, origin in record.provenance.items() if origin == "published" and name not in {"latency", "energy"}
    ]
    return hashed, energy_source(record), ", ".join(filter(None, (words, *unmeasured)))


def case_hash(key: CaseKey) -> str:
    """Return a hash of the case wherever it runs, without device and fleet: 12 hexadecimal digits, the same on every machine.

    An unknown or empty value does not enter it: a field that is added changes no hash of a run without it.
    """
    values = {
        field.name: value
        for field in FIELDS
        if field.name not in ("device", "fleet") and (value := getattr(key, field.name)) not in (None, "")
    }
    return sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:12]


@lru_cache(65_536)
def _case(key: CaseKey, inputs: tuple[Tensor, ...]) -> tuple[str, str]:
    parts: list[str] = []
    usual = {"provenance": "measured", "settings": "", "operating_point": "", "together": ""}
    for name in VARIANT:
        if name == "input_values":
            parts += ["x".join(map(str, tensor.shape)) for tensor in inputs]
        elif getattr(key, name) not in (None, usual.get(name)):
            parts.append(_short(FIELD[name].text(key)))
    return case_hash(key), ", ".join(parts)


def _short(text: str) -> str:
    """Return a text that leaves room in a tag for the others: a long one ends with its hash."""
    return text if len(text) <= LONGEST_PART else f"{text[: LONGEST_PART // 2]} {sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class PointField:
    """One value of a group. `by_name` are the fields, of type `by_name_kind`, that numbers have beside the JSON, by their name in it."""

    attribute: str
    name: str
    kind: FieldKind
    is_nullable: bool
    is_list: bool = False
    by_name: Mapping[str, str] = field(default_factory=dict)
    by_name_kind: FieldKind | None = None


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """A struct of the record: its values, its tags, and the groups in it."""

    attribute: str
    is_nullable: bool
    fields: tuple[PointField, ...]
    tags: tuple[str, ...]
    groups: tuple["FieldGroup", ...]


_KIND_OF_TYPE: dict[type, FieldKind] = {
    msgspec.inspect.FloatType: "float",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.StrType: "text",
    msgspec.inspect.LiteralType: "text",
}


def every_field(group: FieldGroup) -> Iterator[PointField]:
    """Yield the fields of `group` and of all groups in it."""
    yield from group.fields
    for inner in group.groups:
        yield from every_field(inner)


def figures_of(group: FieldGroup) -> FieldGroup:
    """Return `group` with the fields of `FIGURES` alone."""
    fields = tuple(field for field in group.fields if field.name in FIGURES)
    groups = tuple(inner for group_below in group.groups if (inner := figures_of(group_below)).fields or inner.groups)
    return dataclasses.replace(group, fields=fields, groups=groups)


def _group(kind: msgspec.inspect.Type, attribute: str, prefix: str, *, is_nullable: bool) -> FieldGroup:
    fields: list[PointField] = []
    groups: list[FieldGroup] = []
    tags: list[str] = []
    for member in kind.fields if isinstance(kind, msgspec.inspect.StructType) else ():
        name = f"{prefix}{member.name}"
        inner = _without_none(member.type)
        if name == NOT_WRITTEN:
            continue
        if name in AS_TAGS:
            tags.append(name)
        elif isinstance(inner, msgspec.inspect.StructType):
            groups.append(_group(inner, member.name, f"{name}_", is_nullable=inner is not member.type))
        else:
            fields.append(_field(inner, member.name, name, is_nullable=inner is not member.type))
    return FieldGroup(attribute, is_nullable, tuple(fields), tuple(tags), tuple(groups))


def _field(kind: msgspec.inspect.Type, attribute: str, name: str, *, is_nullable: bool) -> PointField:
    of_values = _KIND_OF_TYPE.get(type(_without_none(kind.value_type))) if isinstance(kind, msgspec.inspect.DictType) else None
    prefix = name.removesuffix("_detail")
    return PointField(
        attribute,
        name,
        _KIND_OF_TYPE.get(type(kind), "json"),
        is_nullable,
        is_list=not isinstance(kind, msgspec.inspect.DictType),
        by_name={key: f"{prefix}_{key}" for key in sorted(BY_NAME.get(name, ()))},
        by_name_kind=of_values if name in BY_NAME else None,
    )


def _without_none(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if isinstance(kind, msgspec.inspect.UnionType):
        kinds = [kind_of_union for kind_of_union in kind.types if not isinstance(kind_of_union, msgspec.inspect.NoneType)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind


RECORD = _group(msgspec.inspect.type_info(RunRecord), "", "", is_nullable=False)

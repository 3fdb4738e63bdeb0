"""A record as one point of InfluxDB's line protocol: measurement `run`, few tags, every field, types pinned by the record's schema.

Tags are what one groups by and what has few values (device, fleet, board, model, precision, runtime, backend, suite, scenario,
role). A field is named as in the record with `_` for `.` (`latency_p50_ms`); what varies without bound (ids, hashes) is a field.
Numbers by name become a field each (`accuracy_ap50`, from `accuracy.detail`), lists and texts by name one field of JSON. Absent
stays absent. The raw samples stay in the ledger.

A point is known by its tags and its time, so two records must differ in one of them and one record must always have the same. The
point's time is the start of the run, its millisecond kept, and in place of the rest a number 0..999,999 that session and seq give
(`point_ns`). Records of one session differ for certain, since no session has a million records in a millisecond; those of two
sessions of one device collide only when started in the same millisecond, and then by a chance of one in a million. The exact start
is the field `started_at_ns`.

Source: https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/ ; what a 2.7.12 makes of it is in the tests.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from edgemeter.agent.records import RunRecord

MEASUREMENT = "run"
_KEPT_NS = 1_000_000

Format = Callable[[Any], str]
Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its name, how its value is read from the record (None: absent) and written."""

    name: str
    read: Read
    write: Format


@dataclass(frozen=True, slots=True)
class _Named:
    """A mapping of names to numbers: each name becomes a field."""

    prefix: str
    path: str
    read: Read
    write: Format


def point_ns(record: RunRecord) -> int:
    """Return the point's own time: the millisecond of the start, then a number from session and seq."""
    session = record.session or 0
    own = (zlib.crc32(session.to_bytes(8, "big")) + (record.seq or 0)) % _KEPT_NS
    return record.started_at_ns - record.started_at_ns % _KEPT_NS + own


def line(record: RunRecord) -> str:
    """Return the record's point, one line without a line end."""
    fields = [f"{one.name}={one.write(value)}" for one in _FIELDS if (value := one.read(record)) is not None]
    fields += [f"{name}={value}" for named in _NAMED for name, value in _by_name(named, record)]
    return f"{MEASUREMENT}{_tags(record)} {','.join(fields)} {point_ns(record)}"


def _tags(record: RunRecord) -> str:
    values = (
        ("backend", record.runtime.backend),
        ("board", record.environment.board),
        ("device", record.device),
        ("fleet", record.fleet),
        ("model", record.model.name),
        ("precision", record.precision),
        ("role", record.role),
        ("runtime", record.runtime.name),
        ("scenario", record.scenario),
        ("suite", record.suite),
    )
    return "".join(f",{name}={_tag(value)}" for name, value in values if value)


def _tag(value: str) -> str:
    # A tag can hold neither a line end nor a final backslash, and has no escape for either; the exact text is in a field where it matters.
    plain = re.sub(r"[\x00-\x1f\x7f]", " ", value).replace("\\", "/")
    return re.sub(r"([,= ])", r"\\\1", plain)


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _integer(value: int) -> str:
    return f"{value}i"


def _float(value: float) -> str:
    # repr keeps every digit and always shows a point or an exponent; a whole number without either would become an integer column.
    return repr(float(value))


def _boolean(value: bool) -> str:  # noqa: FBT001 - it writes one
    return "true" if value else "false"


def _json(value: Any) -> str:
    return _text(msgspec.json.encode(value).decode())


def _by_name(named: _Named, record: RunRecord) -> Iterator[tuple[str, str]]:
    for key, value in sorted((named.read(record) or {}).items()):
        if value is not None:
            plain = re.sub(r"[^A-Za-z0-9_.-]", "_", key)
            name = f"{named.prefix}_{plain}"
            yield (f"{named.path}_{plain}" if name in _NAMES else name), named.write(value)


_WRITERS: dict[type, Format] = {
    msgspec.inspect.FloatType: _float,
    msgspec.inspect.IntType: _integer,
    msgspec.inspect.BoolType: _boolean,
    msgspec.inspect.StrType: _text,
    msgspec.inspect.LiteralType: _text,
}
# Tags already, under the same name: a field of that name would hide them.
_AS_TAGS = frozenset({"device", "fleet", "role", "suite", "scenario", "precision"})


def _plan(kind: msgspec.inspect.StructType, prefix: str, read: Read) -> Iterator[_Field | _Named]:
    for one in kind.fields:
        name = f"{prefix}{one.name}"
        if name in _AS_TAGS or name == "samples":
            continue
        inner = _without_none(one.type)
        inner_read = _reader(read, one.name)
        if isinstance(inner, msgspec.inspect.StructType):
            yield from _plan(inner, f"{name}_", inner_read)
        elif isinstance(inner, msgspec.inspect.DictType) and (writer := _number_writer(inner.value_type)):
            yield _Named(name.removesuffix("_detail"), name, inner_read, writer)
        else:
            yield _Field(name, inner_read, _WRITERS.get(type(inner), _json))


def _reader(read: Read, name: str) -> Read:
    def inner(record: Any) -> Any:
        outer = read(record)
        return None if outer is None else getattr(outer, name)

    return inner


def _without_none(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if isinstance(kind, msgspec.inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)]
        return others[0] if len(others) == 1 else kind
    return kind


def _number_writer(kind: msgspec.inspect.Type) -> Format | None:
    inner = _without_none(kind)
    return _WRITERS[type(inner)] if isinstance(inner, (msgspec.inspect.FloatType, msgspec.inspect.IntType)) else None


def _record_itself(record: Any) -> Any:
    return record


_ROOT = msgspec.inspect.type_info(RunRecord)
_ALL = list(_plan(_ROOT, "", _record_itself)) if isinstance(_ROOT, msgspec.inspect.StructType) else []
_FIELDS = [one for one in _ALL if isinstance(one, _Field)]
_NAMED = [one for one in _ALL if isinstance(one, _Named)]
_NAMES = frozenset(one.name for one in _FIELDS)

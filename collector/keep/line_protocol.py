"""A record as one point of InfluxDB's line protocol: measurement `run`, few tags, every field that `point_schema` names.

Tags are what one groups by and what has few values (device, fleet, board, model, precision, runtime, backend, suite, scenario,
role); what varies without bound (ids, hashes) is a field. Absent stays absent, as does an empty list. The raw samples stay in the
ledger.

A point is known by its tags and its time, so two records must differ in one of them and one record must always have the same. The
point's time is the start of the run, its millisecond kept, and in place of the rest a number 0..999,999 that session and seq give
(`point_ns`). Records of one session differ for certain, since no session has a million records in a millisecond; those of two
sessions of one device collide only when started in the same millisecond, and then by a chance of one in a million. The exact start
is the field `started_at_ns`.

Source: https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/ ; what 2.7.12 and 1.6.7 make of it is in the tests.
"""

import functools
import operator
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import point_schema
from edgemeter.collector.keep.influx_config import Extent
from edgemeter.collector.keep.point_schema import Field, Group, Kind

_KEPT_NS = 1_000_000
_TAG_SETS = 65_536

_encode = msgspec.json.Encoder().encode
_tag_values = operator.attrgetter(*point_schema.TAGS.values())
# A tag can hold neither a line end nor a final backslash, and has no escape for either.
_PLAIN = dict.fromkeys((*range(32), 127), " ") | {ord("\\"): "/"}
_ESCAPED = {ord(character): f"\\{character}" for character in ",= "}


def point_ns(record: RunRecord) -> int:
    """Return the point's own time: the millisecond of the start, then a number from session and seq."""
    return record.started_at_ns - record.started_at_ns % _KEPT_NS + _own(record.session or 0, record.seq or 0)


def tags(record: RunRecord) -> str:
    """Return the record's tags, sorted, each after a comma."""
    return _tag_set(_tag_values(record))


def line(record: RunRecord, extent: Extent = "all") -> str:
    """Return the record's point, one line without a line end."""
    found = _Values()
    _READERS[extent].read(record, found)
    fields = found.floats()
    fields += [f"{name}={value}i" for name, value in zip(found.names["integer"], found.values["integer"], strict=True) if value is not None]
    fields += [
        _FLAGS[value](name) for name, value in zip(found.names["boolean"], found.values["boolean"], strict=True) if value is not None
    ]
    fields += [f"{name}={quoted(value)}" for name, value in found.texts() if value is not None]
    fields += _by_name(found.by_name)
    if extent == "all":
        fields += _exact(record)
    return f"{point_schema.MEASUREMENT}{tags(record)} {','.join(fields)} {point_ns(record)}"


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of one record, with their names beside them: by type, because a type is written at one go."""

    names: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    values: dict[Kind, list[Any]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    by_name: list[tuple[Field, dict[str, Any]]] = field(default_factory=list)

    def floats(self) -> list[str]:
        # The encoder keeps every digit and always shows a point or an exponent: a number without would make an integer column. NaN is null.
        there = [(name, float(value)) for name, value in zip(self.names["float"], self.values["float"], strict=True) if value is not None]
        texts = _encode([value for _, value in there]).decode()[1:-1].split(",")
        return [f"{name}={text}" for (name, _), text in zip(there, texts, strict=False) if text != "null"]

    def texts(self) -> Iterator[tuple[str, str | None]]:
        yield from zip(self.names["text"], self.values["text"], strict=True)
        for name, value in zip(self.names["json"], self.values["json"], strict=True):
            yield name, None if value is None else _encode(value).decode()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one group of a record, and the groups in it, into `_Values`: each type by one call."""

    by_kind: tuple[tuple[Kind, tuple[str, ...], Callable[[Any], tuple[Any, ...]]], ...]
    lists: tuple[tuple[Field, Callable[[Any], Any]], ...]
    inner: tuple[tuple[Callable[[Any], Any], "_Reader"], ...]

    def read(self, group: Any, found: _Values) -> None:
        for kind, names, values in self.by_kind:
            found.names[kind] += names
            found.values[kind] += values(group)
        for one, value_of in self.lists:
            value = value_of(group)
            if value or (one.is_nullable and value is not None):
                found.names["json"].append(one.name)
                found.values["json"].append(value)
                if one.by_name:
                    found.by_name.append((one, value))
        for value_of, reader in self.inner:
            value = value_of(group)
            if value is not None:
                reader.read(value, found)


_KINDS: tuple[Kind, ...] = ("float", "integer", "boolean", "text", "json")
_FLAGS = {True: "{}=true".format, False: "{}=false".format}


def _reader(group: Group) -> _Reader:
    by_kind = []
    for kind in _KINDS[:-1]:
        fields = [one for one in group.fields if one.kind == kind]
        if fields:
            by_kind.append((kind, tuple(one.name for one in fields), _all_of([one.attribute for one in fields])))
    lists = tuple((one, operator.attrgetter(one.attribute)) for one in group.fields if one.kind == "json")
    return _Reader(tuple(by_kind), lists, tuple((operator.attrgetter(one.attribute), _reader(one)) for one in group.groups))


def _all_of(attributes: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(attributes) == 1:
        only = operator.attrgetter(attributes[0])
        return lambda group: (only(group),)
    return operator.attrgetter(*attributes)


def _by_name(found: Sequence[tuple[Field, dict[str, Any]]]) -> Iterator[str]:
    for one, values in found:
        for key, value in sorted(values.items()):
            if value is not None:
                plain = re.sub(r"[^A-Za-z0-9_.-]", "_", key)
                name = f"{one.by_name}_{plain}"
                text = f"{value}i" if one.by_name_kind == "integer" else _encode(float(value)).decode()
                # A name from the wire must not take over a field of ours.
                yield f"{one.name}_{plain}={text}" if name in point_schema.NAMES else f"{name}={text}"


def _exact(record: RunRecord) -> list[str]:
    # Where it is not what the tag holds.
    values = ((name, getattr(record, tag_name)) for tag_name, name in point_schema.EXACT.items())
    return [f"{name}={quoted(value)}" for name, value in values if value is not None and (not value or plain_tag(value) != value)]


@functools.lru_cache(_TAG_SETS)
def _tag_set(values: tuple[str | None, ...]) -> str:
    return "".join(f",{name}={tag(value)}" for name, value in zip(point_schema.TAGS, values, strict=True) if value)


def tag(value: str) -> str:
    """Return `value` as the value of a tag, with what a tag cannot hold replaced."""
    return plain_tag(value).translate(_ESCAPED)


def plain_tag(value: str) -> str:
    """Return what is read back of a tag that was written from `value`."""
    return value.translate(_PLAIN)


def quoted(value: str) -> str:
    """Return `value` as a text field."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@functools.lru_cache(_TAG_SETS)
def _own_of_session(session: int) -> int:
    return zlib.crc32(session.to_bytes(8, "big"))


def _own(session: int, seq: int) -> int:
    return (_own_of_session(session) + seq) % _KEPT_NS


_READERS: dict[Extent, _Reader] = {
    "all": _reader(point_schema.RECORD),
    "figures": _reader(point_schema.figures_of(point_schema.RECORD)),
}

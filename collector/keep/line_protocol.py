"""A record as one point of InfluxDB's line protocol: measurement `run`, few tags, every field that `point_schema` names.

Tags are what one groups by and what has few values (device, fleet, board, model, precision, runtime, backend, suite, scenario,
role); what varies without bound (ids, hashes) is a field. Absent stays absent, as does an empty list. The raw samples stay in the
ledger.

A point is known by its tags and its time, so two records must differ in one of them and one record must always have the same. The
point's time is the start of the run, its millisecond kept, and in place of the rest a number 0..999,999 that session and seq give
(`point_ns`). Records of one session differ for certain, since no session has a million records in a millisecond; those of two
sessions of one device collide only when started in the same millisecond, and then by a chance of one in a million. The exact start
is the field `started_at_ns`.

A record whose device never knew the time is stamped by its collector, and of two collectors that got it each has a time of its own. So
that it is one point all the same, of that time the day counts alone, and session and seq give a moment of the day's first minute
(`start_ns`). Only when the two got it on different days (UTC) is it two points; `compare` takes it once even then.

Source: https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/ ; what 2.7.12 and 1.6.7 make of it is in the tests.
"""

import functools
import operator
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import point_schema
from edgemeter.collector.keep.influx_config import Extent
from edgemeter.collector.keep.point_schema import Field, Group, Kind

_KEPT_NS = 1_000_000
_MINUTE_NS = 60 * 1_000_000_000
_DAY_NS = 24 * 60 * _MINUTE_NS
_TAG_SETS = 65_536

_encode = msgspec.json.Encoder().encode
_tag_values = operator.attrgetter(*point_schema.TAGS.values())
# A tag can hold neither a line end nor a final backslash, and has no escape for either.
_PLAIN = dict.fromkeys((*range(32), 127), " ") | {ord("\\"): "/"}
_ESCAPED = {ord(character): f"\\{character}" for character in ",= "}


def start_ns(record: RunRecord) -> int:
    """Return the start of the run as its points have it: what all collectors that hold the record agree on."""
    if record.stamped_by != "collector":
        return record.started_at_ns
    number = zlib.crc32(b"%d %d" % (record.session or 0, record.seq or 0))
    return record.started_at_ns - record.started_at_ns % _DAY_NS + number % _MINUTE_NS


def point_ns(record: RunRecord) -> int:
    """Return the point's own time: the millisecond of the start, then a number from session and seq."""
    begun_ns = start_ns(record)
    return begun_ns - begun_ns % _KEPT_NS + _own(record.session or 0, record.seq or 0)


def tags(record: RunRecord) -> str:
    """Return the record's tags, sorted, each after a comma."""
    return _tag_set(_tag_values(record))


def line(record: RunRecord, extent: Extent = "all") -> str:
    """Return the record's point, one line without a line end."""
    layout = _LAYOUTS[extent]
    values: list[Any] = []
    layout.reader.read(record, values)
    fields = _floats(layout.pairs("float", values))
    fields += [f"{name}{value}i" for name, value in layout.pairs("integer", values) if value is not None]
    fields += [f"{name}true" if value else f"{name}false" for name, value in layout.pairs("boolean", values) if value is not None]
    fields += [f"{name}{quoted(value)}" for name, value in layout.pairs("text", values) if value is not None]
    for one, value in layout.lists(values):
        # An empty list is absent, unless it could also be null.
        if value or (one.is_nullable and value is not None):
            fields.append(f"{one.name}={quoted(_encode(value).decode())}")
            if one.by_name:
                fields += _by_name(one, value)
    if extent == "all":
        fields += _exact(record)
    return f"{point_schema.MEASUREMENT}{tags(record)} {','.join(fields)} {point_ns(record)}"


def _floats(pairs: Iterable[tuple[str, float | None]]) -> list[str]:
    # The encoder keeps every digit and always shows a point or an exponent: a number without would make an integer column. NaN is null.
    there = [(name, float(value)) for name, value in pairs if value is not None]
    texts = _encode([value for _, value in there]).decode()[1:-1].split(",")
    return [f"{name}{text}" for (name, _), text in zip(there, texts, strict=False) if text != "null"]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the values of a group of a record, and of the groups in it, by one call each; an absent group is as many times None."""

    own: Callable[[Any], tuple[Any, ...]]
    inner: tuple[tuple[Callable[[Any], Any], "_Reader"], ...]
    absent: tuple[None, ...]

    def read(self, group: Any, values: list[Any]) -> None:
        values += self.own(group)
        for value_of, reader in self.inner:
            value = value_of(group)
            if value is None:
                values += reader.absent
            else:
                reader.read(value, values)


class _Layout:
    """Where in the values of a record those of each type stand, and how they are named: a type is written at one go."""

    def __init__(self, group: Group) -> None:
        self.reader = _reader(group)
        fields = list(point_schema.every_field(group))
        places = {kind: [place for place, one in enumerate(fields) if one.kind == kind] for kind in _KINDS}
        self._names = {kind: tuple(f"{fields[place].name}=" for place in places[kind]) for kind in _KINDS}
        self._pick = {kind: _all_of(operator.itemgetter, places[kind]) for kind in _KINDS}
        self._lists = tuple(fields[place] for place in places["json"])

    def pairs(self, kind: Kind, values: Sequence[Any]) -> Iterable[tuple[str, Any]]:
        return zip(self._names[kind], self._pick[kind](values), strict=True)

    def lists(self, values: Sequence[Any]) -> Iterable[tuple[Field, Any]]:
        return zip(self._lists, self._pick["json"](values), strict=True)


_KINDS: tuple[Kind, ...] = ("float", "integer", "boolean", "text", "json")


def _reader(group: Group) -> _Reader:
    own = _all_of(operator.attrgetter, [one.attribute for one in group.fields])
    inner = tuple((operator.attrgetter(one.attribute), _reader(one)) for one in group.groups)
    return _Reader(own, inner, (None,) * sum(1 for _ in point_schema.every_field(group)))


def _all_of(getter: Callable[..., Callable[[Any], Any]], wanted: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets `wanted` as a tuple, however many they are."""
    if not wanted:
        return lambda _: ()
    get = getter(*wanted)
    return get if len(wanted) > 1 else lambda group: (get(group),)


def _by_name(one: Field, values: dict[str, Any]) -> Iterator[str]:
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


_LAYOUTS: dict[Extent, _Layout] = {
    "all": _Layout(point_schema.RECORD),
    "figures": _Layout(point_schema.figures_of(point_schema.RECORD)),
}

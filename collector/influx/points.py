"""The points of a record as line protocol: measurement `run`, few tags, every field of `point_schema`; on request its raw samples too."""

import functools
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_MINUTE
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord, Series, decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.chunks import HeldChunk
from edgemeter.agent.ledger.run_history import WithdrawnRun
from edgemeter.collector.influx import point_schema
from edgemeter.collector.influx.influx_config import Extent, Extra
from edgemeter.collector.influx.point_schema import CASE_TAGS, FieldGroup, FieldKind, PointField, case_tags, read_figures, trace_source
from edgemeter.collector.influx.tag_values import TagValues

_KEPT_NS = 1_000_000
_TAG_SETS = 65_536

_encode = msgspec.json.Encoder().encode
_path_values = operator.attrgetter(*point_schema.TAGS.values())
_TAG_NAMES = (*point_schema.TAGS, *CASE_TAGS)

# A tag can hold neither a line break nor a final backslash, and has no escape for either.
_PLAIN = dict.fromkeys((*range(32), 127), " ") | {ord("\\"): "/"}
_ESCAPED = {ord(character): f"\\{character}" for character in ",= "}


def start_ns(record: RunRecord | WithdrawnRun) -> int:
    """Return the start of the run as its points have it: the same at every collector that holds the record."""
    if record.stamped_by != "collector":
        return record.started_at_ns
    number = zlib.crc32(b"%d %d" % (record.session or 0, record.seq or 0))
    return record.started_at_ns - record.started_at_ns % NS_PER_DAY + number % NS_PER_MINUTE


def point_ns(record: RunRecord | WithdrawnRun) -> int:
    """Return the point's own time: the millisecond of the start, then a number from session and seq."""
    begun_ns = start_ns(record)
    return begun_ns - begun_ns % _KEPT_NS + (_session_hash(record.session or 0) + (record.seq or 0)) % _KEPT_NS


def record_tags(record: RunRecord, admitted: TagValues | None = None, **changes: str) -> str:
    """Return the record's tags, sorted, each after a comma; `changes` take the place of some of them."""
    values, text = tags_of(record, admitted)
    return _tag_text({**values, **changes}) if changes else text


def tags_of(record: RunRecord, admitted: TagValues | None = None) -> tuple[Mapping[str, str | None], str]:
    """Return the value of each tag of the record, as far as it is among the `admitted` values (None: whatever it is), and all as text."""
    return _tag_set((*_path_values(record), *case_tags(record)), admitted)


def point_line(record: RunRecord, extent: Extent = "all", admitted: TagValues | None = None) -> str:
    """Return the record's point, one line without a line break; `admitted` limits the values of its tags."""
    tags, tags_text = tags_of(record, admitted)
    layout = _LAYOUTS[extent]
    values: list[Any] = []
    layout.reader.read(record, values)
    fields = _floats(layout.pairs("float", values))
    fields += [f"{name}{value}i" for name, value in layout.pairs("integer", values) if value is not None]
    fields += [f"{name}true" if value else f"{name}false" for name, value in layout.pairs("boolean", values) if value is not None]
    fields += [f"{name}{quoted(value)}" for name, value in layout.pairs("text", values) if value is not None]
    for entry, value in layout.lists(values):
        # An empty list is absent, unless it could also be null.
        if value or (entry.is_nullable and value is not None):
            fields.append(f"{entry.name}={quoted(_encode(value).decode())}")
            if entry.by_name:
                fields += _by_name(entry, value)
    fields += [
        f"{entry.name}={str(bool(value)).lower() if entry.is_truth else repr(float(value))}"
        for entry in point_schema.WORKED_OUT
        if (value := entry.value(record)) is not None
    ]
    if (provenance := energy_provenance(record)) is not None:
        fields.append(f"{point_schema.ENERGY_PROVENANCE}={quoted(provenance)}")
    if extent == "all":
        # Only where the tag does not hold it exactly.
        exact = ((name, getattr(record, tag_name), plain_tag(tags[tag_name] or "")) for tag_name, name in point_schema.EXACT.items())
        fields += [f"{name}={quoted(value)}" for name, value, tag in exact if value is not None and (not value or tag != value)]
    return f"{point_schema.MEASUREMENT}{tags_text} {','.join(fields)} {point_ns(record)}"


def _floats(pairs: Iterable[tuple[str, float | None]]) -> list[str]:
    # The encoder keeps every digit and always writes a point or an exponent: a number without would make an integer column. NaN is null.
    present = [(name, float(value)) for name, value in pairs if value is not None]
    texts = _encode([value for _, value in present]).decode()[1:-1].split(",")
    return [f"{name}{text}" for (name, _), text in zip(present, texts, strict=False) if text != "null"]


@dataclass(frozen=True, slots=True)
class _GroupReader:
    """Reads the values of a group of a record and its inner groups, by one call each; an absent group is all None."""

    own: Callable[[Any], tuple[Any, ...]]
    inner: tuple[tuple[Callable[[Any], Any], "_GroupReader"], ...]
    absent: tuple[None, ...]

    def read(self, group: Any, values: list[Any]) -> None:
        values += self.own(group)
        for value_of, reader in self.inner:
            value = value_of(group)
            if value is None:
                values += reader.absent
            else:
                reader.read(value, values)


class _ValueLayout:
    """The positions and names of a record's values by type: each type is written in one pass."""

    def __init__(self, group: FieldGroup) -> None:
        self.reader = _reader(group)
        fields = list(point_schema.every_field(group))
        places = {kind: [index for index, field in enumerate(fields) if field.kind == kind] for kind in _READER_OF_KIND}
        self._names = {kind: tuple(f"{fields[index].name}=" for index in places[kind]) for kind in _READER_OF_KIND}
        self._pick = {kind: _all_of(operator.itemgetter, places[kind]) for kind in _READER_OF_KIND}
        self._lists = tuple(fields[index] for index in places["json"])

    def pairs(self, kind: FieldKind, values: Sequence[Any]) -> Iterable[tuple[str, Any]]:
        return zip(self._names[kind], self._pick[kind](values), strict=True)

    def lists(self, values: Sequence[Any]) -> Iterable[tuple[PointField, Any]]:
        return zip(self._lists, self._pick["json"](values), strict=True)


_READER_OF_KIND: tuple[FieldKind, ...] = ("float", "integer", "boolean", "text", "json")


def _reader(group: FieldGroup) -> _GroupReader:
    read_fields = _all_of(operator.attrgetter, [field.attribute for field in group.fields])
    inner = tuple((operator.attrgetter(group.attribute), _reader(group)) for group in group.groups)
    return _GroupReader(read_fields, inner, (None,) * sum(1 for _ in point_schema.every_field(group)))


def _all_of(getter: Callable[..., Callable[[Any], Any]], names: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gets `names` as a tuple, of any length."""
    if not names:
        return lambda _: ()
    get = getter(*names)
    return get if len(names) > 1 else lambda group: (get(group),)


def _by_name(field: PointField, values: dict[str, Any]) -> Iterator[str]:
    for key, name in field.by_name.items():
        if (value := values.get(key)) is not None:
            yield f"{name}={value}i" if field.by_name_kind == "integer" else f"{name}={_encode(float(value)).decode()}"


@functools.lru_cache(_TAG_SETS)
def _tag_set(values: tuple[str | None, ...], admitted: TagValues | None) -> tuple[Mapping[str, str | None], str]:
    """Return the tags of these values, and their text. What `admitted` has decided once it always decides; else `forget_tags`."""
    tags = dict(zip(_TAG_NAMES, values, strict=True))
    if admitted is not None:
        device = tags["device"] or ""
        tags = {name: admitted.admitted(device, name, value) if value else value for name, value in tags.items()}
    return tags, _tag_text(tags)


def forget_tags() -> None:
    """Let the tags of values be decided anew."""
    _tag_set.cache_clear()


def _tag_text(tags: Mapping[str, str | None]) -> str:
    return "".join(f",{name}={tag_text(value)}" for name, value in sorted(tags.items()) if value)


def tag_text(value: str) -> str:
    """Return `value` as a tag's value, with what a tag cannot hold replaced."""
    return plain_tag(value).translate(_ESCAPED)


def plain_tag(value: str) -> str:
    """Return what is read back from a tag written from `value`."""
    return value.translate(_PLAIN)


def quoted(value: str) -> str:
    """Return `value` as a text field."""
    if '"' in value or "\\" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


@functools.lru_cache(_TAG_SETS)
def _session_hash(session: int) -> int:
    return zlib.crc32(session.to_bytes(8, "big"))


_LAYOUTS: dict[Extent, _ValueLayout] = {
    "all": _ValueLayout(point_schema.RECORD),
    "figures": _ValueLayout(point_schema.figures_of(point_schema.RECORD)),
}

# R10 of ISO 3: ten bounds a decade.
_STEPS = (1000, 1250, 1600, 2000, 2500, 3150, 4000, 5000, 6300, 8000)
BOUNDS_NS = np.array([step * 10**decade for decade in range(9) for step in _STEPS] + [10**12], np.int64)


@dataclass(frozen=True, slots=True)
class Points:
    """Which points a record becomes; `known` limits the values of their tags (None: no limit)."""

    extent: Extent = "all"
    also: frozenset[Extra] = frozenset()
    known: TagValues | None = None

    def of_chunk(self, chunk: HeldChunk) -> Iterator[tuple[int, list[str]]]:
        """Yield row and points of each record, its own point first; damaged samples give none, and invalid records are left out.

        A record whose stated time cannot be true has points at the time of its receipt: else they are beyond the bucket's retention,
        or stay for years after it.

        Raises:
            ConfigError: what was validated before is no record.
        """
        if self.extent == "all" or self.also or not chunk.is_checked or chunk.has_removed():
            for row, payload in chunk.payloads():
                try:
                    lines = self.lines(payload, chunk.received_ns)
                except ConfigError:
                    if chunk.is_checked:
                        raise
                    # It will be quarantined.
                    continue
                yield row, lines
            return
        figures = read_figures(chunk.text)
        for row, index in chunk.rows:
            yield row, [point_line(placed(figures[index], chunk.received_ns), "figures", self.known)]

    def lines(self, payload: bytes, received_ns: int = 0) -> list[str]:
        """Return the points of the record in `payload` (JSON), its own first; raises ConfigError if it is no record."""
        record = placed(decode(payload), received_ns)
        lines = [point_line(record, self.extent, self.known)]
        if self.also:
            series = {sample.name: sample for sample in record.samples}
            if "latency_histogram" in self.also:
                lines += _histogram(record, series, self.known)
            if "power_trace" in self.also:
                lines += _power(record, series, self.known)
        return lines


def _histogram(record: RunRecord, series: dict[str, Series], admitted: TagValues | None) -> Iterator[str]:
    latency = series.get("latency")
    if latency is None or latency.unit != "ns":
        return
    try:
        latencies_ns = samples.unpack(latency)
    except ConfigError:
        return
    if not latencies_ns.size:
        return
    counts = np.bincount(np.searchsorted(BOUNDS_NS, latencies_ns), minlength=len(BOUNDS_NS) + 1).tolist()
    names = [*(f"to_{bound}_ns" for bound in BOUNDS_NS.tolist()), "above_ns"]
    fields = [f"{name}={count}i" for name, count in zip(names, counts, strict=True) if count]
    identity = _identity(record)
    yield f"{point_schema.HISTOGRAM}{record_tags(record, admitted)} {','.join(fields)},{identity} {point_ns(record)}"


def _power(record: RunRecord, series: dict[str, Series], admitted: TagValues | None) -> Iterator[str]:
    # Readings of different sensors at one nanosecond must not become one point: the sensor's index takes the last digits.
    identity = _identity(record)
    # Readings count from the first timed query, on the clock that `monotonic_ns` was read from when the run started.
    first_ns = start_ns(record) + (record.windows.timed_start_ns - record.monotonic_ns if record.windows else 0)
    for index, trace in enumerate(record.power_traces):
        kind, value_name = ("energy", "energy_mj") if trace.kind == "energy" else ("power", "power_w")
        values, times = series.get(f"{kind}.{trace.name}"), series.get(f"power_at.{trace.name}")
        if values is None or times is None:
            continue
        try:
            read, taken_ns = samples.unpack(values).astype(np.float64), samples.unpack(times)
        except ConfigError:
            continue
        if len(read) != len(taken_ns):
            continue
        source = trace_source(record, trace)
        tags = record_tags(
            record, admitted, energy_source=admitted.admitted(record.device, "energy_source", source) if admitted else source
        )
        head = f"power_trace{tags} sensor={quoted(trace.name)},{identity},{value_name}="
        for value, at_ns in zip(read.tolist(), taken_ns.tolist(), strict=True):
            if np.isfinite(value):
                yield f"{head}{value!r} {(first_ns + at_ns) // 1000 * 1000 + index}"


def _identity(record: RunRecord) -> str:
    return f"run_id={quoted(record.id)}"

"""The points of a record as line protocol: measurement `run`, few tags, every field of `point_schema`; on request its raw samples too."""

import dataclasses
import functools
import itertools
import logging
import math
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_MINUTE
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord, Series
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.chunks import UNREADABLE, HeldChunk, SkippedRecord, warn_of_skipped
from edgemeter.agent.ledger.run_history import WithdrawnRun
from edgemeter.collector.influx import point_schema
from edgemeter.collector.influx.field_writer import FieldWriter, all_of, quoted
from edgemeter.collector.influx.influx_config import Extent, Extra
from edgemeter.collector.influx.point_schema import CASE_TAGS, PATHS, RECORD, TAGS, case_tags, figures_of, trace_source
from edgemeter.collector.influx.record_reader import REPEATED, Tree, read_part, read_record, read_records, tree_of

logger = logging.getLogger(__name__)

_KEPT_NS = 1_000_000
_SESSIONS = 65_536
_TEXTS = 4096
# What is kept of parts is some MB; longer ones are hardly ever the same again.
_PARTS, _TOGETHER = 2048, 512
_LONGEST_PART_BYTES, _LONGEST_TOGETHER_BYTES = 2048, 8192
# A case takes some 1 kB.
_CASES = 65_536

_path_values = operator.attrgetter(*TAGS.values())
_TAG_NAMES = (*TAGS, *CASE_TAGS)

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


def tags_of(record: RunRecord) -> tuple[Mapping[str, str | None], str]:
    """Return the value of each tag of the record, and all as text."""
    tags = dict(zip(_TAG_NAMES, (*_path_values(record), *case_tags(record)), strict=True))
    return tags, _tag_text(tags)


def _tag_text(tags: Mapping[str, str | None]) -> str:
    return "".join(f",{name}={tag_text(value)}" for name, value in sorted(tags.items()) if value)


@functools.lru_cache(_TEXTS)
def tag_text(value: str) -> str:
    """Return `value` as a tag's value, with what a tag cannot hold replaced."""
    return plain_tag(value).translate(_ESCAPED)


def plain_tag(value: str) -> str:
    """Return what is read back from a tag written from `value`."""
    return value.translate(_PLAIN)


@functools.lru_cache(_SESSIONS)
def _session_hash(session: int) -> int:
    return zlib.crc32(session.to_bytes(8, "big"))


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that records repeat: its value, its fields as text, and a number that those have in common of which the same tags follow."""

    value: Any
    text: str
    tag_number: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """All such parts of a record: their values by name, their fields as text, and the numbers of those that its tags follow from."""

    values: Mapping[str, Any]
    text: str
    tag_numbers: tuple[int, ...]


_tag_numbers = itertools.count()


@functools.lru_cache(_TEXTS)
def _tag_number(name: str, values: bytes) -> int:  # noqa: ARG001 - of each another
    return next(_tag_numbers)


def _part(extent: Extent, name: str, text: bytes) -> _Part:
    value = read_part(name, text)
    fields = ",".join(_PART_WRITERS[extent, name].fields(SimpleNamespace(**{name: value})))
    tag_values = _part_tags[name](value) if name in _part_tags else ()
    return _Part(value, fields, _tag_number(name, msgspec.json.encode(tag_values)))


def _parts(extent: Extent, texts: Sequence[bytes]) -> _Parts:
    parts = [
        (_kept_part if len(text) <= _LONGEST_PART_BYTES else _part)(extent, name, text) for name, text in zip(REPEATED, texts, strict=True)
    ]
    values = {name: part.value for name, part in zip(REPEATED, parts, strict=True)}
    return _Parts(values, ",".join(filter(None, (part.text for part in parts))), tuple(part.tag_number for part in _parts_of_tags(parts)))


_kept_part = functools.lru_cache(_PARTS)(_part)
_kept_parts = functools.lru_cache(_TOGETHER)(_parts)


def _writer(extent: Extent, is_written: Callable[[str], bool]) -> FieldWriter:
    """Return what writes the fields of a record that are in these parts of it."""
    group = RECORD if extent == "all" else figures_of(RECORD)
    fields = tuple(part for part in group.fields if is_written(part.attribute))
    return FieldWriter(dataclasses.replace(group, fields=fields, groups=tuple(part for part in group.groups if is_written(part.attribute))))


_EXTENTS: tuple[Extent, ...] = get_args(Extent)
_PART_WRITERS = {(extent, name): _writer(extent, name.__eq__) for extent in _EXTENTS for name in REPEATED}
_WRITERS = {extent: _writer(extent, lambda name: name not in REPEATED) for extent in _EXTENTS}
_texts_of_parts = all_of(REPEATED)


@dataclass(frozen=True, slots=True)
class _Case:
    """The part that points of one case have in common: their tags, and the fields that follow from the same."""

    tags: Mapping[str, str | None]
    tags_text: str
    fields: Sequence[str]


_cases: dict[tuple[Any, ...], _Case] = {}


def _values_reader(tree: Tree) -> Callable[[Any], Any]:
    """Return what reads the values of `tree` of a record or a part of it, None for an absent group."""
    if not tree:
        return lambda part: part
    values_in = all_of([name for name, below in tree.items() if not below])
    groups = {name: _values_reader(below) for name, below in tree.items() if below}
    if not groups:
        return values_in
    groups_in, readers = all_of([*groups]), [*groups.values()]

    def values_of(group: Any) -> tuple[Any, ...]:
        inner = zip(readers, groups_in(group), strict=True)
        return *values_in(group), *[None if value is None else read(value) for read, value in inner]

    return values_of


# The tags of a record follow from these of its parts that repeat, and from values of the others.
_TAGS_TREE = tree_of([*TAGS.values(), *PATHS])
_parts_of_tags = operator.itemgetter(*[index for index, name in enumerate(REPEATED) if name in _TAGS_TREE])
_part_tags = {name: _values_reader(_TAGS_TREE[name]) for name in REPEATED if name in _TAGS_TREE}
_values_of_tags = _values_reader({name: below for name, below in _TAGS_TREE.items() if name not in REPEATED})


# R10 of ISO 3: ten bounds a decade.
_STEPS = (1000, 1250, 1600, 2000, 2500, 3150, 4000, 5000, 6300, 8000)
BOUNDS_NS = np.array([step * 10**decade for decade in range(9) for step in _STEPS] + [10**12], np.int64)


@dataclass(frozen=True, slots=True)
class Points:
    """Which points a record becomes."""

    extent: Extent = "all"
    also: frozenset[Extra] = frozenset()

    def of_chunk(self, chunk: HeldChunk, skipped: Callable[[SkippedRecord], object] = warn_of_skipped) -> Iterator[tuple[int, list[str]]]:
        """Yield row and points of each record, its own point first; damaged samples give none.

        Of a record that cannot be read there are no points, and `skipped` is called with it.

        A record whose stated time cannot be true has points at the time of its receipt: else they are beyond the bucket's retention,
        or stay for years after it.
        """
        yielded = 0
        try:
            records = read_records(chunk.text, self.extent, has_samples=bool(self.also))
            for row, index in chunk.rows:
                yield row, self._lines(records[index], chunk.received_ns)
                yielded += 1
        except UNREADABLE as error:
            logger.debug("the records of a chunk are read one by one: %s", error)
        # A record may have been removed, be of a newer schema, or hold what no point can: then each is read on its own.
        remaining = dataclasses.replace(chunk, rows=chunk.rows[yielded:])
        for row, lines in remaining.read_each(lambda raw: self.lines(raw, chunk.received_ns), skipped) if remaining.rows else ():
            yield row, lines or []

    def lines(self, payload: bytes | msgspec.Raw, received_ns: int = 0) -> list[str]:
        """Return the points of the record in `payload` (JSON), its own first; raises ConfigError if it is no record."""
        return self._lines(read_record(payload, self.extent, has_samples=bool(self.also)), received_ns)

    def _lines(self, record: Any, received_ns: int) -> list[str]:
        record = placed(record, received_ns)
        texts = tuple(map(bytes, _texts_of_parts(record)))
        parts = (_kept_parts if sum(map(len, texts)) <= _LONGEST_TOGETHER_BYTES else _parts)(self.extent, texts)
        case = self._case_of(record, parts)
        fields = _WRITERS[self.extent].fields(record)
        fields.append(parts.text)
        fields += [
            f"{entry.name}={str(bool(value)).lower() if entry.is_truth else repr(float(value))}"
            for entry in point_schema.WORKED_OUT
            if (value := entry.value(record)) is not None
        ]
        fields += case.fields
        lines = [f"{point_schema.MEASUREMENT}{case.tags_text} {','.join(fields)} {point_ns(record)}"]
        if self.also:
            series = {sample.name: sample for sample in record.samples}
            if "latency_histogram" in self.also:
                lines += _histogram(record, series, case)
            if "power_trace" in self.also:
                lines += _power(msgspec.structs.replace(record, **parts.values), series, case)
        return lines

    def _case_of(self, record: Any, parts: _Parts) -> _Case:
        key = self.extent, parts.tag_numbers, _values_of_tags(record)
        if (case := _cases.get(key)) is None:
            if len(_cases) >= _CASES:
                _cases.clear()
            case = _cases[key] = _case_of(msgspec.structs.replace(record, **parts.values), self.extent)
        return case


def _case_of(record: RunRecord, extent: Extent) -> _Case:
    tags, text = tags_of(record)
    fields = []
    if (provenance := energy_provenance(record)) is not None:
        fields.append(f"{point_schema.ENERGY_PROVENANCE}={quoted(provenance)}")
    if extent == "all":
        # Only where the tag does not hold it exactly.
        exact = ((name, getattr(record, tag_name), plain_tag(tags[tag_name] or "")) for tag_name, name in point_schema.EXACT.items())
        fields += [f"{name}={quoted(value)}" for name, value, tag in exact if value is not None and (not value or tag != value)]
    return _Case(tags, text, fields)


def _histogram(record: RunRecord, series: dict[str, Series], case: _Case) -> Iterator[str]:
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
    yield f"{point_schema.HISTOGRAM}{case.tags_text} {','.join(fields)},{_identity(record)} {point_ns(record)}"


def _power(record: RunRecord, series: dict[str, Series], case: _Case) -> Iterator[str]:
    # Readings of different sensors at one nanosecond must not become one point: the sensor's index takes the last digits.
    identity = _identity(record)
    # Readings count from the first timed query, on the clock that `monotonic_ns` was read from when the run started.
    first_ns = start_ns(record) + (record.windows.timed_start_ns - record.monotonic_ns if record.windows else 0)
    for index, trace in enumerate(record.power_traces):
        kind, value_name = ("energy", "energy_mj") if f"energy.{trace.name}" in series else ("power", "power_w")
        values, times = series.get(f"{kind}.{trace.name}"), series.get(f"power_at.{trace.name}")
        if values is None or times is None:
            continue
        try:
            read, taken_ns = samples.unpack(values).astype(np.float64), samples.unpack(times)
        except ConfigError:
            continue
        if len(read) != len(taken_ns):
            continue
        tags = _tag_text({**case.tags, "energy_source": trace_source(record, trace)})
        head = f"power_trace{tags} sensor={quoted(trace.name)},{identity},{value_name}="
        readings = zip(read.tolist(), taken_ns.tolist(), strict=True)
        yield from [f"{head}{value!r} {(first_ns + at_ns) // 1000 * 1000 + index}" for value, at_ns in readings if math.isfinite(value)]


def _identity(record: RunRecord) -> str:
    return f"run_id={quoted(record.id)}"

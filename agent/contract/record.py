"""The record: what is published of one run, and the contract between agent and collector.

Unknown fields are tolerated when a record is read, so that an older collector keeps what a newer
agent adds; a record with a higher `schema` number is rejected, because its meaning may have
changed. `split_samples` and the functions after it work on the JSON text as it came: a store keeps
the raw samples, which are most of the bytes, apart, and the fields that this version does not know
too.
"""

import sys
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.base.types import Count, Int64, Name, Positive, QuantityOrZero, Role, TimeNs
from edgemeter.agent.contract import (
    operating_point,
    record_accuracy,
    record_conditions,
    record_figures,
    record_generation,
)
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record_accuracy import Accuracy, OutputCheck
from edgemeter.agent.contract.record_conditions import (
    Condition,
    DatasetInfo,
    Environment,
    Model,
    Provenance,
    RecordPart,
    RuntimeInfo,
    StampedBy,
    Tensor,
    Verdict,
)
from edgemeter.agent.contract.record_figures import (
    ColdStart,
    Energy,
    Latency,
    Load,
    Memory,
    PowerTrace,
    Stage,
    Steady,
    Sustained,
    Together,
    WarmUp,
    Windows,
)
from edgemeter.agent.contract.record_generation import Generation

SCHEMA = 1
SCHEMA_ID = f"urn:edgemeter:schema:run-record:{SCHEMA}"
STABILITY = (
    "One measurement of one case in one process. Stable within a schema number: no property is "
    "removed or renamed, and none changes its "
    "type, unit or meaning. New properties may be added at any time, always optional: readers "
    "ignore those they do not know. The values "
    "of free texts (reasons, notes, warnings, evidence) may change. A change that breaks this "
    "raises the number in `schema` and in `$id`."
)
NO_SAMPLES = b"[]"


class Series(RecordPart, frozen=True, kw_only=True):
    """Raw samples of one quantity."""

    name: str  # Name of the series, e.g. latency or power.NAME.
    unit: str  # Unit of the values.
    dtype: Literal["<u4", "<i8", "<f8"]  # Type of the values, little-endian.
    count: Count  # Number of values.
    data: str  # The values, zlib-compressed, base64.


class RunRecord(RecordPart, frozen=True, kw_only=True):
    """One measurement of one case in one process."""

    schema: Count = SCHEMA  # Schema number of the record.
    id: str  # Unique id of the run.
    device: Name  # Device that measured.
    fleet: Name  # Fleet of the device.
    role: Role  # `reference`: others are compared with this device.
    session: Positive | None = None
    """Session of the outbox. With `device` and `seq` it identifies the record; null without an
    outbox."""
    seq: Positive | None = None  # Number of the record in its session, from 1.
    job: str | None = None  # Job of the fleet that ordered the run; null if it was started by hand.
    started_at_ns: TimeNs  # Start of the run: UTC, ns since 1970.
    session_started_at_ns: TimeNs = 0
    """Start of the command that made the run, by the device's clock; 0 if unknown."""
    clock_synchronised: bool | None  # Whether the wall clock was synchronised; null if unknown.
    monotonic_ns: TimeNs  # Monotonic clock at the start, in ns.
    stamped_by: StampedBy = "device"
    """Who set `started_at_ns`: `device`, `device-later` (once its clock was right) or `collector`
    (on arrival)."""
    suite: str | None  # Name of the suite.
    case: str  # Short id of the case, the same on every device.
    repeat: Count  # Repeat of the case, from 0.
    scenario: str  # How queries arrive: single_stream, offline, poisson, steady or concurrent.
    mode: str  # How long the run measures: rapid, quick, normal, full or sustained.
    seed: Int64  # Seed of inputs, arrivals and order.
    model: Model  # The model.
    runtime: RuntimeInfo  # The runtime that executed it.
    precision: str  # Precision of the model, e.g. int8.
    batch: Positive  # Samples in a batch.
    inputs: tuple[Tensor, ...]  # Inputs of the model.
    dataset: DatasetInfo  # The data set.
    latency: Latency  # Latency of a query; with a server to the last byte of the answer.
    throughput_per_s: QuantityOrZero  # Samples processed per second.
    preprocess: Stage | None  # Pre-processing, over the accuracy pass.
    postprocess: Stage | None  # Post-processing, over the accuracy pass.
    cold_start: ColdStart  # Time to the first prediction.
    warm_up: WarmUp  # Queries before timing.
    memory: Memory  # Resident memory.
    energy: Energy | None  # Energy by the sensor with the widest scope.
    other_energies: tuple[Energy, ...] = ()  # Energy by the other sensors.
    accuracy: Accuracy | None  # Accuracy of the outputs.
    reasons: dict[str, str] = {}
    """Why figures are absent, by name. `generation_times` and `generation_energy` name all figures
    of single tokens."""
    output_check: OutputCheck  # Comparison of timed outputs with later ones.
    environment: Environment  # The machine and its software.
    conditions: tuple[Condition, ...]  # State of the machine before, during and after timing.
    verdict: Verdict  # Whether the run can be trusted.
    provenance: dict[str, Provenance]
    """Origin of each group of figures: measured, replayed or published."""
    windows: Windows | None = None  # When each part took place, to recompute the energy.
    power_traces: tuple[PowerTrace, ...] = ()  # The power sensors of the run.
    load: Load | None = None  # Load offered to the model.
    steady: Steady | None = None  # Frames at a fixed rate with a deadline; null in other scenarios.
    together: Together | None = None  # Cases that ran at the same time; null if it ran alone.
    operating_point: OperatingPoint | None = None
    """Power mode and governor set for the run; null if none."""
    generation: Generation | None = None  # Generated text; null for other models.
    sustained: Sustained | None = None
    """The run over time, in mode sustained and steady runs of 60 s or more."""
    cpus: tuple[Count, ...] | None = None  # Cores the run was pinned to; null: any.
    samples: tuple[Series, ...] = ()  # Raw samples.

    def __repr__(self) -> str:
        """Return one line instead of hundreds of fields, for failing assertions."""
        return f"<{type(self).__name__} {self.id} of case {self.case}: {self.verdict.state}>"


class _SchemaOnly(msgspec.Struct):
    schema: Count


class _UnreadSeries(Series, frozen=True, kw_only=True):
    data: msgspec.Raw  # type: ignore[assignment]


class _UnreadRecord(RunRecord, frozen=True, kw_only=True):
    samples: tuple[_UnreadSeries, ...] = ()


_decoder = msgspec.json.Decoder(RunRecord)
_unread_decoder = msgspec.json.Decoder(_UnreadRecord)
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_schema_decoder = msgspec.json.Decoder(_SchemaOnly)
_NOT_JSON = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def encode(record: RunRecord) -> bytes:
    return _encoder.encode(record)


def decode(payload: bytes | msgspec.Raw) -> RunRecord:
    """Return the record in `payload` (JSON).

    Raises:
        ConfigError: it is not a record, a figure is out of its bounds, or its schema is newer than
            this version.
    """
    try:
        record = _decoder.decode(payload)
    except _NOT_JSON as error:
        raise not_a_record(payload, error) from error
    _check(record)
    return record


def decode_head(payload: bytes | msgspec.Raw) -> RunRecord:
    """Return the record without its raw samples.

    They are validated but not copied: they are most of a record. Raises as `decode`.
    """
    try:
        record: RunRecord = _unread_decoder.decode(payload)
    except _NOT_JSON as error:
        raise not_a_record(payload, error) from error
    _check(record)
    for series in record.samples:
        text = bytes(series.data)  # type: ignore[arg-type]
        if not text.startswith(b'"') or not text.isascii() or b"\\" in text:
            # Other text may be invalid.
            decode(payload)
            break
    # The record is frozen, but nobody else has it yet.
    msgspec.structs.force_setattr(record, "samples", ())
    return record


def decode_heads(array: bytes) -> Iterator[RunRecord]:
    """Yield the records in a JSON array as `decode_head` does, one by one.

    All at once would not fit into the cache.
    """
    try:
        raw_records = _array_decoder.decode(array)
    except _NOT_JSON as error:
        raise ConfigError(f"not a batch of records: {error}") from error
    yield from map(decode_head, raw_records)


def _check(record: RunRecord) -> None:
    """Check the schema and the accuracy of a record.

    Raises:
        ConfigError: this version does not know the schema, or an accuracy exceeds 1, which only an
            error may.
    """
    check_schema(record.schema)
    accuracy = record.accuracy
    if accuracy is not None and accuracy.value > 1 and accuracy.better == "higher":
        raise ConfigError(
            f"not a run record: {accuracy.metric} exceeds 1, and lower is not better - at "
            "`$.accuracy.value`"
        )


def check_schema(schema: Count) -> None:
    """Raise ConfigError if this version does not know the schema."""
    if schema > SCHEMA:
        raise ConfigError(
            f"the record has schema {schema}, this edgemeter reads up to {SCHEMA}: update "
            "edgemeter here"
        )


def not_a_record(payload: bytes | msgspec.Raw, error: Exception) -> ConfigError:
    """Return the error for text that cannot be decoded.

    It is that the text's schema is newer, if so, since fields may have been renamed.
    """
    try:
        check_schema(_schema_decoder.decode(payload).schema)
    except _NOT_JSON:
        pass
    except ConfigError as newer:
        return newer
    return ConfigError(f"not a run record: {error}")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record (draft 2020-12).

    It has the fields' texts as `description`.
    """
    schema = msgspec.json.schema(RunRecord)
    texts = field_texts(
        *(
            record_conditions,
            record_figures,
            record_accuracy,
            record_generation,
            operating_point,
            sys.modules[__name__],
        )
    )
    for name, part in schema["$defs"].items():
        part["properties"] = {
            field: {**kind, "description": texts[name][field]}
            for field, kind in part["properties"].items()
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Edgemeter run record",
        "description": STABILITY,
        **schema,
    }


def split_samples(payload: bytes) -> tuple[bytes, bytes]:
    """Return the record's JSON without samples, and the JSON array of samples.

    Raises:
        ConfigError: it is not a JSON object.
    """
    fields = _fields_of(payload)
    samples = fields.pop("samples", None)
    return _encoder.encode(fields), NO_SAMPLES if samples is None else bytes(samples)


def join_samples(head: bytes, samples: bytes) -> bytes:
    """Undo `split_samples`; raises ConfigError if `head` is not a JSON object."""
    return _encoder.encode(_fields_of(head) | {"samples": msgspec.Raw(samples)})


def change_fields(head: bytes, **changes: str | int) -> bytes:
    """Return the record's JSON with these fields changed or added.

    Raises:
        ConfigError: `head` is not a JSON object.
    """
    return _encoder.encode(
        _fields_of(head)
        | {name: msgspec.Raw(_encoder.encode(value)) for name, value in changes.items()}
    )


def _fields_of(payload: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _fields_decoder.decode(payload)
    except _NOT_JSON as error:
        raise ConfigError(f"not a run record: {error}") from error

"""The envelope of a record: the fields that the ledger needs, read from any bytes within bounds; the rest is not decoded."""

import threading
import zlib

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Name, Sha256
from edgemeter.agent.contract.record import SCHEMA
from edgemeter.agent.contract.record_conditions import Role, StampedBy, VerdictState

# Twice the largest message: raw samples, which are most of a large one, are packed already.
LONGEST_TEXT_BYTES = 32 << 20
# A record without its samples has kilobytes; decoded, text may take thirty times its size.
LARGEST_HEAD_BYTES = 2 << 20
MOST_SERIES = 1000

# Source: RFC 1950, 2.2: deflate with a window of 32 KiB, as zlib writes it.
ZLIB_FIRST_BYTE = b"x"

# Source: zlib's technical details: deflate makes nothing smaller than 1:1032.
LARGEST_RATIO = 1032


class _EnvelopeModel(msgspec.Struct, frozen=True, gc=False):
    name: Name
    task: str


class _EnvelopeRuntime(msgspec.Struct, frozen=True, gc=False):
    name: str


class _EnvelopeDataset(msgspec.Struct, frozen=True, gc=False):
    sha256: Sha256


class _EnvelopeVerdict(msgspec.Struct, frozen=True, gc=False):
    state: VerdictState


class Envelope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields by which a record is stored and found. The rest is JSON, but not yet known to be valid."""

    # As in the record itself, the default is the first schema.
    schema: int = 1
    id: str
    device: Name
    fleet: Name
    role: Role
    session: int | None
    seq: int | None
    started_at_ns: int
    clock_synchronised: bool | None
    stamped_by: StampedBy = "device"
    model: _EnvelopeModel
    runtime: _EnvelopeRuntime
    precision: str
    scenario: str
    dataset: _EnvelopeDataset
    verdict: _EnvelopeVerdict


_one_envelope = msgspec.json.Decoder(Envelope)
_batch_envelopes = msgspec.json.Decoder(list[Envelope])


def is_compressed(payload: bytes) -> bool:
    """Return whether a payload is compressed, by its first byte."""
    return payload[:1] == ZLIB_FIRST_BYTE


def payload_text(payload: bytes) -> bytes:
    """Return the JSON text of a payload, at most 32 MiB; raises ConfigError if it is not valid zlib data, or holds more."""
    if not is_compressed(payload):
        return payload
    unpacking = zlib.decompressobj()
    try:
        if len(payload) * LARGEST_RATIO <= LONGEST_TEXT_BYTES:
            # A large enough buffer takes a third of the time.
            return zlib.decompress(payload, bufsize=16 * len(payload))
        text = unpacking.decompress(payload, LONGEST_TEXT_BYTES)
    except zlib.error as error:
        raise ConfigError(f"not a run record: compressed, but broken ({error})") from error
    if unpacking.unconsumed_tail or (len(text) == LONGEST_TEXT_BYTES and not unpacking.eof):
        raise ConfigError(f"not a run record: more than {LONGEST_TEXT_BYTES >> 20} MiB when decompressed")
    if not unpacking.eof:
        raise ConfigError("not a run record: compressed, but its end is missing")
    return text


def is_batch(text: bytes) -> bool:
    """Return whether a JSON text is an array."""
    return text[:1] == b"[" or text.lstrip()[:1] == b"["


def read_envelope(text: bytes) -> Envelope:
    """Return the envelope of a record.

    Raises:
        ConfigError: a field is missing or wrong, or the schema is newer than this version supports.
    """
    try:
        envelope = _one_envelope.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(_why_not(text, error)) from error
    _check_schema(envelope.schema)
    return envelope


def read_envelopes(text: bytes) -> list[Envelope] | None:
    """Return the envelopes of an array of records; None if any is invalid or of a newer schema."""
    try:
        envelopes = _batch_envelopes.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return envelopes if all(envelope.schema <= SCHEMA for envelope in envelopes) else None


class _CountedSeries(msgspec.Struct, frozen=True, gc=False):
    def __post_init__(self) -> None:
        _series.left -= 1
        if _series.left < 0:
            raise ValueError(f"more than {MOST_SERIES} series")


class _SamplesOnly(msgspec.Struct, frozen=True, gc=False):
    samples: msgspec.Raw = msgspec.Raw(b"[]")


# How many more series this thread may read.
_series = threading.local()
_samples_only = msgspec.json.Decoder(_SamplesOnly)
_counted_series = msgspec.json.Decoder(list[_CountedSeries])


def check_size(text: bytes) -> None:
    """Check that a record of more than 2 MiB is so large in raw samples alone, before anything is built of it.

    Raises:
        ConfigError: the rest is larger than 2 MiB, there are more than 1,000 series, or it is not a JSON object.
    """
    if len(text) <= LARGEST_HEAD_BYTES:
        return
    try:
        samples = _samples_only.decode(text).samples
        if len(text) - len(bytes(samples)) > LARGEST_HEAD_BYTES:
            raise ConfigError(f"not a run record: more than {LARGEST_HEAD_BYTES >> 20} MiB without its samples")
        _series.left = MOST_SERIES
        _counted_series.decode(samples)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a run record: {error}") from error


class _EnvelopeSchema(msgspec.Struct):
    schema: int


def _why_not(text: bytes, error: Exception) -> str:
    # A newer schema may have renamed the missing field: that is the better message.
    try:
        _check_schema(msgspec.json.decode(text, type=_EnvelopeSchema).schema)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    except ConfigError as newer:
        return str(newer)
    return f"not a run record: {error}"


def _check_schema(schema: int) -> None:
    if schema > SCHEMA:
        raise ConfigError(f"the record has schema {schema}, this edgemeter reads up to {SCHEMA}: update edgemeter here")

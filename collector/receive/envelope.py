"""The envelope: what the ledger has to know of a record, read without making objects of the rest; and the forms of a payload.

A payload is one record's JSON, a JSON array of records, or either of them compressed (zlib); its first byte tells. Any bytes at all may
come in here, so that what they become is bounded.
"""

import zlib

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import SCHEMA, Name, Role, Sha256, StampedBy, VerdictState

LONGEST_TEXT_BYTES = 64 << 20
# Source: RFC 1950, 2.2: deflate with a window of 32 KiB, which is what zlib makes.
ZLIB_FIRST_BYTE = b"x"
# Source: zlib's technical details: deflate makes nothing smaller than 1:1032.
LARGEST_RATIO = 1032


class _Model(msgspec.Struct, frozen=True, gc=False):
    name: Name
    task: str


class _Runtime(msgspec.Struct, frozen=True, gc=False):
    name: str


class _Dataset(msgspec.Struct, frozen=True, gc=False):
    sha256: Sha256


class _Verdict(msgspec.Struct, frozen=True, gc=False):
    state: VerdictState


class Envelope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields of a record by which it is kept and found. The rest of it is JSON, but may not be a record's."""

    # As in the record itself: one without is of the first.
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
    model: _Model
    runtime: _Runtime
    precision: str
    scenario: str
    dataset: _Dataset
    verdict: _Verdict


_one = msgspec.json.Decoder(Envelope)
_several = msgspec.json.Decoder(list[Envelope])


def is_compressed(payload: bytes) -> bool:
    """Return whether a payload is compressed, by its first byte."""
    return payload[:1] == ZLIB_FIRST_BYTE


def text_of(payload: bytes) -> bytes:
    """Return the JSON text of a payload, at most 64 MiB.

    Raises:
        ConfigError: it is not what zlib made, or holds more.
    """
    if not is_compressed(payload):
        return payload
    unpacking = zlib.decompressobj()
    try:
        if len(payload) * LARGEST_RATIO <= LONGEST_TEXT_BYTES:
            # Room for it at once takes a third of the time.
            return zlib.decompress(payload, bufsize=16 * len(payload))
        text = unpacking.decompress(payload, LONGEST_TEXT_BYTES)
    except zlib.error as error:
        message = f"not a run record: compressed, but broken ({error})"
        raise ConfigError(message) from error
    if unpacking.unconsumed_tail or (len(text) == LONGEST_TEXT_BYTES and not unpacking.eof):
        message = f"not a run record: more than {LONGEST_TEXT_BYTES >> 20} MiB when decompressed"
        raise ConfigError(message)
    if not unpacking.eof:
        message = "not a run record: compressed, but its end is missing"
        raise ConfigError(message)
    return text


def is_batch(text: bytes) -> bool:
    """Return whether a JSON text is an array."""
    return text[:1] == b"[" or text.lstrip()[:1] == b"["


def read(text: bytes) -> Envelope:
    """Return the envelope of a record.

    Raises:
        ConfigError: it has none, or the record is of a newer schema than this version knows.
    """
    try:
        envelope = _one.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(_why_not(text, error)) from error
    _check_schema(envelope.schema)
    return envelope


def read_batch(text: bytes) -> list[Envelope] | None:
    """Return the envelopes of an array of records; None where one or another has none, or is of a newer schema."""
    try:
        envelopes = _several.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return envelopes if all(one.schema <= SCHEMA for one in envelopes) else None


class _SchemaOnly(msgspec.Struct):
    schema: int


def _why_not(text: bytes, error: Exception) -> str:
    # A newer schema may have renamed what was missed: that says more.
    try:
        _check_schema(msgspec.json.decode(text, type=_SchemaOnly).schema)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    except ConfigError as newer:
        return str(newer)
    return f"not a run record: {error}"


def _check_schema(schema: int) -> None:
    if schema > SCHEMA:
        message = f"the record has schema {schema}, this edgemeter reads up to {SCHEMA}: update edgemeter here"
        raise ConfigError(message)

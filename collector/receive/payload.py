"""The payload of a message of results: from any bytes at all to the JSON texts of records, within bounds of memory."""

import re

import msgspec

from edgemeter.agent.base import deflate
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract import messages

# Of a message of 16 MiB: raw samples, which are most of a large record, are compressed already, and their base64 shrinks by a quarter.
LONGEST_TEXT_BYTES = 24 << 20
# Records that travel together have at most 512 KiB; a larger one travels alone (`agent/delivery/sender.py`).
LONGEST_BATCH_BYTES = 2 << 20
# A record without its samples has kilobytes; decoded, text may take thirty times its size.
LARGEST_HEAD_BYTES = deflate.BEGINNING_BYTES
MOST_SERIES = 1000

# Source: RFC 1950, 2.2: deflate with a window of 32 KiB, as zlib writes it.
ZLIB_FIRST_BYTE = b"x"

_has_samples = re.compile(rb'"samples"\s*:\s*\[').search
_is_array = re.compile(rb"\s*\[").match


def payload_text(payload: bytes) -> bytes:
    """Return the JSON text of a payload: at most 2 MiB of many records; unpacked, at most 24 MiB with raw samples and 1 MiB without.

    Raises:
        ConfigError: it is not valid zlib data, or longer.
    """
    if payload[:1] == ZLIB_FIRST_BYTE:
        try:
            return deflate.expand(payload, _longest_bytes)
        except ConfigError as error:
            raise ConfigError(f"not a run record: {error}") from error
    if len(payload) > LONGEST_BATCH_BYTES and is_batch(payload):
        raise ConfigError(f"not a batch of records: more than {LONGEST_BATCH_BYTES >> 20} MiB")
    return payload


def _longest_bytes(beginning: bytes) -> int:
    """Return how long a text may be that begins so: what makes a record large are its samples, which begin within its first MiB."""
    if is_batch(beginning):
        return LONGEST_BATCH_BYTES
    return LONGEST_TEXT_BYTES if _has_samples(beginning) else LARGEST_HEAD_BYTES


def is_batch(text: bytes) -> bool:
    """Return whether a JSON text is an array."""
    return _is_array(text) is not None


class _SamplesOnly(msgspec.Struct, frozen=True, gc=False):
    samples: msgspec.Raw = msgspec.Raw(b"[]")


def check_size(text: bytes) -> None:
    """Check that a record of more than 2 MiB is so large in raw samples alone, before anything is built of it.

    Raises:
        ConfigError: the rest is larger than 2 MiB, there are more than 1,000 series, or it is not a JSON object.
    """
    if len(text) <= LARGEST_HEAD_BYTES:
        return
    try:
        samples = bytes(decode_json(text, _SamplesOnly).samples)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"not a run record: {error}") from error
    if len(text) - len(samples) > LARGEST_HEAD_BYTES:
        raise ConfigError(f"not a run record: more than {LARGEST_HEAD_BYTES >> 20} MiB without its samples")
    # Each series is an object, and what they hold has no braces.
    if samples.count(b"{") > MOST_SERIES:
        raise ConfigError(f"not a run record: more than {MOST_SERIES} series")


def split_records(payload: bytes) -> list[bytes]:
    """Return the encoded records of a payload, each as its own JSON text; what each holds is not checked here.

    Raises:
        ConfigError: the payload is a list, but not one of up to 10,000 objects that look like records.
    """
    if not is_batch(payload):
        return [payload]
    try:
        # Most of what is no batch has no ids, and costs little to read so.
        if len(decode_json(payload, list[_Outline])) > messages.LONGEST_BATCH:
            raise ConfigError(f"not a batch of records: more than {messages.LONGEST_BATCH}")
        return [bytes(raw) for raw in decode_json(payload, list[msgspec.Raw])]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"not a batch of records: {error}") from error


class _Outline(msgspec.Struct, frozen=True, gc=False):
    """The minimum content of a record."""

    id: str

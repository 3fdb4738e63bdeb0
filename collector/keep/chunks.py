"""A chunk: several records in one compressed JSON array, each as its own text, so that fields of newer versions stay."""

import zlib
from collections.abc import Sequence

import msgspec

from edgemeter.agent import record_parts
from edgemeter.agent.errors import ConfigError

# A chunk made here is full with this much text; one that came as a message of many records may have more.
TEXT_BYTES = 256 << 10
LARGEST_TEXT_BYTES = 4 << 20

_array = msgspec.json.Decoder(list[msgspec.Raw])


def pack(payloads: Sequence[bytes]) -> bytes:
    """Return a chunk of records' JSON texts."""
    return pack_array(b"[" + b",".join(payloads) + b"]")


def pack_array(text: bytes) -> bytes:
    """Return a chunk of a JSON array of records."""
    return zlib.compress(text, 1)


def text(body: bytes) -> bytes:
    """Return the JSON array in a chunk.

    Raises:
        ConfigError: the chunk is damaged.
    """
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        message = f"a chunk of records in the ledger is damaged ({error}): take the file from a backup"
        raise ConfigError(message) from error


def unpack(body: bytes) -> list[bytes]:
    """Return the JSON text of each record.

    Raises:
        ConfigError: the chunk is damaged.
    """
    return [bytes(raw) for raw in _array.decode(text(body))]


def without_samples(body: bytes) -> bytes:
    """Return the same chunk without the records' raw samples.

    Raises:
        ConfigError: the chunk is damaged.
    """
    return pack([record_parts.part(payload)[0] for payload in unpack(body)])

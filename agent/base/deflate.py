"""Compression in zlib's format (RFC 1950), for records in transit and in storage."""

import io
import zlib
from collections.abc import Callable

from edgemeter.agent.base.errors import ConfigError

_LEVEL = 1
# Most messages and chunks unpack within this, without a second copy.
BEGINNING_BYTES = 1 << 20
_PORTION_BYTES = 64 << 10


def compress(*pieces: bytes) -> bytes:
    """Return the pieces compressed as one stream, without joining them first."""
    packing = zlib.compressobj(_LEVEL)
    return b"".join([*map(packing.compress, pieces), packing.flush()])


def expand(packed: bytes, limit_of: Callable[[bytes], int]) -> bytes:
    """Return the unpacked text, with at most one copy in memory.

    `limit_of` returns the maximum size of a text from its first MiB; it is not called for shorter
    texts.

    Raises:
        ConfigError: this is not zlib's format, or damaged, or the text is too long.
    """
    try:
        return _expanded(packed, limit_of)
    except zlib.error as error:
        raise ConfigError(f"compressed, but broken ({error})") from error


def _expanded(packed: bytes, limit_of: Callable[[bytes], int]) -> bytes:
    unpacking = zlib.decompressobj()
    view = memoryview(packed)
    portion = unpacking.decompress(view[:_PORTION_BYTES], BEGINNING_BYTES)
    is_whole: bool = unpacking.eof
    if is_whole:
        return portion
    # A buffer that grows in place and is returned without a copy.
    text = io.BytesIO()
    text.write(portion)
    limit_bytes = 0
    begin = _PORTION_BYTES
    while not is_whole:
        waiting: bytes | memoryview = unpacking.unconsumed_tail
        if not waiting:
            waiting = view[begin : begin + _PORTION_BYTES]
            begin += _PORTION_BYTES
        portion = unpacking.decompress(waiting, _PORTION_BYTES)
        if not portion and not waiting:
            raise ConfigError("compressed, but its end is missing")
        text.write(portion)
        is_whole = unpacking.eof
        if text.tell() > BEGINNING_BYTES:
            limit_bytes = limit_bytes or limit_of(text.getbuffer()[:BEGINNING_BYTES].tobytes())
            if text.tell() > limit_bytes:
                raise ConfigError(f"more than {limit_bytes >> 20} MiB when decompressed")
    return text.getvalue()

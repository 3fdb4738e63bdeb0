"""Compression in zlib's format (RFC 1950), as records travel and are kept: by ISA-L where that is installed, else by Python's zlib.

ISA-L takes a twelfth of zlib's time to compress records without raw samples and an eighth with them, and is no larger; to unpack, a third.
"""

import io
import zlib

from edgemeter.agent.base.errors import ConfigError

try:
    from isal import isal_zlib as _codec

    _LEVEL = 2
except ImportError:
    import zlib as _codec  # type: ignore[no-redef]

    _LEVEL = 1

# What is unpacked at once: most messages and chunks, which then need no second copy.
_USUAL_BYTES = 1 << 20
_PORTION_BYTES = 64 << 10


def compress(*pieces: bytes) -> bytes:
    """Return the pieces, one after the other, compressed; they are not copied into one."""
    packing = _codec.compressobj(_LEVEL)
    return b"".join([*map(packing.compress, pieces), packing.flush()])


def expand(packed: bytes, limit_bytes: int) -> bytes:
    """Return the text, of which memory never holds more than one copy.

    Raises:
        ConfigError: this is not zlib's format, or damaged, or the text is longer than `limit_bytes`.
    """
    try:
        text = _expanded(packed, limit_bytes)
    except (_codec.error, zlib.error) as error:
        raise ConfigError(f"compressed, but broken ({error})") from error
    if text is None:
        raise ConfigError("compressed, but its end is missing")
    if len(text) > limit_bytes:
        raise ConfigError(f"more than {limit_bytes >> 20} MiB when decompressed")
    return text


def _expanded(packed: bytes, limit_bytes: int) -> bytes | None:
    """Return the text, or more of it than the limit; None if its end is missing."""
    unpacking = _codec.decompressobj()
    view = memoryview(packed)
    piece = unpacking.decompress(view[:_PORTION_BYTES], _USUAL_BYTES)
    if unpacking.eof:
        return piece
    # A buffer that grows in place and is given away as it is.
    text = io.BytesIO()
    text.write(piece)
    begin = _PORTION_BYTES
    while text.tell() <= limit_bytes and not unpacking.eof:
        waiting = unpacking.unconsumed_tail
        if not waiting:
            waiting = view[begin : begin + _PORTION_BYTES]
            begin += _PORTION_BYTES
        piece = unpacking.decompress(waiting, _PORTION_BYTES)
        if not piece and not waiting:
            return None
        text.write(piece)
    return text.getvalue()

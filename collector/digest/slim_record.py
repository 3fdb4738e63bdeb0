"""A record as the digest keeps it: without what no comparison looks at, and compressed against another record of its case.

Records of one case are much alike: 300 bytes are left of 4,500.
"""

import zlib

import msgspec

from edgemeter.agent.records import RunRecord

# Parts that tell how a run was made or why it is believed, not what it measured; the ledger has them.
_LEFT_AWAY = {
    "samples": (),
    "outputs": (),
    "power_traces": (),
    "windows": None,
    "sustained": None,
    "cool_down": None,
    "scheduling": None,
    "observer": None,
    "answers": None,
    "agreement": None,
}
# A small window and little memory: what deflate sets up for one record costs more than the record.
_WINDOW = -13
_MEMORY = 5
_LEVEL = 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RunRecord).decode


def slimmed(record: RunRecord) -> bytes:
    """Return the record without what no comparison looks at, not compressed: the first of a case is the template of the others."""
    return _encode(msgspec.structs.replace(record, **_LEFT_AWAY))


def pack(text: bytes, template: bytes) -> bytes:
    """Return `text` compressed against `template`."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, template)
    return compressor.compress(text) + compressor.flush()


def unpack(body: bytes, template: bytes) -> RunRecord:
    """Return the record that `pack` compressed."""
    return _decode(zlib.decompressobj(_WINDOW, template).decompress(body))

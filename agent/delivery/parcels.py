"""Parcels: which records travel together in one message, and how they are packed.

One record travels as its JSON, several of one fleet (a topic) as a JSON array of them, either compressed (zlib) above a size; the first
byte tells which. Records that wait together travel together, so that a device that is behind catches up in few messages.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from edgemeter.agent.delivery import messages
from edgemeter.agent.delivery.outbox import Pending

PARCEL_RECORDS = 100
PARCEL_BYTES = 512 << 10
COMPRESS_ABOVE_BYTES = 4 << 10
# Measured on records with and without raw samples: the next levels take twice the time for a twentieth of the size.
COMPRESSION_LEVEL = 3
# Topic, properties and header of a packet, generously.
PACKET_OVERHEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """Records for one topic, and the payload that carries them; `fits` says whether the broker takes that much."""

    records: Sequence[Pending]
    payload: bytes
    fits: bool


def packed(encoded: list[bytes]) -> bytes:
    """Return one payload of several encoded records."""
    text = messages.join(encoded)
    return zlib.compress(text, COMPRESSION_LEVEL) if len(text) > COMPRESS_ABOVE_BYTES else text


def parcels(pending: Sequence[Pending], largest_bytes: int) -> Iterator[Parcel]:
    """Yield the records in their order, as few parcels, each no larger than the broker takes; a single record may be."""
    for _, together in groupby(pending, key=lambda one: one.fleet):
        yield from _parcels_of(list(together), largest_bytes - PACKET_OVERHEAD_BYTES)


def _parcels_of(together: list[Pending], largest_bytes: int) -> Iterator[Parcel]:
    payload = packed([one.payload for one in together])
    if len(payload) <= largest_bytes or len(together) == 1:
        yield Parcel(together, payload, len(payload) <= largest_bytes)
        return
    half = len(together) // 2
    yield from _parcels_of(together[:half], largest_bytes)
    yield from _parcels_of(together[half:], largest_bytes)

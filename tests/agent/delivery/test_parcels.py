"""Facts about records that travel together."""

import os
import zlib

from edgemeter.agent.contract import messages
from edgemeter.agent.delivery.outbox import Pending
from edgemeter.agent.delivery.sender import BATCH_RECORDS, COMPRESS_ABOVE_BYTES, PACKET_OVERHEAD_BYTES, batches, packed

LARGE = 1 << 24


def pending(row, payload, fleet="lab", session=1):
    """Return a record of the outbox."""
    return Pending(row, "pi-1", fleet, session, row, payload)


def record(number, size_bytes=100):
    """Return what passes for a record's JSON and cannot be compressed to less than half."""
    return b'{"schema":1,"id":"%d","x":"%s"}' % (number, os.urandom(size_bytes // 2).hex().encode())


def opened(payload):
    """Return the records in a payload, told by its first byte as a collector tells."""
    return messages.split_records(zlib.decompress(payload) if payload[:1] == b"\x78" else payload)


def test_the_first_byte_shows_the_form_and_every_record_comes_out_as_it_went_in():
    """One record, a list, and a list that was compressed."""
    for count, first in [(1, b"{"), (3, b"["), (BATCH_RECORDS, b"\x78")]:
        encoded = [record(number) for number in range(count)]
        payload = packed(encoded)
        assert payload[:1] == first, f"{count!r}"
        assert opened(payload) == encoded, f"{count!r}"


def test_a_large_record_is_compressed_and_a_small_one_is_not():
    """The limit is on the text."""
    small, large = (b'{"schema":1,"id":"a","x":"%s"}' % (b"x" * size) for size in (COMPRESS_ABOVE_BYTES - 200, COMPRESS_ABOVE_BYTES))
    assert packed([small]) == small
    assert len(packed([large])) < 100
    assert opened(packed([large])) == [large]


def test_a_topic_is_one_fleets():
    """Records of a previous fleet go in a batch of their own, and the order stays."""
    waiting = [pending(1, record(1), "old"), pending(2, record(2), session=2), pending(3, record(3)), pending(4, record(4), "old")]
    made = list(batches(waiting, LARGE))
    assert [[one.row for one in parcel.records] for parcel in made] == [[1], [2, 3], [4]]
    assert all(parcel.fits for parcel in made)


def test_no_batch_is_larger_than_the_broker_takes_unless_a_single_record_is():
    """What does not fit is halved until it does; the one that never will is reported."""
    sizes = [2000, 2000, 50_000, 2000, 2000]
    waiting = [pending(row, record(row, size)) for row, size in enumerate(sizes, 1)]
    limit_bytes = 5000 + PACKET_OVERHEAD_BYTES
    made = list(batches(waiting, limit_bytes))
    assert [one for parcel in made for one in parcel.records] == waiting
    assert [parcel.fits for parcel in made].count(False) == 1
    assert all(len(parcel.payload) <= 5000 for parcel in made if parcel.fits)
    assert [one.row for parcel in made if not parcel.fits for one in parcel.records] == [3]
    assert [raw for parcel in made for raw in opened(parcel.payload)] == [one.payload for one in waiting]

"""Facts about an outbox that is full, or whose disk is."""

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.sqlite_file import space_bytes
from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import DROP_REASON, Dropped
from tests.fixtures.record_factory import make_heavy_record, make_record
from tests.fixtures.small_disk import fill, small_disk

LOTS = 10**9
LIMIT_BYTES = 1 << 20


def pending(outbox):
    """Return the records that wait, as they would be sent."""
    return [record.decode(one.payload) for one in outbox.pending(100_000, LOTS)]


@pytest.fixture
def outbox(tmp_path):
    """Return an empty outbox of at most 1 MiB."""
    with Outbox(tmp_path / "outbox.sqlite", LIMIT_BYTES) as made:
        yield made


def test_the_oldest_traces_go_first_and_every_record_stays(outbox, caplog):
    """Five times the limit in traces: all records are there, the newest with their samples, the rest state why they have none."""
    for _ in range(80):
        outbox.put(make_heavy_record())
    waiting = pending(outbox)
    assert [record.seq for record in waiting] == list(range(1, 81))
    whole = [record.seq for record in waiting if record.samples]
    assert whole == list(range(81 - len(whole), 81))
    assert 5 <= len(whole) <= 17
    assert {record.samples_reason for record in waiting} == {DROP_REASON, None}
    assert all((record.samples_reason is None) == bool(record.samples) for record in waiting)
    assert outbox.dropped() == outbox.dropped("pi-1") == Dropped(traces=80 - len(whole))
    assert space_bytes(outbox.connection)[0] <= LIMIT_BYTES
    assert caplog.text.count("the oldest raw traces are dropped, their records stay") == 1


def test_records_go_last_the_oldest_of_them(outbox, caplog):
    """When no trace is left to drop; what went is counted and reported, and the numbers go on."""
    for _ in range(600):
        outbox.put(make_record())
    waiting = [record.seq for record in pending(outbox)]
    assert waiting == list(range(601 - len(waiting), 601))
    assert 50 < len(waiting) < 600
    dropped = outbox.dropped("pi-1")
    assert dropped.records == 600 - len(waiting)
    assert dropped.traces <= 600
    assert space_bytes(outbox.connection)[0] <= LIMIT_BYTES
    assert "the oldest records are dropped" in caplog.text


def test_the_newest_record_stays_even_when_it_alone_is_too_large(outbox):
    """A measurement just made is not thrown away for its size; its trace may be."""
    outbox.put(make_record())
    outbox.put(make_record(case="x" * 2 * LIMIT_BYTES))
    (last,) = pending(outbox)
    assert (last.seq, len(last.case)) == (2, 2 * LIMIT_BYTES)


def test_what_a_receipt_names_makes_room_without_loss(outbox):
    """Space in the file is used again: an outbox that is emptied in time drops nothing."""
    for seq in range(1, 101):
        outbox.put(make_heavy_record())
        outbox.forget(Receipt(session=outbox.session, held=((seq, seq),)))
    assert outbox.dropped() == Dropped()
    assert outbox.path.stat().st_size < LIMIT_BYTES


def test_what_was_dropped_is_counted_per_device(outbox):
    """Each device reports its own loss."""
    for _ in range(30):
        outbox.put(make_heavy_record(device="a"))
    outbox.put(make_heavy_record(device="b"))
    assert outbox.dropped("a").traces > 10
    assert outbox.dropped("b") == Dropped()
    assert outbox.dropped() == outbox.dropped("a")


def put_all(outbox, count, make):
    """Put so many records."""
    for _ in range(count):
        outbox.put(make())


def test_on_a_full_disk_nothing_kept_is_lost_and_the_error_is_one_line(tmp_path):
    """On a real file system that somebody else fills: a put fails and uses no number up; with room again it goes on."""
    with small_disk(tmp_path / "disk", 3) as disk:
        with Outbox(disk / "outbox.sqlite") as outbox:
            put_all(outbox, 3, make_record)
            fill(disk / "filler")
            with pytest.raises(UnavailableError, match="the disk is full: free some space; nothing kept so far is lost") as caught:
                put_all(outbox, 10_000, lambda: make_record(case="x" * 20_000, samples=()))
            assert "\n" not in str(caught.value)
            kept = [record.seq for record in pending(outbox)]
            assert kept == list(range(1, len(kept) + 1))
            assert outbox.dropped().records == 0
            (disk / "filler").unlink()
            assert outbox.put(make_record()).seq == len(kept) + 1
        with Outbox(disk / "outbox.sqlite") as again:
            assert again.count() == len(kept) + 1

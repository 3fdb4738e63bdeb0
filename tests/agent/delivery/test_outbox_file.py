"""Facts about an outbox that is full, or whose disk is.

They also concern records that stay in it after their receipt.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.sqlite_file import space_bytes
from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import AgainRequest, Receipt
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import (
    KEPT_DAYS,
    RESERVE_BYTES,
    DiskReserve,
    Dropped,
    drop_receipted,
)
from tests.fixtures.publishing import waiting_records
from tests.fixtures.record_factory import make_heavy_record, make_record
from tests.fixtures.small_disk import fill, small_disk

with_mount = pytest.mark.needs("mount")
LOTS = 10**9
LIMIT_BYTES = 1 << 20


@pytest.fixture
def outbox(tmp_path, monkeypatch):
    """Return an empty outbox of at most 1 MiB, however full the disk of this machine is."""
    monkeypatch.setattr(outbox_file, "has_disk_room", lambda _path: True)
    with Outbox(tmp_path / "outbox.sqlite", LIMIT_BYTES) as new_outbox:
        yield new_outbox


def test_the_oldest_traces_go_first_and_every_record_stays(outbox, caplog):
    """With twice the limit in traces, all records stay and the newest keep their samples.

    The others state why they have none.
    """
    sizes_bytes = []
    for _ in range(32):
        outbox.put(make_heavy_record())
        if outbox.dropped().traces:
            sizes_bytes.append(space_bytes(outbox.connection)[0])
    # No more goes than has to: a twentieth of the limit, and a record.
    assert 0.87 * LIMIT_BYTES < min(sizes_bytes) <= max(sizes_bytes) <= LIMIT_BYTES
    waiting = waiting_records(outbox)
    assert [record.seq for record in waiting] == list(range(1, 33))
    with_samples = [record.seq for record in waiting if record.samples]
    assert with_samples == list(range(33 - len(with_samples), 33))
    assert 5 <= len(with_samples) <= 17
    assert outbox.dropped() == outbox.dropped("pi-1") == Dropped(traces=32 - len(with_samples))
    assert caplog.text.count("the oldest raw traces are dropped, their records stay") == 1


def test_records_go_last_the_oldest_of_them(tmp_path, caplog):
    """Records are dropped when no trace is left, and the loss is counted and reported.

    The numbers go on.
    """
    limit_bytes = LIMIT_BYTES // 4
    with Outbox(tmp_path / "outbox.sqlite", limit_bytes) as outbox:
        put_all(outbox, 150, make_record)
        waiting = [record.seq for record in waiting_records(outbox)]
        assert waiting == list(range(151 - len(waiting), 151))
        assert 15 < len(waiting) < 150
        dropped = outbox.dropped("pi-1")
        assert dropped.records == 150 - len(waiting)
        assert dropped.traces <= 150
        assert space_bytes(outbox.connection)[0] <= limit_bytes
    assert "the oldest records are dropped" in caplog.text


def test_the_newest_record_stays_even_when_it_alone_is_too_large(outbox):
    """A new measurement is not thrown away for its size, though its trace may be."""
    outbox.put(make_record())
    outbox.put(make_record(case="x" * 2 * LIMIT_BYTES))
    (last,) = waiting_records(outbox)
    assert (last.seq, len(last.case)) == (2, 2 * LIMIT_BYTES)


def test_what_was_dropped_is_counted_per_device(outbox):
    """Each device reports its own loss."""
    for _ in range(25):
        outbox.put(make_heavy_record(device="a"))
    outbox.put(make_heavy_record(device="b"))
    assert outbox.dropped("a").traces > 5
    assert outbox.dropped("b") == Dropped()
    assert outbox.dropped() == outbox.dropped("a")


def put_all(outbox, count, make):
    for _ in range(count):
        outbox.put(make())


def put_until_full(outbox):
    """Keep records until the disk takes no more; return how many it took."""
    count = 0
    with contextlib.suppress(UnavailableError):
        while count < 100_000:
            outbox.put(make_record(case="x" * 3000))
            count += 1
    return count


@with_mount
@pytest.mark.parametrize("at_once", [1, 1000])
def test_an_outbox_that_filled_its_disk_empties_itself_and_gives_the_room_back(tmp_path, at_once):
    """Receipts alone empty it, and then there is room for about as many records as before."""
    with small_disk(tmp_path / "disk", 4) as disk, Outbox(disk / "outbox.sqlite") as outbox:
        count = put_until_full(outbox)
        assert count > 100
        fill(disk / "somebody else's")
        for first in range(1, count + 1, at_once):
            outbox.forget(
                Receipt(session=outbox.session, held=((first, min(count, first + at_once - 1)),))
            )
        assert outbox.count() == 0
        assert put_until_full(outbox) > count // 2


def test_the_reserve_is_room_on_the_disk_and_not_a_hole(tmp_path):
    """Its blocks are allocated, and a second keep makes no second reserve."""
    reserve = DiskReserve(tmp_path / "outbox.sqlite")
    reserve.keep()
    stat = reserve.path.stat()
    assert stat.st_blocks * 512 >= stat.st_size > 0
    assert stat.st_size <= RESERVE_BYTES
    reserve.keep()
    assert [path.name for path in tmp_path.iterdir()] == ["outbox.sqlite.reserve"]


def test_without_the_reserve_receipted_records_go_and_it_is_made_again_when_nothing_is_left(outbox):
    """A full disk has no room to keep receipted records for safety."""
    put_all(outbox, 3, make_record)
    reserve = DiskReserve(outbox.path)
    reserve.path.unlink()
    outbox.forget(Receipt(session=outbox.session, held=((1, 2),)))
    assert (outbox.count(), outbox.receipted("pi-1"), reserve.is_whole()) == (1, 0, False)
    assert outbox.query("SELECT min(seq), count(*) FROM records")[0][:] == (3, 1)
    outbox.forget(Receipt(session=outbox.session, held=((3, 3),)))
    assert reserve.is_whole()


def test_another_failure_than_a_full_disk_is_reported_as_it_is(tmp_path):
    """The work is tried once more without the reserve, and then its error is raised.

    The next record makes the reserve whole again.
    """
    reserve = DiskReserve(tmp_path / "outbox.sqlite")
    reserve.keep()
    tries = []

    def broken():
        tries.append(reserve.is_whole())
        message = "the disk is gone"
        raise UnavailableError(message)

    for _ in range(2):
        with pytest.raises(UnavailableError, match="the disk is gone"):
            reserve.in_need(broken)
    assert tries == [True, False, False]
    reserve.keep()
    assert reserve.is_whole()
    assert reserve.in_need(lambda: "kept") == "kept"


@with_mount
def test_a_disk_without_room_for_the_logs_index_is_called_full(tmp_path):
    """SQLite says `disk I/O error` then, and moving the outbox away would not help."""
    with small_disk(tmp_path / "disk", 4) as disk:
        Outbox(disk / "outbox.sqlite").close()
        DiskReserve(disk / "outbox.sqlite").path.unlink(missing_ok=True)
        fill(disk / "somebody else's")
        with pytest.raises(UnavailableError, match="the disk is full"):
            Outbox(disk / "outbox.sqlite")


@with_mount
def test_a_card_that_went_read_only_is_one_line(tmp_path):
    """Worn cards become read-only, and that the reserve cannot be given up is no further error."""
    with small_disk(tmp_path / "disk", 8) as disk:
        with Outbox(disk / "outbox.sqlite") as outbox:
            outbox.put(make_record())
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=100)
        with pytest.raises(UnavailableError, match="its folder"):
            Outbox(disk / "outbox.sqlite")
        assert DiskReserve(disk / "outbox.sqlite").is_whole()


REQUEST = AgainRequest(again="0" * 32)


def receipted(outbox, *records):
    """Put records and give each its receipt; return them as they were sent."""
    numbered = [outbox.put(unsent) for unsent in records]
    sent = [waiting_record.payload for waiting_record in outbox.pending(1000, LOTS)]
    outbox.forget(Receipt(session=outbox.session, held=((numbered[0].seq, numbered[-1].seq),)))
    return sent


def waiting(outbox):
    return [waiting_record.payload for waiting_record in outbox.pending(10_000, LOTS)]


def test_a_request_brings_the_same_bytes_again_and_a_receipt_ends_it(outbox):
    """The records come with their samples, and after a receipt can be asked for once more.

    Until a request they neither wait nor count.
    """
    sent = receipted(outbox, make_heavy_record(), make_record(), make_record())
    assert waiting(outbox) == []
    assert outbox.count() == 0
    assert outbox.is_empty("pi-1") is True
    assert outbox.waiting() == {}
    assert outbox.receipted("pi-1") == 3
    assert outbox.send_again(REQUEST, "pi-1", "lab") == 1
    assert waiting(outbox) == sent
    assert (outbox.count("pi-1"), outbox.receipted("pi-1")) == (3, 0)
    assert outbox.forget(Receipt(session=outbox.session, held=((1, 3),))) == 3
    assert outbox.send_again(AgainRequest(again="1" * 32), "pi-1", "lab") == 1
    assert waiting(outbox) == sent


def test_a_request_is_served_once(outbox):
    """The broker retains the request, so that it comes with every connection."""
    receipted(outbox, make_record())
    assert outbox.send_again(REQUEST, "pi-1", "lab") == 1
    outbox.forget(Receipt(session=outbox.session, held=((1, 1),)))
    assert outbox.send_again(REQUEST, "pi-1", "lab") is None
    with Outbox(outbox.path) as other:
        assert other.send_again(REQUEST, "pi-1", "lab") is None
    for number in range(1, 90):
        outbox.send_again(AgainRequest(again=f"{number:032x}"), "pi-2", "lab")
    assert outbox.send_again(REQUEST, "pi-1", "lab") is None
    assert waiting(outbox) == []


def test_only_what_is_asked_for_comes_again(outbox):
    """Only records of this device and fleet that were kept since the stated time come again.

    A request does not open another device's outbox.
    """
    receipted(outbox, make_record())
    receipted(outbox, make_record(fleet="before"))
    receipted(outbox, make_record())
    outbox.connection.execute("UPDATE records SET kept_ns = iif(row = 1, 1000, 1001)")
    assert outbox.send_again(REQUEST, "pi-2", "lab") is None
    assert outbox.send_again(AgainRequest(again="2" * 32, since_ns=1001), "pi-1", "lab") == 3
    assert [waiting_record.row for waiting_record in outbox.pending(100, LOTS)] == [3]


def test_receipted_records_make_room_before_any_trace_or_record_without_a_receipt(outbox):
    """No record without a receipt is lost or loses its samples.

    More than the limit goes through, and the file stays below it.
    """
    for _ in range(12):
        receipted(outbox, make_heavy_record(), make_heavy_record())
        assert space_bytes(outbox.connection)[0] <= LIMIT_BYTES
    count = outbox.receipted("pi-1")
    assert 3 <= count <= 9
    for _ in range(8):
        outbox.put(make_heavy_record())
    assert outbox.dropped() == Dropped()
    assert all(record.decode(payload).samples for payload in waiting(outbox))
    assert outbox.receipted("pi-1") < count


def test_what_was_asked_for_again_makes_room_too_and_is_not_called_dropped(outbox):
    """A collector has or had such a record, and those that none ever had take precedence."""
    receipted(outbox, *(make_heavy_record() for _ in range(6)))
    outbox.send_again(REQUEST, "pi-1", "lab")
    seqs = [outbox.put(make_heavy_record()).seq for _ in range(12)]
    decoded = [record.decode(payload) for payload in waiting(outbox)]
    assert [run.seq for run in decoded if run.seq >= seqs[0]] == seqs
    assert all(run.samples for run in decoded)
    assert outbox.dropped() == Dropped()


def test_the_oldest_end_after_two_weeks(outbox):
    """They are not deleted a nanosecond earlier."""
    receipted(outbox, make_record(), make_record())
    outbox.connection.execute("UPDATE records SET kept_ns = row")
    for later_ns, count in ((1, 2), (2, 1), (3, 0)):
        with outbox.transaction() as connection:
            drop_receipted(
                connection, LIMIT_BYTES, int(KEPT_DAYS * NS_PER_DAY) + later_ns, has_disk=True
            )
        assert outbox.receipted("pi-1") == count


def test_on_a_disk_with_little_room_they_do_not_pile_up(outbox):
    """A card that is nearly full is for records without a receipt."""
    receipted(outbox, make_record(), make_record())
    outbox.put(make_record())
    with outbox.transaction() as connection:
        drop_receipted(connection, LIMIT_BYTES, 0, has_disk=False)
    assert outbox.receipted("pi-1") == 0
    assert outbox.count() == 1


@with_mount
def test_a_full_disk_takes_new_records_in_the_place_of_receipted_ones(tmp_path):
    """Records that a collector has do not keep out those that none has.

    A request is served from the reserve.
    """
    with small_disk(tmp_path / "disk", 24) as disk, Outbox(disk / "outbox.sqlite") as outbox:
        sent = receipted(outbox, *(make_heavy_record() for _ in range(100)))
        fill(disk / "somebody else's")
        assert outbox.send_again(REQUEST, "pi-1", "lab") == 1
        assert waiting(outbox) == sent
        outbox.forget(Receipt(session=outbox.session, held=((1, 100),)))
        assert outbox.count() == 0
        sizes = [outbox.put(make_heavy_record()).seq for _ in range(20)]
        assert [record.decode(payload).seq for payload in waiting(outbox)] == sizes
        assert outbox.dropped() == Dropped()


@pytest.mark.nightly
def test_killed_at_any_moment_a_record_waits_or_was_receipted(tmp_path):
    """A process that puts, receipts and answers requests is killed twenty times.

    Every record is there afterwards, each once.
    """
    path = tmp_path / "outbox.sqlite"
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from edgemeter.agent.contract.messages import AgainRequest, Receipt
        from edgemeter.agent.delivery import outbox_file
        from edgemeter.agent.delivery.outbox import Outbox
        from tests.fixtures.record_factory import make_record
        outbox_file.KEPT_DISK_RATIO = 0  # However full the disk of this machine is.
        outbox = Outbox(Path(sys.argv[1]))
        for number in range(10_000):
            kept = outbox.put(make_record())
            print(f"{kept.session} {kept.seq}", flush=True)
            if number % 3:
                outbox.forget(Receipt(session=kept.session, held=((1, kept.seq),)))
            else:
                request = AgainRequest(again=f"{kept.session:016x}{number:016x}")
                outbox.send_again(request, "pi-1", "lab")
    """)
    put = set()
    for turn in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as process:
            for _ in range(1 + 2 * turn):
                session, seq = map(int, process.stdout.readline().split())
                put.add((session, seq))
            os.kill(process.pid, signal.SIGKILL)
    with Outbox(path) as outbox:
        outbox.send_again(AgainRequest(again="f" * 32), "pi-1", "lab")
        waiting_keys = [
            (waiting_record.session, waiting_record.seq)
            for waiting_record in outbox.pending(100_000, LOTS)
        ]
    assert len(waiting_keys) == len(set(waiting_keys))
    assert put <= set(waiting_keys)

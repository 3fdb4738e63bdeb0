"""Facts about records that stay in the outbox after their receipt."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edgemeter.agent.base.sqlite_file import space_bytes
from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import AgainRequest, Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import KEPT_DAYS, Dropped, drop_receipted
from tests.fixtures.record_factory import make_heavy_record, make_record
from tests.fixtures.small_disk import fill, small_disk

LOTS = 10**9
LIMIT_BYTES = 1 << 20
DAY_NS = 86_400_000_000_000
REQUEST = AgainRequest(again="0" * 32)


@pytest.fixture
def outbox(tmp_path):
    """Return an empty outbox of at most 1 MiB."""
    with Outbox(tmp_path / "outbox.sqlite", LIMIT_BYTES) as made:
        yield made


def receipted(outbox, *some):
    """Put records and give each its receipt; return them as they were sent."""
    kept = [outbox.put(one) for one in some]
    sent = [one.payload for one in outbox.pending(1000, LOTS)]
    outbox.forget(Receipt(session=outbox.session, held=((kept[0].seq, kept[-1].seq),)))
    return sent


def waiting(outbox):
    """Return the texts of what is to be sent."""
    return [one.payload for one in outbox.pending(10_000, LOTS)]


def test_a_request_brings_the_same_bytes_again_and_a_receipt_ends_it(outbox):
    """Samples and all; until then they neither wait nor count, and afterwards they can be asked for once more."""
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
    """The broker retains it, so that it comes with every connection."""
    receipted(outbox, make_record())
    assert outbox.send_again(REQUEST, "pi-1", "lab") == 1
    outbox.forget(Receipt(session=outbox.session, held=((1, 1),)))
    assert outbox.send_again(REQUEST, "pi-1", "lab") is None
    with Outbox(outbox.path) as other:
        assert other.send_again(REQUEST, "pi-1", "lab") is None
    assert waiting(outbox) == []


def test_only_what_is_asked_for_comes_again(outbox):
    """Of this device and this fleet, kept since then; another device's outbox is not opened by a request."""
    receipted(outbox, make_record())
    receipted(outbox, make_record(fleet="before"))
    receipted(outbox, make_record())
    outbox.connection.execute("UPDATE records SET kept_ns = 1000 WHERE row = 1")
    assert outbox.send_again(REQUEST, "pi-2", "lab") is None
    assert outbox.send_again(AgainRequest(again="2" * 32, since_ns=1001), "pi-1", "lab") == 3
    assert [one.row for one in outbox.pending(100, LOTS)] == [3]


def test_receipted_records_make_room_before_any_trace_or_record_without_a_receipt(outbox):
    """Ten times the limit goes through: nothing without a receipt is lost or loses its samples, and the file stays below its limit."""
    for _ in range(100):
        receipted(outbox, make_heavy_record(), make_heavy_record())
        assert space_bytes(outbox.connection)[0] <= LIMIT_BYTES
    kept = outbox.receipted("pi-1")
    assert 3 <= kept <= 9
    for _ in range(8):
        outbox.put(make_heavy_record())
    assert outbox.dropped() == Dropped()
    assert all(record.decode(one).samples for one in waiting(outbox))
    assert outbox.receipted("pi-1") < kept


def test_what_was_asked_for_again_makes_room_too_and_is_not_called_dropped(outbox):
    """A collector has it, or had it; what none ever had comes first."""
    receipted(outbox, *(make_heavy_record() for _ in range(6)))
    outbox.send_again(REQUEST, "pi-1", "lab")
    kept = [outbox.put(make_heavy_record()).seq for _ in range(12)]
    found = [record.decode(one) for one in waiting(outbox)]
    assert [one.seq for one in found if one.seq >= kept[0]] == kept
    assert all(one.samples for one in found)
    assert outbox.dropped() == Dropped()


def test_the_oldest_end_after_two_weeks(outbox):
    """The next record that is put takes them away, as it is written anyway."""
    receipted(outbox, make_record(), make_record())
    outbox.connection.execute("UPDATE records SET kept_ns = kept_ns - ? WHERE row = 1", (int((KEPT_DAYS + 1) * DAY_NS),))
    receipted(outbox, make_record())
    outbox.send_again(REQUEST, "pi-1", "lab")
    assert [one.row for one in outbox.pending(10, LOTS)] == [2, 3]


def test_on_a_disk_with_little_room_they_do_not_pile_up(outbox):
    """A card that is nearly full is for records without a receipt."""
    receipted(outbox, make_record(), make_record())
    outbox.put(make_record())
    with outbox.transaction() as connection:
        drop_receipted(connection, LIMIT_BYTES, 0, has_disk=False)
    assert outbox.receipted("pi-1") == 0
    assert outbox.count() == 1


def test_a_full_disk_takes_new_records_in_the_place_of_receipted_ones(tmp_path):
    """What a collector has does not keep out what none has."""
    with small_disk(tmp_path / "disk", 24) as disk, Outbox(disk / "outbox.sqlite") as outbox:
        for _ in range(100):
            receipted(outbox, make_heavy_record())
        assert outbox.receipted("pi-1") == 100
        fill(disk / "somebody else's")
        sizes = [outbox.put(make_heavy_record()).seq for _ in range(20)]
        assert [record.decode(one).seq for one in waiting(outbox)] == sizes
        assert outbox.dropped() == Dropped()


def test_a_full_disk_serves_a_request_from_the_reserve(tmp_path):
    """The list of what is to be sent is small; the receipts empty it again."""
    with small_disk(tmp_path / "disk", 24) as disk, Outbox(disk / "outbox.sqlite") as outbox:
        sent = receipted(outbox, *(make_heavy_record() for _ in range(100)))
        fill(disk / "somebody else's")
        assert outbox.send_again(REQUEST, "pi-1", "lab") == 1
        assert waiting(outbox) == sent
        outbox.forget(Receipt(session=outbox.session, held=((1, 100),)))
        assert outbox.count() == 0


def test_a_put_and_a_receipt_are_as_many_transactions_as_before(outbox):
    """One that waits for the disk for a record, none for its receipt."""
    statements = []
    outbox.connection.set_trace_callback(statements.append)
    outbox.put(make_record())
    assert statements.count("COMMIT") == 1
    statements.clear()
    outbox.forget(Receipt(session=outbox.session, held=((1, 1),)))
    assert statements.count("COMMIT") == 0
    assert statements.index("PRAGMA synchronous = NORMAL") == 0


@pytest.mark.slow
def test_killed_at_any_moment_a_record_waits_or_was_receipted(tmp_path):
    """A process that puts, receipts and answers requests is killed twenty times: every record is there, each once."""
    path = tmp_path / "outbox.sqlite"
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from edgemeter.agent.contract.messages import AgainRequest, Receipt
        from edgemeter.agent.delivery.outbox import Outbox
        from tests.fixtures.record_factory import make_record
        outbox = Outbox(Path(sys.argv[1]))
        for number in range(10_000):
            kept = outbox.put(make_record())
            print(f"{kept.session} {kept.seq}", flush=True)
            if number % 3:
                outbox.forget(Receipt(session=kept.session, held=((1, kept.seq),)))
            else:
                outbox.send_again(AgainRequest(again=f"{kept.session:016x}{number:016x}"), "pi-1", "lab")
    """)
    put = set()
    for turn in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        ) as process:
            for _ in range(1 + 2 * turn):
                session, seq = map(int, process.stdout.readline().split())
                put.add((session, seq))
            os.kill(process.pid, signal.SIGKILL)
    with Outbox(path) as outbox:
        outbox.send_again(AgainRequest(again="f" * 32), "pi-1", "lab")
        found = [(one.session, one.seq) for one in outbox.pending(100_000, LOTS)]
    assert len(found) == len(set(found))
    assert put <= set(found)

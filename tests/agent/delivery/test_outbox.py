import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import AgainRequest, Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import FORMAT, delete_receipted
from tests.fixtures.record_factory import make_record

ROOT = Path(__file__).parents[3]
LOTS = 10**9


def numbers(outbox, **how):
    return [(pending.session, pending.seq) for pending in outbox.pending(1000, LOTS, **how)]


def put_many(outbox, count):
    for _ in range(count):
        outbox.put(make_record())


def test_put_numbers_records_from_one_without_gaps_and_keeps_them_whole(outbox):
    """The outbox returns each record with its number and its samples."""
    records = [outbox.put(make_record()) for _ in range(3)]
    assert [(entry.session, entry.seq) for entry in records] == [
        (outbox.session, seq) for seq in (1, 2, 3)
    ]
    assert [record.decode(pending.payload) for pending in outbox.pending(10, LOTS)] == records


def test_a_record_is_on_the_disk_before_put_returns(outbox):
    """The record is committed, and SQLite waits for the disk, also after a receipt.

    Another connection sees it at once.
    """
    outbox.put(make_record())
    with Outbox(outbox.path) as other:
        assert other.count() == 1
    assert outbox.query("PRAGMA synchronous")[0][0] == 2
    outbox.forget(Receipt(session=outbox.session, held=((1, 1),)))
    assert outbox.query("PRAGMA synchronous")[0][0] == 2


def test_every_opening_is_a_session_of_its_own_below_2_to_the_53(outbox, tmp_path, monkeypatch):
    """No two openings share a number, not even those of a copied card.

    Every JSON reader keeps the number exactly.
    """
    sessions = {outbox.session}
    for _ in range(10):
        with Outbox(outbox.path) as other:
            sessions.add(other.session)
    assert len(sessions) == 11
    assert all(0 < session < 2**53 for session in sessions)
    # By the count of openings too, where the random bits repeat.
    monkeypatch.setattr("secrets.randbits", lambda _: 5)
    with Outbox(outbox.path) as first, Outbox(outbox.path) as second:
        assert first.session != second.session
    monkeypatch.undo()
    outbox.close()
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(outbox.path.read_bytes())
    with Outbox(copy) as clone, Outbox(outbox.path) as original:
        assert clone.session != original.session


def test_earlier_sessions_come_first_and_numbers_never_repeat(outbox):
    """Pending records come in the order of put over all sessions, and a session begins at 1."""
    outbox.put(make_record())
    with Outbox(outbox.path) as later:
        later.put(make_record())
        outbox.put(make_record())
        assert numbers(later) == [(outbox.session, 1), (later.session, 1), (outbox.session, 2)]


def test_another_device_in_the_same_opening_gets_a_session_of_its_own(outbox):
    """The collector looks for gaps per device, and one device's numbers must not be another's."""
    first = outbox.put(make_record(device="a"))
    second = outbox.put(make_record(device="b"))
    assert (first.seq, second.seq) == (1, 1)
    assert first.session != second.session
    assert numbers(outbox, device="b") == [(second.session, 1)]


def test_pending_stops_at_the_limits_but_never_at_nothing(outbox):
    """A single record larger than the limit still goes out."""
    put_many(outbox, 4)
    size = len(outbox.pending(1, LOTS)[0].payload)
    assert len(outbox.pending(2, LOTS)) == 2
    assert len(outbox.pending(10, 3 * size)) == 3
    assert len(outbox.pending(10, 3 * size - 1)) == 2
    assert len(outbox.pending(10, 1)) == 1


def test_pending_goes_on_after_a_row_and_a_row_is_never_used_again(outbox):
    """A cursor into the outbox stays right whatever is forgotten."""
    records = [outbox.put(make_record()) for _ in range(3)]
    last = outbox.pending(10, LOTS)[-1].row
    outbox.forget(Receipt(session=outbox.session, held=((1, 3),)))
    outbox.put(records[0])
    (only,) = outbox.pending(10, LOTS, after_row=last)
    assert only.seq == 4
    assert outbox.read(only.row) == only
    assert outbox.read(last) is None


def test_a_receipt_drops_what_it_names_and_nothing_else(outbox):
    """Ranges include both ends, and a range of another session or beyond the end drops nothing."""
    put_many(outbox, 6)
    assert outbox.forget(Receipt(session=outbox.session + 1, held=((1, 6),))) == 0
    assert outbox.forget(Receipt(session=outbox.session, held=((2, 3), (6, 2**53 - 1)))) == 3
    assert [seq for _, seq in numbers(outbox)] == [1, 4, 5]
    assert outbox.forget(Receipt(session=outbox.session, held=((2, 3),))) == 0
    put_many(outbox, 150)
    assert outbox.forget(Receipt(session=outbox.session, held=((1, 156),))) == 153
    assert outbox.count() == 0


def test_a_receipt_gives_its_time_to_records_that_have_none_and_to_no_other(outbox):
    """A collector that claims a time for every record changes none that its device measured."""
    received_ns = 1_790_000_000 * 10**9
    starts = {"right": received_ns - 10**9, "never set": 5, "years ahead": received_ns + 10**18}
    for name, started_at_ns in starts.items():
        outbox.put(make_record(started_at_ns=started_at_ns, clock_synchronised=name != "never set"))
    outbox.leave_unstamped()
    outbox.forget(Receipt(session=outbox.session, held=((1, 3),), received_ns=received_ns))
    outbox.send_again(AgainRequest(again="0" * 16), "pi-1", make_record().fleet)
    records = [record.decode(pending.payload) for pending in outbox.pending(10, 10**9)]
    assert [(entry.started_at_ns, entry.stamped_by) for entry in records] == [
        (starts["right"], "device"),
        (received_ns, "collector"),
        (received_ns, "collector"),
    ]


def test_forgetting_takes_the_samples_along(outbox):
    """No orphaned samples fill the card once the receipted records are deleted."""
    outbox.put(make_record())
    outbox.forget(Receipt(session=outbox.session, held=((1, 1),)))
    assert delete_receipted(outbox.connection) == 1
    assert outbox.connection.execute("SELECT count(*) FROM samples").fetchone()[0] == 0
    assert outbox.is_empty("pi-1")


def test_count_and_emptiness_are_per_device_or_of_all(outbox):
    """`drain` waits for the records of its own device only."""
    outbox.put(make_record(device="a"))
    outbox.put(make_record(device="b", fleet="old"))
    assert (outbox.count(), outbox.count("a"), outbox.count("c")) == (2, 1, 0)
    assert not outbox.is_empty("a")
    assert outbox.is_empty("c")
    assert outbox.fleets("b") == ["old"]


def test_a_full_disk_keeps_the_number_and_the_records_so_far(outbox):
    """SQLite's limit on pages stands for a full disk, with the same error and the same path."""
    outbox.put(make_record())
    pages = outbox.connection.execute("PRAGMA page_count").fetchone()[0]
    outbox.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UnavailableError, match="the disk is full") as refusal:
        put_many(outbox, 100)
    assert "\n" not in str(refusal.value)
    count = outbox.count()
    outbox.connection.execute("PRAGMA max_page_count = 1000000")
    outbox.put(make_record())
    assert [seq for _, seq in numbers(outbox)] == list(range(1, count + 2))


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 300, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_that_is_no_outbox_is_refused_and_left_alone(tmp_path, content):
    """Text and a garbled header end in one line with the remedy."""
    path = tmp_path / "outbox.sqlite"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"outbox\.sqlite"):
        Outbox(path)
    assert path.read_bytes() == content


def test_what_is_no_outbox_of_this_version_is_refused(tmp_path, outbox):
    """Another SQLite file of ours, a newer version and a place without access are refused."""
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 1")
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(ConfigError, match=r"other\.sqlite"):
        Outbox(path)
    outbox.connection.execute(f"PRAGMA user_version = {FORMAT.version + 1}")
    with pytest.raises(ConfigError, match="move it away"):
        Outbox(outbox.path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError, match="EDGEMETER_HOME"):
        Outbox(tmp_path / "file" / "outbox.sqlite")


WRITER = """
    import sys
    from pathlib import Path
    from edgemeter.agent.delivery.outbox import Outbox
    from tests.fixtures.record_factory import make_record
    outbox = Outbox(Path(sys.argv[1]))
    for _ in range(25):
        outbox.put(make_record())
"""


@pytest.mark.services
def test_several_processes_make_and_fill_one_outbox_at_the_same_time(tmp_path):
    """No process fails or takes another's number, and no record is lost."""
    path = tmp_path / "outbox.sqlite"
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    writers = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [writer.wait(300) for writer in writers] == [0, 0, 0]
    with Outbox(path) as outbox:
        waiting = numbers(outbox)
        sessions = {session for session, _ in waiting}
        assert len(sessions) == 3
        assert all(
            sorted(seq for s, seq in waiting if s == session) == list(range(1, 26))
            for session in sessions
        )

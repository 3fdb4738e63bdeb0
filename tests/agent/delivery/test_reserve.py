"""An outbox on a disk that is full to the last byte can still be emptied, and opened."""

import contextlib
import subprocess

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import RESERVE_BYTES, DiskReserve
from tests.fixtures.record_factory import make_record
from tests.fixtures.small_disk import fill, small_disk


def put_until_full(outbox):
    """Keep records until the disk takes no more; return how many it took."""
    kept = 0
    with contextlib.suppress(UnavailableError):
        while kept < 100_000:
            outbox.put(make_record(case="x" * 3000))
            kept += 1
    return kept


def forget_all(outbox, kept, at_once):
    """Give receipts for so many records at once until none is left."""
    for first in range(1, kept + 1, at_once):
        outbox.forget(Receipt(session=outbox.session, held=((first, min(kept, first + at_once - 1)),)))


@pytest.mark.parametrize("size_mb", [4, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("at_once", [1, 64, 1000])
def test_an_outbox_that_filled_its_disk_empties_itself_and_gives_the_room_back(tmp_path, size_mb, at_once):
    """Receipts are all that comes; afterwards there is room for as many records as before."""
    with small_disk(tmp_path / "disk", size_mb) as disk, Outbox(disk / "outbox.sqlite") as outbox:
        kept = put_until_full(outbox)
        assert kept > 100
        fill(disk / "somebody else's")
        forget_all(outbox, kept, at_once)
        assert outbox.count() == 0
        assert put_until_full(outbox) > kept // 2


def test_an_outbox_on_a_full_disk_can_be_opened_and_emptied(tmp_path):
    """After a restart: what it holds goes out, new records are refused until there is room."""
    with small_disk(tmp_path / "disk", 24) as disk:
        with Outbox(disk / "outbox.sqlite") as outbox:
            kept, session = put_until_full(outbox), outbox.session
        fill(disk / "somebody else's")
        with Outbox(disk / "outbox.sqlite") as again:
            assert again.count() == kept
            with pytest.raises(UnavailableError, match=r"outbox\.sqlite' cannot grow, the disk is full"):
                put_all_until_refused(again)
            again.forget(Receipt(session=session, held=((1, kept),)))
            assert again.count() == 0
            assert again.put(make_record()).session == again.session


def put_all_until_refused(outbox):
    """Keep records until one is refused."""
    for _ in range(100_000):
        outbox.put(make_record(case="x" * 3000))


def test_the_reserve_is_room_on_the_disk_and_not_a_hole(tmp_path):
    """Its blocks are taken; a second keep makes no second one."""
    reserve = DiskReserve(tmp_path / "outbox.sqlite")
    reserve.keep()
    said = reserve.path.stat()
    assert said.st_blocks * 512 >= said.st_size > 0
    assert said.st_size <= RESERVE_BYTES
    reserve.keep()
    assert [path.name for path in tmp_path.iterdir()] == ["outbox.sqlite.reserve"]


def test_another_failure_than_a_full_disk_is_reported_as_it_is(tmp_path):
    """Whoever fails again without the reserve hears why; the next record makes the reserve whole."""
    reserve = DiskReserve(tmp_path / "outbox.sqlite")
    reserve.keep()

    def broken():
        message = "the disk is gone"
        raise UnavailableError(message)

    with pytest.raises(UnavailableError, match="the disk is gone"):
        reserve.in_need(broken)
    reserve.keep()
    assert reserve.is_whole()


def test_a_disk_without_room_for_the_logs_index_is_called_full(tmp_path):
    """SQLite says `disk I/O error` then; the remedy must not be to move the outbox away."""
    with small_disk(tmp_path / "disk", 4) as disk:
        Outbox(disk / "outbox.sqlite").close()
        DiskReserve(disk / "outbox.sqlite").path.unlink(missing_ok=True)
        fill(disk / "somebody else's")
        with pytest.raises(UnavailableError, match=r"outbox\.sqlite' cannot grow, the disk is full: free some space"):
            Outbox(disk / "outbox.sqlite")


def test_a_card_that_went_read_only_is_one_line(tmp_path):
    """Worn cards do: the reserve cannot be given up then, which is no error of its own."""
    with small_disk(tmp_path / "disk", 8) as disk:
        with Outbox(disk / "outbox.sqlite") as outbox:
            outbox.put(make_record())
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=100)
        with pytest.raises(UnavailableError, match=r"cannot use the outbox '.*outbox\.sqlite' .*: check that its folder may be written"):
            Outbox(disk / "outbox.sqlite")
        assert DiskReserve(disk / "outbox.sqlite").is_whole()

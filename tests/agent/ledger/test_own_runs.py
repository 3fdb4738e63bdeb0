"""A machine loses none of its own runs, counts none twice and uses bounded space for them."""

import multiprocessing
import os
import sqlite3

import msgspec
import pytest

from edgemeter.agent.base import config
from edgemeter.agent.ledger.own_runs import OwnRuns, open_own_runs
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import make_record, make_series
from tests.fixtures.small_disk import small_disk

PLENTY_BYTES = 1 << 30


def unnumbered(**changes):
    return make_record(session=None, seq=None, **changes)


def stored_records(path):
    """Return the records of a ledger with their samples, in the order in which they came."""
    with SqliteLedger(path, "read") as ledger:
        return [held_record.record for held_record in ledger.records(with_samples=True)]


def test_a_run_is_in_the_default_ledger_with_its_samples_and_numbers(tmp_path, monkeypatch):
    """A missing home is created, and what is returned equals what is stored."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "new" / "home"))
    own_runs = open_own_runs(config.Config())
    runs = [own_runs.keep(unnumbered(samples=(make_series(),))) for _ in range(3)]
    assert stored_records(tmp_path / "new" / "home" / "ledger.sqlite") == runs
    assert [run.seq for run in runs] == [1, 2, 3]
    assert runs[0].samples
    assert f"{runs[0].id[:8]}, {runs[1].id[:8]} and 1 more in {own_runs.path}" in own_runs.finish()
    assert own_runs.error is None


def test_without_measurements_nothing_is_reported(tmp_path):
    """A command without runs prints no line and makes no file."""
    assert OwnRuns(tmp_path / "ledger.sqlite", PLENTY_BYTES).finish() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_received_first", [True, False])
def test_a_run_that_a_collector_on_this_machine_receives_too_is_stored_once(
    tmp_path, is_received_first
):
    """The outbox numbered the run, so that both copies are one record.

    The collector still confirms it.
    """
    path, record = tmp_path / "ledger.sqlite", make_record(session=7, seq=1)
    own_runs = OwnRuns(path, PLENTY_BYTES)
    with SqliteLedger(path) as ledger:
        if is_received_first:
            ledger.commit([arrival(record, 100)])
        assert own_runs.keep(record) == record
        committed = ledger.commit([arrival(record, 100)])
        assert (committed.inserted, committed.duplicates, committed.held) == (
            0,
            1,
            (("lab", "pi-1", 7, 1),),
        )
    assert stored_records(path) == [record]
    assert own_runs.error is None


def _keep_some(path, count):
    own_runs = OwnRuns(path, PLENTY_BYTES)
    for _ in range(count):
        own_runs.keep(unnumbered())
    if own_runs.error:
        raise own_runs.error


@pytest.mark.services
def test_two_processes_at_once_lose_nothing(tmp_path):
    """Two processes create the file and write to it in turn."""
    path, start = tmp_path / "ledger.sqlite", multiprocessing.get_context("spawn")
    writers = [start.Process(target=_keep_some, args=(path, 20)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(stored_records(path)) == 40


def test_beyond_the_limit_old_samples_go_first_then_old_runs_and_never_what_a_collector_received(
    tmp_path,
):
    """The newest run stays whole.

    Removed runs are not taken for new when they are delivered later.
    """
    path = tmp_path / "ledger.sqlite"
    received = make_record(session=5, seq=1, samples=(random_series(20_000),))
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(received, 100)])
    own_runs = OwnRuns(path, 40_000)
    runs = [own_runs.keep(unnumbered(samples=(random_series(20_000),))) for _ in range(3)]
    bare = [msgspec.structs.replace(run, samples=()) for run in runs]
    assert stored_records(path) == [received, bare[0], bare[1], runs[2]]
    small = OwnRuns(path, 10_000)
    last = small.keep(unnumbered(samples=(random_series(20_000),)))
    assert stored_records(path) == [received, last]
    assert small.error is None
    with SqliteLedger(path) as ledger:
        assert ledger.commit([arrival(runs[0], 100)]).inserted == 0


def random_series(size_bytes):
    """Return a series that does not become smaller when packed."""
    return msgspec.structs.replace(make_series(), data=os.urandom(size_bytes).hex())


def test_a_locked_ledger_is_tried_again_at_the_end(tmp_path, monkeypatch):
    """A process that holds the file for a while neither loses a run nor delays the others."""
    monkeypatch.setattr("edgemeter.agent.base.sqlite_file.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "ledger.sqlite"
    own_runs = OwnRuns(path, PLENTY_BYTES)
    own_runs.check()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    runs = [own_runs.keep(unnumbered()) for _ in range(2)]
    assert own_runs.error is not None
    assert stored_records(path) == []
    holder.execute("ROLLBACK")
    holder.close()
    assert own_runs.finish().startswith(f"saved as {runs[0].id[:8]}, {runs[1].id[:8]} in ")
    assert own_runs.error is None
    assert stored_records(path) == runs


def test_a_damaged_ledger_is_one_line_and_left_alone(tmp_path):
    """The run is still returned, and the damaged file is not overwritten."""
    path = tmp_path / "ledger.sqlite"
    path.write_text("no ledger")
    own_runs, record = OwnRuns(path, PLENTY_BYTES), unnumbered()
    assert own_runs.keep(record).id == record.id
    assert own_runs.finish() is None
    assert "is not an edgemeter ledger" in str(own_runs.error)
    assert "\n" not in str(own_runs.error)
    assert path.read_text() == "no ledger"


def test_a_home_that_cannot_be_made_is_reported_before_anything_is_measured(tmp_path):
    """A file stands where the folder would be."""
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match=r"cannot open or make the ledger .*EDGEMETER_HOME"):
        OwnRuns(tmp_path / "file" / "ledger.sqlite", PLENTY_BYTES).check()


@pytest.mark.needs("mount")
def test_a_full_disk_is_one_line_with_the_remedy(tmp_path):
    """The runs that fit are stored, and those that do not are returned."""
    with small_disk(tmp_path / "home", 1) as disk:
        own_runs = OwnRuns(disk / "ledger.sqlite", PLENTY_BYTES)
        runs = [own_runs.keep(unnumbered(samples=(random_series(300_000),))) for _ in range(5)]
        saved = own_runs.finish()
        stored = stored_records(disk / "ledger.sqlite")
    assert stored == runs[: len(stored)]
    assert 0 < len(stored) < 5
    assert saved.startswith("saved as ")
    assert "the disk is full: free some space" in str(own_runs.error)

"""A restored backup is completed from other ledgers: each record once, with the text that arrived."""

import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import encode
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector as command
from edgemeter.collector.upkeep import copies
from edgemeter.collector.upkeep.fetch_from import BATCH_RECORDS, fetch_from
from tests.fixtures.record_factory import make_record


def commit(path, *numbers, received_ns=1_000, **changes):
    """Store the records of one session with these numbers; return their texts."""
    found = [encode(make_record(device="pi-1", fleet="lab", session=5, seq=seq, id=f"id-{seq}", **changes)) for seq in numbers]
    # A field of a newer agent travels with the text.
    found = [text[:-1] + b',"of_a_newer_agent":1}' for text in found]
    records = [make_record(device="pi-1", fleet="lab", session=5, seq=seq, id=f"id-{seq}", **changes) for seq in numbers]
    with SqliteLedger(path) as ledger:
        ledger.commit([Arrival(one, text, "t", received_ns) for one, text in zip(records, found, strict=True)])
    return found


def rows(path):
    """Return when each record was received and its text."""
    with SqliteLedger(path, "read") as ledger:
        return [(received_ns, text) for _, received_ns, text in ledger.texts()]


def test_what_another_ledger_holds_is_there_again_as_it_arrived(tmp_path):
    """The text with fields that this version does not know, and the time of receipt; what is there is not taken twice."""
    commit(tmp_path / "ledger", *range(1, 4))
    texts = commit(tmp_path / "other", *range(1, BATCH_RECORDS + 11), received_ns=7_000)
    done = fetch_from(tmp_path / "other", tmp_path / "ledger")
    assert (done.records, done.new, done.collisions) == (BATCH_RECORDS + 10, BATCH_RECORDS + 7, 0)
    assert rows(tmp_path / "ledger")[3:] == [(7_000, text) for text in texts[3:]]
    assert fetch_from(tmp_path / "other", tmp_path / "ledger").new == 0
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert [one.missing for one in ledger.sessions()] == [0]


def test_what_this_ledger_removed_for_its_age_does_not_come_back(tmp_path):
    """Its numbers are remembered."""
    commit(tmp_path / "ledger", 1, 2, received_ns=1)
    with SqliteLedger(tmp_path / "ledger") as ledger:
        ledger.forget(Retention(records_days=1), time.time_ns())
    commit(tmp_path / "other", 1, 2, 3)
    assert fetch_from(tmp_path / "other", tmp_path / "ledger").new == 1
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert [held.record.seq for held in ledger.records()] == [3]


def test_another_record_with_the_same_number_is_quarantined_and_counted(tmp_path):
    """Neither takes the other's place."""
    commit(tmp_path / "ledger", 1)
    with SqliteLedger(tmp_path / "other") as ledger:
        record = make_record(device="pi-1", fleet="lab", session=5, seq=1, id="another")
        ledger.commit([Arrival(record, encode(record), "t", 1_000)])
    before = rows(tmp_path / "ledger")
    done = fetch_from(tmp_path / "other", tmp_path / "ledger")
    assert (done.new, done.collisions) == (0, 1)
    assert rows(tmp_path / "ledger") == before
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert ledger.quarantined_count() == 1


def test_the_ledger_itself_and_what_is_no_ledger_are_named(tmp_path):
    """Before anything is written."""
    commit(tmp_path / "ledger", 1)
    with pytest.raises(ConfigError, match="is the ledger itself: name another one with --from"):
        fetch_from(tmp_path / "ledger", tmp_path / "ledger")
    (tmp_path / "list").write_text("shopping list")
    with pytest.raises(ConfigError, match="is not an edgemeter ledger"):
        fetch_from(tmp_path / "list", tmp_path / "ledger")


def test_restore_takes_what_other_ledgers_have_and_names_what_is_left_to_ask_for(tmp_path):
    """Counts before and after, numbers that are missing, and the command that asks the devices."""
    commit(tmp_path / "ledger", 1, 2)
    copies.backup(tmp_path / "ledger", tmp_path / "backup")
    commit(tmp_path / "one", 2, 3)
    commit(tmp_path / "two", 3, 5, 9)
    words = [
        "restore",
        str(tmp_path / "backup"),
        "--ledger",
        str(tmp_path / "new"),
        "--from",
        str(tmp_path / "one"),
        "--from",
        str(tmp_path / "two"),
    ]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "2 runs restored" in done.stderr
    assert f"{tmp_path / 'one'}: 1 new of 2 records" in done.stderr
    assert f"{tmp_path / 'two'}: 2 new of 3 records" in done.stderr
    assert "5 runs now, 4 numbers missing" in done.stderr
    assert done.stderr.rstrip().endswith("edgemeter collector request-again")
    with SqliteLedger(tmp_path / "new", "read") as ledger:
        assert ledger.ranges("pi-1", 5) == [(1, 3), (5, 5), (9, 9)]


def test_a_source_that_is_no_ledger_stops_a_restore_before_it_begins(tmp_path):
    """A word misspelt leaves nothing half done."""
    commit(tmp_path / "ledger", 1)
    copies.backup(tmp_path / "ledger", tmp_path / "backup")
    words = ["restore", str(tmp_path / "backup"), "--ledger", str(tmp_path / "new"), "--from", str(tmp_path / "none")]
    done = CliRunner().invoke(command, words)
    assert isinstance(done.exception, ConfigError)
    assert "there is no ledger at" in str(done.exception)
    assert not (tmp_path / "new").exists()

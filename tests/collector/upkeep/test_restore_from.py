"""A restored backup is completed from other ledgers: each record once, with the text that arrived."""

from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import encode
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector as command
from edgemeter.collector.upkeep import copies
from tests.fixtures.record_factory import make_record


def commit(path, *numbers, received_ns=1_000, **changes):
    """Store the records of one session with these numbers; return their texts."""
    texts = [encode(make_record(device="pi-1", fleet="lab", session=5, seq=seq, id=f"id-{seq}", **changes)) for seq in numbers]
    # A field of a newer agent travels with the text.
    texts = [text[:-1] + b',"of_a_newer_agent":1}' for text in texts]
    records = [make_record(device="pi-1", fleet="lab", session=5, seq=seq, id=f"id-{seq}", **changes) for seq in numbers]
    with SqliteLedger(path) as ledger:
        ledger.commit([Arrival(record, text, "t", received_ns) for record, text in zip(records, texts, strict=True)])
    return texts


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
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "2 runs restored" in result.stderr
    assert f"{tmp_path / 'one'}: 1 new of 2 records" in result.stderr
    assert f"{tmp_path / 'two'}: 2 new of 3 records" in result.stderr
    assert "5 runs now, 4 numbers missing" in result.stderr
    assert result.stderr.rstrip().endswith("edgemeter collector request-again")
    with SqliteLedger(tmp_path / "new", "read") as ledger:
        assert ledger.ranges("pi-1", 5) == [(1, 3), (5, 5), (9, 9)]


def test_a_source_that_is_no_ledger_stops_a_restore_before_it_begins(tmp_path):
    """A word misspelt leaves nothing half done."""
    commit(tmp_path / "ledger", 1)
    copies.backup(tmp_path / "ledger", tmp_path / "backup")
    words = ["restore", str(tmp_path / "backup"), "--ledger", str(tmp_path / "new"), "--from", str(tmp_path / "none")]
    result = CliRunner().invoke(command, words)
    assert isinstance(result.exception, ConfigError)
    assert "there is no ledger at" in str(result.exception)
    assert not (tmp_path / "new").exists()

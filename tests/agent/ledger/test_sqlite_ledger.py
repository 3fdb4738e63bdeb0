"""Facts about `edgemeter.agent.ledger.sqlite_ledger` that hold for no other ledger."""

import sqlite3
import threading
import time
from contextlib import closing

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.run_row import RUN_COLUMNS
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.comparison_factory import in_rounds, make_run
from tests.fixtures.ledgers import arrival, arrived_batch, flood
from tests.fixtures.record_factory import make_model, make_record
from tests.fixtures.rows import table_row

TOPIC = "edgemeter/v1/lab/pi-1/result"


@pytest.fixture
def ledger(tmp_path):
    with SqliteLedger(tmp_path / "deep" / "ledger.sqlite") as new_ledger:
        yield new_ledger


def test_a_full_quarantine_costs_one_statement_and_not_at_every_commit(ledger, monkeypatch):
    """A flood of entries is evicted at once; single evictions stalled a collector for minutes."""
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 200)
    ledger.commit([], flood("pi-1", 200))
    statements = []
    ledger.connection.set_trace_callback(statements.append)
    for number in range(30):
        ledger.commit([], [Rejection("edgemeter/v1/lab/bad/result", b"%d" % number, "no", 1)])
    assert sum(statement.startswith("DELETE FROM quarantine") for statement in statements) == 2
    ledger.commit([], flood("bad", 1000))
    ledger.connection.set_trace_callback(None)
    assert sum(statement.startswith("DELETE FROM quarantine") for statement in statements) == 3
    assert ledger.quarantined_count() == 180


def test_a_collector_keeps_the_name_that_its_ledger_gave_it(ledger, tmp_path):
    """The name is random, is stored in the file and does not change."""
    with (
        SqliteLedger(tmp_path / "deep" / "ledger.sqlite") as reopened,
        SqliteLedger(tmp_path / "other.sqlite") as other,
    ):
        assert reopened.identity() == ledger.identity()
        assert other.identity() != ledger.identity()


def test_a_store_that_is_not_ours_is_refused_in_one_line_and_left_as_it_was(tmp_path):
    """A foreign file gives a ConfigError and stays unchanged to the byte.

    A misspelt path creates no file.
    """
    with pytest.raises(ConfigError, match=r"absent\.sqlite"):
        SqliteLedger(tmp_path / "absent.sqlite", "read")
    assert not list(tmp_path.iterdir())
    text, database, folder = (tmp_path / name for name in ("text", "sqlite", "folder"))
    folder.mkdir()
    text.write_bytes(b"time,latency\n1,2\n" * 99)
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE runs (row INTEGER)")
    connection.close()
    before = text.read_bytes() + database.read_bytes()
    for path in (text, database, folder):
        for access in ("read", "write"):
            with (
                table_row(path, access),
                pytest.raises(ConfigError, match="not an edgemeter ledger") as refusal,
            ):
                SqliteLedger(path, access)
            assert "\n" not in str(refusal.value)
    assert text.read_bytes() + database.read_bytes() == before


def test_a_damaged_ledger_is_refused_in_one_line(ledger, tmp_path):
    """Garbled pages give a ConfigError when they are read."""
    path = tmp_path / "deep" / "ledger.sqlite"
    ledger.commit([arrival(make_record(session=5, seq=seq)) for seq in range(1, 200)])
    ledger.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(ConfigError, match="malformed"), SqliteLedger(path, "read") as damaged:
        list(damaged.records())


def test_a_ledger_of_another_version_is_refused(tmp_path):
    """The meaning of another version's data is not guessed."""
    path, present = tmp_path / "ledger.sqlite", LEDGER_FORMAT.version
    SqliteLedger(path).close()
    for version in (present + 1, present - 1):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
        with pytest.raises(ConfigError, match=f"version {version}"):
            SqliteLedger(path)


def content_of(path):
    """Return the rows of a ledger, their subjects, and the highest row that there ever was."""
    with SqliteLedger(path, "read") as ledger:
        # The names of the columns are our own.
        rows = ledger.query(
            f"SELECT row, siblings, siblings_p50_ms, {', '.join(RUN_COLUMNS)} "  # noqa: S608
            "FROM runs ORDER BY row"
        )
        return (
            rows,
            ledger.query("SELECT * FROM subjects ORDER BY subject"),
            ledger.query("SELECT seq FROM sqlite_sequence WHERE name = 'runs'"),
        )


def test_figures_of_another_version_are_made_anew_from_the_records(tmp_path, caplog):
    """A writer rebuilds the figures, and a reader is told what to do.

    Each run keeps its row, and its verdict among its siblings.
    """
    path = tmp_path / "ledger.sqlite"
    runs = in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (10.0, 10.1, 10.2, 10.1, 14.0)])
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(make_record(session=5, seq=seq), 7) for seq in (1, 2)])
        ledger.commit(
            [
                arrival(msgspec.structs.replace(run, session=6, seq=seq), 9)
                for seq, run in enumerate(runs, 1)
            ]
        )
        ledger.commit([arrival(make_record(session=5, seq=3, id="gone"), 8)])
        LedgerRuns(ledger).withdraw("gone", "deleted", "ada", "")
    before = content_of(path)
    assert {row[1] for row in before[0]} == {None, 5}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE runs DROP COLUMN energy_gross_mj")
        connection.execute("UPDATE subjects SET body = x'90'")
        connection.execute("UPDATE identity SET rows = 1")
    with pytest.raises(
        ConfigError, match="of another version of edgemeter: `edgemeter collector up`"
    ):
        SqliteLedger(path, "read")
    SqliteLedger(path).close()
    assert "are rebuilt from the records" in caplog.text
    assert content_of(path) == before


def test_a_full_disk_keeps_nothing_of_the_batch_and_names_the_remedy(ledger):
    """SQLite's limit on pages stands in for a full disk, with the same error on the same path."""
    ledger.commit([arrival(make_record(session=5, seq=1))])
    pages = ledger.connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UnavailableError, match="the disk is full"):
        ledger.commit([arrival(make_record(session=5, seq=seq)) for seq in range(2, 100)])
    assert ledger.ranges("pi-1", 5) == [(1, 1)]
    ledger.connection.execute("PRAGMA max_page_count = 1000000")
    ledger.commit([arrival(make_record(session=5, seq=2))])
    assert ledger.ranges("pi-1", 5) == [(1, 2)]


@pytest.mark.services
def test_a_reader_of_a_new_ledger_sees_all_of_it_or_nothing(tmp_path):
    """A `compare` that runs while a collector starts never reads a half-made file.

    Such a file would pass for somebody else's.
    """
    for number in range(10):
        path = tmp_path / f"{number}" / "ledger.sqlite"
        maker = threading.Thread(target=lambda path=path: SqliteLedger(path).close())
        maker.start()
        while not path.exists():
            time.sleep(0)
        with SqliteLedger(path, "read") as reader:
            assert reader.count() == 0
        maker.join()
        assert {path_beside.name.split("-")[0] for path_beside in path.parent.iterdir()} == {
            "ledger.sqlite"
        }


def test_a_subject_that_went_with_a_failed_commit_is_made_again(ledger):
    """The writer's memory agrees with the file after a failed commit."""
    pages = ledger.connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [make_record(session=5, seq=seq, model=make_model(name="new")) for seq in range(1, 400)]
    with pytest.raises(UnavailableError):
        ledger.commit([], batches=[arrived_batch([record], level=0) for record in many])
    ledger.connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.commit([arrival(many[0])]).inserted == 1
    (held_record,) = ledger.records()
    assert held_record.record.model.name == "new"
    joined = "SELECT count(*) FROM runs JOIN subjects USING (subject)"
    assert ledger.connection.execute(joined).fetchone() == (1,)

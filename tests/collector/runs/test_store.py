"""Facts about what is a store of runs: documents, ledgers, several as one; and what is none."""

import sqlite3

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.store import MemoryStore, open_store
from tests.fixtures.comparison_factory import document_at, make_run
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row


def test_ledgers_and_documents_are_recognised_by_their_content_and_read_oldest_first(tmp_path):
    """The order is that of measuring, not of arrival, and two are read as one store.

    Raw samples are read only on request.
    """
    path = tmp_path / "anything"
    later, earlier = (
        make_record(session=1, seq=1, started_at_ns=20),
        make_record(session=1, seq=2, started_at_ns=10),
    )
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(later), arrival(earlier)])
    store = open_store(str(path))
    assert [run.id for run in store.contents().runs] == [earlier.id, later.id]
    assert store.contents().runs[0].samples == ()
    assert list(store.contents(with_samples=True).runs) == [earlier, later]
    board = document_at(tmp_path / "board.json", make_run(id="from-the-board"))
    (run,) = open_store(str(board)).contents(with_samples=True).runs
    assert run.samples
    assert open_store(str(board)).contents().runs[0].samples == ()
    assert {run.id for run in open_store(str(board), str(path)).contents().runs} == {
        "from-the-board",
        earlier.id,
        later.id,
    }


def test_a_store_in_memory_closes_its_database():
    """The last reference closes it, since Python 3.13 warns of every connection left open."""
    store = MemoryStore([make_run()])
    connection = store._connection
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    del store
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


def test_what_lies_in_the_quarantine_is_left_out_with_its_reason(tmp_path):
    """A record that the collector refused is listed, and garbage is counted."""
    path = tmp_path / "ledger.sqlite"
    record_there, refused = (
        make_record(session=1, seq=1),
        contract_record.encode(make_record(id="from-tomorrow")),
    )
    with SqliteLedger(path) as ledger:
        # A run that only InfluxDB refused lies there for the sink's sake: the ledger holds it.
        by_sink = Rejection(
            "topic", contract_record.encode(record_there), "the sink does not take it", 7
        )
        ledger.commit(
            [arrival(record_there)],
            [
                by_sink,
                Rejection("topic", refused, "schema 2", 7),
                Rejection("topic", b"\xff", "?", 7),
            ],
        )
    contents = open_store(str(path)).contents()
    assert [run.id for run in contents.runs] == [record_there.id]
    assert contents.left_out == [
        LeftOut("from-tomorrow", "in the ledger's quarantine: schema 2", "pi-1"),
        LeftOut(None, "in the ledger's quarantine: 1 message without a run id"),
    ]


def test_a_run_of_a_newer_schema_is_left_out_and_the_others_are_read(tmp_path):
    """One newer record does not hide the others; it is an error only if none can be read."""
    newer = msgspec.json.decode(contract_record.encode(make_run(id="newer")))
    newer["schema"] = 99
    path = tmp_path / "runs.json"
    path.write_bytes(
        b'{"runs": ['
        + msgspec.json.encode(newer)
        + b","
        + contract_record.encode(make_run(id="today"))
        + b"]}"
    )
    contents = open_store(str(path)).contents()
    assert [run.id for run in contents.runs] == ["today"]
    (entry,) = contents.left_out
    assert entry.run == "newer"
    assert "schema 99" in entry.reason
    path.write_text('{"runs": [{"schema": 1, "id": 3}]}')
    with pytest.raises(ConfigError, match="not a run record"):
        open_store(str(path)).contents()


def test_a_file_that_is_not_ours_is_named(tmp_path):
    """The file may be a text, an absent file, a folder or a broker."""
    for content in (
        b"",
        b"hello",
        b"[1, 2]",
        b'{"rows": []}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"runs": [1, 2',
    ):
        with table_row(content[:80]):
            path = tmp_path / "notes.txt"
            path.write_bytes(content)
            with pytest.raises(ConfigError, match=r"notes\.txt"):
                open_store(str(path)).contents()
    for address in (str(tmp_path / "nothing.sqlite"), str(tmp_path), "mqtt://host"):
        with table_row(address), pytest.raises(ConfigError, match=address):
            open_store(address)


def test_a_database_of_somebody_else_is_refused_and_left_as_it_was(tmp_path):
    """The database is not turned into a ledger."""
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"photos\.db"):
        open_store(str(path)).contents()
    assert path.read_bytes() == before

import sqlite3

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.ledger import LedgerFilter
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.record_factory import make_model, make_record

# The tables of version 1, as they were.
VERSION_1 = """CREATE TABLE runs (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    started_at_ns INTEGER NOT NULL,
    received_ns INTEGER NOT NULL,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    role TEXT NOT NULL,
    model TEXT NOT NULL,
    runtime TEXT NOT NULL,
    precision TEXT NOT NULL,
    task TEXT NOT NULL,
    dataset_sha256 TEXT NOT NULL,
    scenario TEXT NOT NULL,
    verdict TEXT NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (device, session, seq)
);
CREATE TABLE samples (row INTEGER PRIMARY KEY REFERENCES runs (row), series BLOB NOT NULL);
CREATE TABLE sinks (name TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE identity (collector TEXT NOT NULL);
INSERT INTO identity VALUES ('00112233aabbccdd');
CREATE TABLE quarantine (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    size_bytes INTEGER NOT NULL,
    kept_bytes INTEGER NOT NULL,
    reason TEXT NOT NULL,
    received_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    times INTEGER NOT NULL
);
CREATE INDEX quarantine_kept ON quarantine (kept_bytes);
CREATE TABLE presence (
    fleet TEXT NOT NULL,
    device TEXT NOT NULL,
    state TEXT,
    session INTEGER,
    birth BLOB,
    changed_ns INTEGER NOT NULL,
    PRIMARY KEY (fleet, device)
);
"""


def ledger_of_version_1(path, held):
    """Write a ledger as version 1 did; `held` are (row, received_ns, record)."""
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    for row, received_ns, record in held:
        head, series = contract_record.split_samples(contract_record.encode(record))
        named = (record.device, record.fleet, record.role, record.model.name, record.runtime.name, record.precision)
        rest = (record.model.task, record.dataset.sha256, record.scenario, record.verdict.state, head)
        values = (row, record.session, record.seq, record.id, record.started_at_ns, received_ns, *named, *rest)
        connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - marks
        if series != contract_record.NO_SAMPLES:
            connection.execute("INSERT INTO samples VALUES (?, ?)", (row, series))
    connection.execute("INSERT INTO sinks VALUES ('a sink', 2)")
    connection.execute(f"PRAGMA application_id = {LEDGER_FORMAT.application_id}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("access", ["read", "write"])
def test_an_old_ledger_is_brought_up_to_date_with_everything_in_it(tmp_path, access):
    """Rows, times, samples, sinks, name: as they were; and it goes on from there."""
    path = tmp_path / "ledger"
    held = [
        (1, 100, make_record(session=5, seq=1)),
        (2, 100, make_record(session=5, seq=2, samples=())),
        (7, 200, make_record(session=5, seq=4, model=make_model(name="other"))),
    ]
    ledger_of_version_1(path, held)
    with SqliteLedger(path, access) as ledger:
        assert [(one.row, one.received_ns, one.record) for one in ledger.records(with_samples=True)] == held
        assert ledger.identity() == "00112233aabbccdd"
        assert ledger.positions() == {"a sink": 2}
        assert [one.row for one in ledger.records(where=LedgerFilter(model="other"))] == [7]
    new = make_record(session=5, seq=3)
    with SqliteLedger(path) as ledger:
        same = held[0][2]
        arrivals = [Arrival(one, contract_record.encode(one), "edgemeter/v1/lab/pi-1/result", 300) for one in (same, new)]
        committed = ledger.commit(arrivals)
        assert (committed.inserted, committed.duplicates) == (1, 1)
        assert [one.record for one in ledger.records(after_row=7, with_samples=True)] == [new]


def test_an_old_ledger_that_cannot_be_read_stays_as_it_was(tmp_path):
    """All or nothing: a record that is none stops it, by its row, and version 1 stays version 1."""
    path = tmp_path / "ledger"
    ledger_of_version_1(path, [(1, 100, make_record(session=5, seq=1))])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET record = x'7b7d'")
    connection.commit()
    with pytest.raises(ConfigError, match="row 1 of the ledger cannot be read, so the ledger cannot be migrated"):
        SqliteLedger(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    connection.close()


def test_many_old_records_become_chunks_of_bounded_size(tmp_path):
    """Received together, kept together, but not all in one."""
    path = tmp_path / "ledger"
    held = [(row, 100 + row // 200, make_record(session=5, seq=row)) for row in range(1, 301)]
    ledger_of_version_1(path, held)
    with SqliteLedger(path) as ledger:
        assert [one.record for one in ledger.records(with_samples=True)] == [record for _, _, record in held]
        sizes = [count for (count,) in ledger._connection.execute("SELECT count(*) FROM runs GROUP BY chunk")]
        assert sum(sizes) == 300
        assert len(sizes) > 3


def test_a_ledger_of_version_2_learns_what_devices_say_of_their_health(tmp_path):
    """Who was there stays, and what a device says from now on is kept beside it."""
    path = tmp_path / "ledger"
    with SqliteLedger(path) as ledger:
        ledger.commit((), (), [PresenceChange("lab", "pi-1", DeviceState(state="online", session=5), 100)])
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE presence DROP COLUMN health")
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()
    health = Health(device="pi-1", fleet="lab", session=5, told_ns=7, agent="1.0")
    with SqliteLedger(path) as ledger:
        assert [(one.state, one.health) for one in ledger.devices()] == [("online", None)]
        ledger.commit((), (), [PresenceChange("lab", "pi-1", health, 200)])
        assert [(one.state, one.health) for one in ledger.devices()] == [("online", health)]


def test_a_ledger_of_version_3_learns_which_runs_are_this_machines_own(tmp_path):
    """What a collector received stays as it was; a run of this machine is stored beside it, and is bounded apart."""
    path = tmp_path / "ledger"
    received = make_record(session=5, seq=1)
    with SqliteLedger(path) as ledger:
        ledger.commit([Arrival(received, contract_record.encode(received), "edgemeter/v1/lab/pi-1/result", 100)])
    connection = sqlite3.connect(path)
    connection.execute("DROP INDEX own_chunks")
    connection.execute("ALTER TABLE chunks DROP COLUMN is_own")
    connection.execute("PRAGMA user_version = 3")
    connection.commit()
    connection.close()
    own = make_record(session=6, seq=1)
    with SqliteLedger(path) as ledger:
        ledger.keep_own(own, limit_bytes=1)
        assert [one.record for one in ledger.records(with_samples=True)] == [received, own]

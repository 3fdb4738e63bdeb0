"""The ledger's file: its tables, and how a file of an earlier version becomes one of this.

Records lie in chunks: up to a few hundred in one compressed JSON array, which takes a tenth of the space and of the time. `runs` has a
row for each record, by which it is found; `subjects` has what many records share. `unchecked` names chunks of which only the envelopes
were looked at so far, `forgotten` the numbers of records that went because of their age: they are not taken again.
"""

import sqlite3

from edgemeter.agent import record_parts, records
from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import chunks, presence, quarantine

SUBJECT_COLUMNS = ("fleet", "role", "model", "runtime", "precision", "task", "dataset_sha256", "scenario")
RUN_COLUMNS = ("device", "session", "seq", "id", "started_at_ns", "subject", "verdict", "chunk", "place")

_TABLES = f"""CREATE TABLE subjects (
    subject INTEGER PRIMARY KEY,
    {", ".join(f"{name} TEXT NOT NULL" for name in SUBJECT_COLUMNS)},
    UNIQUE ({", ".join(SUBJECT_COLUMNS)})
);
CREATE TABLE runs (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    device TEXT NOT NULL,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    started_at_ns INTEGER NOT NULL,
    subject INTEGER NOT NULL REFERENCES subjects (subject),
    verdict TEXT NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks (chunk),
    place INTEGER NOT NULL,
    UNIQUE (device, session, seq)
);
CREATE TABLE chunks (
    chunk INTEGER PRIMARY KEY,
    last_row INTEGER NOT NULL,
    received_ns INTEGER NOT NULL,
    has_samples INTEGER NOT NULL DEFAULT 1,
    body BLOB NOT NULL
);
CREATE INDEX chunks_with_samples ON chunks (received_ns) WHERE has_samples;
CREATE TABLE unchecked (chunk INTEGER PRIMARY KEY);
CREATE TABLE forgotten (
    device TEXT NOT NULL,
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (device, session, first)
) WITHOUT ROWID;
"""
_SMALL_TABLES = """CREATE TABLE sinks (name TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE identity (collector TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(8))));
"""


def subject_of(record: RunRecord) -> tuple[str, ...]:
    """Return the values of `SUBJECT_COLUMNS`; an envelope will do for a record."""
    return (
        record.fleet,
        record.role,
        record.model.name,
        record.runtime.name,
        record.precision,
        record.model.task,
        record.dataset.sha256,
        record.scenario,
    )


def subject_id(connection: sqlite3.Connection, subject: tuple[str, ...]) -> int:
    """Return the number of a subject, new where there was none."""
    names = ", ".join(SUBJECT_COLUMNS)
    marks = ", ".join("?" * len(SUBJECT_COLUMNS))
    connection.execute(f"INSERT INTO subjects ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING", subject)  # noqa: S608 - our own names
    query = f"SELECT subject FROM subjects WHERE ({names}) = ({marks})"  # noqa: S608 - as above
    return int(connection.execute(query, subject).fetchone()[0])


def _from_1_to_2(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE runs RENAME TO runs_1")
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    query = """SELECT row, received_ns, record, (SELECT series FROM samples WHERE samples.row = runs_1.row) FROM runs_1 ORDER BY row"""
    gathered: list[tuple[int, int, bytes]] = []
    size_bytes = 0
    for row, received_ns, head, series in connection.execute(query):
        payload = head if series is None else record_parts.whole(head, series)
        # All that a chunk holds was received together.
        if gathered and (gathered[0][1] != received_ns or size_bytes > chunks.TEXT_BYTES):
            _move(connection, gathered)
            gathered, size_bytes = [], 0
        gathered.append((row, received_ns, payload))
        size_bytes += len(payload)
    if gathered:
        _move(connection, gathered)
    connection.execute("DROP TABLE samples")
    connection.execute("DROP TABLE runs_1")


def _move(connection: sqlite3.Connection, gathered: list[tuple[int, int, bytes]]) -> None:
    statement = "INSERT INTO chunks (last_row, received_ns, body) VALUES (?, ?, ?)"
    body = chunks.pack([payload for _, _, payload in gathered])
    chunk = connection.execute(statement, (gathered[-1][0], gathered[0][1], body)).lastrowid
    for place, (row, _, payload) in enumerate(gathered):
        try:
            record = records.decode(payload)
        except ConfigError as error:
            message = f"row {row} of the ledger cannot be read, so it cannot be brought up to date: {error}"
            raise ConfigError(message) from error
        subject = subject_id(connection, subject_of(record))
        values = (record.device, record.session, record.seq, record.id, record.started_at_ns, subject, record.verdict.state, chunk, place)
        insert = f"INSERT INTO runs (row, {', '.join(RUN_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own names
        connection.execute(insert, (row, *values))


def _from_2_to_3(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE presence ADD COLUMN health BLOB")


FORMAT = sqlite_file.Format(
    what="ledger",
    application_id=0x45644C67,  # "EdLg"
    version=3,
    schema=_TABLES + _SMALL_TABLES + quarantine.SCHEMA + presence.SCHEMA,
    elsewhere="give the path of a ledger that `edgemeter collector up` or `edgemeter demo` wrote (--ledger PATH)",
    steps={1: _from_1_to_2, 2: _from_2_to_3},
)

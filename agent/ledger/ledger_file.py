"""The ledger's SQLite file: the tables, and how they are written."""

import itertools
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgemeter.agent.base.sqlite_file import FileFormat
from edgemeter.agent.ledger import chunks
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch, Committed, Source
from edgemeter.agent.ledger.run_row import (
    ADD_SUBJECT,
    ROWS_VERSION,
    RUN_COLUMNS,
    RUNS_SCHEMA,
    SUBJECTS_SCHEMA,
    RecordKey,
    RunRow,
    StoredSubjects,
    cases_in_sessions,
    judge_siblings,
)

if TYPE_CHECKING:
    from edgemeter.agent.ledger.quarantine import Rejection

_CHUNKS = """CREATE TABLE chunks (
    chunk INTEGER PRIMARY KEY,
    last_row INTEGER NOT NULL,
    received_ns INTEGER NOT NULL,
    has_samples INTEGER NOT NULL DEFAULT 1,
    body BLOB NOT NULL,
    is_own INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX chunks_with_samples ON chunks (received_ns) WHERE has_samples;
CREATE INDEX own_chunks ON chunks (chunk) WHERE is_own;
"""
FORGOTTEN_SCHEMA = """CREATE TABLE forgotten (
    device TEXT NOT NULL,
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (device, session, first)
) WITHOUT ROWID;
"""
_SMALL_TABLES = f"""CREATE TABLE sinks (name TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE identity (collector TEXT NOT NULL, rows INTEGER NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(8))), {ROWS_VERSION});
"""  # noqa: S608 - our own number
RUN_EVENTS_SCHEMA = """CREATE TABLE run_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL,
    id TEXT NOT NULL,
    device TEXT NOT NULL,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    model TEXT NOT NULL,
    started_at_ns INTEGER NOT NULL,
    stamped_by TEXT NOT NULL,
    received_ns INTEGER NOT NULL,
    author TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    text TEXT NOT NULL,
    body BLOB,
    left_sinks TEXT NOT NULL DEFAULT ''
);
"""
QUARANTINE_SCHEMA = """CREATE TABLE quarantine (
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
"""
PRESENCE_SCHEMA = """CREATE TABLE presence (
    fleet TEXT NOT NULL,
    device TEXT NOT NULL,
    state TEXT,
    session INTEGER,
    birth BLOB,
    changed_ns INTEGER NOT NULL,
    health BLOB,
    PRIMARY KEY (fleet, device)
);
"""
# The retained topics: the activity of each device, and the progress of each job.
RETAINED_SCHEMA = """CREATE TABLE IF NOT EXISTS retained (
    topic TEXT PRIMARY KEY,
    payload BLOB NOT NULL,
    received_ns INTEGER NOT NULL
);
"""
LEDGER_FORMAT = FileFormat(
    what="ledger",
    application_id=0x45644C67,  # "EdLg"
    version=1,
    schema=SUBJECTS_SCHEMA
    + RUNS_SCHEMA
    + _CHUNKS
    + FORGOTTEN_SCHEMA
    + _SMALL_TABLES
    + QUARANTINE_SCHEMA
    + PRESENCE_SCHEMA
    + RETAINED_SCHEMA
    + RUN_EVENTS_SCHEMA,
    elsewhere="give the path of a ledger, or set EDGEMETER_HOME to another folder",
)
_PLACE = RUN_COLUMNS.index("place")
_MARKS = ", ".join("?" * len(RUN_COLUMNS))
_INSERT = (
    # The SQL contains only our own names.
    f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) VALUES ({_MARKS}) ON CONFLICT "  # noqa: S608
    "(device, session, seq) DO NOTHING"
)


class LedgerWriter:
    """Writes over one connection, within the caller's transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._subjects = StoredSubjects()

    def keep(
        self, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch]
    ) -> "tuple[Committed, list[Rejection]]":
        """Store the arrivals, and return the outcome.

        Returns also the records rejected because their number belongs to another record.
        """
        inserted = 0
        keys: list[RecordKey] = []
        collisions: list[Rejection] = []
        touched: set[tuple[int, int]] = set()
        chunk = int(
            self._connection.execute("SELECT coalesce(max(chunk), 0) FROM chunks").fetchone()[0]
        )
        has_forgotten = (
            self._connection.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone() is not None
        )
        try:
            for source in itertools.chain[Source](chunks.portions(arrivals), batches):
                chunk += 1
                runs = chunks.runs_of(source)
                new, collided = self._insert(
                    runs, chunk, self._forgotten_among(runs) if has_forgotten else frozenset()
                )
                if new:
                    self._connection.execute(
                        "INSERT INTO chunks (chunk, last_row, received_ns, body) "
                        "VALUES (?, last_insert_rowid(), ?, ?)",
                        (chunk, chunks.received_ns_of(source), chunks.body_of(source)),
                    )
                inserted += new
                touched |= cases_in_sessions(runs)
                keys += [run.key for index, run in enumerate(runs) if index not in collided]
                if collided:
                    collisions += chunks.rejections_of(source, sorted(collided))
            judge_siblings(self._connection, touched)
        except BaseException:
            # A rollback removes the subjects inserted in this transaction too.
            self._subjects.forget()
            raise
        return Committed(inserted, len(keys) - inserted, len(collisions), tuple(keys)), collisions

    def _insert(
        self, runs: Sequence[RunRow], chunk: int, left_out: frozenset[int]
    ) -> tuple[int, set[int]]:
        """Return the number of new rows, and the indexes of the colliding ones.

        Those are the rows whose number belongs to another record.
        """
        rows = [
            (*run.values, chunk, index) for index, run in enumerate(runs) if index not in left_out
        ]
        self._connection.executemany(ADD_SUBJECT, self._subjects.new_among(runs))
        inserted = self._connection.executemany(_INSERT, rows).rowcount if rows else 0
        held_id = "SELECT id FROM runs WHERE device = ? AND session = ? AND seq = ?"
        return inserted, {
            row[_PLACE]
            for row in (rows if inserted < len(rows) else ())
            if self._connection.execute(held_id, row[:3]).fetchone()[0] != row[3]
        }

    def _forgotten_among(self, runs: Sequence[RunRow]) -> frozenset[int]:
        query = "SELECT first, last FROM forgotten WHERE device = ? AND session = ?"
        ranges = {
            session: self._connection.execute(query, session).fetchall()
            for session in {run.key[1:3] for run in runs}
        }
        return frozenset(
            index
            for index, run in enumerate(runs)
            if any(first <= run.key.seq <= last for first, last in ranges[run.key[1:3]])
        )

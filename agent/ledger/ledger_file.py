"""The ledger's SQLite file: the tables, and how they are written."""

import itertools
import sqlite3
from collections.abc import Sequence

from edgemeter.agent.base.sqlite_file import FileFormat
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger import chunks, presence, quarantine
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch, Committed, RecordKey, Source
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.run_row import (
    ADD_SUBJECT,
    ROWS_VERSION,
    RUN_COLUMNS,
    RUNS_SCHEMA,
    SUBJECTS_SCHEMA,
    SubjectNumbers,
    cases_in_sessions,
    judge_siblings,
    run_values,
)

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
LEDGER_FORMAT = FileFormat(
    what="ledger",
    application_id=0x45644C67,  # "EdLg"
    version=1,
    schema=SUBJECTS_SCHEMA
    + RUNS_SCHEMA
    + _CHUNKS
    + FORGOTTEN_SCHEMA
    + _SMALL_TABLES
    + quarantine.QUARANTINE_SCHEMA
    + presence.PRESENCE_SCHEMA
    + presence.RETAINED_SCHEMA
    + RUN_EVENTS_SCHEMA,
    elsewhere="give the path of a ledger, or set EDGEMETER_HOME to another folder",
)
_PLACE = RUN_COLUMNS.index("place")
# So many rows are inserted at once.
ROWS = 100
_MARKS = f"({', '.join('?' * len(RUN_COLUMNS))})"
_HEAD = f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) VALUES "  # noqa: S608 - our own column names
_TAIL = " ON CONFLICT (device, session, seq) DO NOTHING"
_INSERT = [f"{_HEAD}{', '.join([_MARKS] * rows)}{_TAIL}" for rows in range(ROWS + 1)]


class LedgerWriter:
    """Writes over one connection, within the caller's transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._subjects = SubjectNumbers()

    def keep(self, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch]) -> tuple[Committed, list[Rejection]]:
        """Store what arrived; return the outcome, and the records rejected because their number belongs to another record."""
        inserted = 0
        keys: list[RecordKey] = []
        collisions: list[Rejection] = []
        chunk = int(self._connection.execute("SELECT coalesce(max(chunk), 0) FROM chunks").fetchone()[0])
        has_forgotten = self._connection.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone() is not None
        try:
            for source in itertools.chain[Source](chunks.portions(arrivals), batches):
                chunk += 1
                records = source.records if isinstance(source, ArrivedBatch) else [arrival.record for arrival in source]
                received_ns = source.received_ns if isinstance(source, ArrivedBatch) else source[0].received_ns
                left_out = self._forgotten_among(records) if has_forgotten else frozenset()
                new, collided = self._insert(records, received_ns, chunk, left_out)
                if new:
                    self._add_chunk(chunk, source)
                inserted += new
                keys += [chunks.key_of(record) for index, record in enumerate(records) if index not in collided]
                if collided:
                    collisions += chunks.rejections_of(source, sorted(collided))
        except BaseException:
            # The subjects inserted in this transaction are rolled back with it.
            self._subjects.forget()
            raise
        return Committed(inserted, len(keys) - inserted, len(collisions), tuple(keys)), collisions

    def _insert(self, records: Sequence[RunRecord], received_ns: int, chunk: int, left_out: frozenset[int]) -> tuple[int, set[int]]:
        """Return how many rows are new, and the indexes of those whose number belongs to another record."""
        rows = [
            run_values(record, received_ns, self._subjects.of(record), chunk, index)
            for index, record in enumerate(records)
            if index not in left_out
        ]
        self._connection.executemany(ADD_SUBJECT, self._subjects.added.values())
        self._subjects.stored()
        held_id = "SELECT id FROM runs WHERE device = ? AND session = ? AND seq = ?"
        inserted = 0
        collided: set[int] = set()
        for start in range(0, len(rows), ROWS):
            slice_ = rows[start : start + ROWS]
            count = self._connection.execute(_INSERT[len(slice_)], [*itertools.chain.from_iterable(slice_)]).rowcount
            inserted += count
            if count < len(slice_):
                collided |= {row[_PLACE] for row in slice_ if self._connection.execute(held_id, row[:3]).fetchone()[0] != row[3]}
        judge_siblings(self._connection, cases_in_sessions(rows))
        return inserted, collided

    def _forgotten_among(self, records: Sequence[RunRecord]) -> frozenset[int]:
        query = "SELECT first, last FROM forgotten WHERE device = ? AND session = ?"
        ranges: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
        for record in records:
            name = (record.device, record.session)
            if name not in ranges:
                ranges[name] = self._connection.execute(query, name).fetchall()
        return frozenset(
            index
            for index, record in enumerate(records)
            if any(first <= (record.seq or 0) <= last for first, last in ranges[record.device, record.session])
        )

    def _add_chunk(self, chunk: int, source: Source) -> None:
        last_row = self._connection.execute("SELECT last_insert_rowid()").fetchone()[0]
        if isinstance(source, ArrivedBatch):
            body, received_ns = source.body, source.received_ns
        else:
            body, received_ns = chunks.pack_chunk([arrival.payload for arrival in source]), source[0].received_ns
        statement = "INSERT INTO chunks (chunk, last_row, received_ns, body) VALUES (?, ?, ?, ?)"
        self._connection.execute(statement, (chunk, last_row, received_ns, body))

"""The ledger's SQLite file: the tables, and how they are written."""

import itertools
import sqlite3
from collections.abc import Sequence
from typing import Any

from edgemeter.agent.base.sqlite_file import FileFormat
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger import chunks, presence, quarantine
from edgemeter.agent.ledger.chunks import SUBJECT_COLUMNS, Arrival, ArrivedBatch, Committed, RecordKey, Source
from edgemeter.agent.ledger.quarantine import Rejection

RUN_COLUMNS = ("device", "session", "seq", "id", "started_at_ns", "subject", "verdict", "chunk", "place")

_SUBJECTS = f"""CREATE TABLE subjects (
    subject INTEGER PRIMARY KEY,
    {", ".join(f"{name} TEXT NOT NULL" for name in SUBJECT_COLUMNS)},
    UNIQUE ({", ".join(SUBJECT_COLUMNS)})
);
"""
RUNS_SCHEMA = """CREATE TABLE runs (
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
"""
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
_SMALL_TABLES = """CREATE TABLE sinks (name TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE identity (collector TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(8))));
"""
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
    schema=_SUBJECTS
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
# Nine values a row; SQLite before 3.32 accepts at most 999.
ROWS = 100
SUBJECTS_REMEMBERED = 10_000
_MARKS = f"({', '.join('?' * len(RUN_COLUMNS))})"
_HEAD = f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) VALUES "  # noqa: S608 - our own column names
_TAIL = " ON CONFLICT (device, session, seq) DO NOTHING"
_SUBJECT_NAMES, _SUBJECT_MARKS = ", ".join(SUBJECT_COLUMNS), ", ".join("?" * len(SUBJECT_COLUMNS))
_ADD_SUBJECT = f"INSERT INTO subjects ({_SUBJECT_NAMES}) VALUES ({_SUBJECT_MARKS}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
_SUBJECT = f"SELECT subject FROM subjects WHERE ({_SUBJECT_NAMES}) = ({_SUBJECT_MARKS})"  # noqa: S608 - as above
_INSERT = [f"{_HEAD}{', '.join([_MARKS] * rows)}{_TAIL}" for rows in range(ROWS + 1)]


class LedgerWriter:
    """Writes over one connection, within the caller's transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._subjects: dict[tuple[str, ...], int] = {}

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
                new, collided = self._insert(records, chunk, self._forgotten_among(records) if has_forgotten else frozenset())
                if new:
                    self._add_chunk(chunk, source)
                inserted += new
                keys += [chunks.key_of(record) for index, record in enumerate(records) if index not in collided]
                if collided:
                    collisions += chunks.rejections_of(source, sorted(collided))
        except BaseException:
            # The subjects inserted in this transaction are rolled back with it.
            self._subjects.clear()
            raise
        return Committed(inserted, len(keys) - inserted, len(collisions), tuple(keys)), collisions

    def _insert(self, records: Sequence[RunRecord], chunk: int, left_out: frozenset[int]) -> tuple[int, set[int]]:
        """Return how many rows are new, and the indexes of those whose number belongs to another record."""
        rows = [self._values(record, chunk, index) for index, record in enumerate(records) if index not in left_out]
        held_id = "SELECT id FROM runs WHERE device = ? AND session = ? AND seq = ?"
        inserted = 0
        collided: set[int] = set()
        for start in range(0, len(rows), ROWS):
            slice_ = rows[start : start + ROWS]
            count = self._connection.execute(_INSERT[len(slice_)], [*itertools.chain.from_iterable(slice_)]).rowcount
            inserted += count
            if count < len(slice_):
                collided |= {row[8] for row in slice_ if self._connection.execute(held_id, row[:3]).fetchone()[0] != row[3]}
        return inserted, collided

    def _values(self, record: RunRecord, chunk: int, index: int) -> tuple[Any, ...]:
        subject = chunks.subject_of(record)
        if (number := self._subjects.get(subject)) is None:
            if len(self._subjects) >= SUBJECTS_REMEMBERED:
                self._subjects.clear()
            self._connection.execute(_ADD_SUBJECT, subject)
            number = self._subjects[subject] = int(self._connection.execute(_SUBJECT, subject).fetchone()[0])
        state = record.verdict.state
        return record.device, record.session, record.seq, record.id, record.started_at_ns, number, state, chunk, index

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

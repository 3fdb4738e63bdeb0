"""Writing to the ledger: chunks of records and a row for each, within the caller's transaction.

One statement inserts a hundred rows: a statement lets other threads run, and taking turns with them costs more than inserting.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from edgemeter.agent import records
from edgemeter.agent.delivery import messages
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import chunks, ledger_file
from edgemeter.collector.keep.arrival import Arrival, Shipment
from edgemeter.collector.keep.quarantine import Rejection

COLLISION = "another record already holds this number: cloned card or copied outbox?"
# Nine values a row; SQLite before 3.32 takes 999 at most.
ROWS = 100
SUBJECTS_REMEMBERED = 10_000

Key = tuple[str, str, int, int]
_Source = Shipment | list[Arrival]

_MARKS = f"({', '.join('?' * len(ledger_file.RUN_COLUMNS))})"
_HEAD = f"INSERT INTO runs ({', '.join(ledger_file.RUN_COLUMNS)}) VALUES "  # noqa: S608 - our own column names
_TAIL = " ON CONFLICT (device, session, seq) DO NOTHING"
_INSERT = [f"{_HEAD}{', '.join([_MARKS] * rows)}{_TAIL}" for rows in range(ROWS + 1)]


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a batch. `held` are the keys (fleet, device, session, seq) that the ledger now holds, new or not."""

    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    held: tuple[Key, ...] = ()


class LedgerWriter:
    """Writes over one connection, in transactions that the caller holds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._subjects: dict[tuple[str, ...], int] = {}

    def keep(self, batch: Sequence[Arrival], shipments: Sequence[Shipment]) -> tuple[Committed, list[Rejection]]:
        """Keep what came; return what became of it, and what is not kept because another record holds its number."""
        inserted = 0
        held: list[Key] = []
        collisions: list[Rejection] = []
        chunk = int(self._connection.execute("SELECT coalesce(max(chunk), 0) FROM chunks").fetchone()[0])
        has_forgotten = self._connection.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone() is not None
        try:
            sources: Iterator[_Source] = itertools.chain(_portions(batch), shipments)
            for source in sources:
                chunk += 1
                some = source.records if isinstance(source, Shipment) else [one.record for one in source]
                outcome = self._insert(some, chunk, self._forgotten_among(some) if has_forgotten else frozenset())
                if outcome.inserted:
                    self._add_chunk(chunk, source)
                inserted += outcome.inserted
                held += [_key(record) for place, record in enumerate(some) if place not in outcome.collided]
                collisions += [_rejection(source, place) for place in sorted(outcome.collided)]
        except BaseException:
            # The subjects made in this transaction go with it.
            self._subjects.clear()
            raise
        return Committed(inserted, len(held) - inserted, len(collisions), tuple(held)), collisions

    def check(self, limit_chunks: int) -> list[Rejection]:
        """Read chunks whole of which only the envelopes were; take out what is no record, and return that."""
        query = "SELECT chunk, received_ns, body FROM unchecked JOIN chunks USING (chunk) ORDER BY chunk LIMIT ?"
        rejections: list[Rejection] = []
        for chunk, received_ns, body in self._connection.execute(query, (limit_chunks,)).fetchall():
            for place, payload in enumerate(chunks.unpack(body)):
                try:
                    records.decode(payload)
                except ConfigError as error:
                    rejections += self._take_out(chunk, place, Rejection("", payload, str(error), received_ns))
            self._connection.execute("DELETE FROM unchecked WHERE chunk = ?", (chunk,))
        return rejections

    def drop(self, some: Iterable[RunRecord]) -> None:
        """Take out rows of records that are the same as these, not others that hold their numbers."""
        statement = "DELETE FROM runs WHERE device = ? AND session = ? AND seq = ? AND id = ?"
        self._connection.executemany(statement, [(one.device, one.session, one.seq, one.id) for one in some])

    def _take_out(self, chunk: int, place: int, rejection: Rejection) -> list[Rejection]:
        # The rows of a chunk stand together, and end at `last_row`.
        query = """SELECT row, fleet, runs.device FROM chunks
            JOIN runs ON row BETWEEN last_row - ? AND last_row AND runs.chunk = chunks.chunk
            JOIN subjects USING (subject) WHERE chunks.chunk = ? AND place = ?"""
        found = self._connection.execute(query, (messages.LONGEST_BATCH, chunk, place)).fetchone()
        if found is None:
            return []
        row, fleet, device = found
        self._connection.execute("DELETE FROM runs WHERE row = ?", (row,))
        return [replace(rejection, topic=str(Topic(fleet, device, "result")))]

    def _insert(self, some: Sequence[RunRecord], chunk: int, left_out: frozenset[int]) -> "_Outcome":
        rows = [self._values(record, chunk, place) for place, record in enumerate(some) if place not in left_out]
        inserted = 0
        collided: set[int] = set()
        for start in range(0, len(rows), ROWS):
            slice_ = rows[start : start + ROWS]
            count = self._connection.execute(_INSERT[len(slice_)], [*itertools.chain.from_iterable(slice_)]).rowcount
            inserted += count
            if count < len(slice_):
                collided |= self._collided(slice_)
        return _Outcome(inserted, collided)

    def _values(self, record: RunRecord, chunk: int, place: int) -> tuple[object, ...]:
        subject = ledger_file.subject_of(record)
        number = self._subjects.get(subject)
        if number is None:
            if len(self._subjects) >= SUBJECTS_REMEMBERED:
                self._subjects.clear()
            number = self._subjects[subject] = ledger_file.subject_id(self._connection, subject)
        state = record.verdict.state
        return record.device, record.session, record.seq, record.id, record.started_at_ns, number, state, chunk, place

    def _collided(self, rows: Iterable[tuple[object, ...]]) -> set[int]:
        query = "SELECT id FROM runs WHERE device = ? AND session = ? AND seq = ?"
        found = ((row[8], row[3], self._connection.execute(query, row[:3]).fetchone()[0]) for row in rows)
        return {int(str(place)) for place, our_id, held_id in found if our_id != held_id}

    def _forgotten_among(self, some: Sequence[RunRecord]) -> frozenset[int]:
        query = "SELECT first, last FROM forgotten WHERE device = ? AND session = ?"
        ranges: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
        for record in some:
            name = (record.device, record.session)
            if name not in ranges:
                ranges[name] = self._connection.execute(query, name).fetchall()
        return frozenset(
            place
            for place, record in enumerate(some)
            if any(first <= (record.seq or 0) <= last for first, last in ranges[record.device, record.session])
        )

    def _add_chunk(self, chunk: int, source: _Source) -> None:
        last_row = self._connection.execute("SELECT last_insert_rowid()").fetchone()[0]
        if isinstance(source, Shipment):
            body, received_ns, is_checked = source.body, source.received_ns, source.is_checked
        else:
            body = chunks.pack([one.payload for one in source])
            received_ns, is_checked = source[0].received_ns, all(one.is_checked for one in source)
        statement = "INSERT INTO chunks (chunk, last_row, received_ns, body) VALUES (?, ?, ?, ?)"
        self._connection.execute(statement, (chunk, last_row, received_ns, body))
        if not is_checked:
            self._connection.execute("INSERT INTO unchecked VALUES (?)", (chunk,))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How many rows are new, and the places of those whose number another record holds."""

    inserted: int
    collided: set[int]


def _portions(batch: Sequence[Arrival]) -> Iterator[list[Arrival]]:
    portion: list[Arrival] = []
    size_bytes = 0
    for one in batch:
        if portion and (size_bytes + len(one.payload) > chunks.TEXT_BYTES or one.received_ns != portion[0].received_ns):
            yield portion
            portion, size_bytes = [], 0
        portion.append(one)
        size_bytes += len(one.payload)
    if portion:
        yield portion


def _rejection(source: _Source, place: int) -> Rejection:
    if isinstance(source, Shipment):
        return Rejection(source.topic, chunks.unpack(source.body)[place], COLLISION, source.received_ns)
    return Rejection(source[place].topic, source[place].payload, COLLISION, source[place].received_ns)


def _key(record: RunRecord) -> Key:
    if record.session is None or record.seq is None:
        message = f"record {record.id!r} has no number: only numbered records enter the ledger"
        raise msgspec.ValidationError(message)
    return record.fleet, record.device, record.session, record.seq

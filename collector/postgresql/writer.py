"""Commits to a ledger in PostgreSQL: what arrived, in one transaction, once."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.base.postgres_session import UnstorableError
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger import chunks, quarantine
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage, note_presence
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.collector.postgresql.schema import LedgerSession, check_version

SUBJECTS_REMEMBERED = 10_000

_NEXT = """UPDATE ledger SET row = row + ?, chunk = chunk + ?, commits = commits + 1
RETURNING row - ?, chunk - ?, version, min_version, current_setting('fsync'), current_setting('synchronous_commit')"""
_SUBJECTS = f"""INSERT INTO subjects (subject, {", ".join(chunks.SUBJECT_COLUMNS)})
VALUES (?, {", ".join(["?"] * len(chunks.SUBJECT_COLUMNS))}) ON CONFLICT DO NOTHING"""  # noqa: S608 - our own names
_RUNS = """INSERT INTO runs (row, device, session, seq, id, started_at_ns, subject, verdict, chunk, place)
SELECT * FROM unnest(?::bigint[], ?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[],
?::integer[]) ON CONFLICT (device, session, seq) DO NOTHING RETURNING row"""
# A statement of its own: only that sees what another writer has committed meanwhile.
_HELD = """SELECT device, session, seq, id FROM runs
JOIN unnest(?::text[], ?::bigint[], ?::bigint[]) AS wanted (device, session, seq) USING (device, session, seq)"""
_FORGOTTEN = """SELECT device, session, first, last FROM forgotten
JOIN unnest(?::text[], ?::bigint[]) AS wanted (device, session) USING (device, session)"""
_CHUNK = "INSERT INTO chunks (chunk, last_row, received_ns, has_samples, size_bytes, body) VALUES (?, ?, ?, true, ?, ?)"


class _Row(NamedTuple):
    """A record to store: its source among those of the commit, its place there, and the row that it gets if it is new."""

    record: RunRecord
    source: int
    place: int
    row: int


def next_numbers(statements: Statements, row_count: int, chunk_count: int, where: object) -> tuple[int, int]:
    """Reserve row and chunk numbers in the caller's transaction; return the numbers before them. Other writers wait for its end.

    Raises:
        ConfigError: a newer version uses the ledger in a way that this one does not understand, or the server syncs no commit any more.
    """
    numbers = (row_count, chunk_count, row_count, chunk_count)
    row, chunk, version, min_version, fsync, synchronous_commit = statements.execute(_NEXT, numbers).fetchone()
    check_version(version, min_version, where)
    refuse_unsafe(fsync, synchronous_commit, where)
    return row, chunk


def refuse_unsafe(fsync: str, synchronous_commit: str, where: object) -> None:
    """Refuse a server with these settings if what it commits may be lost.

    Raises:
        ConfigError: one of them is off.
    """
    for name, value in (("fsync", fsync), ("synchronous_commit", synchronous_commit)):
        if value == "off":
            raise ConfigError(f"{where} has {name} = off, so a record may be lost after its receipt: set it on, at the server or the role")


class PostgresWriter:
    """The writing calls of a ledger, over one session; each commit is a transaction of its own."""

    def __init__(self, session: LedgerSession) -> None:
        self._session = session
        self._subjects: set[int] = set()
        self._generation = 0

    def commit(
        self,
        arrivals: Sequence[chunks.Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[PresenceChange | RetainedMessage] = (),
        batches: Sequence[chunks.ArrivedBatch] = (),
    ) -> chunks.Committed:
        """Commit what arrived, durable when this returns; what PostgreSQL cannot store goes to the quarantine and stops no other."""
        return self._commit([*chunks.portions(arrivals), *batches], rejections, changes)

    def release(
        self, row: int, arrivals: Sequence[chunks.Arrival], batches: Sequence[chunks.ArrivedBatch], *, drain_again: bool
    ) -> chunks.Committed:
        """Commit the records of a quarantined entry and remove it, unless a number belongs to another record."""
        drop = "DELETE FROM runs WHERE device = ? AND session = ? AND seq = ? AND id = ?"

        def before(statements: Statements) -> None:
            if drain_again:
                keys = [(record.device, record.session, record.seq, record.id) for record, *_ in arrivals]
                statements.executemany(drop, keys)

        def after(statements: Statements, collisions: Sequence[Rejection]) -> None:
            # A record that collides is in the entry that stays.
            if not collisions:
                statements.execute("DELETE FROM quarantine WHERE row = ?", (row,))

        return self._transact([*chunks.portions(arrivals), *batches], (), (), before, after)

    def _commit(
        self, sources: Sequence[chunks.Source], rejections: Sequence[Rejection], changes: Sequence[PresenceChange | RetainedMessage]
    ) -> chunks.Committed:
        try:
            return self._transact(sources, rejections, changes)
        except UnstorableError as error:
            if not sources:
                raise
            halves = _halves(sources)
            if halves is None:
                (arrival,) = _as_arrivals(sources[0])
                rejection = Rejection(arrival.topic, arrival.payload, str(error), arrival.received_ns)
                return self._commit((), [*rejections, rejection], changes)
        first, second = self._commit(halves[0], (), ()), self._commit(halves[1], rejections, changes)
        return chunks.Committed(
            first.inserted + second.inserted,
            first.duplicates + second.duplicates,
            first.collisions + second.collisions,
            (*first.held, *second.held),
        )

    def _transact(
        self,
        sources: Sequence[chunks.Source],
        rejections: Sequence[Rejection],
        changes: Sequence[PresenceChange | RetainedMessage],
        before: Callable[[Statements], None] = lambda _: None,
        after: Callable[[Statements, Sequence[Rejection]], None] = quarantine.add,
    ) -> chunks.Committed:
        """Commit all of it in one transaction; `after` is given what collides."""
        if not sources and not rejections and not changes:
            return chunks.Committed()
        records = [
            source.records if isinstance(source, chunks.ArrivedBatch) else [arrival.record for arrival in source] for source in sources
        ]
        try:
            with self._session.transaction() as statements:
                row, chunk = next_numbers(statements, sum(map(len, records)), len(sources), self._session.address)
                before(statements)
                numbers = itertools.count(row + 1)
                rows = [
                    _Row(record, source, index, next(numbers))
                    for source, members in enumerate(records)
                    for index, record in enumerate(members)
                ]
                new, collided = self._store(statements, rows, chunk) if rows else (frozenset(), frozenset())
                _add_chunks(statements, sources, [stored for stored in rows if stored.row in new], chunk)
                committed, collisions = _outcome(sources, rows, len(new), collided)
                quarantine.add(statements, rejections)
                note_presence(statements, changes)
                after(statements, collisions)
        except BaseException:
            # The subjects inserted in this transaction are rolled back with it.
            self._subjects.clear()
            raise
        return committed

    def _store(self, statements: Statements, rows: Sequence[_Row], chunk: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the rows that are new, and of those whose number belongs to another record."""
        candidates = _not_forgotten(statements, rows)
        self._add_subjects(statements, candidates)
        columns = zip(*(_values(candidate, chunk) for candidate in candidates), strict=True)
        inserted = statements.execute(_RUNS, [list(column) for column in columns] or [[]] * 10)
        new = frozenset(row for (row,) in inserted.fetchall())
        repeated = [candidate for candidate in candidates if candidate.row not in new]
        return new, frozenset(_collided(statements, repeated)) if repeated else frozenset()

    def _add_subjects(self, statements: Statements, rows: Iterable[_Row]) -> None:
        if self._generation != self._session.generation or len(self._subjects) > SUBJECTS_REMEMBERED:
            # After a failover what was committed before may be gone.
            self._subjects.clear()
            self._generation = self._session.generation
        subjects = {subject_number(values): values for values in {chunks.subject_of(row.record) for row in rows}}
        added = [(number, *values) for number, values in subjects.items() if number not in self._subjects]
        if added:
            statements.executemany(_SUBJECTS, added)
            self._subjects.update(subjects)


def subject_number(values: tuple[str, ...]) -> int:
    """Return the number of a subject: of its values, so that every collector gives it the same."""
    return int.from_bytes(hashlib.sha256(msgspec.json.encode(values)).digest()[:8], "big", signed=True)


def _values(row: _Row, chunk: int) -> tuple[object, ...]:
    record = row.record
    subject = subject_number(chunks.subject_of(record))
    identity = (row.row, record.device, record.session, record.seq, record.id, record.started_at_ns, subject)
    return (*identity, record.verdict.state, chunk + 1 + row.source, row.place)


def _not_forgotten(statements: Statements, rows: Sequence[_Row]) -> Sequence[_Row]:
    sessions = list({(row.record.device, row.record.session) for row in rows})
    forgotten = statements.execute(_FORGOTTEN, ([device for device, _ in sessions], [session for _, session in sessions]))
    ranges: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
    for device, session, first, last in forgotten.fetchall():
        ranges.setdefault((device, session), []).append((first, last))
    if not ranges:
        return rows
    return [
        row
        for row in rows
        if not any(first <= (row.record.seq or 0) <= last for first, last in ranges.get((row.record.device, row.record.session), ()))
    ]


def _collided(statements: Statements, rows: Sequence[_Row]) -> Iterable[int]:
    keys = [(row.record.device, row.record.session, row.record.seq) for row in rows]
    stored = statements.execute(_HELD, [list(column) for column in zip(*keys, strict=True)])
    stored_ids = {(device, session, seq): record_id for device, session, seq, record_id in stored.fetchall()}
    for key, row in zip(keys, rows, strict=True):
        if key not in stored_ids:
            raise TransientError(f"record {row.record.id} was removed while it was committed again: try again")
        if stored_ids[key] != row.record.id:
            yield row.row


def _add_chunks(statements: Statements, sources: Sequence[chunks.Source], new_rows: Sequence[_Row], chunk: int) -> None:
    values = []
    for number, last_row in {row.source: row.row for row in new_rows}.items():
        source = sources[number]
        if isinstance(source, chunks.ArrivedBatch):
            body, received_ns = source.body, source.received_ns
        else:
            body, received_ns = chunks.pack_chunk([arrival.payload for arrival in source]), source[0].received_ns
        values.append((chunk + 1 + number, last_row, received_ns, len(body), body))
    if values:
        statements.executemany(_CHUNK, values)


def _outcome(
    sources: Sequence[chunks.Source], rows: Sequence[_Row], inserted: int, collided: frozenset[int]
) -> tuple[chunks.Committed, list[Rejection]]:
    keys = tuple(chunks.key_of(row.record) for row in rows if row.row not in collided)
    places: dict[int, list[int]] = {}
    for row in rows:
        if row.row in collided:
            places.setdefault(row.source, []).append(row.place)
    collisions = [rejection for number, members in places.items() for rejection in chunks.rejections_of(sources[number], members)]
    # Many rejected records of one message are one entry, so they are counted by row.
    return chunks.Committed(inserted, len(keys) - inserted, len(collisions), keys), collisions


def _halves(sources: Sequence[chunks.Source]) -> tuple[Sequence[chunks.Source], Sequence[chunks.Source]] | None:
    """Return the two halves of what is to be committed; None if it is a single record."""
    if len(sources) > 1:
        middle = len(sources) // 2
        return sources[:middle], sources[middle:]
    arrivals = _as_arrivals(sources[0])
    middle = len(arrivals) // 2
    return ([arrivals[:middle]], [arrivals[middle:]]) if middle else None


def _as_arrivals(source: chunks.Source) -> list[chunks.Arrival]:
    if not isinstance(source, chunks.ArrivedBatch):
        return source
    payloads = chunks.unpack_chunk(source.body)
    return [
        chunks.Arrival(record, payload, source.topic, source.received_ns) for record, payload in zip(source.records, payloads, strict=True)
    ]

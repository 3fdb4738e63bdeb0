"""Commits to a ledger in PostgreSQL: what arrived, in one transaction, once."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.contract.messages import Birth, DeviceState
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.chunks import (
    SUBJECT_COLUMNS,
    Arrival,
    ArrivedBatch,
    Committed,
    Source,
    key_of,
    pack_chunk,
    portions,
    rejections_of,
    subject_of,
    unpack_chunk,
)
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.collector.postgresql import quarantine_table
from edgemeter.collector.postgresql.schema import check_version
from edgemeter.collector.postgresql.session import Cursor, PostgresSession, UnstorableError

SUBJECTS_REMEMBERED = 10_000

_NEXT = """UPDATE ledger SET row = row + %s, chunk = chunk + %s, commits = commits + 1
RETURNING row - %s, chunk - %s, version, min_version"""
_SUBJECTS = f"""INSERT INTO subjects (subject, {", ".join(SUBJECT_COLUMNS)})
VALUES (%s, {", ".join(["%s"] * len(SUBJECT_COLUMNS))}) ON CONFLICT DO NOTHING"""  # noqa: S608 - our own names
_RUNS = """INSERT INTO runs (row, device, session, seq, id, started_at_ns, subject, verdict, chunk, place)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[],
%s::integer[]) ON CONFLICT (device, session, seq) DO NOTHING RETURNING row"""
# A statement of its own: only that sees what another writer has committed meanwhile.
_HELD = """SELECT device, session, seq, id FROM runs
JOIN unnest(%s::text[], %s::bigint[], %s::bigint[]) AS wanted (device, session, seq) USING (device, session, seq)"""
_FORGOTTEN = """SELECT device, session, first, last FROM forgotten
JOIN unnest(%s::text[], %s::bigint[]) AS wanted (device, session) USING (device, session)"""
_CHUNK = "INSERT INTO chunks (chunk, last_row, received_ns, has_samples, size_bytes, body) VALUES (%s, %s, %s, true, %s, %b)"

# Every collector of a group hears every state, so only what differs is written.
_STATE = """INSERT INTO presence (fleet, device, state, session, changed_ns) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (fleet, device) DO UPDATE SET state = excluded.state, session = excluded.session, changed_ns = excluded.changed_ns
WHERE (excluded.state IN ('online', 'revoked') OR presence.session IS NULL OR presence.session = excluded.session)
AND (presence.state, presence.session) IS DISTINCT FROM (excluded.state, excluded.session)"""
_BIRTH = """INSERT INTO presence (fleet, device, birth, changed_ns) VALUES (%s, %s, %s, %s)
ON CONFLICT (fleet, device) DO UPDATE SET birth = excluded.birth WHERE presence.birth IS DISTINCT FROM excluded.birth"""
_RETAINED = """INSERT INTO retained (topic, payload, received_ns) VALUES (%s, %s, %s)
ON CONFLICT (topic) DO UPDATE SET payload = excluded.payload, received_ns = excluded.received_ns
WHERE retained.payload IS DISTINCT FROM excluded.payload"""
_HEALTH = """INSERT INTO presence (fleet, device, health, changed_ns) VALUES (%s, %s, %s, %s)
ON CONFLICT (fleet, device) DO UPDATE SET health = excluded.health WHERE presence.health IS DISTINCT FROM excluded.health"""


class _Row(NamedTuple):
    """A record to store: its source among those of the commit, its place there, and the row that it gets if it is new."""

    record: RunRecord
    source: int
    place: int
    row: int


@dataclass(frozen=True, slots=True)
class _Stored:
    """The rows that are new, and those whose number belongs to another record."""

    new: frozenset[int]
    collided: frozenset[int]


def next_numbers(cursor: Cursor, rows: int, chunks: int, where: object) -> tuple[int, int]:
    """Reserve row and chunk numbers in the caller's transaction; return the numbers before them. Other writers wait for its end.

    Raises:
        ConfigError: a newer version uses the ledger in a way that this one does not understand.
    """
    cursor.execute(_NEXT, (rows, chunks, rows, chunks))
    row, chunk, version, min_version = cursor.fetchone()
    check_version(version, min_version, where)
    return row, chunk


class PostgresWriter:
    """Writes over one session; each commit is a transaction of its own."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._subjects: set[int] = set()
        self._generation = 0

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: Sequence[Rejection],
        changes: Sequence[PresenceChange | RetainedMessage],
        batches: Sequence[ArrivedBatch],
    ) -> Committed:
        """Commit what arrived; a record that PostgreSQL cannot store goes to the quarantine, and stops no other."""
        return self._commit([*portions(arrivals), *batches], rejections, changes)

    def release(self, row: int, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch], *, drain_again: bool) -> Committed:
        """Commit the records of a quarantined entry and remove it, unless a number belongs to another record."""
        drop = "DELETE FROM runs WHERE device = %s AND session = %s AND seq = %s AND id = %s"

        def before(cursor: Cursor) -> None:
            if drain_again:
                keys = [(one.record.device, one.record.session, one.record.seq, one.record.id) for one in arrivals]
                cursor.executemany(drop, keys)

        def after(cursor: Cursor, collisions: Sequence[Rejection]) -> None:
            # A record that collides is in the entry that stays.
            if not collisions:
                cursor.execute("DELETE FROM quarantine WHERE row = %s", (row,))

        return self._transact([*portions(arrivals), *batches], (), (), before, after)

    def _commit(
        self, sources: Sequence[Source], rejections: Sequence[Rejection], changes: Sequence[PresenceChange | RetainedMessage]
    ) -> Committed:
        try:
            return self._transact(sources, rejections, changes)
        except UnstorableError as error:
            if not sources:
                raise
            halves = _halves(sources)
            if halves is None:
                rejected = _as_arrivals(sources[0])[0]
                one = Rejection(rejected.topic, rejected.payload, str(error), rejected.received_ns)
                return self._commit((), [*rejections, one], changes)
        first, second = self._commit(halves[0], (), ()), self._commit(halves[1], rejections, changes)
        return Committed(
            first.inserted + second.inserted,
            first.duplicates + second.duplicates,
            first.collisions + second.collisions,
            (*first.held, *second.held),
        )

    def _transact(
        self,
        sources: Sequence[Source],
        rejections: Sequence[Rejection],
        changes: Sequence[PresenceChange | RetainedMessage],
        before: Callable[[Cursor], None] = lambda _: None,
        after: Callable[[Cursor, Sequence[Rejection]], None] = quarantine_table.add,
    ) -> Committed:
        """Commit all of it in one transaction; `after` is given what collides."""
        if not sources and not rejections and not changes:
            return Committed()
        records = [_records(source) for source in sources]
        try:
            with self._session.transaction() as cursor:
                row, chunk = next_numbers(cursor, sum(map(len, records)), len(sources), self._session.address)
                before(cursor)
                rows = _numbered(records, row)
                stored = self._store(cursor, rows, chunk) if rows else _Stored(frozenset(), frozenset())
                _add_chunks(cursor, sources, rows, stored, chunk)
                committed, collisions = _outcome(sources, rows, stored)
                quarantine_table.add(cursor, rejections)
                _note_presence(cursor, changes)
                after(cursor, collisions)
        except BaseException:
            # The subjects inserted in this transaction are rolled back with it.
            self._subjects.clear()
            raise
        return committed

    def _store(self, cursor: Cursor, rows: Sequence[_Row], chunk: int) -> _Stored:
        wanted = _not_forgotten(cursor, rows)
        self._add_subjects(cursor, wanted)
        columns = zip(*(_values(one, chunk) for one in wanted), strict=True)
        cursor.execute(_RUNS, [list(column) for column in columns] or [[]] * 10)
        new = frozenset(row for (row,) in cursor.fetchall())
        left = [one for one in wanted if one.row not in new]
        return _Stored(new, frozenset(_collided(cursor, left)) if left else frozenset())

    def _add_subjects(self, cursor: Cursor, rows: Iterable[_Row]) -> None:
        if self._generation != self._session.generation or len(self._subjects) > SUBJECTS_REMEMBERED:
            # After a failover what was committed before may be gone.
            self._subjects.clear()
            self._generation = self._session.generation
        subjects = {subject_number(values): values for values in {subject_of(one.record) for one in rows}}
        added = [(number, *values) for number, values in subjects.items() if number not in self._subjects]
        if added:
            cursor.executemany(_SUBJECTS, added)
            self._subjects.update(subjects)


def subject_number(values: tuple[str, ...]) -> int:
    """Return the number of a subject: of its values, so that every collector gives it the same."""
    return int.from_bytes(hashlib.sha256(msgspec.json.encode(values)).digest()[:8], "big", signed=True)


def _records(source: Source) -> Sequence[RunRecord]:
    return source.records if isinstance(source, ArrivedBatch) else [one.record for one in source]


def _numbered(records: Sequence[Sequence[RunRecord]], row: int) -> list[_Row]:
    places = [(record, source, place) for source, some in enumerate(records) for place, record in enumerate(some)]
    return [_Row(*one, row + number) for number, one in enumerate(places, start=1)]


def _values(one: _Row, chunk: int) -> tuple[object, ...]:
    record = one.record
    subject = subject_number(subject_of(record))
    name = (one.row, record.device, record.session, record.seq, record.id, record.started_at_ns, subject)
    return (*name, record.verdict.state, chunk + 1 + one.source, one.place)


def _not_forgotten(cursor: Cursor, rows: Sequence[_Row]) -> list[_Row]:
    sessions = list({(one.record.device, one.record.session) for one in rows})
    cursor.execute(_FORGOTTEN, ([device for device, _ in sessions], [session for _, session in sessions]))
    ranges: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
    for device, session, first, last in cursor.fetchall():
        ranges.setdefault((device, session), []).append((first, last))
    if not ranges:
        return list(rows)
    return [one for one in rows if not any(first <= (one.record.seq or 0) <= last for first, last in ranges.get(_session(one), ()))]


def _session(one: _Row) -> tuple[str, int | None]:
    return one.record.device, one.record.session


def _collided(cursor: Cursor, left: Sequence[_Row]) -> Iterable[int]:
    """Yield the rows whose numbers belong to other records."""
    keys = [(one.record.device, one.record.session, one.record.seq) for one in left]
    cursor.execute(_HELD, [list(column) for column in zip(*keys, strict=True)])
    held = {(device, session, seq): name for device, session, seq, name in cursor.fetchall()}
    for key, one in zip(keys, left, strict=True):
        if key not in held:
            raise TransientError(f"record {one.record.id} was removed while it was committed again: try again")
        if held[key] != one.record.id:
            yield one.row


def _add_chunks(cursor: Cursor, sources: Sequence[Source], rows: Sequence[_Row], stored: _Stored, chunk: int) -> None:
    last_rows: dict[int, int] = {}
    for one in rows:
        if one.row in stored.new:
            last_rows[one.source] = one.row
    values = []
    for number, last_row in last_rows.items():
        source = sources[number]
        if isinstance(source, ArrivedBatch):
            body, received_ns = source.body, source.received_ns
        else:
            body, received_ns = pack_chunk([one.payload for one in source]), source[0].received_ns
        values.append((chunk + 1 + number, last_row, received_ns, len(body), body))
    if values:
        cursor.executemany(_CHUNK, values)


def _outcome(sources: Sequence[Source], rows: Sequence[_Row], stored: _Stored) -> tuple[Committed, list[Rejection]]:
    held = tuple(key_of(one.record) for one in rows if one.row not in stored.collided)
    places: dict[int, list[int]] = {}
    for one in rows:
        if one.row in stored.collided:
            places.setdefault(one.source, []).append(one.place)
    collisions = [rejection for number, found in places.items() for rejection in rejections_of(sources[number], found)]
    # Many rejected records of one message are one entry, so they are counted by row.
    return Committed(len(stored.new), len(held) - len(stored.new), len(collisions), held), collisions


def _note_presence(cursor: Cursor, changes: Iterable[PresenceChange | RetainedMessage]) -> None:
    for change in changes:
        if isinstance(change, RetainedMessage):
            if change.payload:
                cursor.execute(_RETAINED, (change.topic, change.payload, change.received_ns))
            else:
                cursor.execute("DELETE FROM retained WHERE topic = %s", (change.topic,))
            continue
        name = (change.fleet, change.device)
        if isinstance(change.message, DeviceState):
            cursor.execute(_STATE, (*name, change.message.state, change.message.session, change.received_ns))
        else:
            statement = _BIRTH if isinstance(change.message, Birth) else _HEALTH
            cursor.execute(statement, (*name, msgspec.json.encode(change.message), change.received_ns))


def _halves(sources: Sequence[Source]) -> tuple[Sequence[Source], Sequence[Source]] | None:
    """Return the two halves of what is to be committed; None if it is a single record."""
    if len(sources) > 1:
        middle = len(sources) // 2
        return sources[:middle], sources[middle:]
    arrivals = _as_arrivals(sources[0])
    middle = len(arrivals) // 2
    return ([arrivals[:middle]], [arrivals[middle:]]) if middle else None


def _as_arrivals(source: Source) -> list[Arrival]:
    if not isinstance(source, ArrivedBatch):
        return source
    payloads = unpack_chunk(source.body)
    return [Arrival(record, payload, source.topic, source.received_ns) for record, payload in zip(source.records, payloads, strict=True)]

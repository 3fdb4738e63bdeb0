"""Commits to a ledger in PostgreSQL: what arrived, in one transaction, once."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.contract.messages import TOPIC_ROOT, Birth, DeviceState
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger import quarantine
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
_QUARANTINE = """INSERT INTO quarantine (digest, topic, payload, size_bytes, kept_bytes, reason, received_ns, last_ns, times)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 1)
ON CONFLICT (digest) DO UPDATE SET times = quarantine.times + 1, last_ns = excluded.last_ns"""
_TOTAL = "SELECT count(*), coalesce(sum(kept_bytes), 0) FROM quarantine WHERE topic LIKE %s"
# As in a file: entries are kept by rising share of their sender until the limits are full.
_DROP = """DELETE FROM quarantine WHERE row IN (
    SELECT row FROM (
        SELECT row,
            row_number() OVER (ORDER BY share, row DESC) AS place,
            sum(kept_bytes) OVER (ORDER BY share, row DESC ROWS UNBOUNDED PRECEDING) AS total_bytes
        FROM (
            SELECT row, kept_bytes,
                greatest(1.0 * row_number() OVER newest / %(rows)s, 1.0 * sum(kept_bytes) OVER newest / %(bytes)s) AS share
            FROM quarantine WHERE topic LIKE %(ours)s
            WINDOW newest AS (PARTITION BY regexp_replace(topic, '[^/]*$', '') ORDER BY row DESC ROWS UNBOUNDED PRECEDING)
        ) AS shares
    ) AS places WHERE place > %(kept_rows)s OR total_bytes > %(kept_bytes)s
)"""
_OUR_TOPICS = f"{TOPIC_ROOT}/%"


class _Row(NamedTuple):
    """A record to store: its source among those of the commit, its place there, and the row that it gets if it is new."""

    record: RunRecord
    source: int
    place: int
    row: int


def next_numbers(cursor: Cursor, rows: int, chunks: int, where: object) -> tuple[int, int]:
    """Reserve row and chunk numbers in the caller's transaction; return the numbers before them. Other writers wait for its end.

    Raises:
        ConfigError: a newer version uses the ledger in a way that this one does not understand.
    """
    cursor.execute(_NEXT, (rows, chunks, rows, chunks))
    row, chunk, version, min_version = cursor.fetchone()
    check_version(version, min_version, where)
    return row, chunk


@contextmanager
def locked(session: PostgresSession) -> Iterator[Cursor]:
    """Give a cursor for one transaction that no commit and no other such transaction runs beside."""
    with session.transaction() as cursor:
        next_numbers(cursor, 0, 0, session.address)
        yield cursor


def add_rejections(cursor: Cursor, rejections: Sequence[Rejection]) -> None:
    """Quarantine `rejections`, within a transaction that holds the row of the ledger; beyond the limits of a file entries are dropped."""
    if not rejections:
        return
    # PostgreSQL stores no NUL in a text.
    cursor.executemany(
        _QUARANTINE,
        [
            tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in quarantine.entry_values(rejection))
            for rejection in rejections
        ],
    )
    cursor.execute(_TOTAL, (_OUR_TOPICS,))
    rows, kept_bytes = cursor.fetchone()
    if rows > quarantine.ROWS_LIMIT or kept_bytes > quarantine.TOTAL_LIMIT_BYTES:
        limits = {"rows": quarantine.ROWS_LIMIT, "bytes": quarantine.TOTAL_LIMIT_BYTES}
        reduced = {f"kept_{name}": int(limit * quarantine.KEPT_RATIO) for name, limit in limits.items()}
        cursor.execute(_DROP, {**limits, **reduced, "ours": _OUR_TOPICS})


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
                keys = [(record.device, record.session, record.seq, record.id) for record, *_ in arrivals]
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
                (arrival,) = _as_arrivals(sources[0])
                rejection = Rejection(arrival.topic, arrival.payload, str(error), arrival.received_ns)
                return self._commit((), [*rejections, rejection], changes)
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
        after: Callable[[Cursor, Sequence[Rejection]], None] = add_rejections,
    ) -> Committed:
        """Commit all of it in one transaction; `after` is given what collides."""
        if not sources and not rejections and not changes:
            return Committed()
        records = [source.records if isinstance(source, ArrivedBatch) else [arrival.record for arrival in source] for source in sources]
        try:
            with self._session.transaction() as cursor:
                row, chunk = next_numbers(cursor, sum(map(len, records)), len(sources), self._session.address)
                before(cursor)
                numbers = itertools.count(row + 1)
                rows = [
                    _Row(record, source, index, next(numbers))
                    for source, members in enumerate(records)
                    for index, record in enumerate(members)
                ]
                new, collided = self._store(cursor, rows, chunk) if rows else (frozenset(), frozenset())
                _add_chunks(cursor, sources, [stored for stored in rows if stored.row in new], chunk)
                committed, collisions = _outcome(sources, rows, len(new), collided)
                add_rejections(cursor, rejections)
                _note_presence(cursor, changes)
                after(cursor, collisions)
        except BaseException:
            # The subjects inserted in this transaction are rolled back with it.
            self._subjects.clear()
            raise
        return committed

    def _store(self, cursor: Cursor, rows: Sequence[_Row], chunk: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the rows that are new, and of those whose number belongs to another record."""
        candidates = _not_forgotten(cursor, rows)
        self._add_subjects(cursor, candidates)
        columns = zip(*(_values(candidate, chunk) for candidate in candidates), strict=True)
        cursor.execute(_RUNS, [list(column) for column in columns] or [[]] * 10)
        new = frozenset(row for (row,) in cursor.fetchall())
        repeated = [candidate for candidate in candidates if candidate.row not in new]
        return new, frozenset(_collided(cursor, repeated)) if repeated else frozenset()

    def _add_subjects(self, cursor: Cursor, rows: Iterable[_Row]) -> None:
        if self._generation != self._session.generation or len(self._subjects) > SUBJECTS_REMEMBERED:
            # After a failover what was committed before may be gone.
            self._subjects.clear()
            self._generation = self._session.generation
        subjects = {subject_number(values): values for values in {subject_of(row.record) for row in rows}}
        added = [(number, *values) for number, values in subjects.items() if number not in self._subjects]
        if added:
            cursor.executemany(_SUBJECTS, added)
            self._subjects.update(subjects)


def subject_number(values: tuple[str, ...]) -> int:
    """Return the number of a subject: of its values, so that every collector gives it the same."""
    return int.from_bytes(hashlib.sha256(msgspec.json.encode(values)).digest()[:8], "big", signed=True)


def _values(row: _Row, chunk: int) -> tuple[object, ...]:
    record = row.record
    subject = subject_number(subject_of(record))
    identity = (row.row, record.device, record.session, record.seq, record.id, record.started_at_ns, subject)
    return (*identity, record.verdict.state, chunk + 1 + row.source, row.place)


def _not_forgotten(cursor: Cursor, rows: Sequence[_Row]) -> Sequence[_Row]:
    sessions = list({(row.record.device, row.record.session) for row in rows})
    cursor.execute(_FORGOTTEN, ([device for device, _ in sessions], [session for _, session in sessions]))
    ranges: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
    for device, session, first, last in cursor.fetchall():
        ranges.setdefault((device, session), []).append((first, last))
    if not ranges:
        return rows
    return [
        row
        for row in rows
        if not any(first <= (row.record.seq or 0) <= last for first, last in ranges.get((row.record.device, row.record.session), ()))
    ]


def _collided(cursor: Cursor, rows: Sequence[_Row]) -> Iterable[int]:
    """Yield the rows whose numbers belong to other records."""
    keys = [(row.record.device, row.record.session, row.record.seq) for row in rows]
    cursor.execute(_HELD, [list(column) for column in zip(*keys, strict=True)])
    stored_ids = {(device, session, seq): record_id for device, session, seq, record_id in cursor.fetchall()}
    for key, row in zip(keys, rows, strict=True):
        if key not in stored_ids:
            raise TransientError(f"record {row.record.id} was removed while it was committed again: try again")
        if stored_ids[key] != row.record.id:
            yield row.row


def _add_chunks(cursor: Cursor, sources: Sequence[Source], new_rows: Sequence[_Row], chunk: int) -> None:
    values = []
    for number, last_row in {row.source: row.row for row in new_rows}.items():
        source = sources[number]
        if isinstance(source, ArrivedBatch):
            body, received_ns = source.body, source.received_ns
        else:
            body, received_ns = pack_chunk([arrival.payload for arrival in source]), source[0].received_ns
        values.append((chunk + 1 + number, last_row, received_ns, len(body), body))
    if values:
        cursor.executemany(_CHUNK, values)


def _outcome(sources: Sequence[Source], rows: Sequence[_Row], inserted: int, collided: frozenset[int]) -> tuple[Committed, list[Rejection]]:
    keys = tuple(key_of(row.record) for row in rows if row.row not in collided)
    places: dict[int, list[int]] = {}
    for row in rows:
        if row.row in collided:
            places.setdefault(row.source, []).append(row.place)
    collisions = [rejection for number, members in places.items() for rejection in rejections_of(sources[number], members)]
    # Many rejected records of one message are one entry, so they are counted by row.
    return Committed(inserted, len(keys) - inserted, len(collisions), keys), collisions


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

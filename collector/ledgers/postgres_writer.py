"""Commits to a ledger in PostgreSQL: all arrivals in one transaction, once."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.base.postgres_session import (
    LedgerSession,
    UnstorableError,
    number_array,
    text_array,
)
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.ledger import chunks, quarantine
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage, note_presence
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.run_row import (
    ADD_SUBJECT,
    RUN_COLUMNS,
    RUN_TYPES,
    RunRow,
    StoredSubjects,
    cases_in_sessions,
    judge_siblings,
)
from edgemeter.collector.ledgers.postgres_schema import check_version

_NEXT = """UPDATE ledger SET row = row + ?, chunk = chunk + ?, commits = commits + 1
RETURNING row - ?, chunk - ?, version, current_setting('fsync'), \
current_setting('synchronous_commit')"""
# How an array of a column is sent.
_ARRAYS = {
    "TEXT": "?::text[]",
    "INTEGER": "?::bigint[]",
    "REAL": "?::double precision[]",
    "BLOB": "?::bytea[]",
}
# Row and chunk numbers are counted back from the counter, which the previous statement has raised,
# so that both are sent at once. Without one of the subjects nothing is inserted.
_RUNS = f"""INSERT INTO runs (row, {", ".join(RUN_COLUMNS)})
SELECT (SELECT row FROM ledger) - ? + number,
    {
    ", ".join(
        "(SELECT chunk FROM ledger) - ? + chunk" if name == "chunk" else name
        for name in RUN_COLUMNS
    )
}
FROM unnest({", ".join(_ARRAYS[kind] for kind in RUN_TYPES.values())})
WITH ORDINALITY AS arrived ({", ".join(RUN_COLUMNS)}, number)
WHERE (SELECT count(*) FROM subjects WHERE subject = ANY(?::bigint[])) = ? \
AND NOT EXISTS (SELECT 1 FROM forgotten
    WHERE forgotten.device = arrived.device AND forgotten.session = arrived.session \
AND seq BETWEEN first AND last)
ON CONFLICT (device, session, seq) DO NOTHING"""  # noqa: S608 - our own names
_CHUNKS = """INSERT INTO chunks (chunk, last_row, received_ns, has_samples, size_bytes, body)
SELECT chunk, last_row, received_ns, true, octet_length(body), body
FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], %b::bytea[]) \
AS arrived (chunk, last_row, received_ns, body)"""
# A separate statement: only that sees what another writer has committed meanwhile.
_HELD = """SELECT device, session, seq, id FROM runs
JOIN unnest(?::text[], ?::bigint[], ?::bigint[]) AS wanted (device, session, seq) \
USING (device, session, seq)"""
_FORGOTTEN = """SELECT device, session, first, last FROM forgotten
JOIN unnest(?::text[], ?::bigint[]) AS wanted (device, session) USING (device, session)"""


class _Repeated(NamedTuple):
    """A record that was not stored: its index in the commit, its source, and its offset there."""

    run: RunRow
    number: int
    source: int
    offset: int


def take_numbers(statements: Statements, row_count: int, chunk_count: int) -> Any:
    """Reserve row and chunk numbers in the caller's transaction.

    It returns a cursor for `numbers_before`. Other writers wait for the end of the transaction.
    """
    return statements.execute(_NEXT, (row_count, chunk_count, row_count, chunk_count))


def numbers_before(cursor: Any, where: object) -> tuple[int, int]:
    """Return the row and chunk numbers before the reserved ones.

    Raises:
        ConfigError: the ledger is of another version, or the server syncs no commit any more.
    """
    row, chunk, version, fsync, synchronous_commit = cursor.fetchone()
    check_version(version, where)
    refuse_unsafe(fsync, synchronous_commit, where)
    return row, chunk


def refuse_unsafe(fsync: str, synchronous_commit: str, where: object) -> None:
    """Refuse a server whose settings do not make commits durable.

    It raises ConfigError if one of them is off.
    """
    for name, value in (("fsync", fsync), ("synchronous_commit", synchronous_commit)):
        if value == "off":
            raise ConfigError(
                f"{where} has {name} = off, so a record may be lost after its receipt: set it "
                "on, at the server or the role"
            )


class PostgresWriter:
    """The writing calls of a ledger, over one session; each commit is a transaction of its own."""

    def __init__(self, session: LedgerSession) -> None:
        self._session = session
        self._subjects = StoredSubjects()
        self._generation = 0

    def _commit(
        self,
        sources: Sequence[chunks.Source],
        rejections: Sequence[Rejection],
        changes: Sequence[PresenceChange | RetainedMessage],
    ) -> chunks.Committed:
        """Commit the arrivals, which are durable when this returns.

        Values that PostgreSQL cannot store are quarantined and stop no others.
        """
        try:
            return self._transact(sources, rejections, changes)
        except UnstorableError as error:
            if not sources:
                raise
            halves = _halves(sources)
            if halves is None:
                (arrival,) = _as_arrivals(sources[0])
                return self._commit(
                    (),
                    [
                        *rejections,
                        Rejection(arrival.topic, arrival.payload, str(error), arrival.received_ns),
                    ],
                    changes,
                )
        first, second = (
            self._commit(halves[0], (), ()),
            self._commit(halves[1], rejections, changes),
        )
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
    ) -> chunks.Committed:
        """Commit all in one transaction; records with a used number are quarantined."""
        if not sources and not rejections and not changes:
            return chunks.Committed()
        # Compressed and encoded before the counter is locked, which the other collectors wait for.
        if self._generation != self._session.generation:
            # After a failover, earlier commits may be gone.
            self._subjects.forget()
            self._generation = self._session.generation
        group = _Group(sources)
        try:
            with self._session.transaction() as statements:
                with statements.together() as sending:
                    cursor = take_numbers(sending, len(group.runs), len(sources))
                    stored = (
                        _store(sending, group, self._subjects.new_among(group.runs))
                        if group.runs
                        else None
                    )
                row, chunk = numbers_before(cursor, self._session.address)
                is_all_new = stored is None or stored.rowcount == len(group.runs)
                repeated = () if is_all_new else _repeated(statements, group, row)
                collided = (
                    _collided(statements, _not_forgotten(statements, repeated)) if repeated else ()
                )
                _add_chunks(
                    statements, group, (row, chunk), frozenset(entry.number for entry in repeated)
                )
                committed, collisions = _outcome(group, len(repeated), collided)
                quarantine.add(statements, [*rejections, *collisions])
                judge_siblings(statements, cases_in_sessions(group.runs))
                note_presence(statements, changes)
        except BaseException:
            # A rollback removes the subjects inserted in this transaction too.
            self._subjects.forget()
            raise
        return committed


def _store(statements: Statements, group: "_Group", new_subjects: Sequence[tuple[Any, ...]]) -> Any:
    """Store the new rows, and their subjects; return the cursor that counts the rows."""
    if new_subjects:
        statements.executemany(ADD_SUBJECT, new_subjects)
    return statements.execute(_RUNS, group.run_columns)


class _Group:
    """The content of one transaction.

    It has the rows of its sources, which are consecutive, the values of `_RUNS`, and the chunks.
    """

    def __init__(self, sources: Sequence[chunks.Source]) -> None:
        self.sources = sources
        self.members = [*map(chunks.runs_of, sources)]
        self.runs = [*itertools.chain.from_iterable(self.members)]
        rows = [
            (*run.values, number, index)
            for number, members in enumerate(self.members, 1)
            for index, run in enumerate(members)
        ]
        columns = [
            _array(kind, values)
            for kind, values in zip(RUN_TYPES.values(), zip(*rows, strict=True), strict=False)
        ]
        subjects = {run.subject[0] for run in self.runs}
        self.run_columns = (
            len(rows),
            len(sources),
            *columns,
            number_array(subjects),
            len(subjects),
        )
        self.bodies = [*map(chunks.body_of, sources)]


def _array(kind: str, values: Sequence[Any]) -> Any:
    """Return the values of a column as an array; NaN stands for NULL."""
    if kind == "REAL":
        return number_array("NULL" if math.isnan(value) else value for value in values)
    has_absent = any(isinstance(value, float) for value in values)
    if kind == "INTEGER":
        return (
            number_array("NULL" if isinstance(value, float) else value for value in values)
            if has_absent
            else number_array(values)
        )
    if kind == "TEXT" and not has_absent:
        return text_array(values)
    return [None if isinstance(value, float) else value for value in values]


def _add_chunks(
    statements: Statements, group: _Group, numbers: tuple[int, int], repeated: frozenset[int]
) -> None:
    """Add the chunks with a new row; `numbers` are those of row and chunk before the group's."""
    row, chunk = numbers
    added = []
    begin = 0
    for source, members, body in zip(group.sources, group.members, group.bodies, strict=True):
        chunk += 1
        begin, numbers_of_source = begin + len(members), range(begin, begin + len(members))
        newest = next(
            (number for number in reversed(numbers_of_source) if number not in repeated), None
        )
        if newest is not None:
            added.append((chunk, row + 1 + newest, chunks.received_ns_of(source), body))
    if added:
        *columns, bodies = zip(*added, strict=True)
        statements.execute(_CHUNKS, (*map(number_array, columns), list(bodies)))


def _repeated(statements: Statements, group: _Group, row: int) -> list[_Repeated]:
    """Return the records of a group that were not stored; `row` is the number before its rows."""
    stored = statements.execute(
        "SELECT row FROM runs WHERE row > ? AND row <= ?", (row, row + len(group.runs))
    )
    new = {number - row - 1 for (number,) in stored.fetchall()}
    places = (
        (source, index)
        for source, members in enumerate(group.members)
        for index in range(len(members))
    )
    return [
        _Repeated(run, index, *origin)
        for index, (run, origin) in enumerate(zip(group.runs, places, strict=True))
        if index not in new
    ]


def _not_forgotten(statements: Statements, repeated: Sequence[_Repeated]) -> Sequence[_Repeated]:
    sessions = list({entry.run.key[1:3] for entry in repeated})
    forgotten = statements.execute(
        _FORGOTTEN, ([device for device, _ in sessions], [session for _, session in sessions])
    )
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for device, session, first, last in forgotten.fetchall():
        ranges.setdefault((device, session), []).append((first, last))
    if not ranges:
        return repeated
    return [
        entry
        for entry in repeated
        if not any(
            first <= entry.run.key[3] <= last for first, last in ranges.get(entry.run.key[1:3], ())
        )
    ]


def _collided(statements: Statements, repeated: Sequence[_Repeated]) -> list[_Repeated]:
    """Return those whose number belongs to another record."""
    keys = [entry.run.key[1:] for entry in repeated]
    stored_ids = {
        (device, session, seq): record_id
        for device, session, seq, record_id in statements.execute(
            _HELD, [[key[column] for key in keys] for column in range(3)]
        ).fetchall()
    }
    removed = next(
        (entry for key, entry in zip(keys, repeated, strict=True) if key not in stored_ids), None
    )
    if removed is not None:
        raise TransientError(
            f"record {removed.run.id} was not stored, or removed while it was "
            "committed again: try again"
        )
    return [
        entry for key, entry in zip(keys, repeated, strict=True) if stored_ids[key] != entry.run.id
    ]


def _outcome(
    group: _Group, repeated_count: int, collided: Sequence[_Repeated]
) -> tuple[chunks.Committed, list[Rejection]]:
    keys = [run.key for run in group.runs]
    places: dict[int, list[int]] = {}
    for entry in collided:
        places.setdefault(entry.source, []).append(entry.offset)
    for entry in reversed(collided):
        del keys[entry.number]
    collisions = [
        rejection
        for number, members in places.items()
        for rejection in chunks.rejections_of(group.sources[number], members)
    ]
    inserted = len(group.runs) - repeated_count
    # Many rejected records of one message are one entry, so they are counted one by one.
    return chunks.Committed(
        inserted, len(keys) - inserted, len(collisions), tuple(keys)
    ), collisions


def _halves(
    sources: Sequence[chunks.Source],
) -> tuple[Sequence[chunks.Source], Sequence[chunks.Source]] | None:
    """Return the two halves of a commit; None for a single record."""
    if len(sources) > 1:
        middle = len(sources) // 2
        return sources[:middle], sources[middle:]
    arrivals = _as_arrivals(sources[0])
    middle = len(arrivals) // 2
    return ([arrivals[:middle]], [arrivals[middle:]]) if middle else None


def _as_arrivals(source: chunks.Source) -> list[chunks.Arrival]:
    if not isinstance(source, chunks.ArrivedBatch):
        return source
    return [
        chunks.Arrival(run, payload, source.topic, source.received_ns)
        for run, payload in zip(source.runs, chunks.unpack_chunk(source.body), strict=True)
    ]

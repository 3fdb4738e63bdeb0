"""The ledger in PostgreSQL: the same calls as those of a file, for any number of collectors and readers.

A reader holds no transaction open: it goes on by pages, after the last row it saw.
"""

import itertools
import operator
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.sqlite_file import Access
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.ledger.chunks import (
    IDENTITY_MARK,
    SUBJECT_COLUMNS,
    Arrival,
    ArrivedBatch,
    Committed,
    HeldChunk,
    chunk_text,
    coalesce,
    is_position_of,
    unpack_chunk,
)
from edgemeter.agent.ledger.ledger import EVERY_RECORD, LEASE_S, HeldRecord, LedgerFilter, LedgerStats
from edgemeter.agent.ledger.presence import (
    DevicePresence,
    PresenceChange,
    RetainedMessage,
    SessionHeld,
    present_device,
    session_held,
)
from edgemeter.agent.ledger.quarantine import QuarantinedMessage, RecordReference, Rejection
from edgemeter.agent.ledger.retention import Retention, RetentionRemoved
from edgemeter.collector.postgresql import upkeep
from edgemeter.collector.postgresql.address import PostgresAddress
from edgemeter.collector.postgresql.schema import check_version
from edgemeter.collector.postgresql.session import Cursor, PostgresSession
from edgemeter.collector.postgresql.writer import PostgresWriter, add_rejections, locked

# A page of rows, and how much of their chunks is fetched at once; a chunk that is larger comes alone.
PAGE_ROWS = 5000
PAGE_BYTES = 8 << 20

# The timeline is of the server's log: another one began at a failover, and rows may be numbered again.
_EPOCH = """SELECT identity, (SELECT system_identifier FROM pg_control_system()),
(SELECT oid FROM pg_database WHERE datname = current_database()),
CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id::text FROM pg_control_checkpoint())
ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END FROM ledger"""
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'synchronous_standby_names')"
_WAITING = """SELECT wait_event, application_name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' AND wait_event IS NOT NULL"""
_LEASE = """INSERT INTO leases VALUES (%s, %s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE leases.owner = excluded.owner OR leases.until < clock_timestamp() RETURNING 1"""
_SESSIONS = """SELECT fleet, device, session, records, highest, received_ns
FROM (SELECT device, session, count(*) AS records, max(seq) AS highest, max(row) AS row FROM runs GROUP BY device, session) AS sessions
JOIN (SELECT row, subject, chunk FROM runs) AS newest USING (row) JOIN subjects USING (subject) JOIN chunks USING (chunk)"""
_SET_SINK = "INSERT INTO sinks VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET position = excluded.position"
_SINKS = "SELECT name, position FROM sinks"


class PostgresLedger:
    """The ledger at `address`. One object per thread; after a failure the next call connects again.

    Raises:
        ConfigError: there is no ledger, or one of another version, or (access `write`) its server does not sync what it commits.
        UnavailableError: the server does not answer, or psycopg is missing.
    """

    defers_checks = False

    def __init__(self, address: PostgresAddress, access: Access = "write") -> None:
        self._address = address
        self._session = PostgresSession(address, access)
        self._writer = PostgresWriter(self._session)
        self._owner = secrets.token_hex(8)
        self._has_leases = False
        try:
            version, min_version = self._session.rows("SELECT version, min_version FROM ledger")[0]
            check_version(version, min_version, address)
            if access == "write":
                self._refuse_unsafe()
        except EdgemeterError:
            self._session.close()
            raise

    def __enter__(self) -> "PostgresLedger":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is leased, and close the connection; may be called twice."""
        if self._has_leases:
            self._has_leases = False
            # Another takes over at once; without a server the leases just end.
            with suppress(EdgemeterError), self._session.transaction() as cursor:
                cursor.execute("DELETE FROM leases WHERE owner = %s", (self._owner,))
        self._session.close()

    def identity(self) -> str:
        """Return the id of the ledger, the same for all its collectors."""
        return str(self._session.value("SELECT identity FROM ledger"))

    def epoch(self) -> str:
        """Return the identity with that of the server, the database and the timeline."""
        return " ".join(map(str, self._session.rows(_EPOCH)[0]))

    def version(self) -> str:
        """Return how many commits there were."""
        return str(self._session.value("SELECT commits FROM ledger"))

    def safety(self) -> str:
        """Return on how many disks a record is when its receipt is sent."""
        standbys = dict(self._session.rows(_SETTINGS)).get("synchronous_standby_names", "")
        return f"the server's disk and those of its standbys {standbys}" if standbys else "one disk, that of the server"

    def stall(self) -> str | None:
        """Return the reason why commits wait (a missing standby, or another transaction), None if they do not."""
        waiting = dict(self._session.rows(_WAITING))
        if "SyncRep" in waiting:
            names = dict(self._session.rows(_SETTINGS)).get("synchronous_standby_names", "")
            return f"commits wait for a standby ({names}) that does not answer: start it, or take it out of synchronous_standby_names"
        return f"commits wait for another transaction of {waiting['transactionid']}" if "transactionid" in waiting else None

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[PresenceChange | RetainedMessage] = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        """Commit what arrived, durable when this returns; return the outcome. What cannot be stored at all is quarantined."""
        return self._writer.commit(arrivals, rejections, changes, batches)

    def check(self, limit_chunks: int) -> list[Rejection] | None:  # noqa: ARG002 - the protocol's
        """Return that nothing is left: every record is validated before its commit."""
        return None

    def forget(self, retention: Retention, now_ns: int) -> RetentionRemoved:
        """Remove one slice of what `retention` does not keep; one collector does so for all."""
        if not self.lease("retention"):
            return RetentionRemoved(0, 0, is_all=True)
        return upkeep.forget(self._session, retention, now_ns)

    def records(
        self, *, with_samples: bool = False, after_row: int = 0, limit: int | None = None, where: LedgerFilter = EVERY_RECORD
    ) -> Iterator[HeldRecord]:
        """Yield the records after `after_row` in the order of commits; without samples unless asked for."""
        for row, received_ns, payload in self.texts(after_row=after_row, limit=limit, where=where):
            record = decode(payload)
            has_surplus = record.samples and not with_samples
            yield HeldRecord(row, received_ns, msgspec.structs.replace(record, samples=()) if has_surplus else record)

    def texts(
        self, *, after_row: int = 0, limit: int | None = None, where: LedgerFilter = EVERY_RECORD
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield row, time of receipt in ns and JSON text of the records after `after_row`, in the order of commits."""
        for chunk in self.chunks(after_row=after_row, limit=limit, where=where):
            for row, payload in chunk.payloads():
                yield row, chunk.received_ns, payload

    def chunks(self, *, after_row: int = 0, limit: int | None = None, where: LedgerFilter = EVERY_RECORD) -> Iterator[HeldChunk]:
        """Yield the records after `after_row`, all validated, as many together as are stored together."""
        values = where.wanted()
        conditions = "".join(f" AND {name} = %s" for name in values)
        joined = " JOIN subjects USING (subject)" if values.keys() & set(SUBJECT_COLUMNS) else ""
        query = f"""SELECT row, runs.chunk, place, received_ns, size_bytes FROM runs JOIN chunks USING (chunk){joined}
        WHERE row > %s{conditions} ORDER BY row LIMIT %s"""  # noqa: S608 - our own names
        remaining = limit
        while remaining is None or remaining > 0:
            page_rows = PAGE_ROWS if remaining is None else min(PAGE_ROWS, remaining)
            page = self._session.rows(query, (after_row, *values.values(), page_rows))
            yield from self._page(page)
            if len(page) < page_rows:
                return
            after_row = page[-1][0]
            remaining = None if remaining is None else remaining - len(page)

    def text(self, record: RunRecord | RecordReference) -> bytes | None:
        """Return the stored JSON text of a record with its samples; None if it is not stored."""
        query = "SELECT place, body FROM runs JOIN chunks USING (chunk) WHERE device = %s AND session = %s AND seq = %s AND id = %s"
        rows = self._session.rows(query, (record.device, record.session, record.seq, record.id))
        return unpack_chunk(bytes(rows[0][1]))[rows[0][0]] if rows else None

    def ranges(self, device: str, session: int) -> list[tuple[int, int]]:
        """Return the ranges of sequence numbers (inclusive) that the ledger holds of one session, in order."""
        query = "SELECT seq FROM runs WHERE device = %s AND session = %s ORDER BY seq"
        return coalesce(seq for (seq,) in self._session.rows(query, (device, session)))

    def count(self) -> int:
        """Return how many records the ledger holds."""
        return int(self._session.value("SELECT count(*) FROM runs"))

    def last_row(self) -> int:
        """Return the row of the newest record, 0 if there is none."""
        return int(self._session.value("SELECT coalesce(max(row), 0) FROM runs"))

    def rows(self) -> Iterator[int]:
        """Yield the row of every record."""
        for (row,) in self._session.rows("SELECT row FROM runs"):
            yield row

    def lease(self, work: str) -> bool:
        """Return whether this object has the `work` for the next `LEASE_S`; one that ends without a word loses it after that."""
        with self._session.transaction() as cursor:
            cursor.execute(_LEASE, (work, self._owner, LEASE_S))
            is_ours = cursor.fetchone() is not None
        self._has_leases = self._has_leases or is_ours
        return is_ours

    def position(self, sink: str) -> int:
        """Return the row up to which `sink` has every record, 0 at first."""
        return max((position for name, position in self.positions().items() if is_position_of(sink, name)), default=0)

    def positions(self) -> dict[str, int]:
        """Return the row that each sink has reached, by its name."""
        return dict(self._session.rows(f"{_SINKS} ORDER BY name"))

    def advance(self, sink: str, position: int, rejections: Sequence[Rejection] = (), *, after: int | None = None) -> bool:
        """Record that `sink` has every record up to `position`; False if it is not at `after` now: another drained, or it was set back."""
        with locked(self._session) as cursor:
            add_rejections(cursor, rejections)
            positions = _positions(cursor)
            name = next((name for name in positions if is_position_of(sink, name)), sink)
            is_expected = after is None or positions.get(name, 0) == after
            if is_expected:
                cursor.execute(_SET_SINK, (name, position))
        return is_expected

    def claim_position(self, sink: str, identity: str) -> None:
        """Bind the position of `sink`, an address, to the bucket that is there now: another one there begins at row 0."""
        bound_name = f"{sink}{IDENTITY_MARK}{identity}"
        if bound_name in self.positions():
            return
        with locked(self._session) as cursor:
            positions = _positions(cursor)
            if bound_name in positions:
                return
            moved = next((name for name in positions if name.endswith(f"{IDENTITY_MARK}{identity}")), sink)
            replaced = [name for name in positions if is_position_of(sink, name) or name == moved]
            cursor.execute("DELETE FROM sinks WHERE name = ANY(%s)", (replaced,))
            cursor.execute(_SET_SINK, (bound_name, positions.get(moved, 0)))

    def set_back(self, name: str, since_ns: int | None) -> int:
        """Set the position `name` back to before what was received since then (None: to the beginning); return how many records follow."""
        query = "SELECT coalesce(min(row) - 1, (SELECT max(row) FROM runs), 0) FROM runs JOIN chunks USING (chunk) WHERE received_ns >= %s"
        row = 0 if since_ns is None else int(self._session.value(query, (since_ns,)))
        with locked(self._session) as cursor:
            cursor.execute("UPDATE sinks SET position = least(position, %s) WHERE name = %s", (row, name))
        return self.behind(name)

    def behind(self, name: str) -> int:
        """Return how many records lie behind the position `name`."""
        return int(self._session.value("SELECT count(*) FROM runs WHERE row > (SELECT position FROM sinks WHERE name = %s)", (name,)))

    def waiting_since_ns(self, position: int) -> int | None:
        """Return when the oldest record after row `position` was received, UTC in ns; None if there is none."""
        query = "SELECT received_ns FROM runs JOIN chunks USING (chunk) WHERE row > %s ORDER BY row LIMIT 1"
        rows = self._session.rows(query, (position,))
        return int(rows[0][0]) if rows else None

    def quarantined(self) -> list[QuarantinedMessage]:
        """Return the quarantined messages, oldest first."""
        query = "SELECT row, topic, payload, size_bytes, reason, received_ns, last_ns, times FROM quarantine ORDER BY row"
        return [QuarantinedMessage(row, topic, bytes(payload), *counts) for row, topic, payload, *counts in self._session.rows(query)]

    def quarantined_count(self) -> int:
        """Return how many messages are quarantined."""
        return int(self._session.value("SELECT count(*) FROM quarantine"))

    def release(self, row: int, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch], *, drain_again: bool) -> Committed:
        """Commit the records of a quarantined entry and remove it, unless a number belongs to another record."""
        return self._writer.release(row, arrivals, batches, drain_again=drain_again)

    def sessions(self) -> list[SessionHeld]:
        """Return what is stored of every session of every device, and how many of its numbers are missing."""
        forgotten: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for device, session, first, last in self._session.rows("SELECT device, session, first, last FROM forgotten"):
            forgotten.setdefault((device, session), []).append((first, last))
        sessions = [
            session_held(fleet, device, session, records, highest, received_ns, forgotten.get((device, session), ()))
            for fleet, device, session, records, highest, received_ns in self._session.rows(_SESSIONS)
        ]
        return sorted(sessions, key=operator.attrgetter("fleet", "device", "session"))

    def devices(self) -> list[DevicePresence]:
        """Return every device that reported its presence, by fleet and name."""
        query = "SELECT fleet, device, state, session, birth, changed_ns, health FROM presence ORDER BY fleet, device"
        return [present_device(*row) for row in self._session.rows(query)]

    def retained(self) -> list[RetainedMessage]:
        """Return what is measured now: the latest message of each topic, by topic."""
        return [RetainedMessage(*row) for row in self._session.rows("SELECT topic, payload, received_ns FROM retained ORDER BY topic")]

    def stats(self) -> LedgerStats:
        """Return the ledger in numbers, without reading records."""
        return upkeep.stats(self._session, self.positions(), self.last_row(), self.safety())

    def size_bytes(self) -> int:
        """Return the size of the tables with their indexes."""
        return sum(upkeep.table_bytes(self._session))

    def _page(self, page: Sequence[tuple[int, int, int, int, int]]) -> Iterator[HeldChunk]:
        """Yield what a page of rows holds, its chunks fetched some at a time."""
        bodies: dict[int, bytes] = {}
        position = 0
        for chunk, members in itertools.groupby(page, operator.itemgetter(1)):
            rows = list(members)
            if chunk not in bodies:
                bodies = self._bodies(page[position:])
            position += len(rows)
            # Retention may have removed it meanwhile.
            if chunk in bodies:
                yield HeldChunk([(row, index) for row, _, index, _, _ in rows], rows[0][3], chunk_text(bodies[chunk]), is_checked=True)

    def _bodies(self, rows: Sequence[tuple[int, int, int, int, int]]) -> dict[int, bytes]:
        sizes: dict[int, int] = {}
        total_bytes = 0
        for _, chunk, _, _, size_bytes in rows:
            if chunk not in sizes:
                if sizes and total_bytes + size_bytes > PAGE_BYTES:
                    break
                sizes[chunk] = size_bytes
                total_bytes += size_bytes
        return {
            chunk: bytes(body) for chunk, body in self._session.rows("SELECT chunk, body FROM chunks WHERE chunk = ANY(%s)", (list(sizes),))
        }

    def _refuse_unsafe(self) -> None:
        settings = dict(self._session.rows(_SETTINGS))
        for name in ("fsync", "synchronous_commit"):
            if settings.get(name) == "off":
                raise ConfigError(
                    f"{self._address} has {name} = off, so a record may be lost after its receipt: set it on, at the server or the role"
                )


def _positions(cursor: Cursor) -> dict[str, int]:
    cursor.execute(f"{_SINKS} ORDER BY name")
    return dict(cursor.fetchall())

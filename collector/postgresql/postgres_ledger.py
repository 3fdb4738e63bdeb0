"""The ledger in PostgreSQL: the same calls as those of a file, for any number of collectors and readers.

A reader holds no transaction open: it goes on by pages, after the last row it saw.
"""

import itertools
import operator
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.sqlite_file import Access
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch, Committed, HeldChunk, chunk_text
from edgemeter.agent.ledger.ledger import LEASE_S, Ledger, LedgerPart
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention, RetentionRemoved
from edgemeter.collector.postgresql import upkeep
from edgemeter.collector.postgresql.schema import check_version
from edgemeter.collector.postgresql.session import LedgerSession
from edgemeter.collector.postgresql.writer import PostgresWriter, locked

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
_LEASE = """INSERT INTO leases VALUES (?, ?, clock_timestamp() + ? * interval '1 second')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE leases.owner = excluded.owner OR leases.until < clock_timestamp() RETURNING 1"""


class PostgresLedger(Ledger):
    """The ledger at `address`. One object per thread; after a failure the next call connects again.

    Raises:
        ConfigError: there is no ledger, or one of another version, or (access `write`) its server does not sync what it commits.
        UnavailableError: the server does not answer, or psycopg is missing.
    """

    set_body = """UPDATE chunks SET (body, size_bytes) = (SELECT body, octet_length(body) FROM (SELECT CAST(? AS bytea) AS body) AS bodies)
WHERE chunk = ?"""

    def __init__(self, address: PostgresAddress, access: Access = "write") -> None:
        self.where = str(address)
        self._session = LedgerSession(address, access)
        self._writer = PostgresWriter(self._session)
        self._owner = secrets.token_hex(8)
        self._has_leases = False
        try:
            version, min_version = self.query("SELECT version, min_version FROM ledger")[0]
            check_version(version, min_version, address)
            if access == "write":
                self._refuse_unsafe()
        except EdgemeterError:
            self._session.close()
            raise

    def close(self) -> None:
        """Give back what is leased, and close the connection; may be called twice."""
        if self._has_leases:
            self._has_leases = False
            # Another takes over at once; without a server the leases just end.
            with suppress(EdgemeterError), self._session.transaction() as statements:
                statements.execute("DELETE FROM leases WHERE owner = ?", (self._owner,))
        self._session.close()

    def query(self, statement: str, *values: Any) -> list[Any]:
        """See `Ledger`."""
        return self._session.query(statement, *values)

    def writing(self) -> AbstractContextManager[Statements]:
        """See `Ledger`."""
        return locked(self._session)

    def has_table(self, name: str) -> bool:
        """See `Ledger`."""
        return bool(self.query("SELECT 1 WHERE to_regclass(?) IS NOT NULL", name))

    def highest_row(self) -> int:
        """See `Ledger`."""
        return int(self.query("SELECT row FROM ledger")[0][0])

    def identity(self) -> str:
        """See `Ledger`; the same for all its collectors."""
        return str(self.query("SELECT identity FROM ledger")[0][0])

    def epoch(self) -> str:
        """Return the identity with that of the server, the database and the timeline."""
        return " ".join(map(str, self.query(_EPOCH)[0]))

    def version(self) -> str:
        """Return how many commits there were."""
        return str(self.query("SELECT commits FROM ledger")[0][0])

    def safety(self) -> str:
        """Return on how many disks a record is when its receipt is sent."""
        standbys = dict(self.query(_SETTINGS)).get("synchronous_standby_names", "")
        return f"the server's disk and those of its standbys {standbys}" if standbys else "one disk, that of the server"

    def stall(self) -> str | None:
        """Return the reason why commits wait (a missing standby, or another transaction), None if they do not."""
        waiting = dict(self.query(_WAITING))
        if "SyncRep" in waiting:
            names = dict(self.query(_SETTINGS)).get("synchronous_standby_names", "")
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

    def forget(self, retention: Retention, now_ns: int) -> RetentionRemoved:
        """Remove one slice of what `retention` does not keep; one collector does so for all."""
        if not self.lease("retention"):
            return RetentionRemoved(0, 0, is_all=True)
        return upkeep.forget(self._session, retention, now_ns)

    def chunks(self, *, after_row: int = 0, limit: int | None = None) -> Iterator[HeldChunk]:
        """See `Ledger`."""
        query = (
            "SELECT row, runs.chunk, place, received_ns, size_bytes FROM runs JOIN chunks USING (chunk) WHERE row > ? ORDER BY row LIMIT ?"
        )
        remaining = limit
        while remaining is None or remaining > 0:
            page_rows = PAGE_ROWS if remaining is None else min(PAGE_ROWS, remaining)
            page = self.query(query, after_row, page_rows)
            yield from self._page(page)
            if len(page) < page_rows:
                return
            after_row = page[-1][0]
            remaining = None if remaining is None else remaining - len(page)

    def lease(self, work: str) -> bool:
        """Return whether this object has the `work` for the next `LEASE_S`; one that ends without a word loses it after that."""
        with self._session.transaction() as statements:
            is_ours = statements.execute(_LEASE, (work, self._owner, LEASE_S)).fetchone() is not None
        self._has_leases = self._has_leases or is_ours
        return is_ours

    def release(self, row: int, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch], *, drain_again: bool) -> Committed:
        """Commit the records of a quarantined entry and remove it, unless a number belongs to another record."""
        return self._writer.release(row, arrivals, batches, drain_again=drain_again)

    def parts(self) -> tuple[LedgerPart, ...]:
        """See `Ledger`."""
        return upkeep.parts(self._session)

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
        return {chunk: bytes(body) for chunk, body in self.query("SELECT chunk, body FROM chunks WHERE chunk = ANY(?)", list(sizes))}

    def _refuse_unsafe(self) -> None:
        settings = dict(self.query(_SETTINGS))
        for name in ("fsync", "synchronous_commit"):
            if settings.get(name) == "off":
                raise ConfigError(
                    f"{self.where} has {name} = off, so a record may be lost after its receipt: set it on, at the server or the role"
                )

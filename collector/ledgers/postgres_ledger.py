"""The ledger in PostgreSQL: the same methods as a file's, for any number of collectors and readers.

A reader keeps no transaction open: it reads pages, each after the last row of the previous one.
Freed space is reused (autovacuum).
"""

import itertools
import operator
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.postgres_session import LedgerSession, MarkedStatements
from edgemeter.agent.base.sqlite_file import Access
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.ledger.chunks import (
    Arrival,
    ArrivedBatch,
    Committed,
    HeldChunk,
    chunk_text,
    portions,
    without_samples,
)
from edgemeter.agent.ledger.ledger import LEASE_S, Ledger, LedgerPart
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import (
    SLICE_CHUNKS,
    Retention,
    RetentionRemoved,
    before_ns,
    drained_row,
    remember,
    remove_rows,
)
from edgemeter.collector.ledgers.postgres_schema import check_version
from edgemeter.collector.ledgers.postgres_writer import (
    PostgresWriter,
    numbers_before,
    refuse_unsafe,
    take_numbers,
)

# Rows in a page, and the size of their chunks fetched at once; a larger chunk comes alone.
PAGE_ROWS = 5000
PAGE_BYTES = 8 << 20
# Longer than a check takes to read a million runs and send; after a killed one, the next but one
# begins.
CHECK_S = 480.0

# The timeline is of the server's log: a failover begins another one, and rows may be numbered
# again.
_SETTINGS = (
    "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', "
    "'synchronous_standby_names')"
)
_WAITING = """SELECT wait_event, application_name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' \
AND wait_event IS NOT NULL"""
_LEASE = """INSERT INTO leases VALUES (?, ?, clock_timestamp() + ? * interval '1 second')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE leases.owner = excluded.owner OR leases.until < clock_timestamp() RETURNING 1"""

_TABLES = (
    "chunks", "runs", "subjects", "forgotten", "quarantine", "presence", "retained", "sinks",
    "leases", "annotations", "alerts", "notified", "alert_checks", "run_events", "sql_contexts",
    "sql_runs", "sql_devices", "sql_changes",
)  # fmt: skip
# The size of the records and of their index, which retention reduces. The files of the tables do
# not shrink.
_RECORD_BYTES = (
    "SELECT coalesce(sum(size_bytes), 0) "
    "+ (SELECT coalesce(sum(pg_column_size(runs.*)), 0) FROM runs) FROM chunks"
)
_OLD_SAMPLES = """SELECT chunk, body FROM chunks WHERE has_samples AND (? OR received_ns < ?) \
AND last_row <= ?
ORDER BY received_ns LIMIT ?"""
_OLD_CHUNKS = (
    "SELECT chunk, last_row, received_ns FROM chunks WHERE last_row <= ? ORDER BY chunk LIMIT ?"
)
_PAGE = "SELECT row, runs.chunk, place, received_ns, size_bytes FROM runs JOIN chunks USING (chunk)"


class PostgresLedger(PostgresWriter, Ledger):
    """The ledger at `address`.

    For one thread at a time; after a failure the next call connects again.

    Raises:
        ConfigError: there is no ledger, or one of another version, or (access `write`) its server
            does not sync what it commits.
        UnavailableError: the server does not answer, or psycopg is missing.
    """

    set_body = """UPDATE chunks SET (body, size_bytes) = (SELECT body, octet_length(body) \
FROM (SELECT CAST(? AS bytea) AS body) AS bodies)
WHERE chunk = ?"""

    def __init__(self, address: PostgresAddress, access: Access = "write") -> None:
        self.where = str(address)
        super().__init__(LedgerSession(address, access))
        self._owner = secrets.token_hex(8)
        self._has_leases = False
        try:
            check_version(self.query("SELECT version FROM ledger")[0][0], address)
            if access == "write":
                settings = self._settings()
                refuse_unsafe(settings["fsync"], settings["synchronous_commit"], self.where)
        except EdgemeterError:
            self._session.close()
            raise

    def close(self) -> None:
        """Release its leases, and close the connection; may be called twice."""
        if self._has_leases:
            self._has_leases = False
            # Another collector takes over at once; without a server the leases just expire.
            with suppress(EdgemeterError), self._session.transaction() as statements:
                statements.execute("DELETE FROM leases WHERE owner = ?", (self._owner,))
        self._session.close()

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[PresenceChange | RetainedMessage] = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        """See `Ledger`; a commit in progress reports what it waits for."""
        try:
            return self._commit([*portions(arrivals), *batches], rejections, changes)
        except TransientError as error:
            reason = None
            with suppress(EdgemeterError):
                reason = self.stall()
            raise TransientError(f"{error} ({reason})" if reason else str(error)) from error

    def query(self, statement: str, *values: Any) -> list[Any]:
        return self._session.query(statement, *values)

    @contextmanager
    def writing(self) -> Iterator[Statements]:
        with self._session.transaction() as statements:
            numbers_before(take_numbers(statements, 0, 0), self._session.address)
            yield statements

    def identity(self) -> str:
        return str(self._value("SELECT identity FROM ledger"))

    def version(self) -> str:
        return str(self._value("SELECT commits FROM ledger"))

    def safety(self) -> str:
        """Return in words when a record is acknowledged with the server's present settings.

        The words say on how many disks the record is then.
        """
        settings = self._settings()
        standbys, commit = settings["synchronous_standby_names"], settings["synchronous_commit"]
        if "off" in (settings["fsync"], commit):
            return "at no time, because fsync or synchronous_commit is off and nothing is stored"
        if not standbys:
            return "once written to the server's disk (no replica)"
        if commit == "local":
            return (
                "once written to the server's disk (synchronous_commit = local does not wait "
                f"for the standbys {standbys})"
            )
        if commit == "remote_write":
            return (
                "once written to the server's disk, but not yet to those of its standbys "
                f"{standbys} (synchronous_commit = remote_write)"
            )
        return f"once written to the disks of the server and of its standbys {standbys}"

    def _settings(self) -> dict[str, str]:
        return dict(self.query(_SETTINGS))

    def stall(self) -> str | None:
        """Return the reason why commits wait, None if they do not.

        The reason is a missing standby or another transaction.
        """
        waiting = dict(self.query(_WAITING))
        if "SyncRep" in waiting:
            names = self._settings()["synchronous_standby_names"]
            return (
                f"commits wait for a standby ({names}) that does not answer: start it, or take "
                "it out of synchronous_standby_names"
            )
        return (
            f"commits wait for another transaction of {waiting['transactionid']}"
            if "transactionid" in waiting
            else None
        )

    def forget(self, retention: Retention, now_ns: int) -> RetentionRemoved:
        """Remove one slice of expired data, first samples, then chunks of records.

        One collector does so for all.
        """
        if not self.lease("retention"):
            return RetentionRemoved(0, 0, is_all=True)
        drained = drained_row(self.positions(), retention.sink)
        is_too_large = (
            retention.limit_bytes is not None
            and int(self._value(_RECORD_BYTES)) > retention.limit_bytes
        )
        stripped = self._strip(
            (is_too_large, before_ns(retention.samples_days, now_ns), drained, SLICE_CHUNKS)
        )
        records = self._delete(
            before_ns(retention.records_days, now_ns), drained, is_any=is_too_large and not stripped
        )
        return RetentionRemoved(records, stripped, is_all=not stripped and not records)

    def chunks(self, *, after_row: int = 0) -> Iterator[HeldChunk]:
        while page := self.query(
            f"{_PAGE} WHERE row > ? ORDER BY row LIMIT ?", after_row, PAGE_ROWS
        ):
            yield from self._page(page)
            after_row = page[-1][0]

    def chunks_at(self, rows: Sequence[int]) -> Iterator[HeldChunk]:
        for first in range(0, len(rows), PAGE_ROWS):
            yield from self._page(
                self.query(
                    f"{_PAGE} WHERE row = ANY(?) ORDER BY row",
                    list(rows[first : first + PAGE_ROWS]),
                )
            )

    def lease(self, work: str) -> bool:
        """Return whether this object has the lease on `work` for the next `LEASE_S`.

        After a crash the lease expires.
        """
        with self._session.transaction() as statements:
            is_ours = (
                statements.execute(_LEASE, (work, self._owner, LEASE_S)).fetchone() is not None
            )
        self._has_leases = self._has_leases or is_ours
        return is_ours

    def parts(self) -> tuple[LedgerPart, ...]:
        with_samples, records = map(
            int,
            self.query(
                "SELECT coalesce(sum(size_bytes) FILTER (WHERE has_samples), 0), "
                "coalesce(sum(size_bytes), 0) FROM chunks"
            )[0],
        )
        chunks, *other_tables = self._table_bytes()
        return (
            LedgerPart("records with raw samples", with_samples),
            LedgerPart("records without raw samples", records - with_samples),
            LedgerPart("rows, indexes, quarantine and the rest", sum(other_tables)),
            LedgerPart("free space, and the indexes of the records", max(0, chunks - records)),
        )

    def size_bytes(self) -> int:
        return sum(self._table_bytes())

    def _table_bytes(self) -> list[int]:
        return [
            int(self._value("SELECT coalesce(pg_total_relation_size(to_regclass(?)), 0)", table))
            for table in _TABLES
        ]

    def _strip(self, values: tuple[object, ...]) -> int:
        smaller = []
        for chunk, body in self.query(_OLD_SAMPLES, *values):
            try:
                stripped = without_samples(bytes(body))
            except ConfigError:
                # A field that this version skips is broken text: it is removed with the record.
                stripped = bytes(body)
            smaller.append((stripped, len(stripped), chunk))
        if smaller:
            with self.writing() as statements:
                statements.executemany(
                    "UPDATE chunks SET body = ?, size_bytes = ?, has_samples = false WHERE chunk "
                    "= ? AND has_samples",
                    smaller,
                )
        return len(smaller)

    def _delete(self, old_ns: int, drained: int, *, is_any: bool) -> int:
        with self.writing() as statements:
            # Rows and chunks increase together: the oldest chunks have the lowest rows.
            up_to: tuple[int, int] | None = None
            for chunk, last_row, received_ns in statements.execute(
                _OLD_CHUNKS, (drained, SLICE_CHUNKS)
            ).fetchall():
                if not is_any and received_ns >= old_ns:
                    break
                up_to = chunk, last_row
            if up_to is None:
                return 0
            chunk, last_row = up_to
            remember(
                statements,
                statements.execute(
                    "SELECT device, session, seq FROM runs WHERE row <= ?", (last_row,)
                ).fetchall(),
            )
            statements.execute("DELETE FROM chunks WHERE chunk <= ?", (chunk,))
            return remove_rows(statements, last_row)

    def _page(self, page: Sequence[tuple[int, int, int, int, int]]) -> Iterator[HeldChunk]:
        """Yield the records of a page of rows, its chunks fetched some at a time."""
        bodies: dict[int, bytes] = {}
        position = 0
        for chunk, members in itertools.groupby(page, operator.itemgetter(1)):
            rows = list(members)
            if chunk not in bodies:
                bodies = self._bodies(page[position:])
            position += len(rows)
            # Retention may have removed it meanwhile.
            if chunk in bodies:
                yield HeldChunk(
                    [(row, index) for row, _, index, _, _ in rows],
                    rows[0][3],
                    chunk_text(bodies[chunk]),
                )

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
            chunk: bytes(body)
            for chunk, body in self.query(
                "SELECT chunk, body FROM chunks WHERE chunk = ANY(?)", list(sizes)
            )
        }


class PostgresWatch:
    """The annotations and alerts at `address`, in tables next to the records.

    One object per thread.
    """

    def __init__(self, address: PostgresAddress, access: Access = "write") -> None:
        self.where = str(address)
        self._session = LedgerSession(address, access)

    def __enter__(self) -> "PostgresWatch":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @contextmanager
    def writing(self) -> Iterator[MarkedStatements]:
        """Yield an object that executes statements in one transaction.

        The transaction is durable when the block ends.
        """
        with self._session.transaction() as statements:
            # Readers of the ledger see a change, and writers wait for each other.
            statements.execute("UPDATE ledger SET commits = commits + 1")
            yield statements

    @contextmanager
    def reading(self) -> Iterator[MarkedStatements]:
        with self._session.transaction() as statements:
            yield statements

    @contextmanager
    def checking(self) -> Iterator[None]:
        """See `WatchStore`; by the server's clock, a killed check holds it for `CHECK_S`."""
        owner = secrets.token_hex(8)
        with self.writing() as statements:
            if statements.execute(_LEASE, ("alerts", owner, CHECK_S)).fetchone() is None:
                raise TransientError(
                    f"another check of the alerts is in progress at {self.where}: nothing was "
                    "checked or sent"
                )
        try:
            yield
        finally:
            with suppress(EdgemeterError), self.writing() as statements:
                statements.execute("DELETE FROM leases WHERE owner = ?", (owner,))

    def in_need(self, write: Callable[[], None]) -> None:
        """See `WatchStore`; the disk is the server's."""
        write()

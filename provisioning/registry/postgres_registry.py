"""The registry's database in PostgreSQL, in a schema of its own, for several services and for commands on any machine."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.postgres_session import DatabaseUse, PostgresSession
from edgemeter.agent.base.sqlite_file import Access
from edgemeter.agent.base.statements import Statements
from edgemeter.provisioning.registry.schema import SCHEMA, VERSION

_PLACE = "edgemeter_fleet"
# SQLite's types, by those of PostgreSQL; texts sort as in SQLite.
_TYPES = {
    "INTEGER": "bigint",
    "TEXT": 'text COLLATE "C"',
    "REAL": "double precision",
    "BLOB": "bytea",
    " WITHOUT ROWID": "",
}
# One at a time makes the tables. Source: any number that no other program of the database uses.
_LOCK = 0x45464C54


class NamedRow(tuple[Any, ...]):
    """A row whose values are found by position and, as those of `sqlite3.Row`, by column."""

    __slots__ = ()
    positions: ClassVar[dict[str, int]]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.positions[key] if isinstance(key, str) else key)

    def keys(self) -> list[str]:
        """Return the columns."""
        return list(self.positions)


def _rows_of(cursor: Any) -> Callable[[Any], NamedRow]:
    positions = {column.name: position for position, column in enumerate(cursor.description or ())}
    return type("Row", (NamedRow,), {"__slots__": (), "positions": positions})


class _RegistrySession(PostgresSession):
    use = DatabaseUse(
        "fleet registry",
        absent="make its tables with `edgemeter fleet init`",
        forbidden="give it a database of its own (CREATE DATABASE ... OWNER ...)",
        # To order a job for ten thousand boards may take longer between two statements than the ledger allows.
        settings=f"; SET search_path = {_PLACE}; SET idle_in_transaction_session_timeout = '30s'; SET lock_timeout = '60s'",
        row_factory=_rows_of,
    )


class PostgresRegistry:
    """The database at `address`, as `Database` is one in a file: tables that are absent are made with access `write`.

    A connection that was lost is made again. One writer at a time: each transaction first locks the row of `service`.
    """

    def __init__(self, address: PostgresAddress, access: Access = "write") -> None:
        self._session = _RegistrySession(address, access)
        self._lock = threading.RLock()
        self._is_writing = False
        if access == "write":
            self._make_tables()
        version = self.query("SELECT version FROM registry_version")[0][0]
        if version != VERSION:
            self.close()
            raise ConfigError(
                f"the fleet registry at {address} has version {version}, this edgemeter needs {VERSION}: update the older one"
            )

    def close(self) -> None:
        """Close the connection; may be called twice."""
        with self._lock:
            self._session.close()

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT."""
        with self._lock:
            try:
                return self._session.query(statement, *values)
            except UnavailableError:
                if self._is_writing:
                    raise
            return self._session.query(statement, *values)

    @contextmanager
    def transaction(self) -> Iterator[Statements]:
        """Give what executes statements in one transaction beside no other writer's, committed when the block ends."""
        with self._lock:
            # Where the connection was lost, it is made again before anything is written.
            self.query("SELECT 1")
            self._is_writing = True
            try:
                with self._session.transaction() as statements:
                    statements.execute("SELECT owner FROM service FOR UPDATE")
                    yield statements
            finally:
                self._is_writing = False

    def _make_tables(self) -> None:
        with self._session.transaction() as statements:
            statements.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
            if statements.execute("SELECT to_regclass(?)", (f"{_PLACE}.service",)).fetchone()[0] is not None:
                return
            statements.execute(f"CREATE SCHEMA IF NOT EXISTS {_PLACE}")
            statements.execute(re.sub("|".join(_TYPES), lambda match: _TYPES[match[0]], SCHEMA))
            statements.execute("CREATE TABLE registry_version (version bigint NOT NULL)")
            statements.execute("INSERT INTO registry_version VALUES (?)", (VERSION,))

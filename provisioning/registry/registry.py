"""The registry: one database that every fleet command and the service share, a SQLite file or a PostgreSQL; its rows are dataclasses.

Both execute the same statements: values are marked by `?`, null-safe comparisons, upserts and texts are written as both take them.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.postgres_session import DatabaseUse, PostgresSession
from edgemeter.agent.base.sqlite_file import Access, Database, FileFormat
from edgemeter.agent.base.statements import Statements

# The tables: `schema.sql` beside this file.
VERSION = 3
SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
TABLES = tuple(re.findall(r"CREATE TABLE (\w+) \(", SCHEMA))
SERVICE = SCHEMA.partition(";\n")[0]
# What files of earlier versions lack.
BANS = SCHEMA[SCHEMA.index("CREATE TABLE bans") :].replace("TABLE", "TABLE IF NOT EXISTS", 1)
_FORMAT = FileFormat(
    what="fleet registry",
    application_id=0x45464C54,
    version=VERSION,
    schema=SCHEMA,
    elsewhere="run `edgemeter fleet init`, or name the fleet's folder with --folder",
)
_Row = TypeVar("_Row")

# In PostgreSQL the registry has a schema of its own, for several services and for commands on any machine.
_PLACE = "edgemeter_fleet"
# SQLite's types, by those of PostgreSQL; texts sort as in SQLite.
_TYPES = {"INTEGER": "bigint", "TEXT": 'text COLLATE "C"', "REAL": "double precision", "BLOB": "bytea", " WITHOUT ROWID": ""}
# One at a time makes the tables. Source: any number that no other program of the database uses.
_LOCK = 0x45464C54
LEASE_S = 10.0
RENEW_S = 2.0


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


class Registry(AbstractContextManager["Registry"]):
    """The registry in the file or at the address `where`; usable from any thread, one at a time. `close` once or more.

    With an `owner`, the name of a service, it is written to only while that service is the active one (see `ServiceLease`).
    """

    def __init__(self, where: Path | PostgresAddress, access: Access = "write", *, owner: str | None = None) -> None:
        self.where = where
        self._owner = owner
        self._database = Database(where, _FORMAT, access) if isinstance(where, Path) else PostgresRegistry(where, access)
        if isinstance(where, Path) and access == "write":
            # Files of earlier versions have no such tables.
            self.query(SERVICE)
            self.query(BANS)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[Statements]:
        """Be the one writer for the block; its writes are on the disk after it, or none of them when it raises.

        Raises:
            ConfigError: the database is damaged, of another version, or its user may not do this.
            UnavailableError: its disk is full, its server does not answer, or another service has taken over from `owner`.
            TransientError: somebody else holds it; retry.
        """
        with self._database.transaction() as statements:
            if self._owner is not None and (active := statements.execute("SELECT owner FROM service").fetchone()[0]) != self._owner:
                raise UnavailableError(f"another service serves this fleet now ({active or 'none'}): this one writes nothing more")
            yield statements

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT, their values by position and by column; raises as `transaction`."""
        return self._database.query(statement, *values)

    def rows(self, kind: type[_Row], statement: str, *values: Any) -> list[_Row]:
        """Return the rows of a SELECT as dataclasses of that kind; raises as `transaction`."""
        return [_decoded(kind, row) for row in self.query(statement, *values)]

    def row(self, kind: type[_Row], statement: str, *values: Any) -> _Row | None:
        """Return the first row of a SELECT as `rows` does, None where there is none."""
        rows = self.query(statement, *values)
        return _decoded(kind, rows[0]) if rows else None


class ServiceLease:
    """The lease of the service named `owner`, on a registry of its own, so that one of several services is active; `close` once or more.

    The active service counts up a number in the registry. Whoever has watched that number stand still for `LEASE_S`, by a clock of its own
    that only runs forward, puts its own name there; no two clocks are compared. A service that was frozen finds the other name when it goes
    on: each of its transactions looks (`Registry` with an `owner`).
    """

    def __init__(self, registry: Registry, owner: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.owner = owner
        self.holder = ""
        self._registry = registry
        self._clock = clock
        self._seen: tuple[str, int] | None = None
        self._since_s = 0.0
        self._is_active = False

    def take(self) -> bool:
        """Return whether this service is the active one, and prolong that; `holder` is then the active one, "" for none.

        Once another took it, what this service remembers of the registry is out of date: it has to be started again.

        Raises:
            ConfigError: the registry is damaged or may not be used.
            UnavailableError: it does not answer.
            TransientError: somebody else holds it; try again.
        """
        owner, beat = self._registry.query("SELECT owner, beat FROM service")[0]
        if (owner, beat) != self._seen:
            self._seen, self._since_s = (owner, beat), self._clock()
        self.holder = owner
        is_held = owner not in {"", self.owner} and self._clock() - self._since_s < LEASE_S
        if is_held or (self._is_active and owner != self.owner):
            self._is_active = False
            return False
        with self._registry.transaction() as statements:
            change = "UPDATE service SET owner = ?, beat = beat + 1 WHERE owner = ? AND beat = ?"
            self._is_active = statements.execute(change, (self.owner, owner, beat)).rowcount == 1
        return self._is_active

    def close(self) -> None:
        """Let another take over at once, and close the registry; without a database the lease just ends."""
        if self._is_active:
            self._is_active = False
            with suppress(EdgemeterError), self._registry.transaction() as statements:
                statements.execute("UPDATE service SET owner = '', beat = beat + 1 WHERE owner = ?", (self.owner,))
        self._registry.close()


def insert_rows(statements: Statements, table: str, rows: Sequence[Any], *, conflict: str = "", **extra: Any) -> None:
    """Insert dataclasses as rows of `table`, with `extra` columns, within the caller's transaction; tuples, maps, structs become JSON."""
    if not rows:
        return
    fields_of = columns(cast("Any", type(rows[0])))
    names = [*(column for _, column, _ in fields_of), *extra]
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) {conflict}"  # noqa: S608 - our own names
    values = [[*(encoded(getattr(row, name)) for name, _, _ in fields_of), *extra.values()] for row in rows]
    statements.executemany(statement, values)


def put_row(statements: Statements, table: str, row: Any, *key: str) -> None:
    """Insert a dataclass as `insert_rows` does, in place of the row with the same values of the columns `key`."""
    changed = ", ".join(f"{column} = excluded.{column}" for _, column, _ in columns(cast("Any", type(row))) if column not in key)
    insert_rows(statements, table, [row], conflict=f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}")


def copy_rows(source: Registry, target: Registry) -> None:
    """Write everything that one registry holds, as of one moment, into another in place of what that holds; raises as `transaction`."""
    with source.transaction(), target.transaction() as statements:
        for table in TABLES:
            rows = source.query(f"SELECT * FROM {table}")  # noqa: S608 - our own names
            statements.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                names = rows[0].keys()
                insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
                statements.executemany(insert, map(tuple, rows))


def encoded(value: Any) -> Any:
    """Return a field's value as its column holds it; no column of a PostgreSQL takes the character NUL."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value)
    if isinstance(value, tuple | Mapping):
        return msgspec.json.encode(value if isinstance(value, tuple) else dict(value)).decode()
    return value


@cache
def columns(kind: type) -> tuple[tuple[str, str, Any], ...]:
    """Return a dataclass's fields: name, column (`metadata["column"]` where it has another name), decoder (None: the value stays)."""
    hints = get_type_hints(kind)
    return tuple((field.name, field.metadata.get("column", field.name), _decoder(hints[field.name])) for field in fields(kind))


def _decoder(hint: Any) -> Any:
    if hint is bool:
        return bool
    leaves = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    is_json = any(get_origin(leaf) in {tuple, Mapping} or (isinstance(leaf, type) and issubclass(leaf, msgspec.Struct)) for leaf in leaves)
    return msgspec.json.Decoder(hint).decode if is_json else None


def _decoded(kind: type[_Row], row: Any) -> _Row:
    values = {}
    for name, column, decode in columns(cast("Any", kind)):
        value = row[column]
        values[name] = value if decode is None or value is None else decode(value)
    return kind(**values)

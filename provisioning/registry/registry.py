"""The registry's file: one SQLite database that every fleet command and the service share; its rows are dataclasses."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from edgemeter.agent.base.sqlite_file import Access, Database, FileFormat
from edgemeter.provisioning.registry.schema import BANS, SCHEMA

_FORMAT = FileFormat(
    what="fleet registry",
    application_id=0x45464C54,
    version=2,
    schema=SCHEMA,
    elsewhere="run `edgemeter fleet init`, or name the fleet's folder with --folder",
)
_Row = TypeVar("_Row")


class Registry(Database):
    """The registry at `path`; usable from any thread, one at a time. `close` once or more."""

    def __init__(self, path: Path, access: Access = "write") -> None:
        super().__init__(path, _FORMAT, access)
        if access == "write":
            # Files of earlier versions have no such table.
            self.query(BANS)

    def rows(self, kind: type[_Row], statement: str, *values: Any) -> list[_Row]:
        """Return the rows of a SELECT as dataclasses of that kind.

        Raises:
            ConfigError: as `transaction`.
            TransientError: as `transaction`.
        """
        return [_decoded(kind, row) for row in self.query(statement, *values)]

    def row(self, kind: type[_Row], statement: str, *values: Any) -> _Row | None:
        """Return the first row of a SELECT as `rows` does, None where there is none."""
        rows = self.query(statement, *values)
        return _decoded(kind, rows[0]) if rows else None


def insert_rows(connection: sqlite3.Connection, table: str, rows: Sequence[Any], *, verb: str = "INSERT", **extra: Any) -> None:
    """Insert dataclasses as rows of `table`, with `extra` columns, within the caller's transaction; tuples, maps, structs become JSON."""
    if not rows:
        return
    fields_of = columns(cast("Any", type(rows[0])))
    names = [*(column for _, column, _ in fields_of), *extra]
    statement = f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    values = [[*(encoded(getattr(row, name)) for name, _, _ in fields_of), *extra.values()] for row in rows]
    connection.executemany(statement, values)


def put_row(connection: sqlite3.Connection, table: str, row: Any) -> None:
    """Insert a dataclass as `insert_rows` does, in place of the row with the same key."""
    insert_rows(connection, table, [row], verb="INSERT OR REPLACE")


def encoded(value: Any) -> Any:
    """Return a field's value as its column holds it."""
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value)
    if isinstance(value, tuple | Mapping):
        return msgspec.json.encode(value if isinstance(value, tuple) else dict(value)).decode()
    return value


@cache
def columns(kind: type) -> tuple[tuple[str, str, Any], ...]:
    """Return the fields of a dataclass: name, column (`metadata["column"]` where it has another name) and type."""
    hints = get_type_hints(kind)
    return tuple((field.name, field.metadata.get("column", field.name), hints[field.name]) for field in fields(kind))


@cache
def _decoders(kind: type) -> tuple[tuple[str, str, Any], ...]:
    """Return name, column and what turns a column's value into the field's; None where it stays as it is."""
    return tuple((name, column, _decoder(hint)) for name, column, hint in columns(kind))


def _decoder(hint: Any) -> Any:
    if hint is bool:
        return bool
    leaves = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    is_json = any(get_origin(leaf) in {tuple, Mapping} or (isinstance(leaf, type) and issubclass(leaf, msgspec.Struct)) for leaf in leaves)
    return msgspec.json.Decoder(hint).decode if is_json else None


def _decoded(kind: type[_Row], row: sqlite3.Row) -> _Row:
    values = {}
    for name, column, decode in _decoders(cast("Any", kind)):
        value = row[column]
        values[name] = value if decode is None or value is None else decode(value)
    return kind(**values)

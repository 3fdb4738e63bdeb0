"""The registry: the SQLite file that every fleet command and the service share; its rows are dataclasses."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from edgemeter.agent.base.sqlite_file import Access, Database, FileFormat
from edgemeter.agent.base.statements import Statements

_FORMAT = FileFormat(
    what="fleet registry",
    application_id=0x45464C54,
    version=4,
    schema=Path(__file__).with_name("schema.sql").read_text(encoding="utf-8"),
    elsewhere="run `edgemeter fleet init`, or name the fleet's folder with --folder",
)
_Row = TypeVar("_Row")


class Registry(Database):
    """The registry at `path`, a context, usable from any thread; errors are those of `sqlite_file.mapped`."""

    def __init__(self, path: Path, access: Access = "write") -> None:
        super().__init__(path, _FORMAT, access)

    def rows(self, kind: type[_Row], statement: str, *values: Any) -> list[_Row]:
        """Return the rows of a SELECT as dataclasses of that kind."""
        return [_decoded(kind, row) for row in self.query(statement, *values)]

    def row(self, kind: type[_Row], statement: str, *values: Any) -> _Row | None:
        """Return the first row of a SELECT as `rows` does, None where there is none."""
        rows = self.query(statement, *values)
        return _decoded(kind, rows[0]) if rows else None


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


def encoded(value: Any) -> Any:
    """Return a field's value as its column holds it."""
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

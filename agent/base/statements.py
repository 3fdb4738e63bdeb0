"""Statements for both SQLite and a database server; values are marked by `?`."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Statements(Protocol):
    """Executes statements within the caller's transaction; a `sqlite3.Connection` is one."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        """Execute one statement; return its cursor."""

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> Any:
        """Execute the statement once for each of `values`; return its cursor."""

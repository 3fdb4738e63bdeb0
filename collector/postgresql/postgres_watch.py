"""Annotations and alerts of a ledger in PostgreSQL: tables beside the records, for all who watch it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.postgres_session import MarkedStatements
from edgemeter.agent.base.sqlite_file import Access
from edgemeter.collector.postgresql.session import LedgerSession


class PostgresWatch:
    """The annotations and alerts at `address`. One object per thread."""

    def __init__(self, address: PostgresAddress, access: Access = "write") -> None:
        self.where = str(address)
        self._session = LedgerSession(address, access)

    def __enter__(self) -> "PostgresWatch":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @contextmanager
    def writing(self) -> Iterator[MarkedStatements]:
        """Give what executes statements in one transaction, on the disk when the block ends."""
        with self._session.transaction() as statements:
            # Readers of the ledger see that something has changed, and writers wait for each other.
            statements.execute("UPDATE ledger SET commits = commits + 1")
            yield statements

    @contextmanager
    def reading(self) -> Iterator[MarkedStatements]:
        """Give what executes queries."""
        with self._session.transaction() as statements:
            yield statements

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """Insert one row in a transaction of its own; return its number."""
        with self.writing() as statements:
            return int(statements.execute(f"{statement} RETURNING number", values).fetchone()[0])

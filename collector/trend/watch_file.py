"""The file of the watch: what people and the monitor wrote down beside the ledger, which cannot be computed from records.

Annotations (a new level begins, or a remark), requests for more runs, and alerts with what became of them. It is SQLite, beside the
ledger under its name with `.watch`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from edgemeter.agent.delivery import sqlite_file

FORMAT = sqlite_file.Format(
    what="watch file",
    application_id=0x45645761,  # "EdWa"
    version=1,
    schema="""CREATE TABLE annotations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    day INTEGER NOT NULL,
    text TEXT NOT NULL,
    begins_level INTEGER NOT NULL,
    fleet TEXT,
    device TEXT,
    model TEXT,
    metric TEXT,
    author TEXT,
    made_ns INTEGER NOT NULL
);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    fleet TEXT NOT NULL,
    device TEXT NOT NULL,
    series BLOB NOT NULL,
    metric TEXT NOT NULL,
    day INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    reason TEXT NOT NULL,
    state TEXT NOT NULL,
    changed_ns INTEGER NOT NULL,
    UNIQUE (series, day)
);
CREATE TABLE alerts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    rule TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL,
    body BLOB NOT NULL,
    opened_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL,
    closed_ns INTEGER,
    outcome TEXT,
    remark TEXT
);
CREATE UNIQUE INDEX open_alerts ON alerts (rule, subject) WHERE closed_ns IS NULL;
CREATE TABLE unsent (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    alert INTEGER NOT NULL REFERENCES alerts (number),
    channel TEXT NOT NULL,
    event TEXT NOT NULL,
    tries INTEGER NOT NULL,
    error TEXT
);
""",
    elsewhere="move it away (annotations and alerts begin anew) or name another store",
)


class WatchFile:
    """The watch file at `path`, made when absent. One object per thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection: sqlite3.Connection = sqlite_file.connect(path, FORMAT)

    def __enter__(self) -> "WatchFile":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for one transaction, on the disk when it ends.

        Raises:
            UnavailableError: the disk is full.
            TransientError: another process holds the file.
        """
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self.connection):
            yield self.connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to read with."""
        with sqlite_file.mapped(self.path, FORMAT):
            yield self.connection


def beside(store: str) -> Path:
    """Return where the watch file of a store lies."""
    path = Path(store).expanduser()
    return path.with_name(f"{path.name}.watch")

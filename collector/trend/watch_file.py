"""The watch file next to the ledger has annotations and alerts.

They cannot be computed from records; a server has them as tables.

An annotation marks the start of an expected new level, which ends the comparison with earlier days,
or is a remark.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.file_lock import FileLock
from edgemeter.agent.base.sqlite_file import FileFormat, transaction
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.agent.delivery.outbox_file import DiskReserve
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place
from edgemeter.collector.runs.cases import grouped

# `notified` has for each alert and channel the state that it last received (NULL: none yet), and
# the reason if it is not the present one.
WATCH_FORMAT = FileFormat(
    what="watch file",
    application_id=0x45645761,  # "EdWa"
    version=2,
    schema="""CREATE TABLE annotations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    body BLOB NOT NULL
);
CREATE TABLE alerts (
    number INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TABLE notified (
    alert INTEGER NOT NULL REFERENCES alerts (number),
    channel TEXT NOT NULL,
    state TEXT,
    sent_ns INTEGER NOT NULL,
    error TEXT,
    PRIMARY KEY (alert, channel)
);
CREATE TABLE alert_checks (number INTEGER PRIMARY KEY, checked_ns INTEGER NOT NULL);
""",
    elsewhere="move it away (annotations and alerts begin anew) or name another store",
)


class WatchStore(Protocol):
    """The open annotations and alerts of a ledger. One object per thread.

    `where` is their place in words.

    Raises:
        UnavailableError: the disk is full, or the server does not answer.
        TransientError: another process holds it; retry.
    """

    where: str

    def __enter__(self) -> "WatchStore": ...  # noqa: PYI034 - Self needs Python 3.11

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def writing(self) -> AbstractContextManager[Statements]:
        """Yield an object that executes statements in one transaction.

        The transaction is durable when the block ends.
        """

    def reading(self) -> AbstractContextManager[Statements]:
        """Yield an object that executes queries."""

    def checking(self) -> AbstractContextManager[None]:
        """Hold the lock on the check of alerts for the block; a killed process loses it.

        Raises TransientError if another has it.
        """

    def in_need(self, write: Callable[[], None]) -> None:
        """Call `write`, also on a disk that has become full during a check; raises as `writing`."""


class WatchFile:
    """The watch file at `path`, created if absent. One object per thread."""

    def __init__(self, path: Path, access: sqlite_file.Access = "write") -> None:
        self.path = path
        self.where = str(path)
        self.connection: sqlite3.Connection = sqlite_file.connect(path, WATCH_FORMAT, access)

    def __enter__(self) -> "WatchFile":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one transaction, durable when it ends.

        It raises as `WatchStore` does.
        """
        with sqlite_file.mapped(self.path, WATCH_FORMAT), transaction(self.connection):
            yield self.connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with sqlite_file.mapped(self.path, WATCH_FORMAT):
            yield self.connection

    @contextmanager
    def checking(self) -> Iterator[None]:
        """See `WatchStore`; the lock ends with the process."""
        lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        if not lock.take("a check of the alerts"):
            raise TransientError(f"{lock.holder()} is in progress: nothing was checked or sent")
        # As SQLite does with its files: the service may use files created by an administrator.
        owner = self.path.stat()
        with suppress(OSError):
            os.chown(lock.path, owner.st_uid, owner.st_gid)
        try:
            DiskReserve(self.path).keep()
            yield
        finally:
            lock.release()

    def in_need(self, write: Callable[[], None]) -> None:
        DiskReserve(self.path).in_need(write)


def watch_file_beside(store: str) -> Path:
    path = Path(store).expanduser()
    return path.with_name(f"{path.name}.watch")


def open_watch(ledger: LedgerPlace, access: sqlite_file.Access = "write") -> WatchStore:
    """Return the annotations and alerts of the ledger (or document) at `ledger`.

    Access `write` creates an absent file. Access `read` writes nothing, and a server may be a
    standby.

    Raises:
        ConfigError: it is of a newer version, or not ours.
        UnavailableError: it cannot be opened.
    """
    if isinstance(ledger, Path):
        return WatchFile(watch_file_beside(str(ledger)), access)
    # Most ledgers are files.
    from edgemeter.collector.ledgers.postgres_ledger import PostgresWatch  # noqa: PLC0415

    return PostgresWatch(ledger, access)


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation of `day` (since 1970): a remark, or the start of a new level.

    A selector that is None matches everything.
    """

    day: int
    text: str
    begins_level: bool = True
    fleet: str | None = None
    device: str | None = None
    model: str | None = None
    metric: str | None = None
    author: str | None = None
    number: int = 0

    def is_about(self, key: SeriesKey, metric: str) -> bool:
        """Return whether it applies to this series; to a board type only if it names no device."""
        return all(
            selector is None or selector == other
            for selector, other in (
                (self.fleet, key.fleet),
                (self.device, key.device),
                (self.model, key.model),
                (self.metric, metric),
            )
        )


def add_annotation(file: WatchStore, annotation: Annotation) -> int:
    with file.writing() as statements:
        statements.execute(
            "INSERT INTO annotations (body) VALUES (?)", (msgspec.json.encode(annotation),)
        )
        # The number from this transaction: writers wait for each other.
        return int(statements.execute("SELECT max(number) FROM annotations").fetchone()[0])


def remove_annotation(file: WatchStore, number: int) -> bool:
    with file.writing() as connection:
        removed: int = connection.execute(
            "DELETE FROM annotations WHERE number = ?", (number,)
        ).rowcount
    return removed > 0


def read_annotations(file: WatchStore) -> list[Annotation]:
    """Return every annotation by day."""
    with file.reading() as connection:
        rows = connection.execute("SELECT number, body FROM annotations ORDER BY number").fetchall()
    return sorted(
        [
            replace(msgspec.json.decode(bytes(body), type=Annotation), number=number)
            for number, body in rows
        ],
        key=lambda annotation: annotation.day,
    )


def cuts(annotations: Sequence[Annotation], key: SeriesKey, metric: str) -> dict[int, str]:
    """Return the days of declared new levels of the series, with their texts."""
    texts = grouped(
        (note.day, note.text)
        for note in annotations
        if note.begins_level and note.is_about(key, metric)
    )
    return {day: "; ".join(of_day) for day, of_day in texts.items()}


def annotations_of(store: str | LedgerPlace) -> list[Annotation]:
    if isinstance(store, str):
        store = ledger_place(store)
    if isinstance(store, Path) and not watch_file_beside(str(store)).exists():
        return []
    with open_watch(store, "read") as file:
        return read_annotations(file)

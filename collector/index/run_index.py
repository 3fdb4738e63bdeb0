"""The index as the page reads it: a row of figures for each run and a summary for each case, so that no view decodes many records.

One writer at a time brings it up to date; readers never wait for it (WAL).
"""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.collector.index.index_file import connect_index, index_path, unavailable
from edgemeter.collector.index.refresh import IndexRefresher, KnownNumbers, Progress
from edgemeter.collector.index.sources import LedgerSource, RecordSource

# While a large ledger is read for the first time, its cases are summed up after so long, and so many times longer than that took.
SUM_UP_S, PAUSE_TIMES = 15.0, 20.0


@dataclass(slots=True)
class RunIndex:
    """The index of `source` in the file at `path`. Bring it up to date with `refresh`; the reading calls may come from any thread."""

    source: RecordSource
    path: Path
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _known: KnownNumbers = field(default_factory=KnownNumbers)
    # What the source was at the last refresh, and the position that it had reached.
    _seen: tuple[str, int] = ("", 0)

    def close(self) -> None:
        """Remove the file where it was made for this process only."""
        if self._folder is not None:
            self._folder.cleanup()

    def refresh(self, progress: Callable[[int, int], None] = lambda *_: None) -> int:
        """Take in what came since; `progress` gets the row reached and the last one. Return the position.

        Raises:
            UnavailableError: the index cannot be written, or is damaged.
        """
        version = self.source.version()
        # The file may have been deleted meanwhile.
        if version and self._seen == (version, self.position()):
            return self._seen[1]
        with self.opened() as connection:
            refresher = IndexRefresher(connection, self.source, lambda _, row, last: progress(row, last), self._known)
            next_s = time.monotonic() + SUM_UP_S

            def sum_up_sometimes() -> None:
                """Sum up, so that a page has something to show while a large ledger is read for the first time."""
                nonlocal next_s
                if (began := time.monotonic()) > next_s:
                    refresher.sum_up()
                    next_s = time.monotonic() + max(SUM_UP_S, PAUSE_TIMES * (time.monotonic() - began))

            position = refresher.take_in(sum_up_sometimes)
            refresher.sum_up()
        self._seen = version, position
        return position

    def position(self) -> int:
        """Return the row up to which the index has everything."""
        with self.reading() as connection:
            return int(connection.execute("SELECT position FROM place").fetchone()[0])

    def stale(self) -> int:
        """Return how many cases have runs that their figures do not hold yet."""
        with self.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM stale").fetchone()[0])

    def skipped(self) -> tuple[int, str]:
        """Return how many records cannot be read, and the newest of them in words."""
        with self.reading() as connection:
            (count,) = connection.execute("SELECT count(*) FROM skipped").fetchone()
            newest = connection.execute("SELECT id, device, reason FROM skipped ORDER BY row DESC LIMIT 1").fetchone()
        return count, "run {} of {}: {}".format(*newest) if newest else ""

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a connection to read with, for one view; raises UnavailableError if the index cannot be read, or is damaged."""
        with self.opened() as connection:
            connection.execute("PRAGMA query_only = ON")
            yield connection

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Give a connection to refresh it with; raises UnavailableError as `reading`."""
        try:
            with contextlib.closing(connect_index(self.path)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            raise unavailable(self.path, error) from error


def open_index(source: RecordSource) -> RunIndex:
    """Return the index of `source`: beside the ledger, or in a folder of its own where that cannot be written."""
    if isinstance(source, LedgerSource) and _make(beside_it := index_path(source.place)):
        return RunIndex(source, beside_it)
    folder = tempfile.TemporaryDirectory(prefix="edgemeter-index-")
    elsewhere = Path(folder.name) / "index.sqlite"
    if not _make(elsewhere):
        folder.cleanup()
        raise UnavailableError(f"cannot create the index at {str(elsewhere)!r}: name a file in a writable folder")
    return RunIndex(source, elsewhere, folder)


def rows_of_verdict(source: RecordSource, verdict: str, progress: Progress = lambda *_: None) -> frozenset[int]:
    """Return the rows of the runs of this verdict, each judged together with its siblings; raises UnavailableError as `RunIndex`."""
    with contextlib.closing(open_index(source)) as index, index.opened() as connection:
        IndexRefresher(connection, source, progress).take_in()
        return frozenset(row for (row,) in connection.execute("SELECT row FROM measured WHERE verdict = ?", (verdict,)))


def _make(path: Path) -> bool:
    try:
        with contextlib.closing(connect_index(path)):
            return True
    except (sqlite3.DatabaseError, OSError):
        return False

"""History: the figures of all runs by series, in memory (a document) or in an index beside the ledger.

The index is a SQLite file that may be deleted at any time: it is rebuilt from the records. It is refreshed when opened, so that a query
over a million runs reads rows of figures and no record.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.ledgers.place import LedgerPlace, beside, open_ledger, shown
from edgemeter.collector.runs.cases import Fingerprint, fingerprint_of
from edgemeter.collector.trend.metrics import RunFigures, SeriesKey, figures_of, series_of

COLUMNS = RunFigures._fields
BATCH = 5000

Points = list[tuple[RunFigures, Fingerprint]]
Progress = Callable[[int, int], None]


class History(Protocol):
    """Figures by series. Read from one thread."""

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        ...

    def points(self, key: SeriesKey) -> Points:
        """Return the runs of a series, oldest first."""
        ...

    def newest(self, key: SeriesKey) -> int:
        """Return a number that increases with every run of the series."""
        ...

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        ...

    def recall(self, name: str, stamp: str) -> bytes | None:
        """Return what was stored under `name` with this stamp, None if there is nothing."""
        ...

    def keep(self, entries: Iterable[tuple[str, str, bytes]]) -> None:
        """Store results by name and stamp; they may be dropped at any time."""
        ...


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The history of `runs` in memory."""

    runs: Sequence[RunRecord]
    _series: dict[SeriesKey, Points] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for run in sorted(self.runs, key=lambda run: run.started_at_ns):
            self._series.setdefault(series_of(run), []).append((figures_of(run), fingerprint_of(run)))

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        return sorted(self._series, key=_order)

    def points(self, key: SeriesKey) -> Points:
        """Return the runs of a series, oldest first."""
        return self._series.get(key, [])

    def newest(self, key: SeriesKey) -> int:
        """Return how many runs the series has."""
        return len(self.points(key))

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        return max((run.received_ns for run, _ in self.points(key)), default=0)

    def recall(self, name: str, stamp: str) -> bytes | None:  # noqa: ARG002 - the protocol's
        """Return nothing: a document is read once."""
        return None

    def keep(self, entries: Iterable[tuple[str, str, bytes]]) -> None:
        """Store nothing."""


_SCHEMA = f"""CREATE TABLE series (series INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, newest INTEGER NOT NULL);
CREATE TABLE below (fingerprint INTEGER PRIMARY KEY, body BLOB NOT NULL UNIQUE);
CREATE TABLE runs (row INTEGER PRIMARY KEY, series INTEGER NOT NULL, fingerprint INTEGER NOT NULL, {", ".join(COLUMNS)});
CREATE INDEX runs_of_series ON runs (series, started_at_ns);
CREATE TABLE found (name TEXT PRIMARY KEY, stamp TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE place (collector TEXT NOT NULL, position INTEGER NOT NULL);
INSERT INTO place VALUES ('', 0);
"""  # noqa: S608 - our own names


def _clear(connection: sqlite3.Connection, collector: str) -> None:
    for table in ("runs", "series", "below", "found"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
    connection.execute("UPDATE place SET collector = ?, position = 0", (collector,))


# Version 2: energies that were replayed beside measured queries are no longer in it. Version 3: runs of a clock that cannot be right lie at
# the time of their receipt.
FORMAT = sqlite_file.FileFormat(
    what="index of trends",
    application_id=0x45645472,  # "EdTr"
    version=3,
    schema=_SCHEMA,
    elsewhere="delete it: it is rebuilt from the ledger",
    steps=dict.fromkeys((1, 2), lambda connection: _clear(connection, collector="")),
)


class LedgerHistory:
    """The history of the ledger at `place`, from the index at `index`; refreshed when opened."""

    def __init__(self, place: LedgerPlace, index: Path | None = None, progress: Progress = lambda *_: None) -> None:
        self._path = index or beside(place, ".trend")
        self._connection = sqlite_file.connect(self._path, FORMAT)
        with sqlite_file.mapped(self._path, FORMAT):
            # It can be rebuilt, so nothing waits for the disk.
            self._connection.execute("PRAGMA synchronous = OFF")
        with open_ledger(place, "read") as ledger:
            self._refresh(ledger, progress)
        with sqlite_file.mapped(self._path, FORMAT):
            rows = self._connection.execute("SELECT key, series, newest FROM series").fetchall()
            below = self._connection.execute("SELECT fingerprint, body FROM below").fetchall()
        self._series = {msgspec.json.decode(key, type=SeriesKey): (number, newest) for key, number, newest in rows}
        self._below = {number: msgspec.json.decode(body, type=Fingerprint) for number, body in below}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        return sorted(self._series, key=_order)

    def points(self, key: SeriesKey) -> Points:
        """Return the runs of a series, oldest first."""
        if key not in self._series:
            return []
        query = f"SELECT fingerprint, {', '.join(COLUMNS)} FROM runs WHERE series = ? ORDER BY started_at_ns, row"  # noqa: S608 - our own
        with sqlite_file.mapped(self._path, FORMAT):
            rows = self._connection.execute(query, (self._series[key][0],)).fetchall()
        return [(RunFigures._make(row[1:]), self._below[row[0]]) for row in rows]

    def newest(self, key: SeriesKey) -> int:
        """Return the ledger's row of the newest run of the series."""
        return self._series[key][1] if key in self._series else 0

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        query = "SELECT coalesce(max(received_ns), 0) FROM runs WHERE row = ?"
        with sqlite_file.mapped(self._path, FORMAT):
            return int(self._connection.execute(query, (self.newest(key),)).fetchone()[0])

    def newest_runs(self) -> Iterator[tuple[SeriesKey, RunFigures]]:
        """Yield every series with its newest run by time."""
        query = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE series = ? ORDER BY started_at_ns DESC, row DESC LIMIT 1"  # noqa: S608 - our own
        with sqlite_file.mapped(self._path, FORMAT):
            for key, (number, _) in self._series.items():
                for row in self._connection.execute(query, (number,)):
                    yield key, RunFigures._make(row)

    def recall(self, name: str, stamp: str) -> bytes | None:
        """Return what was stored under `name` with this stamp."""
        with sqlite_file.mapped(self._path, FORMAT):
            found = self._connection.execute("SELECT body FROM found WHERE name = ? AND stamp = ?", (name, stamp)).fetchone()
        return bytes(found[0]) if found else None

    def keep(self, entries: Iterable[tuple[str, str, bytes]]) -> None:
        """Store results."""
        with self._writing():
            self._connection.executemany("INSERT OR REPLACE INTO found VALUES (?, ?, ?)", entries)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with sqlite_file.mapped(self._path, FORMAT), sqlite_file.transaction(self._connection):
            yield

    def _refresh(self, ledger: Ledger, progress: Progress) -> None:
        collector, last = ledger.epoch(), ledger.last_row()
        with sqlite_file.mapped(self._path, FORMAT):
            known, position = self._connection.execute("SELECT collector, position FROM place").fetchone()
        if known != collector or position > last:
            # The ledger was replaced.
            with self._writing():
                _clear(self._connection, collector)
            position = 0
        while position < last:
            reached = self._add_new(ledger, position)
            if reached == position:
                break
            position = reached
            progress(position, last)

    def _add_new(self, ledger: Ledger, position: int) -> int:
        held = list(ledger.records(after_row=position, limit=BATCH))
        if not held:
            return position
        insert = f"INSERT OR REPLACE INTO runs VALUES (?, ?, ?, {', '.join('?' * len(COLUMNS))})"  # noqa: S608 - question marks
        with self._writing():
            numbers: dict[SeriesKey, int] = {}
            below: dict[Fingerprint, int] = {}
            rows = []
            for entry in held:
                key, fingerprint = series_of(entry.record), fingerprint_of(entry.record)
                if key not in numbers:
                    numbers[key] = self._series_number(key)
                if fingerprint not in below:
                    below[fingerprint] = self._below_number(fingerprint)
                rows.append((entry.row, numbers[key], below[fingerprint], *figures_of(entry.record, entry.received_ns)))
            self._connection.executemany(insert, rows)
            newest = {row[1]: row[0] for row in rows}
            self._connection.executemany("UPDATE series SET newest = ? WHERE series = ?", [(row, number) for number, row in newest.items()])
            self._connection.execute("UPDATE place SET position = ?", (held[-1].row,))
        return held[-1].row

    def _series_number(self, key: SeriesKey) -> int:
        body = msgspec.json.encode(key)
        self._connection.execute("INSERT OR IGNORE INTO series (key, newest) VALUES (?, 0)", (body,))
        return int(self._connection.execute("SELECT series FROM series WHERE key = ?", (body,)).fetchone()[0])

    def _below_number(self, fingerprint: Fingerprint) -> int:
        body = msgspec.json.encode(fingerprint)
        self._connection.execute("INSERT OR IGNORE INTO below (body) VALUES (?)", (body,))
        return int(self._connection.execute("SELECT fingerprint FROM below WHERE body = ?", (body,)).fetchone()[0])


def open_history(where: Sequence[str], progress: Progress = lambda *_: None) -> History:
    """Return the history of the store at `where`: of one ledger from its index, of documents (and several stores) in memory.

    Raises:
        ConfigError: a store is absent or invalid.
        UnavailableError: the index cannot be written.
    """
    from edgemeter.collector.runs.store import LedgerStore, open_store  # noqa: PLC0415

    store = open_store(*where)
    if isinstance(store, LedgerStore):
        return LedgerHistory(store.place, progress=progress)
    contents = store.contents()
    if not contents.runs and contents.left_out:
        raise ConfigError(f"no run in {', '.join(map(shown, where))} can be read: {contents.left_out[0].reason}")
    return RunHistory(contents.runs)


def _order(key: SeriesKey) -> tuple[str, ...]:
    return (key.fleet, key.board, key.model, key.device, *(str(value) for value in msgspec.structs.astuple(key)))

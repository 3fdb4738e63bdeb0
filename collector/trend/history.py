"""History: the figures of all runs by series, in memory (a document) or in an index beside the ledger.

The index is a SQLite file that may be deleted at any time: it is rebuilt from the records. It is refreshed when opened, so that a query
over a million runs reads rows of figures and no record. A series has a version, which changes with each run that comes or is removed;
results are kept with the version that they are of, so that only what changed is computed again.
"""

import contextlib
import gc
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.ledgers.place import LedgerPlace, beside, open_ledger, shown
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, Fingerprint, fingerprint_of
from edgemeter.collector.trend.metrics import NS_PER_DAY, RunFigures, SeriesKey, figures_of, series_of

COLUMNS = RunFigures._fields
BATCH = 5000

# Kept results are asked for by so many series at once, and all together where that is too often.
_AT_ONCE, _PARTS = 500, 4

_decode_key = msgspec.json.Decoder(SeriesKey).decode

Points = list[tuple[RunFigures, Fingerprint]]
Progress = Callable[[int, int], None]


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off for the block: of a million objects that are read it would scan all repeatedly, and free none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class History(Protocol):
    """Figures by series. Read from one thread."""

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        ...

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day (counted from 1970), oldest first."""
        ...

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series, 0 if there is none."""
        ...

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        ...

    def kept(self, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[SeriesKey, str, bytes]]:
        """Yield the results kept under `name` that are still true: the series or board type, what else they hang on, and the result."""
        ...

    def keep(self, name: str, results: Iterable[tuple[SeriesKey, str, bytes]]) -> None:
        """Keep results of series or board types as they are now; they may be dropped at any time."""
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

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day, oldest first."""
        return [pair for pair in self._series.get(key, []) if pair[0].day >= since_day]

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series."""
        return max((run.day for run, _ in self.points(key)), default=0)

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        return max((run.received_ns for run, _ in self.points(key)), default=0)

    def kept(self, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[SeriesKey, str, bytes]]:  # noqa: ARG002 - the protocol's
        """Yield nothing: a document is read once."""
        return iter(())

    def keep(self, name: str, results: Iterable[tuple[SeriesKey, str, bytes]]) -> None:
        """Keep nothing."""


_TABLES = ("runs", "series", "below", "found")

# A board type is a row of `series` without a device; its version changes with each of its members.
_SCHEMA = f"""CREATE TABLE series (
    series INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    place TEXT NOT NULL,
    of_type INTEGER,
    newest INTEGER NOT NULL,
    version INTEGER NOT NULL
);
CREATE TABLE below (fingerprint INTEGER PRIMARY KEY, body BLOB NOT NULL UNIQUE);
CREATE TABLE runs (row INTEGER PRIMARY KEY, series INTEGER NOT NULL, fingerprint INTEGER NOT NULL, {", ".join(COLUMNS)});
CREATE INDEX runs_of_series ON runs (series, started_at_ns);
CREATE TABLE found (
    name TEXT NOT NULL,
    series INTEGER NOT NULL,
    version INTEGER NOT NULL,
    beside TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (name, series)
);
CREATE TABLE place (collector TEXT NOT NULL, position INTEGER NOT NULL);
INSERT INTO place VALUES ('', 0);
"""  # noqa: S608 - our own names


def _clear(connection: sqlite3.Connection, collector: str) -> None:
    for table in _TABLES:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
    connection.execute("UPDATE place SET collector = ?, position = 0", (collector,))


def _create_anew(connection: sqlite3.Connection) -> None:
    for table in (*_TABLES, "place"):
        connection.execute(f"DROP TABLE {table}")
    for statement in _SCHEMA.rstrip(";\n").split(";\n"):
        connection.execute(statement)


# Version 2: energies that were replayed beside measured queries are no longer in it. Version 3: runs of a clock that cannot be right lie at
# the time of their receipt. Version 4: results by series and version; what the ledger removed is removed.
# Version 5: times of language models.
FORMAT = sqlite_file.FileFormat(
    what="index of trends",
    application_id=0x45645472,  # "EdTr"
    version=5,
    schema=_SCHEMA,
    elsewhere="delete it: it is rebuilt from the ledger",
    steps=dict.fromkeys((1, 2, 3, 4), _create_anew),
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
            rows = self._connection.execute("SELECT key, series, version, newest, place FROM series ORDER BY place").fetchall()
            below = self._connection.execute("SELECT fingerprint, body FROM below").fetchall()
        known = [(_decode_key(key), (number, version), newest, place) for key, number, version, newest, place in rows]
        # Of which runs a result is, is said by the versions from before they were read.
        self._series = {key: held for key, held, newest, place in known if place and newest}
        self._types = {key: held for key, held, _, place in known if not place}
        self._below = {number: msgspec.json.decode(body, type=Fingerprint) for number, body in below}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        return list(self._series)

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day, oldest first."""
        columns = ", ".join(COLUMNS)
        query = f"SELECT fingerprint, {columns} FROM runs WHERE series = ? AND started_at_ns >= ? ORDER BY started_at_ns, row"  # noqa: S608
        with sqlite_file.mapped(self._path, FORMAT):
            rows = self._connection.execute(query, (self._held(key)[0], since_day * NS_PER_DAY)).fetchall()
        return [(RunFigures._make(row[1:]), self._below[row[0]]) for row in rows]

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series."""
        query = "SELECT coalesce(max(started_at_ns), 0) FROM runs WHERE series = ?"
        with sqlite_file.mapped(self._path, FORMAT):
            return int(self._connection.execute(query, (self._held(key)[0],)).fetchone()[0]) // NS_PER_DAY

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        query = "SELECT received_ns FROM runs WHERE row = (SELECT newest FROM series WHERE series = ?)"
        with sqlite_file.mapped(self._path, FORMAT):
            found = self._connection.execute(query, (self._held(key)[0],)).fetchone()
        return int(found[0]) if found else 0

    def newest_runs(self) -> Iterator[tuple[SeriesKey, RunFigures]]:
        """Yield every series with its newest run by time."""
        query = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE series = ? ORDER BY started_at_ns DESC, row DESC LIMIT 1"  # noqa: S608 - our own
        with sqlite_file.mapped(self._path, FORMAT):
            for key, (number, _) in self._series.items():
                for row in self._connection.execute(query, (number,)):
                    yield key, RunFigures._make(row)

    def kept(self, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[SeriesKey, str, bytes]]:
        """Yield the results kept under `name` that are still true."""
        by_number = {self._held(key)[0]: key for key in keys}
        # So many at once as SQLite takes values; of most series all are read.
        parts = [list(by_number)[first : first + _AT_ONCE] for first in range(0, len(by_number), _AT_ONCE)]
        query = "SELECT series, beside, body FROM found JOIN series USING (series, version) WHERE name = ?"
        with sqlite_file.mapped(self._path, FORMAT):
            for part in parts if len(parts) <= _PARTS else [[]]:
                narrowed = f" AND series IN ({', '.join('?' * len(part))})" if part else ""
                for number, beside_it, body in self._connection.execute(query + narrowed, (name, *part)):
                    if number in by_number:
                        yield by_number[number], beside_it, body

    def keep(self, name: str, results: Iterable[tuple[SeriesKey, str, bytes]]) -> None:
        """Keep results of series or board types as they are now."""
        insert = "INSERT OR REPLACE INTO found SELECT ?, series, version, ?, ? FROM series WHERE series = ? AND version = ?"
        with self._writing():
            self._connection.executemany(insert, [(name, beside_it, body, *self._held(key)) for key, beside_it, body in results])

    def _held(self, key: SeriesKey) -> tuple[int, int]:
        """Return number and version of a series or a board type."""
        return (self._series if key.device else self._types).get(key, (0, 0))

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
        self._drop_removed(ledger)

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
            self._mark_changed({row[1]: row[0] for row in rows})
            self._connection.execute("UPDATE place SET position = ?", (held[-1].row,))
        return held[-1].row

    def _drop_removed(self, ledger: Ledger) -> None:
        """Drop the runs that the ledger has no more: too old, invalid after all, or stored anew with another row."""
        with sqlite_file.mapped(self._path, FORMAT):
            if self._connection.execute("SELECT count(*) FROM runs").fetchone()[0] == ledger.count():
                return
            own = np.array(self._connection.execute("SELECT row FROM runs").fetchall(), np.int64).ravel()
        gone = np.setdiff1d(own, np.fromiter(ledger.rows(), np.int64)).tolist()
        with self._writing():
            changed = {self._connection.execute("SELECT series FROM runs WHERE row = ?", (row,)).fetchone()[0] for row in gone}
            self._connection.executemany("DELETE FROM runs WHERE row = ?", [(row,) for row in gone])
            query = "SELECT coalesce(max(row), 0) FROM runs WHERE series = ?"
            self._mark_changed({number: self._connection.execute(query, (number,)).fetchone()[0] for number in changed})

    def _mark_changed(self, newest: Mapping[int, int]) -> None:
        """Give the series, whose newest rows are given, and their board types the next version."""
        changed = [(row, number) for number, row in newest.items()]
        self._connection.executemany("UPDATE series SET version = version + 1, newest = ? WHERE series = ?", changed)
        find = "SELECT of_type FROM series WHERE series = ?"
        types = {self._connection.execute(find, (number,)).fetchone() for number in newest} - {(None,)}
        self._connection.executemany("UPDATE series SET version = version + 1 WHERE series = ?", types)

    def _series_number(self, key: SeriesKey) -> int:
        find = "SELECT series FROM series WHERE key = ?"
        text = msgspec.json.encode(key)
        found = self._connection.execute(find, (text,)).fetchone()
        if found is None:
            # Boards of unknown type have no type in common.
            of_type = self._series_number(key.of_type()) if key.device and key.board != UNKNOWN_BOARD else None
            place = "\x01".join(_order(key)) if key.device else ""
            insert = "INSERT INTO series (key, place, of_type, newest, version) VALUES (?, ?, ?, 0, 0)"
            return int(self._connection.execute(insert, (text, place, of_type)).lastrowid or 0)
        return int(found[0])

    def _below_number(self, fingerprint: Fingerprint) -> int:
        text = msgspec.json.encode(fingerprint)
        self._connection.execute("INSERT OR IGNORE INTO below (body) VALUES (?)", (text,))
        return int(self._connection.execute("SELECT fingerprint FROM below WHERE body = ?", (text,)).fetchone()[0])


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

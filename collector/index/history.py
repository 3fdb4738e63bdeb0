"""The history of a ledger, from its index: figures by series, without reading a record.

A series has a version, which changes with each run that comes or is removed; results are kept with the version that they are of, so that
only what changed is computed again.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from sys import intern
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.sqlite_file import transaction
from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS, run_of_row
from edgemeter.agent.contract.series import Fingerprint, SeriesKey
from edgemeter.collector.index.index_file import connect_index, index_path
from edgemeter.collector.index.refresh import IndexRefresher, Progress
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.ledgers.place import LedgerPlace, shown_place
from edgemeter.collector.runs.store import LedgerStore, open_store
from edgemeter.collector.trend.history import History, Points, RunHistory
from edgemeter.collector.trend.metrics import METRICS, followed_sql
from edgemeter.collector.trend.run_columns import CommonFacts, RunColumns

_COLUMNS = ", ".join((*RUN_COLUMNS, *VALUE_COLUMNS))

# Kept results are asked for by so many series at once, and all together where that is too often.
_AT_ONCE, _PARTS = 500, 4
# So many runs are held as rows before they are columns.
_ROWS = 5000

_decode_key = msgspec.json.Decoder(SeriesKey).decode


def _key(text: bytes) -> SeriesKey:
    # The same words in ten thousand keys are kept once.
    fields: list[Any] = [intern(value) if isinstance(value, str) else value for value in msgspec.structs.astuple(_decode_key(text))]
    return SeriesKey(*fields)


class LedgerHistory:
    """The history of the ledger at `place`, from the index at `index`; refreshed when opened.

    With a `device` that has runs only those of it are complete: what is new of others is not read.

    Raises:
        UnavailableError: the index cannot be written.
    """

    def __init__(
        self, ledger: LedgerPlace, index: Path | None = None, progress: Progress = lambda *_: None, device: str | None = None
    ) -> None:
        self._path = index or index_path(ledger)
        self._source = LedgerSource(ledger)
        with self._mapped():
            self._connection = connect_index(self._path)
        try:
            with self._mapped():
                refresher = IndexRefresher(self._connection, self._source, progress)
                if device is None or not refresher.take_in_device(device):
                    refresher.take_in()
                self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        self._series: dict[SeriesKey, tuple[int, int]] = {}
        self._types: dict[SeriesKey, tuple[int, int]] = {}
        # Of which runs a result is, is said by the versions from before they were read.
        for text, number, version, newest, sort_key in self._connection.execute(
            "SELECT key, series, version, newest, place FROM series ORDER BY place"
        ):
            if not sort_key:
                self._types[_key(text)] = number, version
            elif newest:
                self._series[_key(text)] = number, version
        self._read_facts()

    def _read_facts(self) -> None:
        # The same fingerprint is one object, so that most are compared at once.
        texts = {
            text: msgspec.json.decode(text, type=Fingerprint) for (text,) in self._connection.execute("SELECT DISTINCT text FROM common")
        }
        query = "SELECT fingerprint, text, energy_kind, accuracy_kind FROM common"
        self._facts = {number: CommonFacts(texts[text], *kinds) for number, text, *kinds in self._connection.execute(query)}

    def _facts_of(self, numbers: Iterable[int]) -> list[CommonFacts]:
        requested = list(numbers)
        if not self._facts.keys() >= set(requested):
            # Another process took in runs since.
            with self._mapped():
                self._read_facts()
        return [self._facts[number] for number in requested]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        return list(self._series)

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day, oldest first."""
        query = f"SELECT {_COLUMNS} FROM runs WHERE series = ? AND at_ns >= ? ORDER BY at_ns, row"  # noqa: S608 - our own names
        with self._mapped():
            runs = [run_of_row(row) for row in self._connection.execute(query, (self._held(key)[0], since_day * NS_PER_DAY))]
        facts = self._facts_of(run.fingerprint for run in runs)
        return [(run, common.below) for run, common in zip(runs, facts, strict=True)]

    def columns(self, keys: Sequence[SeriesKey], names: Sequence[str], since_day: int = 0) -> RunColumns:
        """Return the runs of each series since a day, with the figures of these names."""
        numbers = np.array([self._held(key)[0] for key in keys], dtype=np.int64)
        columns = [followed_sql(METRICS[name].figure) if name in METRICS else name for name in names]
        selected = f"series, at_ns / {NS_PER_DAY}, verdict = 'ok', fingerprint, {', '.join(columns)}"
        parts = []
        for first in range(0, len(numbers), _AT_ONCE):
            part = numbers[first : first + _AT_ONCE].tolist()
            where = f"series IN ({', '.join('?' * len(part))}) AND at_ns >= ?"
            query = f"SELECT {selected} FROM measured WHERE {where} ORDER BY series, at_ns, row"  # noqa: S608 - our own
            with self._mapped():
                cursor = self._connection.execute(query, (*part, since_day * NS_PER_DAY))
                while rows := cursor.fetchmany(_ROWS):
                    parts.append(np.array(rows, dtype=np.float64))
        table = np.concatenate([np.zeros((0, 4 + len(names))), *parts])
        # The rows come by the numbers of series; each series is wanted at the place of its key.
        by_number = np.argsort(numbers)
        position = by_number[np.searchsorted(numbers, table[:, 0], sorter=by_number)]
        order = np.argsort(position, kind="stable")
        common, inverse = np.unique(table[order, 3].astype(np.int64), return_inverse=True)
        return RunColumns(
            edges=np.searchsorted(position[order], np.arange(len(keys) + 1)),
            day=table[order, 1].astype(np.int64),
            is_ok=table[order, 2] > 0,
            common=inverse,
            facts=self._facts_of(common.tolist()),
            figures={name: table[order, 4 + column] for column, name in enumerate(names)},
        )

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series."""
        return int(self._value("SELECT max(at_ns) FROM measured WHERE series = ?", self._held(key)[0])) // NS_PER_DAY

    def newest_day(self) -> int:
        """Return the day of the newest run of all, also where only those of one device were read."""
        newest, last_row = max(map(self.last_day, self._series), default=0), self._source.last_row()
        # The last record may be one that cannot be read.
        last_runs = self._source.read([last_row], lambda _: None) if last_row else ()
        return max(newest, *(run.started_at_ns // NS_PER_DAY for _, _, run in last_runs), 0)

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        query = "SELECT max(received_ns) FROM measured WHERE row = (SELECT newest FROM series WHERE series = ?)"
        return int(self._value(query, self._held(key)[0]))

    def kept(self, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[SeriesKey, str, bytes]]:
        """Yield the results kept under `name` that are still true."""
        by_number = {self._held(key)[0]: key for key in keys}
        # So many at once as SQLite takes values; of most series all are read.
        parts = [list(by_number)[first : first + _AT_ONCE] for first in range(0, len(by_number), _AT_ONCE)]
        query = "SELECT series, beside, body FROM found JOIN series USING (series, version) WHERE name = ?"
        with self._mapped():
            for part in parts if len(parts) <= _PARTS else [[]]:
                narrowed = f" AND series IN ({', '.join('?' * len(part))})" if part else ""
                for number, beside_it, body in self._connection.execute(query + narrowed, (name, *part)):
                    if number in by_number:
                        yield by_number[number], beside_it, body

    def keep(self, name: str, results: Iterable[tuple[SeriesKey, str, bytes]]) -> None:
        """Keep results of series or board types as they are now."""
        insert = "INSERT OR REPLACE INTO found SELECT ?, series, version, ?, ? FROM series WHERE series = ? AND version = ?"
        with self._mapped(), transaction(self._connection):
            self._connection.executemany(insert, [(name, beside_it, body, *self._held(key)) for key, beside_it, body in results])

    def _held(self, key: SeriesKey) -> tuple[int, int]:
        """Return number and version of a series or a board type."""
        return (self._series if key.device else self._types).get(key, (0, 0))

    def _value(self, query: str, number: int) -> int:
        with self._mapped():
            return int(self._connection.execute(query, (number,)).fetchone()[0] or 0)

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise unavailable(self._path, error) from error


def unavailable(path: Path, error: sqlite3.DatabaseError) -> UnavailableError:
    """Return the error that says what to do where an index cannot be used."""
    remedy = "check its disk and its folder; it may be deleted, and is then made again"
    return UnavailableError(f"cannot use the index {str(path)!r} ({error}): {remedy}")


def open_history(
    where: Sequence[str], progress: Progress = lambda *_: None, index: Path | None = None, device: str | None = None
) -> History:
    """Return the history of the store at `where`: of one ledger from its index, of documents (and several stores) in memory.

    `index` is another place for that index than beside the ledger; with a `device` see `LedgerHistory`.

    Raises:
        ConfigError: a store is absent or invalid.
        UnavailableError: the index cannot be written.
    """
    store = open_store(*where)
    if isinstance(store, LedgerStore):
        return LedgerHistory(store.place, index, progress, device)
    contents = store.contents()
    if not contents.runs and contents.left_out:
        raise ConfigError(f"no run in {', '.join(map(shown_place, where))} can be read: {contents.left_out[0].reason}")
    return RunHistory(contents.runs)

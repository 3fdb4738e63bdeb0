"""The index of the page: a row of figures for each run and a summary for each case, so that no view decodes many records.

It is a SQLite file beside the ledger that may be deleted at any time: it is made again from the records. One writer at a time brings it up
to date; readers never wait for it (WAL).
"""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.sqlite_file import BUSY_TIMEOUT_S, transaction
from edgemeter.agent.contract.record import RunRecord, decode, encode
from edgemeter.collector.ledgers.place import beside
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, CaseKey, Fingerprint, fingerprint_of, key_of
from edgemeter.collector.web.case_figures import METRICS, CaseFigures, IndexedRun, current_figures, decode_figures, indexed_run_of, sum_up
from edgemeter.collector.web.sources import LedgerSource, RecordSource

VERSION = 6
APPLICATION_ID = 0x4564_4978  # "EdIx"
BATCH = 4000
# While a large ledger is read for the first time, its cases are summed up after so long, and so many times longer than that took.
SUM_UP_S, PAUSE_TIMES = 15.0, 20.0
SUMMED_AT_ONCE = 200
COLUMNS = IndexedRun._fields
# What a view may be narrowed to, each a column of `cases`.
FACETS = ("fleet", "device", "board", "model", "runtime", "precision")

SCHEMA = f"""CREATE TABLE cases (
    case_number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    {", ".join(f"{name} TEXT NOT NULL" for name in FACETS)},
    newest_ns INTEGER NOT NULL,
    figures BLOB,
    current BLOB,
    newest BLOB NOT NULL
);
CREATE INDEX cases_by_facet ON cases ({", ".join(FACETS)});
CREATE TABLE runs (
    {", ".join(COLUMNS)},
    PRIMARY KEY (row)
);
CREATE INDEX runs_of_case ON runs (case_number, started_at_ns);
CREATE INDEX runs_by_time ON runs (started_at_ns);
CREATE INDEX runs_by_id ON runs (id);
CREATE TABLE fingerprints (fingerprint INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE place (identity TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE stale (case_number INTEGER PRIMARY KEY);
"""
_INSERT = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class IndexedCase:
    """One case of the index: its number, what it is, the board it ran on, the text of its newest run (without samples), its figures.

    `figures` are over all its runs, `current` over those of the level that the board has now. The text is empty where nobody asked for it.
    """

    number: int
    key: CaseKey
    board: str
    newest_text: bytes
    figures: CaseFigures
    current: CaseFigures

    @property
    def newest(self) -> RunRecord:
        """Return the newest run, decoded at each call: most cases never need it."""
        return decode(self.newest_text)


@dataclass(slots=True)
class RunIndex:
    """The index of `source` in the file at `path`. Bring it up to date with `refresh`; the reading calls may come from any thread."""

    source: RecordSource
    path: Path
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _cases: dict[CaseKey, int] = field(default_factory=dict)
    _fingerprints: dict[Fingerprint, int] = field(default_factory=dict)

    def close(self) -> None:
        """Remove the file where it was made for this process only."""
        if self._folder is not None:
            self._folder.cleanup()

    def refresh(self, progress: Callable[[int, int], None] = lambda *_: None) -> int:
        """Take in what came since; `progress` gets the row reached and the last one. Return the position.

        Raises:
            UnavailableError: the index cannot be written, or is damaged.
        """
        with self._writing() as connection:
            self._begin_anew_if_other(connection)
        last = self.source.last_row()
        next_s = time.monotonic() + SUM_UP_S
        while True:
            with self._writing() as connection:
                position = int(connection.execute("SELECT position FROM place").fetchone()[0])
                reached = self._take_in(connection, position)
            if reached == position:
                break
            progress(reached, last)
            # So that a page has something to show while a large ledger is read for the first time.
            if (began := time.monotonic()) > next_s:
                self._sum_up_stale()
                next_s = time.monotonic() + max(SUM_UP_S, PAUSE_TIMES * (time.monotonic() - began))
        self._sum_up_stale()
        return reached

    def position(self) -> int:
        """Return the row up to which the index has everything."""
        with self.reading() as connection:
            found = connection.execute("SELECT position FROM place").fetchone()
        return int(found[0]) if found else 0

    def stale(self) -> int:
        """Return how many cases have runs that their figures do not hold yet."""
        with self.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM stale").fetchone()[0])

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a connection to read with, for one view.

        Raises:
            UnavailableError: the index cannot be read, or is damaged.
        """
        with self._connection() as connection:
            connection.execute("PRAGMA query_only = ON")
            yield connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                # Nothing is lost with it, so nothing waits for the disk.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA cache_size = -65536")
                yield connection
        except sqlite3.DatabaseError as error:
            remedy = "check its disk and its folder; it may be deleted, and is then made again"
            raise UnavailableError(f"cannot use the page's index {str(self.path)!r} ({error}): {remedy}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            try:
                with transaction(connection):
                    yield connection
            except BaseException:
                # What was remembered may have been rolled back with it.
                self._cases.clear()
                self._fingerprints.clear()
                raise

    def _begin_anew_if_other(self, connection: sqlite3.Connection) -> None:
        identity = f"{VERSION} {self.source.identity()}"
        held = connection.execute("SELECT identity, position FROM place").fetchone()
        if held == (identity, 0) or (held and held[0] == identity and held[1] <= self.source.last_row()):
            return
        for table in ("cases", "runs", "fingerprints", "place", "stale"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
        connection.execute("INSERT INTO place VALUES (?, 0)", (identity,))
        self._cases.clear()
        self._fingerprints.clear()

    def _take_in(self, connection: sqlite3.Connection, position: int) -> int:
        rows: list[IndexedRun] = []
        newest: dict[int, RunRecord] = {}
        for row, run in self.source.after(position, BATCH):
            number = self._case_number(connection, run)
            rows.append(indexed_run_of(run, row, number, self._fingerprint_number(connection, run)))
            if number not in newest or newest[number].started_at_ns <= run.started_at_ns:
                newest[number] = run
        if not rows:
            return position
        connection.executemany(_INSERT, rows)
        connection.executemany("INSERT OR IGNORE INTO stale VALUES (?)", [(number,) for number in newest])
        connection.executemany(
            "UPDATE cases SET newest = ?, newest_ns = ?, board = ? WHERE case_number = ? AND newest_ns <= ?",
            [(_without_samples(run), run.started_at_ns, _board(run), number, run.started_at_ns) for number, run in newest.items()],
        )
        connection.execute("UPDATE place SET position = ?", (rows[-1].row,))
        return rows[-1].row

    def _case_number(self, connection: sqlite3.Connection, run: RunRecord) -> int:
        key = key_of(run)
        number = self._cases.get(key)
        if number is None:
            text = msgspec.json.encode(asdict(key)).decode()
            connection.execute(
                f"INSERT OR IGNORE INTO cases (key, {', '.join(FACETS)}, newest, newest_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (text, key.fleet, key.device, _board(run), key.model, key.runtime, key.precision, _without_samples(run), run.started_at_ns),
            )
            number = int(connection.execute("SELECT case_number FROM cases WHERE key = ?", (text,)).fetchone()[0])
            self._cases[key] = number
        return number

    def _fingerprint_number(self, connection: sqlite3.Connection, run: RunRecord) -> int:
        fingerprint = fingerprint_of(run)
        number = self._fingerprints.get(fingerprint)
        if number is None:
            text = msgspec.json.encode(fingerprint).decode()
            connection.execute("INSERT OR IGNORE INTO fingerprints (text) VALUES (?)", (text,))
            number = int(connection.execute("SELECT fingerprint FROM fingerprints WHERE text = ?", (text,)).fetchone()[0])
            self._fingerprints[fingerprint] = number
        return number

    def _sum_up_stale(self) -> None:
        while True:
            with self._writing() as connection:
                stale = [number for (number,) in connection.execute("SELECT case_number FROM stale LIMIT ?", (SUMMED_AT_ONCE,))]
                if not stale:
                    return
                self._sum_up(connection, stale)

    def _sum_up(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
        query = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE case_number = ? ORDER BY started_at_ns"  # noqa: S608 - our own names
        texts = connection.execute("SELECT fingerprint, text FROM fingerprints")
        known = {number: msgspec.json.decode(text, type=Fingerprint) for number, text in texts}
        cases = [[IndexedRun._make(row) for row in connection.execute(query, (number,))] for number in numbers]
        for number, runs, current in zip(numbers, cases, current_figures(cases, known), strict=True):
            values = msgspec.json.encode(sum_up(runs)), current and msgspec.json.encode(current), number
            connection.execute("UPDATE cases SET figures = ?, current = ? WHERE case_number = ?", values)
        connection.executemany("DELETE FROM stale WHERE case_number = ?", [(number,) for number in numbers])


def open_index(source: RecordSource, path: Path | None = None) -> RunIndex:
    """Return the index of `source` at `path`; by default beside the ledger, or in a folder of its own where that cannot be written."""
    wanted = path
    if wanted is None and isinstance(source, LedgerSource):
        wanted = beside(source.place, ".index")
    if wanted is not None and _make(wanted):
        return RunIndex(source, wanted)
    folder = tempfile.TemporaryDirectory(prefix="edgemeter-index-")
    elsewhere = Path(folder.name) / "index.sqlite"
    if path is not None or not _make(elsewhere):
        folder.cleanup()
        raise UnavailableError(f"cannot create the page's index at {str(path or elsewhere)!r}: name a file in a writable folder")
    return RunIndex(source, elsewhere, folder)


def decode_case(row: Sequence[object], metrics: Sequence[str] = METRICS) -> IndexedCase:
    """Return the case of a row (case_number, key, board, newest, figures, current) of the table `cases`, with these metrics."""
    number, key, board, newest, figures, current = row
    of_all = decode_figures(figures if isinstance(figures, bytes) else b"", tuple(metrics))
    return IndexedCase(
        number=int(str(number)),
        key=CaseKey(**msgspec.json.decode(str(key))),
        board=str(board),
        newest_text=newest if isinstance(newest, bytes) else b"",
        figures=of_all,
        current=decode_figures(current, tuple(metrics)) if isinstance(current, bytes) else of_all,
    )


def _make(path: Path) -> bool:
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except sqlite3.Error:
        return False
    with contextlib.closing(connection):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            with transaction(connection):
                owner, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
                tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                if tables and owner != APPLICATION_ID:
                    return False
                if version != VERSION:
                    for name in tables:
                        connection.execute(f'DROP TABLE "{name}"')
                    for statement in SCHEMA.split(";\n"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error:
            return False
    return True


def _without_samples(run: RunRecord) -> bytes:
    return encode(msgspec.structs.replace(run, samples=()) if run.samples else run)


def _board(run: RunRecord) -> str:
    return run.environment.board or UNKNOWN_BOARD

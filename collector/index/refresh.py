"""Refreshing the index: each new record is decoded once, removed ones are dropped, changed cases are summed up again."""

import contextlib
import dataclasses
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from edgemeter.agent.base.errors import one_line
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.sqlite_file import transaction
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.record import RunRecord, encode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS, RunFigures, figures_of, run_of_row
from edgemeter.agent.contract.run_subject import subject_of
from edgemeter.agent.contract.series import UNKNOWN_BOARD, Fingerprint, SeriesKey, series_of
from edgemeter.agent.ledger.chunks import UNREADABLE, SkippedRecord, skipped_record, warn_of_skipped
from edgemeter.agent.verdict.siblings import apart_among, has_siblings
from edgemeter.collector.index.index_file import COUNT_CASE, FACETS, code_hash, empty_index, pack_record, slim_record
from edgemeter.collector.index.sources import RecordSource
from edgemeter.collector.index.stored_runs import COMMON, OF_RUN, stored_run
from edgemeter.collector.index.stored_summaries import packed_summary, runs_of
from edgemeter.collector.runs.cases import CaseRuns, grouped, unusable
from edgemeter.collector.trend.current import SegmentStart, current_case, level_figures, segment_starts
from edgemeter.collector.trend.history import Points, series_order

logger = logging.getLogger(__name__)

BATCH = 2000
SUMMED_AT_ONCE = 50
Progress = Callable[[str, int, int], None]

# The runs of a case, oldest first, as `oldest_first` has them.
_IN_ORDER = "ORDER BY started_at_ns, coalesce(session, 0), coalesce(seq, 0), row"
_ROWS = "SELECT row FROM measured UNION ALL SELECT row FROM skipped"
_INSERT = f"INSERT INTO measured VALUES ({', '.join('?' * len(OF_RUN))})"  # noqa: S608 - question marks


@dataclasses.dataclass(slots=True)
class KnownNumbers:
    """The row numbers already looked up; to be cleared if a transaction failed."""

    # The number of a case, and the record that its others are compressed against.
    cases: dict[CaseKey, tuple[int, bytes]] = dataclasses.field(default_factory=dict)
    # By the case on any device.
    templates: dict[CaseKey, tuple[int, bytes]] = dataclasses.field(default_factory=dict)
    common: dict[tuple[object, ...], int] = dataclasses.field(default_factory=dict)
    # By case and board, of which the series follows.
    series: dict[tuple[int, str], int] = dataclasses.field(default_factory=dict)

    def clear(self) -> None:
        """Forget all."""
        for numbers in (self.cases, self.templates, self.common, self.series):
            numbers.clear()


class IndexRefresher:
    """Refreshes the index over `connection` from `source`; several processes may do so at once."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        source: RecordSource,
        progress: Progress = lambda *_: None,
        known_numbers: KnownNumbers | None = None,
    ) -> None:
        self._connection = connection
        self._source = source
        self._progress = progress
        self._known = KnownNumbers() if known_numbers is None else known_numbers

    def refresh(self) -> int:
        """Add new runs, drop removed ones, sum up changed cases; return the row that was reached."""
        position = self.take_in()
        self.sum_up()
        return position

    def take_in(self, tell: Callable[[], None] = lambda: None) -> int:
        """Add new runs and drop removed ones; return the row that was reached. `tell` is called after each batch."""
        last = self._source.last_row()
        self._begin()
        while True:
            with self._writing():
                (position,) = self._connection.execute("SELECT position FROM place").fetchone()
                rows = self._source.rows_after(position, BATCH) if position < last else ()
                if rows:
                    self._take(rows)
                    self._connection.execute("UPDATE place SET position = ?", (rows[-1],))
            if not rows:
                break
            self._progress("reading runs", rows[-1], last)
            tell()
        if self._connection.execute("SELECT runs FROM place").fetchone()[0] > self._source.count():
            self._drop_removed(_ROWS, (), self._source.rows)
        return int(position)

    def _begin(self) -> None:
        """Empty the index where it is of another ledger or of other code."""
        identity = f"{code_hash()} {self._source.identity()}"
        with self._writing():
            query = "SELECT identity, max(position, coalesce((SELECT max(row) FROM measured), 0)) FROM place"
            stored_identity, reached = self._connection.execute(query).fetchone()
            # What was removed at the end is dropped later; beyond the highest row a backup was restored, and rows are given anew.
            if stored_identity != identity or reached > self._source.highest_row():
                empty_index(self._connection, identity)
                self._known.clear()

    def _absent(self, rows: Sequence[int]) -> list[int]:
        """Return those of the rows that the index does not have: the runs of a device may have been added before those of others."""
        query = """SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM measured WHERE row = value)
        AND NOT EXISTS (SELECT 1 FROM skipped WHERE row = value)"""
        return [row for (row,) in self._connection.execute(query, (msgspec.json.encode(list(rows)).decode(),))]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with transaction(self._connection):
                yield
        except BaseException:
            # What was remembered may have been rolled back with it.
            self._known.clear()
            raise

    def _take(self, numbers: Sequence[int]) -> None:
        """Add the runs of these rows that are not there yet, and note those that cannot be."""
        self._connection.execute("SAVEPOINT taking")
        try:
            self._take_together(numbers)
        except UNREADABLE as error:
            self._connection.execute("ROLLBACK TO taking")
            self._known.clear()
            half = len(numbers) // 2
            for part in (numbers[:half], numbers[half:]) if half else ():
                self._take(part)
            if not half:
                self._note_skipped([skipped_record(row, encode(record), error) for row, _, record in self._source.read(numbers)])
        self._connection.execute("RELEASE taking")

    def _take_together(self, numbers: Sequence[int]) -> None:
        rows: list[tuple[object, ...]] = []
        bodies: list[tuple[int, bytes]] = []
        sessions: set[tuple[int, int | None]] = set()
        newest_of_series: dict[int, int | None] = {}
        skipped: list[SkippedRecord] = []
        for row, received_ns, record in self._source.read(self._absent(numbers), skipped.append):
            run = record if received_ns is None else placed(record, received_ns)
            text = slim_record(run)
            (number, template), figures = self._case(run, text), figures_of(record, received_ns)
            board = run.environment.board or UNKNOWN_BOARD
            series = self._known.series.get((number, board))
            if series is None:
                series = self._known.series[number, board] = self._series_number(series_of(run))
            figures = figures._replace(fingerprint=self._common_number(run, figures))
            reason = None if figures.is_usable else unusable(run)
            stored, own_values = stored_run(figures)
            session_ns = run.session_started_at_ns if has_siblings(run) else None
            rows.append((row, number, series, run.session, run.seq, reason, session_ns, None, None, *stored))
            bodies.append((row, pack_record(text, template, own_values)))
            newest_of_series[series] = row
            sessions.add((number, session_ns))
        self._note_skipped(skipped)
        if not rows:
            return
        self._connection.executemany(_INSERT, rows)
        self._connection.executemany("INSERT INTO bodies VALUES (?, ?)", bodies)
        self._mark_changed(sessions, newest_of_series)
        ids = msgspec.json.encode([row_values[OF_RUN.index("id")] for row_values in rows]).decode()
        same_id = "substr(measured.id, -8) = substr(json_each.value, -8) AND measured.id = json_each.value"
        query = f"SELECT count(*) FROM json_each(?) CROSS JOIN measured ON {same_id}"  # noqa: S608 - our own names
        has_repeats = self._connection.execute(query, (ids,)).fetchone()[0] != len(rows)
        self._connection.execute("UPDATE place SET runs = runs + ?, has_repeats = max(has_repeats, ?)", (len(rows), has_repeats))

    def _note_skipped(self, skipped: Sequence[SkippedRecord]) -> None:
        for record in skipped:
            warn_of_skipped(record)
            values = record.row, record.device, record.run, record.reason
            self._connection.execute("INSERT INTO skipped VALUES (?, ?, ?, ?)", values)
            self._connection.execute("UPDATE place SET runs = runs + 1")

    def _case(self, run: RunRecord, text: bytes) -> tuple[int, bytes]:
        """Return the number of the case of a run, and the record that its others are compressed against."""
        key = key_of(run)
        numbered = self._known.cases.get(key)
        if numbered is None:
            template, first = self._template(msgspec.structs.replace(key, device=""), text)
            name = _name_of(key)
            columns = ", ".join(("key", *FACETS, "template"))
            facets = (key.fleet, key.device, run.environment.board or UNKNOWN_BOARD, key.model, key.runtime, key.precision)
            insert = f"INSERT OR IGNORE INTO cases ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own names
            self._connection.execute(insert, (name, *facets, template))
            number = int(self._connection.execute("SELECT case_number FROM cases WHERE key = ?", (name,)).fetchone()[0])
            numbered = self._known.cases[key] = number, first
        return numbered

    def _template(self, key: CaseKey, text: bytes) -> tuple[int, bytes]:
        """Return the number and the text of the record that those of a case on any device are compressed against."""
        numbered = self._known.templates.get(key)
        if numbered is None:
            self._connection.execute("INSERT OR IGNORE INTO templates (name, text) VALUES (?, ?)", (_name_of(key), text))
            number, first = self._connection.execute("SELECT template, text FROM templates WHERE name = ?", (_name_of(key),)).fetchone()
            numbered = self._known.templates[key] = number, first
        return numbered

    def _common_number(self, run: RunRecord, figures: RunFigures) -> int:
        fingerprint = subject_of(run).fingerprint
        common = (fingerprint, *(getattr(figures, name) for name in COMMON))
        number = self._known.common.get(common)
        if number is None:
            name, text = msgspec.msgpack.encode(common), msgspec.json.encode(fingerprint).decode()
            columns = ", ".join(("name", "text", *COMMON))
            insert = f"INSERT OR IGNORE INTO common ({columns}) VALUES ({', '.join('?' * (2 + len(COMMON)))})"  # noqa: S608 - our own names
            self._connection.execute(insert, (name, text, *common[1:]))
            number = int(self._connection.execute("SELECT fingerprint FROM common WHERE name = ?", (name,)).fetchone()[0])
            self._known.common[common] = number
        return number

    def _series_number(self, key: SeriesKey) -> int:
        find = "SELECT series FROM series WHERE key = ?"
        text = msgspec.json.encode(key)
        row = self._connection.execute(find, (text,)).fetchone()
        if row is None:
            # Boards of unknown type have no type in common.
            of_type = self._series_number(key.of_type()) if key.device and key.board != UNKNOWN_BOARD else None
            sort_key = "\x01".join(series_order(key)) if key.device else ""
            insert = "INSERT INTO series (key, place, of_type, newest, version) VALUES (?, ?, ?, 0, 0)"
            return int(self._connection.execute(insert, (text, sort_key, of_type)).lastrowid or 0)
        return int(row[0])

    def _drop_removed(self, query: str, values: Sequence[str], remaining: Callable[[], Iterable[int]]) -> None:
        """Drop the runs of the query that the ledger has no more: too old, invalid after all, or stored anew with another row."""
        with self._writing():
            indexed = np.array(self._connection.execute(query, values).fetchall(), np.int64).ravel()
            gone = np.setdiff1d(indexed, np.fromiter(remaining(), np.int64)).tolist()
            marks = [(row,) for row in gone]
            find = "SELECT case_number, session_started_at_ns, series FROM measured WHERE row = ?"
            changed = {self._connection.execute(find, row).fetchone() for row in marks} - {None}
            for table in ("measured", "bodies", "skipped"):
                self._connection.executemany(f"DELETE FROM {table} WHERE row = ?", marks)  # noqa: S608 - our own names
            query = "SELECT coalesce(max(row), 0) FROM measured WHERE series = ?"
            newest = {series: self._connection.execute(query, (series,)).fetchone()[0] for *_, series in changed}
            self._mark_changed({(number, session_ns) for number, session_ns, _ in changed}, newest)
            for table in ("cases", "summaries", "stale"):
                query = f"DELETE FROM {table} WHERE case_number = ?1 AND NOT EXISTS (SELECT 1 FROM measured WHERE case_number = ?1)"  # noqa: S608
                self._connection.executemany(query, [(number,) for number, *_ in changed])
            self._known.clear()
            (has_repeats,) = self._connection.execute("SELECT count(*) != count(DISTINCT id) FROM measured").fetchone()
            self._connection.execute("UPDATE place SET runs = runs - ?, has_repeats = ?", (len(gone), has_repeats))

    def _mark_changed(self, sessions: Collection[tuple[int, int | None]], newest_of_series: dict[int, int | None]) -> None:
        """Judge the runs of these cases and sessions again; give the series, their newest rows given, and types the next version."""
        self._connection.executemany("INSERT OR IGNORE INTO stale VALUES (?)", [(number,) for number, _ in sessions])
        # Where its board is not known, a sibling is in another series.
        newest = dict.fromkeys(self._judge_together([session for session in sessions if session[1]])) | newest_of_series
        changed = [(row, number) for number, row in newest.items()]
        self._connection.executemany("UPDATE series SET version = version + 1, newest = coalesce(?, newest) WHERE series = ?", changed)
        find = "SELECT of_type FROM series WHERE series = ?"
        types = {self._connection.execute(find, (number,)).fetchone() for number in newest} - {(None,)}
        self._connection.executemany("UPDATE series SET version = version + 1 WHERE series = ?", types)

    def _judge_together(self, sessions: Sequence[tuple[int, int | None]]) -> Iterable[int]:
        """Store which runs of these cases and sessions lie apart from their siblings; return the series in which that changed."""
        query = """SELECT case_number, session_started_at_ns, row, series, latency_p50_ms, siblings_p50_ms, siblings
        FROM json_each(?) CROSS JOIN measured
        ON case_number = json_extract(value, '$[0]') AND session_started_at_ns = json_extract(value, '$[1]')"""
        runs = self._connection.execute(query, (msgspec.json.encode(sessions).decode(),))
        changed: list[tuple[float | None, int | None, int]] = []
        series: set[int] = set()
        for siblings in grouped(((number, session_ns), run) for number, session_ns, *run in runs).values():
            middle_ms, apart = apart_among([p50_ms for _, _, p50_ms, *_ in siblings])
            for index, (row, number, _, *stored) in enumerate(siblings):
                judged = (middle_ms, len(siblings)) if index in apart else (None, None)
                if judged != tuple(stored):
                    changed.append((*judged, row))
                    series.add(number)
        self._connection.executemany("UPDATE measured SET siblings_p50_ms = ?, siblings = ? WHERE row = ?", changed)
        return series

    def sum_up(self) -> None:
        """Sum up the cases whose runs changed, in portions, so that others may write in between."""
        (total,) = self._connection.execute("SELECT count(*) FROM stale").fetchone()
        completed = 0
        while True:
            with self._writing():
                query = "SELECT case_number FROM stale ORDER BY case_number LIMIT ?"
                numbers = [number for (number,) in self._connection.execute(query, (SUMMED_AT_ONCE,))]
                self._sum_up_some(numbers)
                self._connection.executemany("DELETE FROM stale WHERE case_number = ?", [(number,) for number in numbers])
            if not numbers:
                return
            completed += len(numbers)
            self._progress("summing up cases", completed, max(completed, total))

    def _sum_up_some(self, numbers: Sequence[int]) -> None:
        fingerprints: dict[int, Fingerprint] = {}
        starts = segment_starts([self._points(number, fingerprints) for number in numbers])
        for number, start in zip(numbers, starts, strict=True):
            try:
                since_ns = self._keep_summary(number, runs_of(self._connection, number), start)
            except UNREADABLE as error:
                since_ns = self._drop_summary(number, error)
            self._connection.execute("UPDATE cases SET since_ns = ? WHERE case_number = ?", (since_ns, number))
        self._connection.executemany(COUNT_CASE, [(number,) for number in numbers])

    def _keep_summary(self, number: int, runs: Sequence[RunRecord], start: SegmentStart | None) -> int:
        """Keep the summary of the usable runs of a case, of a changed level that of all runs, too; return since when runs count."""
        if not runs:
            self._connection.execute("DELETE FROM summaries WHERE case_number = ?", (number,))
            return 0
        all_days, first = CaseRuns(key_of(runs[0]), tuple(runs)), runs[0]
        now = current_case(all_days, start)
        summaries = *packed_summary(now), *(packed_summary(all_days) if now.segment else (None, None, None))
        values = number, first.started_at_ns, first.session or 0, first.seq or 0, *summaries
        self._connection.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        return now.segment.since_ns if now.segment else 0

    def _drop_summary(self, number: int, error: Exception) -> int:
        """Drop the summary of a case that cannot be summed up, so that the others are; return since when its runs count."""
        (key,) = self._connection.execute("SELECT key FROM cases WHERE case_number = ?", (number,)).fetchone()
        case = msgspec.json.decode(key, type=CaseKey)
        text = "cannot sum up the runs of %s on %s, which is left out: %s: %s"
        logger.warning(text, case.model, case.device, type(error).__name__, one_line(error), extra=about(case.device))
        self._connection.execute("DELETE FROM summaries WHERE case_number = ?", (number,))
        return 0

    def _points(self, number: int, fingerprints: dict[int, Fingerprint]) -> Points:
        """Return the usable runs of a case, oldest first, as the search for its current level reads them."""
        columns = ", ".join((*RUN_COLUMNS, *VALUE_COLUMNS))
        query = f"SELECT text, {columns} FROM measured JOIN common USING (fingerprint) WHERE case_number = ? AND is_usable {_IN_ORDER}"  # noqa: S608
        points = []
        for text, *row in self._connection.execute(query, (number,)):
            run = run_of_row(row)
            if run.fingerprint not in fingerprints:
                fingerprints[run.fingerprint] = msgspec.json.decode(text, type=Fingerprint)
            at_start = run if run.at_ns == run.started_at_ns else run._replace(at_ns=run.started_at_ns)
            points.append((level_figures(at_start), fingerprints[run.fingerprint]))
        return points


def _name_of(key: CaseKey) -> str:
    return msgspec.json.encode(key).decode()

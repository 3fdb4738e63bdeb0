"""Refreshing a roll-up: new runs are sorted into cases, removed ones are dropped, changed cases are summed up again."""

import dataclasses
import sqlite3
from collections.abc import Callable, Sequence

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.ledger import HeldRecord, Ledger
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.rollup import rollup_file
from edgemeter.collector.rollup.rollup_file import ROLLUP_TABLES, pack_record, slim_record, unpack_record
from edgemeter.collector.runs.cases import Case, CaseKey, key_of, unusable
from edgemeter.collector.runs.store import oldest_first
from edgemeter.collector.trend.current import current_cases

BATCH = 2000
SUMMED_AT_ONCE = 50
Progress = Callable[[str, int, int], None]

_pack_summary = msgspec.msgpack.Encoder().encode
_unpack_summary = msgspec.msgpack.Decoder(CaseSummary).decode


@dataclasses.dataclass(slots=True)
class _CaseSeen:
    """A case of the roll-up: its number, and the record that the others are compressed against."""

    number: int
    template: bytes


class RollupRefresher:
    """Refreshes the roll-up over `connection` from `ledger`; several processes may do so at once."""

    def __init__(self, connection: sqlite3.Connection, ledger: Ledger, progress: Progress) -> None:
        self._connection = connection
        self._ledger = ledger
        self._progress = progress
        self._cases: dict[CaseKey, _CaseSeen] = {}

    def refresh(self) -> None:
        """Add new runs, drop removed ones, sum up changed cases."""
        identity = f"{rollup_file.code_hash()} {self._ledger.epoch()}"
        with sqlite_file.transaction(self._connection):
            held = self._connection.execute("SELECT identity, position FROM place").fetchone()
            if held is None or held[0] != identity or held[1] > self._ledger.last_row():
                self._reset(identity)
        self._drop_removed()
        if self._add_new() and not self._is_complete():
            # Rows were removed from the middle, which the ledger does only to invalid records.
            with sqlite_file.transaction(self._connection):
                self._reset(identity)
            self._add_new()
        self._sum_up()

    def _reset(self, identity: str) -> None:
        for table in ROLLUP_TABLES:
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
        self._connection.execute("INSERT INTO place VALUES (?, 0, NULL)", (identity,))
        self._cases.clear()

    def _drop_removed(self) -> None:
        # Retention removes the lowest rows first.
        first = next((row for row, _, _ in self._ledger.texts(limit=1)), self._ledger.last_row() + 1)
        with sqlite_file.transaction(self._connection):
            gone = "SELECT DISTINCT case_number FROM runs WHERE row < ?"
            self._connection.execute(f"UPDATE cases SET is_stale = 1 WHERE case_number IN ({gone})", (first,))  # noqa: S608 - our own text
            self._connection.execute("DELETE FROM runs WHERE row < ?", (first,))
            self._connection.execute("DELETE FROM unusable WHERE row < ?", (first,))

    def _add_new(self) -> bool:
        """Add new runs; return whether there were any."""
        last = self._ledger.last_row()
        is_any = False
        while True:
            with sqlite_file.transaction(self._connection):
                position = int(self._connection.execute("SELECT position FROM place").fetchone()[0])
                batch = list(self._ledger.records(after_row=position, limit=BATCH))
                if batch:
                    self._keep(batch)
                    self._connection.execute("UPDATE place SET position = ?, has_repeats = NULL", (batch[-1].row,))
            if not batch:
                return is_any
            is_any = True
            self._progress("reading runs", batch[-1].row, last)

    def _keep(self, batch: Sequence[HeldRecord]) -> None:
        runs: list[tuple[int, int, bytes]] = []
        unusable_runs: list[tuple[object, ...]] = []
        for held in batch:
            record = placed(held.record, held.received_ns)
            text = slim_record(record)
            reason = unusable(record)
            if reason is None:
                case = self._case(key_of(record), text)
                runs.append((held.row, case.number, pack_record(text, case.template)))
            else:
                place = (held.row, record.started_at_ns, record.device, record.session, record.seq, record.role, record.id, reason)
                unusable_runs.append((*place, pack_record(text, b"")))
        self._connection.executemany("INSERT INTO runs VALUES (?, ?, ?)", runs)
        self._connection.executemany("INSERT INTO unusable VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", unusable_runs)
        changed = {(number,) for _, number, _ in runs}
        self._connection.executemany("UPDATE cases SET is_stale = 1 WHERE case_number = ?", changed)

    def _case(self, key: CaseKey, text: bytes) -> _CaseSeen:
        found = self._cases.get(key)
        if found is None:
            name = msgspec.msgpack.encode(key)
            statement = "INSERT INTO cases (key, template, is_stale) VALUES (?, ?, 1) ON CONFLICT DO NOTHING"
            self._connection.execute(statement, (name, text))
            number, template = self._connection.execute("SELECT case_number, template FROM cases WHERE key = ?", (name,)).fetchone()
            found = self._cases[key] = _CaseSeen(number, template)
        return found

    def _is_complete(self) -> bool:
        query = "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM unusable)"
        return int(self._connection.execute(query).fetchone()[0]) <= self._ledger.count()

    def _sum_up(self) -> None:
        stale = [number for (number,) in self._connection.execute("SELECT case_number FROM cases WHERE is_stale")]
        for start in range(0, len(stale), SUMMED_AT_ONCE):
            with sqlite_file.transaction(self._connection):
                self._sum_up_some(stale[start : start + SUMMED_AT_ONCE])
            self._progress("summing up cases", min(start + SUMMED_AT_ONCE, len(stale)), len(stale))

    def _sum_up_some(self, numbers: Sequence[int]) -> None:
        """Sum up the current level of each case, and all its days where those are more; a case without runs is removed."""
        cases: dict[int, Case] = {}
        for number in numbers:
            if runs := runs_of(self._connection, number):
                cases[number] = Case(key_of(runs[0]), tuple(runs))
            else:
                self._connection.execute("DELETE FROM cases WHERE case_number = ?", (number,))
                self._cases.clear()
        statement = "UPDATE cases SET summary = ?, all_days = ?, first_session = ?, first_seq = ?, is_stale = 0 WHERE case_number = ?"
        for (number, whole), current in zip(cases.items(), current_cases(list(cases.values())), strict=True):
            all_days = None if current.segment is None else _packed(whole)
            self._connection.execute(statement, (_packed(current), all_days, whole.runs[0].session, whole.runs[0].seq, number))


def _packed(case: Case) -> bytes:
    return _pack_summary(dataclasses.replace(summarise(case), runs=()))


def runs_of(connection: sqlite3.Connection, number: int) -> list[RunRecord]:
    """Return the usable runs of a case, oldest first, without the fields that the roll-up drops."""
    found = connection.execute("SELECT template FROM cases WHERE case_number = ?", (number,)).fetchone()
    bodies = connection.execute("SELECT body FROM runs WHERE case_number = ?", (number,))
    return oldest_first(unpack_record(body, found[0]) for (body,) in bodies) if found else []


def summary_of(body: bytes) -> CaseSummary:
    """Return a stored summary, without its runs."""
    return _unpack_summary(body)

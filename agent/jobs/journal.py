"""The journal of the orders of this device.

It has the progress of each, and the reports that the service has not acknowledged yet.

An order is stored here, on the disk, before any work on it; so it is carried out once, however
often it arrives and whenever the power fails. The process that carries an order out writes the
result here itself: its measurements count even if the daemon has died.
"""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.number_text import on_one_line
from edgemeter.agent.base.sqlite_file import Access, Database, FileFormat
from edgemeter.agent.contract.orders import (
    FINAL,
    ExecutionReport,
    JobState,
    Order,
    ReportReceipt,
    decode_report,
    encode_order,
)

JOURNAL_FILE = "jobs.sqlite"
# This many ended and acknowledged orders are kept, so that a repeated one is answered and not
# carried out again.
KEPT_EXECUTIONS = 2000
# A doctor's or log's output is long: it is kept for this many orders once the service has it.
KEPT_TEXTS = 20
_REASON_CHARACTERS = 2000
_TEXT_CHARACTERS = 200_000
_OPEN_STATES: tuple[JobState, ...] = ("accepted", "running", "repeating")

_SCHEMA = """CREATE TABLE executions (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    encoded BLOB NOT NULL,
    repeats TEXT,
    next_ns INTEGER,
    state TEXT NOT NULL,
    reason TEXT,
    is_measured INTEGER NOT NULL DEFAULT 0,
    runs TEXT NOT NULL DEFAULT '[]',
    text TEXT,
    version INTEGER NOT NULL,
    change INTEGER NOT NULL DEFAULT 1,
    noted_change INTEGER NOT NULL DEFAULT 0,
    report BLOB,
    report_change INTEGER,
    boot_id TEXT,
    arrived_ns INTEGER NOT NULL,
    started_ns INTEGER,
    ended_ns INTEGER,
    UNIQUE (job, attempt)
)"""
FORMAT = FileFormat(
    what="journal of jobs",
    application_id=0x45644A6F,  # "EdJo"
    version=1,
    schema=f"{_SCHEMA};\n",
    elsewhere="move it away (a new one is made: finished jobs may run again, and repeated ones "
    "have to be ordered again)",
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The present state of an order; `is_measured` when its last run is in the outbox.

    `repeats` names the job that this device repeats, None if the service ordered it; `next_ns` is
    when a repetition is due.
    """

    place: int
    order: Order
    repeats: str | None
    next_ns: int | None
    state: JobState
    reason: str | None
    is_measured: bool
    runs: tuple[str, ...]
    text: str | None
    boot_id: str | None
    arrived_ns: int
    started_ns: int | None
    ended_ns: int | None

    @property
    def is_final(self) -> bool:
        """Whether the order has ended and is acknowledged."""
        return self.state in FINAL


class Journal(Database):
    """The journal at `path`."""

    def __init__(self, path: Path, access: Access = "write") -> None:
        super().__init__(path, FORMAT, access)

    def find(self, job: str, attempt: int) -> JournalEntry | None:
        return next(iter(self._select("WHERE job = ? AND attempt = ?", job, attempt)), None)

    def read(self, number: int) -> JournalEntry | None:
        return next(iter(self._select("WHERE place = ?", number)), None)

    def open_ones(self) -> list[JournalEntry]:
        """Return the orders that have not ended, in order of arrival."""
        return self._select("WHERE state IN ('accepted', 'running') ORDER BY place")

    def repeating(self) -> list[JournalEntry]:
        """Return the repeated orders that are not cancelled, in order of arrival."""
        return self._select("WHERE state = 'repeating' ORDER BY place")

    def last_repetition(self, job: str) -> JournalEntry | None:
        """Return the latest repetition of that job, None before the first."""
        return next(iter(self._select("WHERE repeats = ? ORDER BY place DESC LIMIT 1", job)), None)

    def last_attempt(self, job: str) -> int:
        """Return the highest known attempt of that job, 0 if there is none."""
        return int(
            self.query("SELECT COALESCE(MAX(attempt), 0) AS n FROM executions WHERE job = ?", job)[
                0
            ]["n"]
        )

    def latest(self, limit: int) -> list[JournalEntry]:
        return self._select("ORDER BY place DESC LIMIT ?", limit)

    def add(
        self,
        order: Order,
        state: JobState = "accepted",
        reason: str | None = None,
        repeats: str | None = None,
    ) -> int:
        with self.transaction() as connection:
            number = (
                connection.execute(
                    "INSERT INTO executions (job, attempt, encoded, repeats, state, reason, "
                    "version, arrived_ns, ended_ns)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        order.job,
                        order.attempt,
                        encode_order(order),
                        repeats,
                        state,
                        _cut(reason),
                        order.version,
                        time.time_ns(),
                        time.time_ns() if state in FINAL else None,
                    ),
                ).lastrowid
                or 0
            )
            connection.execute(
                "DELETE FROM executions WHERE place <= ? AND ended_ns IS NOT NULL AND "
                "(noted_change = change OR repeats IS NOT NULL)",
                (number - KEPT_EXECUTIONS,),
            )
            connection.execute(
                "UPDATE executions SET text = NULL WHERE text IS NOT NULL AND place <= ? AND "
                "noted_change = change",
                (number - KEPT_TEXTS,),
            )
        return number

    def begins(self, number: int, boot_id: str | None) -> bool:
        """Note that it begins now, in this boot; return whether it was still to begin."""
        return self._change(
            number,
            "state = 'running', reason = NULL, boot_id = ?, started_ns = ?",
            boot_id,
            time.time_ns(),
            states=("accepted",),
        )

    def waits(self, number: int, reason: str | None) -> bool:
        """Note why it cannot begin or continue yet, or how it is repeated."""
        return self._change(number, "reason = ?", _cut(reason))

    def repeat(self, number: int, next_ns: int, reason: str) -> bool:
        """Note that it is repeated from now on, first at `next_ns`."""
        return self._change(
            number,
            "state = 'repeating', reason = ?, next_ns = ?",
            reason,
            next_ns,
            states=("accepted",),
        )

    def repeat_next(self, number: int, next_ns: int) -> None:
        """Note when it is due next, without a report."""
        self._write("UPDATE executions SET next_ns = ? WHERE place = ?", (next_ns, number))

    def kept(self, number: int, run: str, *, is_last: bool = False) -> None:
        """Note a run that is in the outbox.

        After the last one the order is done, even if its process dies.
        """
        self._write(
            "UPDATE executions SET runs = json_insert(runs, '$[#]', ?), is_measured = ? "
            "WHERE place = ?",
            (run, is_last, number),
        )

    def ends(
        self, number: int, state: JobState, reason: str | None = None, *, text: str | None = None
    ) -> bool:
        """Note how it ended; return False if it had ended before."""
        return self._change(
            number,
            "state = ?, reason = ?, text = ?, ended_ns = ?",
            state,
            _cut(reason),
            None if text is None else text[-_TEXT_CHARACTERS:],
            time.time_ns(),
        )

    def answer_again(self, number: int, version: int) -> None:
        """Report the state again, to a service that has the execution at `version` and asks."""
        self._write(
            "UPDATE executions SET version = ?, report = NULL, report_change = NULL, "
            "noted_change = 0 WHERE place = ?",
            (version, number),
        )

    def due(self, session: int) -> list[tuple[int, bytes]]:
        """Return numbers and reports of the executions whose state the service does not have.

        Each is encoded when first sent.
        """
        with self.transaction() as connection:
            for row in connection.execute(
                "SELECT * FROM executions WHERE repeats IS NULL AND report IS NULL AND "
                "noted_change < change ORDER BY place"
            ).fetchall():
                report = encode_order(
                    ExecutionReport(
                        job=row["job"],
                        attempt=row["attempt"],
                        expected_version=row["version"],
                        state=row["state"],
                        session=session,
                        reason=row["reason"],
                        text=row["text"],
                        runs=_runs(row),
                    )
                )
                connection.execute(
                    "UPDATE executions SET report = ?, report_change = change WHERE place = ?",
                    (report, row["place"]),
                )
        return [
            (number, report)
            for number, report in self.query(
                "SELECT place, report FROM executions WHERE report IS NOT NULL"
            )
        ]

    def has_due(self) -> bool:
        """Return whether there is a report that the service does not have."""
        return bool(
            self.query(
                "SELECT 1 FROM executions WHERE repeats IS NULL AND "
                "(report IS NOT NULL OR noted_change < change) LIMIT 1"
            )
        )

    def noted(self, noted: ReportReceipt) -> None:
        """Process an acknowledgement.

        If the service has another state, the report is sent again, expecting its version.
        """
        rows = self.query(
            "SELECT place, report FROM executions WHERE job = ? AND attempt = ?",
            noted.noted,
            noted.attempt,
        )
        if not rows:
            return
        number, report = rows[0]["place"], rows[0]["report"]
        statement = (
            "UPDATE executions SET version = :version, report = NULL, report_change = NULL WHERE "
            "place = :place AND version < :version"
        )
        if report is None or noted.state in {None, decode_report(report).state, *FINAL}:
            # The service has an outstanding report that expected an earlier version.
            statement = (
                "UPDATE executions SET noted_change = report_change, report = NULL, "
                "report_change = NULL, version = :version"
                " WHERE place = :place AND report IS NOT NULL AND version < :version"
            )
        self._write(statement, {"version": noted.version, "place": number})

    def _select(self, condition: str, *values: Any) -> list[JournalEntry]:
        entries = []
        # The SQL contains only our own text.
        for row in self.query(f"SELECT * FROM executions {condition}", *values):  # noqa: S608
            decoded = dict(row) | {
                "runs": _runs(row),
                "order": msgspec.json.decode(row["encoded"], type=Order),
                "is_measured": bool(row["is_measured"]),
            }
            entries.append(
                JournalEntry(**{field.name: decoded[field.name] for field in fields(JournalEntry)})
            )
        return entries

    def _change(
        self, number: int, changes: str, *values: Any, states: tuple[JobState, ...] = _OPEN_STATES
    ) -> bool:
        changed = self._write(
            # The SQL contains only our own names.
            f"UPDATE executions SET change = change + 1, {changes} WHERE place = ? "  # noqa: S608
            f"AND state IN ({', '.join('?' * len(states))})",
            (*values, number, *states),
        )
        return changed == 1

    def _write(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> int:
        """Execute one durable statement; return how many rows it changed."""
        with self.transaction() as connection:
            return connection.execute(statement, values).rowcount


def _runs(row: sqlite3.Row) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(row["runs"], type=list[str]))


def _cut(reason: str | None) -> str | None:
    return None if reason is None else on_one_line(reason)[:_REASON_CHARACTERS]

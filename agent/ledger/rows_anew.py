"""Rebuilds the rows of a ledger from its records.

It is needed if another version of Edgemeter made them with other figures or facts.
"""

import time
from collections.abc import Sequence
from math import isnan

import msgspec

from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import HeldChunk, SkippedRecord, chunk_text, warn_of_skipped
from edgemeter.agent.ledger.retention import remember
from edgemeter.agent.ledger.run_row import (
    ADD_SUBJECT,
    RUN_COLUMNS,
    StoredSubjects,
    cases_in_sessions,
    judge_siblings,
    row_of,
)

_MARKS = ", ".join("?" * (1 + len(RUN_COLUMNS)))
# The SQL contains only our own names.
_ADD = f"INSERT INTO runs (row, {', '.join(RUN_COLUMNS)}) VALUES ({_MARKS})"  # noqa: S608
_BEGINNING = """CREATE TABLE places AS SELECT row, chunk, place FROM runs;
CREATE INDEX places_of_chunk ON places (chunk);
DROP TABLE runs;
DROP TABLE subjects;
"""


def make_rows_anew(statements: Statements, tables: str) -> None:
    """Replace the rows and subjects in `tables`, within the caller's transaction.

    A record that this version does not accept has no row, so no view reads it; the quarantine names
    it for all of them.
    """
    for statement in (_BEGINNING + tables).split(";\n"):
        if statement.strip():
            statements.execute(statement)
    subjects = StoredSubjects()
    refused: list[SkippedRecord] = []
    for (chunk,) in statements.execute(
        "SELECT DISTINCT chunk FROM places ORDER BY chunk"
    ).fetchall():
        received_ns, body = statements.execute(
            "SELECT received_ns, body FROM chunks WHERE chunk = ?", (chunk,)
        ).fetchone()
        places = dict(
            statements.execute(
                "SELECT row, place FROM places WHERE chunk = ? ORDER BY row", (chunk,)
            ).fetchall()
        )
        chunk_records = HeldChunk(list(places.items()), received_ns, chunk_text(body))
        runs = {
            row: row_of(record, received_ns)
            for row, record in chunk_records.records(refused.append)
        }
        rows = [(row, *run.values, chunk, places[row]) for row, run in runs.items()]
        # Only SQLite stores NaN as NULL.
        statements.executemany(
            _ADD,
            [
                [None if isinstance(value, float) and isnan(value) else value for value in row]
                for row in rows
            ],
        )
        if new_subjects := subjects.new_among(runs.values()):
            statements.executemany(ADD_SUBJECT, new_subjects)
        judge_siblings(statements, cases_in_sessions(runs.values()))
    statements.execute("DROP TABLE places")
    _set_apart(statements, refused)


def _set_apart(statements: Statements, refused: Sequence[SkippedRecord]) -> None:
    """Name these records in the quarantine, and remember their numbers.

    They are kept as those of removed records, so they are not missing.
    """
    rejections = []
    for skipped in refused:
        warn_of_skipped(skipped)
        if (reference := skipped.reference) is not None:
            rejections.append(
                quarantine.Rejection(
                    str(Topic(reference.fleet, reference.device, "result")),
                    msgspec.json.encode(reference),
                    skipped.reason,
                    time.time_ns(),
                )
            )
            remember(statements, [(reference.device, reference.session, reference.seq)])
    quarantine.add(statements, rejections)

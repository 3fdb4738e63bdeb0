"""Makes the rows of a ledger anew from its records, where another version of Edgemeter made them: of other figures, or of other facts."""

import sqlite3

from edgemeter.agent.ledger.chunks import HeldChunk, chunk_text
from edgemeter.agent.ledger.run_row import (
    ADD_SUBJECT,
    ROWS_VERSION,
    RUN_COLUMNS,
    RUNS_SCHEMA,
    SUBJECTS_SCHEMA,
    StoredSubjects,
    cases_in_sessions,
    judge_siblings,
    row_of,
)

_MARKS = ", ".join("?" * (1 + len(RUN_COLUMNS)))
_ADD = f"INSERT INTO runs (row, {', '.join(RUN_COLUMNS)}) VALUES ({_MARKS})"  # noqa: S608 - our own names
_PLACES = "SELECT row, place FROM runs_before WHERE chunk = ? ORDER BY row"


def make_rows_anew(connection: sqlite3.Connection) -> None:
    """Replace the rows and their subjects, within the caller's transaction; a record that cannot be read is skipped with a warning."""
    indexes = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs' AND sql IS NOT NULL").fetchall()
    for (name,) in indexes:
        connection.execute(f"DROP INDEX {name}")
    (highest,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'runs'").fetchone()
    connection.execute("ALTER TABLE runs RENAME TO runs_before")
    connection.execute("CREATE INDEX runs_before_chunk ON runs_before (chunk)")
    connection.execute("DROP TABLE subjects")
    for statement in (SUBJECTS_SCHEMA + RUNS_SCHEMA).split(";\n"):
        connection.execute(statement)
    subjects = StoredSubjects()
    for chunk, received_ns, body in connection.execute("SELECT chunk, received_ns, body FROM chunks ORDER BY chunk"):
        places = dict(connection.execute(_PLACES, (chunk,)).fetchall())
        records = HeldChunk(list(places.items()), received_ns, chunk_text(body)).records()
        runs = {row: row_of(record, received_ns) for row, record in records}
        connection.executemany(_ADD, [(row, *run.values, chunk, places[row]) for row, run in runs.items()])
        connection.executemany(ADD_SUBJECT, subjects.new_among(runs.values()))
        judge_siblings(connection, cases_in_sessions(runs.values()))
    connection.execute("DROP TABLE runs_before")
    # A row that was removed is not given again.
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'runs'")
    connection.execute("INSERT INTO sqlite_sequence VALUES ('runs', ?)", (highest,))
    connection.execute("UPDATE identity SET rows = ?", (ROWS_VERSION,))

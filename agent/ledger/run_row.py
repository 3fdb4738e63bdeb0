"""The row of a run, with its figures as columns, made from the table of figures.

The row has the number of the run's subject too, which it shares with other runs.

Both kinds of ledger write and read the same columns, in the transaction that stores the record.
"""

import math
from collections.abc import Collection, Iterable
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.figures import takes_a_minute
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_time import off_by_ns
from edgemeter.agent.contract.run_figures import (
    ABSENT,
    VALUE_COLUMNS,
    is_timed,
    places_not_measured,
    temperature_before_c,
    values_of,
)
from edgemeter.agent.contract.run_subject import FACETS, RunSubject, number_of, subject_of
from edgemeter.agent.verdict.siblings import apart_among

# The columns that are written with the record, each with its type.
RUN_TYPES = {
    "device": "TEXT", "session": "INTEGER", "seq": "INTEGER", "id": "TEXT", "subject": "INTEGER",
    "case_number": "INTEGER", "verdict": "TEXT", "rules": "BLOB", "is_usable": "INTEGER",
    "takes_a_minute": "INTEGER", "started_at_ns": "INTEGER", "at_ns": "INTEGER",
    "session_started_at_ns": "INTEGER", "repeat": "INTEGER", "queries": "INTEGER",
    "temperature_before_c": "REAL", "job": "TEXT", **dict.fromkeys(VALUE_COLUMNS, "REAL"),
    "chunk": "INTEGER", "place": "INTEGER",
}  # fmt: skip
RUN_COLUMNS = tuple(RUN_TYPES)
# A ledger with another number was written by another version of Edgemeter. A test computes it from
# the rows of records, so that it changes with the tables, with the parts of a subject, and with the
# code that computes a figure or a fact.
ROWS_VERSION = 1483409220
_MAY_BE_ABSENT = {"rules", "session_started_at_ns", "temperature_before_c", "job", *VALUE_COLUMNS}
_DEFINITIONS = [
    f"{name} {kind}{'' if name in _MAY_BE_ABSENT else ' NOT NULL'}"
    for name, kind in RUN_TYPES.items()
]
RUNS_SCHEMA = f"""CREATE TABLE runs (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    {", ".join(_DEFINITIONS)},
    siblings_p50_ms REAL,
    siblings INTEGER,
    UNIQUE (device, session, seq)
);
CREATE INDEX runs_of_subject ON runs (subject, at_ns);
CREATE INDEX runs_of_session ON runs (session_started_at_ns, case_number) \
WHERE session_started_at_ns IS NOT NULL;
CREATE INDEX runs_apart ON runs (subject) WHERE siblings IS NOT NULL;
CREATE INDEX runs_of_job ON runs (job) WHERE job IS NOT NULL;
"""
SUBJECT_COLUMNS = (*FACETS, "case_number", "series", "body")
SUBJECTS_SCHEMA = f"""CREATE TABLE subjects (
    subject INTEGER PRIMARY KEY,
    {", ".join(f"{name} TEXT NOT NULL" for name in FACETS)},
    case_number INTEGER NOT NULL,
    series INTEGER NOT NULL,
    body BLOB NOT NULL
);
"""
ADD_SUBJECT = (
    # The SQL contains only our own names.
    f"INSERT INTO subjects VALUES (?, {', '.join('?' * len(SUBJECT_COLUMNS))}) ON "  # noqa: S608
    "CONFLICT DO NOTHING"
)
# The runs that can have siblings, of these sessions and cases. CROSS JOIN makes SQLite look each
# up, and read no others.
SIBLINGS = """\
SELECT session_started_at_ns, case_number, row, latency_p50_ms, siblings_p50_ms, siblings
FROM (VALUES {sessions}) AS touched CROSS JOIN runs \
WHERE session_started_at_ns = column1 AND case_number = column2
AND is_usable = 1 AND latency_p50_ms > 0 ORDER BY session_started_at_ns, case_number, row"""
_ID, _CASE, _SESSION = map(RUN_COLUMNS.index, ("id", "case_number", "session_started_at_ns"))
_CASE_OF_SUBJECT = 1 + SUBJECT_COLUMNS.index("case_number")
# The limit of remembered subjects, for records whose shared parts are not longer.
_MOST, _LONGEST_BYTES = 2_000, 16 << 10
_encode = msgspec.msgpack.Encoder().encode
decode_subject = msgspec.msgpack.Decoder(RunSubject).decode
_parts = attrgetter(
    "device", "fleet", "role", "model", "runtime", "precision", "batch", "inputs", "dataset",
    "environment", "operating_point", "cpus", "scenario", "mode", "provenance",
)  # fmt: skip
_energy = attrgetter("sensor", "scope", "excludes")
_accuracy = attrgetter("metric", "better", "images", "dataset_sha256", "normalisation")


class RecordKey(NamedTuple):
    """The number of a record among all fleets."""

    fleet: str
    device: str
    session: int
    seq: int


class RunRow(NamedTuple):
    """The row of a numbered record.

    It has the values of `RUN_COLUMNS` except chunk and place, and of `ADD_SUBJECT`.

    If `is_wrong_time`, the run's own time cannot be true; it has that of its receipt.
    """

    key: RecordKey
    subject: tuple[Any, ...]
    values: tuple[Any, ...]
    is_wrong_time: bool

    @property
    def id(self) -> str:
        return str(self.values[_ID])


class _Shared(NamedTuple):
    """The facts shared by all runs of one subject.

    They are values of `ADD_SUBJECT`, and the parts that were not measured.
    """

    subject: tuple[Any, ...]
    is_timed: bool
    places_not_measured: list[int]


_shared_facts: dict[bytes, _Shared] = {}


class StoredSubjects:
    """The subjects that a ledger has; call `forget` after a failed transaction."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def new_among(self, rows: Iterable[RunRow]) -> list[tuple[Any, ...]]:
        """Return the subjects of the rows that are to be stored, as values of `ADD_SUBJECT`.

        From now on they count as stored.
        """
        new = {row.subject[0]: row.subject for row in rows if row.subject[0] not in self._numbers}
        if len(self._numbers) >= _MOST:
            self._numbers.clear()
        self._numbers.update(new)
        return [*new.values()]

    def forget(self) -> None:
        self._numbers.clear()


def row_of(run: RunRecord, received_ns: int) -> RunRow:
    """Return the row of a numbered run; raises msgspec.ValidationError if it has no number."""
    if run.session is None or run.seq is None:
        raise msgspec.ValidationError(
            f"record {run.id!r} has no number: only numbered records enter the ledger"
        )
    likeness = likeness_of(run)
    subject, is_timed, places_not_measured = _shared_facts.get(likeness) or _remember(likeness, run)
    values = values_of(run)
    for index in places_not_measured:
        values[index] = ABSENT
    verdict = run.verdict
    is_wrong_time = off_by_ns(run.started_at_ns, received_ns) is not None
    started_at_ns = received_ns if is_wrong_time else run.started_at_ns
    temperature_c = temperature_before_c(run)
    row = (
        run.device,
        run.session,
        run.seq,
        run.id,
        subject[0],
        subject[_CASE_OF_SUBJECT],
        verdict.state,
        _encode((verdict.violations, verdict.notes))
        if verdict.violations or verdict.notes
        else ABSENT,
        int(is_timed and verdict.state != "invalid"),
        int(takes_a_minute(run)),
        started_at_ns,
        received_ns if run.clock_synchronised is False else started_at_ns,
        run.session_started_at_ns or ABSENT,
        run.repeat,
        run.latency.count,
        ABSENT if temperature_c is None else temperature_c,
        ABSENT if run.job is None else run.job,
        *values,
    )
    return RunRow(
        RecordKey(run.fleet, run.device, run.session, run.seq), subject, row, is_wrong_time
    )


def likeness_of(run: RunRecord) -> bytes:
    """Return a key that only runs of one subject share, in less time than computing the subject."""
    is_plain = (
        run.load is None and run.steady is None and run.together is None and run.generation is None
    )
    energy, accuracy = run.energy, run.accuracy
    return _encode(
        (
            _parts(run),
            None if is_plain else (key_of(run), run.together is None),
            energy and _energy(energy),
            accuracy and _accuracy(accuracy),
        )
    )


def _remember(likeness: bytes, run: RunRecord) -> _Shared:
    shared = _Shared(subject_row(subject_of(run)), is_timed(run), places_not_measured(run))
    if len(_shared_facts) >= _MOST:
        _shared_facts.clear()
    if len(likeness) <= _LONGEST_BYTES:
        _shared_facts[likeness] = shared
    return shared


def subject_row(subject: RunSubject) -> tuple[Any, ...]:
    """Return the values of `ADD_SUBJECT`."""
    body = _encode(subject)
    return (
        number_of(body),
        *subject.facets(),
        number_of(subject.key),
        number_of(subject.series),
        body,
    )


def cases_in_sessions(rows: Iterable[RunRow]) -> set[tuple[int, int]]:
    """Return the session's start and the case of those rows that belong to a session."""
    return {
        (session_ns, row.values[_CASE])
        for row in rows
        if not math.isnan(session_ns := row.values[_SESSION])
    }


def judge_siblings(statements: Statements, touched: Collection[tuple[int, int]]) -> None:
    """Mark the runs that differ from their siblings.

    It does so in the changed sessions (by their start) and cases.
    """
    if not touched:
        return
    sessions = ", ".join(["(CAST(? AS bigint), CAST(? AS bigint))"] * len(touched))
    runs = statements.execute(
        SIBLINGS.format(sessions=sessions), [number for pair in touched for number in pair]
    ).fetchall()
    changed = []
    for _, members in groupby(runs, itemgetter(0, 1)):
        siblings = list(members)
        middle_ms, apart = apart_among([p50_ms for *_, p50_ms, _, _ in siblings])
        for index, (_, _, row, _, *stored) in enumerate(siblings):
            judged = (middle_ms, len(siblings)) if index in apart else (None, None)
            if judged != tuple(stored):
                changed.append((*judged, row))
    if changed:
        statements.executemany(
            "UPDATE runs SET siblings_p50_ms = ?, siblings = ? WHERE row = ?", changed
        )

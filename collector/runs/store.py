"""Stores: the sources of runs.

They provide the rows for statistics and views, and the records; from ledgers or in memory.
"""

import contextlib
import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.number_text import short_id
from edgemeter.agent.base.postgres_address import is_postgres
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.agent.ledger.presence import DevicePresence, RetainedMessage
from edgemeter.agent.ledger.run_history import ID, LedgerRuns, nothing_called
from edgemeter.agent.ledger.run_row import (
    ADD_SUBJECT,
    RUN_COLUMNS,
    RUNS_SCHEMA,
    SUBJECTS_SCHEMA,
    cases_in_sessions,
    decode_subject,
    judge_siblings,
    row_of,
)
from edgemeter.collector.ledgers.place import (
    LedgerPlace,
    ledger_place,
    ledger_version,
    open_ledger,
)
from edgemeter.collector.runs.case_runs import (
    EVERY_COLUMN,
    CaseRuns,
    columns_of_rows,
    joined,
    read_as,
)
from edgemeter.collector.runs.contents import (
    LeftOut,
    StoreContents,
    left_out_of,
    oldest_first,
    read_document,
    unread_run,
)

Value = TypeVar("Value")
SQLITE_MAGIC = b"SQLite format 3\0"
# Values in one statement.
_AT_ONCE = 500
# Runs in the cache: those of the cases of a view.
_REMEMBERED = 30_000
# Counts by the index of subject and time, without reading rows.
_HELD = """SELECT subject, body, runs_held, newest_row, newest_ns FROM subjects JOIN (
    SELECT subject, count(*) AS runs_held, max(row) AS newest_row, max(at_ns) AS newest_ns \
FROM runs {of_device} GROUP BY subject
) AS held USING (subject)"""
_OF_DEVICE = "WHERE subject IN (SELECT subject FROM subjects WHERE device = ?)"
_APART = "SELECT subject, count(*) FROM runs WHERE siblings IS NOT NULL GROUP BY subject"


# Changes whenever the runs of a case's subjects change.
CaseVersion = tuple[tuple[int, int, int, int], ...]


class SubjectRuns(NamedTuple):
    """The runs of a subject, and how many of them differ from their siblings.

    `runs` is their number, up to the row `newest_row` and the time `newest_ns`.
    """

    number: int
    subject: RunSubject
    runs: int
    newest_row: int
    newest_ns: int
    apart: int


def version_of(members: Sequence[SubjectRuns]) -> CaseVersion:
    """Return a value that changes with the runs of these subjects."""
    return tuple(
        (member.number, member.runs, member.newest_row, member.apart) for member in members
    )


class RunStore(ABC):
    """Rows and records of runs. May be read from any thread.

    Every method raises:
        ConfigError: a ledger is damaged or invalid.
        TransientError: it is in use; retry.
        UnavailableError: its server does not answer.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._subjects: dict[int, RunSubject] = {}
        self._remembered: OrderedDict[CaseVersion, CaseRuns] = OrderedDict()

    @abstractmethod
    def query(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a query over the tables `runs` and `subjects`."""

    @abstractmethod
    def records(self, rows: Sequence[int], *, with_samples: bool = False) -> list[RunRecord]:
        """Return the records of these rows that can be read, in the order of their rows.

        Raw samples are read on request.
        """

    @abstractmethod
    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return every run that can be read, oldest first, and the omissions.

        Raw samples are read on request.
        """

    @abstractmethod
    def left_out(self) -> list[LeftOut]:
        """Return the entries without a row.

        They are quarantined messages, and parts of a document that are not runs.
        """

    @abstractmethod
    def left_out_count(self) -> int:
        """Return the number of entries without a row, without reading them."""

    @abstractmethod
    def version(self) -> str:
        """Return a text that changes with every commit."""

    def devices(self) -> Sequence[DevicePresence]:
        """Return the devices' reports."""
        return ()

    def retained(self) -> Sequence[RetainedMessage]:
        """Return the current activities: the latest message of each topic."""
        return ()

    def subject_runs(self, device: str | None = None) -> list[SubjectRuns]:
        """Return the runs of each subject, of one device if given."""
        apart = dict(self.query(_APART))
        query = _HELD.format(of_device="" if device is None else _OF_DEVICE)
        counted = []
        for number, body, runs, row, newest_ns in self.query(
            query, *([] if device is None else [device])
        ):
            subject = self._subjects.get(number)
            if subject is None:
                subject = self._subjects[number] = decode_subject(bytes(body))
            counted.append(SubjectRuns(number, subject, runs, row, newest_ns, apart.get(number, 0)))
        return counted

    def select(self, condition: str, *values: Any) -> list[RunFigures]:
        """Return the runs that fulfil a condition in SQL, oldest first."""
        return self.columns(condition, *values).oldest_first().each()

    def columns(
        self, condition: str, *values: Any, names: Sequence[str] = EVERY_COLUMN
    ) -> CaseRuns:
        """Return the runs that fulfil a condition in SQL, with the columns of these names.

        They are in any order.
        """
        names = tuple(dict.fromkeys(names))
        columns = columns_of_rows(
            names,
            self.query(
                f"SELECT {', '.join(map(read_as, names))} "  # noqa: S608 - our own names
                f"FROM runs WHERE {condition}",
                *values,
            ),
        )
        for part in _parts(sorted(set(columns["subject"].tolist()) - self._subjects.keys())):
            self._subjects.update(
                (number, decode_subject(bytes(body)))
                for number, body in self.query(
                    "SELECT subject, body FROM subjects "  # noqa: S608 - question marks
                    f"WHERE subject IN ({_marks(part)})",
                    *part,
                )
            )
        return CaseRuns(self._subjects, columns)

    def runs_of_cases(
        self, cases: Sequence[Sequence[SubjectRuns]], names: Sequence[str] = EVERY_COLUMN
    ) -> list[CaseRuns]:
        """Return the runs of each case, given all its subjects, oldest first.

        They have the columns of these names.
        """
        case_of = {member.number: case for case, members in enumerate(cases) for member in members}
        read = [
            self.columns(f"subject IN ({_marks(part)})", *part, names=names)
            for part in _parts(list(case_of))
        ]
        return joined(read).oldest_first().by_case(case_of, len(cases))

    def runs_of(self, members: Sequence[SubjectRuns]) -> CaseRuns:
        """Return the runs of a case, given all its subjects, oldest first.

        Those of the last cases are cached.
        """
        version = version_of(members)
        runs = self._remembered.get(version)
        if runs is None:
            (runs,) = self.runs_of_cases([members])
            with self._lock:
                self._remembered[version] = runs
                while (
                    len(self._remembered) > 1
                    and sum(map(len, self._remembered.values())) > _REMEMBERED
                ):
                    self._remembered.popitem(last=False)
        return runs

    def record(self, row: int, *, with_samples: bool = False) -> RunRecord:
        """Return the record of a row.

        It raises UnavailableError if the record cannot be read, or no longer exists.
        """
        records = self.records([row], with_samples=with_samples)
        if not records:
            raise UnavailableError(
                f"row {row} of {self} cannot be read, or no longer exists: it was deleted "
                "because of its age"
            )
        return records[0]


class LedgerStore(RunStore):
    """The ledger at `place`, opened to read for each call: a running collector is not disturbed."""

    def __init__(self, ledger: LedgerPlace) -> None:
        super().__init__()
        self.place = ledger

    def __str__(self) -> str:
        return f"the ledger {str(self.place)!r}"

    def query(self, statement: str, *values: Any) -> list[Any]:
        with open_ledger(self.place, "read") as ledger:
            return ledger.query(statement, *values)

    def records(self, rows: Sequence[int], *, with_samples: bool = False) -> list[RunRecord]:
        """Return the records as they were stored, whatever their clock says; see `RunStore`."""
        with open_ledger(self.place, "read") as ledger:
            return [
                entry.record
                for entry in ledger.records(rows=sorted(rows), with_samples=with_samples)
            ]

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return each run with the time of its receipt if its own cannot be true.

        See `RunStore`.
        """
        unread: list[LeftOut] = []
        with open_ledger(self.place, "read") as ledger:
            entries = ledger.records(
                with_samples=with_samples,
                skipped=lambda skipped: unread.append(unread_run(skipped)),
            )
            return StoreContents(
                oldest_first([placed(entry.record, entry.received_ns) for entry in entries]),
                [*left_out_of(ledger), *unread],
            )

    def left_out(self) -> list[LeftOut]:
        with open_ledger(self.place, "read") as ledger:
            return left_out_of(ledger)

    def left_out_count(self) -> int:
        with open_ledger(self.place, "read") as ledger:
            return ledger.left_out_count()

    def version(self) -> str:
        return ledger_version(self.place)

    def devices(self) -> Sequence[DevicePresence]:
        with open_ledger(self.place, "read") as ledger:
            return ledger.devices()

    def retained(self) -> Sequence[RetainedMessage]:
        with open_ledger(self.place, "read") as ledger:
            return ledger.retained()


class MemoryStore(RunStore):
    """Records in memory, oldest first, as rows of the same tables; a duplicate run is left out."""

    def __init__(self, records: Iterable[RunRecord], left_out: Sequence[LeftOut] = ()) -> None:
        super().__init__()
        by_id: dict[str, RunRecord] = {}
        self._left_out = list(left_out)
        for record in records:
            if record.id in by_id:
                self._left_out.append(LeftOut(record.id, "the same run was read twice"))
            by_id.setdefault(record.id, record)
        self._records = list(by_id.values())
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)
        self._connection.executescript(
            f"{SUBJECTS_SCHEMA}{RUNS_SCHEMA}CREATE TABLE chunks (chunk INTEGER PRIMARY KEY, "
            "received_ns INTEGER)"
        )
        # Numbered in order, because several ledgers may use the same numbers.
        numbered = [
            msgspec.structs.replace(record, session=1, seq=number)
            for number, record in enumerate(self._records, 1)
        ]
        runs = [row_of(record, record.started_at_ns) for record in numbered]
        self._connection.executemany(
            "INSERT INTO chunks VALUES (?, ?)",
            [(record.seq, record.started_at_ns) for record in numbered],
        )
        marks = ", ".join("?" * len(RUN_COLUMNS))
        self._connection.executemany(
            f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) "  # noqa: S608 - our own names
            f"VALUES ({marks})",
            [(*run.values, number, 0) for number, run in enumerate(runs, 1)],
        )
        self._connection.executemany(ADD_SUBJECT, {run.subject for run in runs})
        for part in _parts(sorted(cases_in_sessions(runs))):
            judge_siblings(self._connection, part)

    def __str__(self) -> str:
        return "what was read"

    def query(self, statement: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def records(self, rows: Sequence[int], *, with_samples: bool = False) -> list[RunRecord]:
        records = (self._records[row - 1] for row in sorted(rows))
        return [
            record if with_samples else msgspec.structs.replace(record, samples=())
            for record in records
        ]

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        return StoreContents(
            self.records(range(1, len(self._records) + 1), with_samples=with_samples),
            self._left_out,
        )

    def left_out(self) -> list[LeftOut]:
        return self._left_out

    def left_out_count(self) -> int:
        return len(self._left_out)

    def version(self) -> str:
        """Return a constant: it was read once."""
        return ""


def open_store(*where: str) -> RunStore:
    """Return the store at each `where`, several read as one.

    `where` is a file, the id of a run, or a PostgreSQL ledger.

    A ledger is read in place; all else is read into memory.

    Raises:
        ConfigError: there is none, or it is invalid, or nothing in it can be read.
    """
    stores = [_open_one(address) for address in where]
    if len(stores) == 1:
        return stores[0]
    parts = [store.contents(with_samples=True) for store in stores]
    return MemoryStore(
        oldest_first(run for part in parts for run in part.runs),
        [entry for part in parts for entry in part.left_out],
    )


def ledger_at(where: str) -> LedgerPlace | None:
    """Return the place of the ledger at `where`; None if there is something else, or nothing."""
    if is_postgres(where):
        return ledger_place(where)
    path = Path(where).expanduser()
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC:
            return path
    return None


def _open_one(where: str) -> RunStore:
    if (ledger := ledger_at(where)) is not None:
        return LedgerStore(ledger)
    path = Path(where).expanduser()
    if "://" in where:
        kinds = (
            "the collector's ledger, the output of `edgemeter run --format json`, or "
            "postgresql://USER@HOST/DATABASE"
        )
        raise ConfigError(f"{where!r} is not a store: give {kinds}")
    if path.is_dir():
        raise ConfigError(
            f"{where!r} is a folder: name the ledgers and documents in it; `compare` takes bundles"
        )
    if path.exists():
        document = read_document(path)
        return MemoryStore(document.runs, document.left_out)
    if ID.fullmatch(where) and default_path().exists():
        with open_ledger(default_path(), "read") as ledger_of_machine:
            run_id = LedgerRuns(ledger_of_machine).lookup(where)
        if run_id is not None:
            return MemoryStore([_run_of_ledger(run_id)])
    raise ConfigError(nothing_called(where))


def _run_of_ledger(run_id: str) -> RunRecord:
    with open_ledger(default_path(), "read") as ledger:
        history = LedgerRuns(ledger)
        if not history.is_counted(run_id):
            raise ConfigError(
                f"run {run_id} is excluded: count it again with `edgemeter runs include "
                f"{short_id(run_id)}`"
            )
        entry = history.entry(run_id, with_samples=True)
        return placed(entry.record, entry.received_ns)


def _parts(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    return (values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE))


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))

"""The summaries of cases as the index keeps them: read whole or the head first, the runs behind them on demand."""

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

import msgspec

from edgemeter.agent.base import deflate
from edgemeter.agent.base.evidence import RunValue
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.verdict.siblings import judged_apart
from edgemeter.collector.compare.case_figure import CaseFigure, RunValues
from edgemeter.collector.compare.summary import AccuracySummary, CaseSummary, DaysCounted, summarise
from edgemeter.collector.index.index_file import unpack_record
from edgemeter.collector.index.stored_runs import BESIDE_BODY
from edgemeter.collector.runs.cases import CaseRuns, CurrentSegment
from edgemeter.collector.runs.store import LeftOut

# Gives a connection to the index for as long as something is read.
OpenIndex = Callable[[], contextlib.AbstractContextManager[sqlite3.Connection]]
Part = TypeVar("Part")

_BACKWARDS = "ORDER BY started_at_ns DESC, coalesce(session, 0) DESC, coalesce(seq, 0) DESC, row DESC LIMIT ?"


class SummaryHead(msgspec.Struct, frozen=True, array_like=True):
    """The facts by which every case is paired, ranked and sorted, so that only the displayed cases are read in full."""

    key: CaseKey
    p50_ms: CaseFigure | None
    accuracy: AccuracySummary | None
    left_out: tuple[LeftOut, ...]
    generates: bool
    board: str | None
    segment: CurrentSegment | None


_HEAD = SummaryHead.__struct_fields__
_REST = [name for name in CaseSummary.__slots__ if name not in {*_HEAD, "runs", "run_ids", "run_values"}]
_pack = msgspec.msgpack.Encoder().encode
_decode_summary = msgspec.msgpack.Decoder(CaseSummary).decode
_unpack_head = msgspec.msgpack.Decoder(SummaryHead).decode
_unpack_values = msgspec.msgpack.Decoder(RunValues).decode


@dataclasses.dataclass(slots=True)
class PartsOfCase(Sequence[Part]):
    """One part of each run of a case, oldest first: read on first access; where only the newest are requested, only they are read."""

    opened: OpenIndex
    number: int
    length: int
    read: Callable[[sqlite3.Connection, int, int], Sequence[Part]]
    # The newest of them.
    _read: Sequence[Part] = ()

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | Sequence[Part]:
        start = index if isinstance(index, int) else index.start if index.stop is index.step is None else None
        newest = min(-start, self.length) if start is not None and start < 0 else self.length
        if len(self._read) < newest:
            with self.opened() as connection:
                self._read = self.read(connection, self.number, newest)
        return self._read[index]


@dataclasses.dataclass(slots=True)
class StoredValues:
    """The `RunValues` of a case, read on first access."""

    opened: OpenIndex
    number: int
    columns: str
    _read: RunValues | None = None

    def of(self, name: str) -> list[RunValue]:
        """Return the values of a figure that the case has, each with its device, day and turn."""
        if self._read is None:
            query = f"SELECT {self.columns} FROM summaries WHERE case_number = ?"  # noqa: S608 - our own names
            with self.opened() as connection:
                head, packed = connection.execute(query, (self.number,)).fetchone()
            self._read = _unpack_values(deflate.expand_beside(packed, head))
        return self._read.of(name)


class StoredSummary(CaseSummary):
    """A summary of which the head is there, and the rest is read when it is asked for."""

    __slots__ = ("_columns",)
    _columns: str

    def __getattr__(self, name: str) -> Any:
        if name not in CaseSummary.__slots__ or not isinstance(self.runs, PartsOfCase):
            raise AttributeError(name)
        with self.runs.opened() as connection:
            self.read_rest(connection, self.runs.number)
        return getattr(self, name)

    def read_rest(self, connection: sqlite3.Connection, number: int) -> None:
        """Read what the head does not have of the case of this number."""
        query = f"SELECT {self._columns} FROM summaries WHERE case_number = ?"  # noqa: S608 - our own names
        summary = _unpack_summary(*connection.execute(query, (number,)).fetchone())
        for name in _REST:
            object.__setattr__(self, name, getattr(summary, name))


def packed_summary(case: CaseRuns) -> tuple[bytes, bytes, bytes]:
    """Return the head of the summary of a case; and, compressed beside it, the summary without its runs and the values of these."""
    summary = summarise(case)
    head = _pack(SummaryHead(*(getattr(summary, name) for name in _HEAD)))
    without_runs = dataclasses.replace(summary, runs=(), run_ids=(), run_values=RunValues((), {}))
    return head, deflate.compress_beside(_pack(without_runs), head), deflate.compress_beside(_pack(summary.run_values), head)


def _unpack_summary(head: bytes, body: bytes) -> CaseSummary:
    return _decode_summary(deflate.expand_beside(body, head))


def read_summaries(
    connection: sqlite3.Connection, opened: OpenIndex, days: DaysCounted, numbers: Sequence[int] | None = None, *, in_full: bool = True
) -> Iterator[CaseSummary]:
    """Yield the summaries of all cases, or of those of the `numbers`, in the order in which each first ran.

    Unless `in_full`, what is not asked for of a summary is not read. A case without a usable run has none.
    """
    columns = ("head", "summary", "run_values")
    head, summary, values_column = columns if days == "current" else [f"coalesce({name}_of_all, {name})" for name in columns]
    narrowed = "" if numbers is None else "WHERE case_number IN (SELECT value FROM json_each(?))"
    values = () if numbers is None else (msgspec.json.encode(numbers).decode(),)
    query = f"""SELECT case_number, usable, {head}, {summary if in_full else "NULL"}
    FROM summaries JOIN cases USING (case_number) {narrowed}
    ORDER BY started_at_ns, device, session, seq"""  # noqa: S608 - our own names
    for number, usable, packed_head, body in connection.execute(query, values):
        unpacked = _unpack_summary(packed_head, body) if in_full else _unpack_head(packed_head)
        length = usable - (unpacked.segment.earlier if unpacked.segment else 0)
        members = {
            "runs": PartsOfCase(opened, number, length, runs_of),
            "run_ids": PartsOfCase(opened, number, length, ids_of),
            "run_values": StoredValues(opened, number, f"{head}, {values_column}"),
        }
        if isinstance(unpacked, CaseSummary):
            yield dataclasses.replace(unpacked, **members)  # type: ignore[arg-type]
            continue
        stored = StoredSummary.__new__(StoredSummary)
        for name, value in ({name: getattr(unpacked, name) for name in _HEAD} | members | {"_columns": f"{head}, {summary}"}).items():
            object.__setattr__(stored, name, value)
        yield stored


def of_newest_runs(case: CaseSummary, newest: int) -> CaseSummary:
    """Return the summary of only the newest runs of a stored case, computed because it is not stored."""
    summary = summarise(CaseRuns(case.key, tuple(case.runs[-newest:]), case.segment))
    lazy = {
        name: dataclasses.replace(part, length=len(summary.runs), _read=()) for name in ("runs", "run_ids") if (part := getattr(case, name))
    }
    return dataclasses.replace(summary, **lazy)


def runs_of(connection: sqlite3.Connection, number: int, newest: int = -1, *, usable: bool = True) -> list[RunRecord]:
    """Return the usable runs of a case (or all), or the newest so many, oldest first, without the fields that the index leaves away."""
    template = connection.execute("SELECT text FROM cases JOIN templates USING (template) WHERE case_number = ?", (number,)).fetchone()
    query = f"""SELECT siblings_p50_ms, siblings, body, {BESIDE_BODY} FROM measured JOIN bodies USING (row)
    WHERE case_number = ? AND is_usable >= ? {_BACKWARDS}"""  # noqa: S608 - our own names
    runs = []
    for siblings_p50_ms, siblings, body, *own_values in reversed(connection.execute(query, (number, usable, newest)).fetchall()):
        run = unpack_record(body, template[0], own_values)
        runs.append(judged_apart(run, siblings_p50_ms, siblings) if siblings else run)
    return runs


def ids_of(connection: sqlite3.Connection, number: int, newest: int) -> tuple[str, ...]:
    """Return the ids of the newest so many usable runs of a case, oldest first."""
    query = f"SELECT id FROM measured WHERE case_number = ? AND is_usable {_BACKWARDS}"  # noqa: S608 - our own names
    return tuple(run for (run,) in connection.execute(query, (number, newest)))[::-1]

"""The ledger: the store of runs, measured on this machine or received by a collector.

A collector sends a receipt only for committed records. `SqliteLedger` is a file of one machine;
`PostgresLedger` is a database server shared by several collectors. This module has the statements
that both understand.
"""

import operator
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.chunks import (
    Arrival,
    ArrivedBatch,
    Committed,
    HeldChunk,
    SkippedRecord,
    coalesce,
    unpack_chunk,
    warn_of_skipped,
)
from edgemeter.agent.ledger.run_row import RecordKey

if TYPE_CHECKING:
    from edgemeter.agent.ledger import presence, quarantine
    from edgemeter.agent.ledger.quarantine import Rejection
    from edgemeter.agent.ledger.retention import Retention, RetentionRemoved

_Opened = TypeVar("_Opened", bound="Ledger")

GROWTH_DAYS = 7  # The growth per day is the mean over this many of the last days.
# The duration of a lease without renewal.
LEASE_S = 10.0
_POSITIONS = "SELECT name, position FROM sinks ORDER BY name"
_SET_POSITION = (
    "INSERT INTO sinks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET position = excluded.position"
)
_SESSIONS = """SELECT fleet, sessions.device, sessions.session, records, highest, received_ns
FROM (SELECT device, session, count(*) AS records, max(seq) AS highest, max(row) AS newest \
FROM runs GROUP BY device, session) AS sessions
JOIN runs ON runs.row = newest JOIN subjects USING (subject) JOIN chunks USING (chunk)"""


class StoredText(NamedTuple):
    """The JSON text of a record, with its row and the time of its receipt."""

    row: int
    received_ns: int
    payload: bytes


class HeldRecord(NamedTuple):
    """One record in the ledger; `row` increases in the order of commits."""

    row: int
    received_ns: int
    record: RunRecord


LEDGER_FILE = "ledger.sqlite"


def default_path() -> Path:
    """Return the ledger of this machine: `ledger.sqlite` in $EDGEMETER_HOME."""
    return config.home() / LEDGER_FILE


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """A part of the disk space."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """A ledger in numbers.

    Times are None if it is empty; `growth_bytes_per_day` is the mean of the days before the newest
    record.

    `safety` states on how many disks a record is when its receipt is sent.
    """

    path: str
    runs: int
    devices: int
    cases: int
    verdicts: dict[str, int]
    first_received_ns: int | None
    last_received_ns: int | None
    chunks: int
    chunks_with_samples: int
    quarantined: int
    sinks: dict[str, int]
    last_row: int
    growth_bytes_per_day: float | None
    parts: tuple[LedgerPart, ...]
    safety: str = "one disk"

    @property
    def size_bytes(self) -> int:
        """The size of all parts."""
        return sum(part.size_bytes for part in self.parts)


class Ledger(ABC):
    """An open ledger; `where` is its path or address in words.

    Use one object per thread; readers and writers do not block each other.

    Every method may block for the time of a database's transaction, and raises:
        ConfigError: it is damaged, of another version, or not accessible in this way.
        UnavailableError: its disk is full, or its server does not answer; nothing is committed.
        TransientError: another process holds it; nothing is committed, retry.
    """

    # The statement that replaces the body of a chunk: body, number of the chunk.
    set_body = "UPDATE chunks SET body = ? WHERE chunk = ?"
    where: str

    def __enter__(self: _Opened) -> _Opened:  # noqa: PYI019 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it; may be called twice."""

    @abstractmethod
    def query(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a query."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Statements]:
        """Return a context that executes statements in one transaction, alone among writers.

        It is durable when the block ends.
        """

    @abstractmethod
    def identity(self) -> str:
        """Return the random id of the ledger, created with it: 16 hexadecimal digits."""

    @abstractmethod
    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: "Sequence[Rejection]" = (),
        changes: "Sequence[presence.PresenceChange | presence.RetainedMessage]" = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        """Commit the arrivals in one transaction, durable when this returns; return the outcome.

        A record whose number belongs to another record is quarantined, as are the `rejections`;
        `changes` are the devices' reports about themselves.
        """

    @abstractmethod
    def forget(self, retention: "Retention", now_ns: int) -> "RetentionRemoved":
        """Remove one slice of the data that `retention` does not keep.

        Call it again until all is removed.
        """

    @abstractmethod
    def chunks(self, *, after_row: int = 0) -> Iterator[HeldChunk]:
        """Yield the records after `after_row` in the order of commits.

        They are grouped as they are stored.
        """

    @abstractmethod
    def chunks_at(self, rows: Sequence[int]) -> Iterator[HeldChunk]:
        """Yield the records of these rows, in order, without others in the same chunk."""

    @abstractmethod
    def parts(self) -> tuple[LedgerPart, ...]:
        """Return the parts of the ledger with their disk space."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the disk space of the ledger."""

    def safety(self) -> str:
        """Return when a record is acknowledged, in words: on how many disks it is then."""
        return "once written to this disk (no replica)"

    def received_ns_of(self, keys: Iterable[RecordKey]) -> dict[RecordKey, int]:
        """Return when each of these records was received, UTC; removed records are missing."""
        sequences: dict[tuple[str, str, int], set[int]] = defaultdict(set)
        for fleet, device, session, seq in keys:
            sequences[fleet, device, session].add(seq)
        query = (
            "SELECT seq, received_ns FROM runs JOIN chunks USING (chunk) WHERE device = ? AND "
            "session = ? AND seq BETWEEN ? AND ?"
        )
        return {
            RecordKey(fleet, device, session, seq): received_ns
            for (fleet, device, session), seqs in sequences.items()
            for seq, received_ns in self.query(query, device, session, min(seqs), max(seqs))
            if seq in seqs
        }

    def lease(self, work: str) -> bool:  # noqa: ARG002 - of a ledger that several collectors share
        """Return whether this object has the lease on `work` for the next `LEASE_S`.

        One object has it at a time. Call again to renew.
        """
        return True

    def records(
        self,
        *,
        with_samples: bool = False,
        after_row: int = 0,
        rows: Sequence[int] | None = None,
        skipped: Callable[[SkippedRecord], object] = warn_of_skipped,
    ) -> Iterator[HeldRecord]:
        """Yield the records after `after_row`, or those of the `rows`, in the order of commits.

        Samples are read on request.

        A record that cannot be read is left out, and `skipped` is called with it.
        """
        for chunk in self.chunks(after_row=after_row) if rows is None else self.chunks_at(rows):
            for row, record in chunk.records(skipped):
                has_surplus = record.samples and not with_samples
                yield HeldRecord(
                    row,
                    chunk.received_ns,
                    msgspec.structs.replace(record, samples=()) if has_surplus else record,
                )

    def texts(self, *, after_row: int = 0) -> Iterator[StoredText]:
        """Yield the JSON texts of the records after `after_row`.

        They are in the order of commits.
        """
        for chunk in self.chunks(after_row=after_row):
            for row, payload in chunk.payloads():
                yield StoredText(row, chunk.received_ns, payload)

    def text(self, record: "RunRecord | quarantine.RecordReference") -> bytes | None:
        """Return the stored JSON text of a record with its samples; None if it is not stored."""
        query = (
            "SELECT place, body FROM runs JOIN chunks USING (chunk) WHERE device = ? AND session "
            "= ? AND seq = ? AND id = ?"
        )
        return next(
            (
                unpack_chunk(body)[index]
                for index, body in self.query(
                    query, record.device, record.session, record.seq, record.id
                )
            ),
            None,
        )

    def ranges(self, device: str, session: int) -> list[tuple[int, int]]:
        """Return the ranges of sequence numbers (inclusive) of one session, in order."""
        return coalesce(
            seq
            for (seq,) in self.query(
                "SELECT seq FROM runs WHERE device = ? AND session = ? ORDER BY seq",
                device,
                session,
            )
        )

    def count(self) -> int:
        return int(self._value("SELECT count(*) FROM runs"))

    def last_row(self) -> int:
        """Return the row of the newest record, 0 if there is none."""
        return int(self._value("SELECT coalesce(max(row), 0) FROM runs"))

    def positions(self) -> dict[str, int]:
        """Return the position of each sink, by its name."""
        return dict(self.query(_POSITIONS))

    def position(self, sink: str) -> int:
        """Return the row up to which `sink` has every record; 0 at first."""
        return self.positions().get(sink, 0)

    def advance(
        self,
        sink: str,
        position: int,
        rejections: "Sequence[Rejection]" = (),
        *,
        after: int | None = None,
    ) -> bool:
        """Record that `sink` has every record up to row `position`.

        The `rejections`, which are quarantined, are excepted.

        If `after` is given and is not the present position, another collector has drained, or it
        was set back: it is unchanged, and False is returned.
        """
        # A list of runs does not read it.
        from edgemeter.agent.ledger import quarantine  # noqa: PLC0415

        with self.writing() as statements:
            quarantine.add(statements, rejections)
            is_expected = (
                after is None
                or dict(statements.execute(_POSITIONS).fetchall()).get(sink, 0) == after
            )
            if is_expected:
                statements.execute(_SET_POSITION, (sink, position))
        return is_expected

    def set_back(self, name: str, since_ns: int | None) -> int:
        """Set the position `name` back before records received since then.

        None goes back to the beginning. Returns how many records follow.
        """
        query = (
            "SELECT coalesce(min(row) - 1, (SELECT max(row) FROM runs), 0) FROM runs JOIN chunks "
            "USING (chunk) WHERE received_ns >= ?"
        )
        row = 0 if since_ns is None else int(self._value(query, since_ns))
        with self.writing() as statements:
            statements.execute(
                "UPDATE sinks SET position = ? WHERE name = ? AND position > ?", (row, name, row)
            )
        return self.behind(name)

    def behind(self, name: str) -> int:
        """Return how many records follow the position `name`."""
        return int(
            self._value(
                "SELECT count(*) FROM runs WHERE row > (SELECT position FROM sinks WHERE name = ?)",
                name,
            )
        )

    def waiting_since_ns(self, position: int) -> int | None:
        """Return when the oldest record after row `position` was received, UTC in ns.

        None if there is none.
        """
        rows = self.query(
            "SELECT received_ns FROM runs JOIN chunks USING (chunk) WHERE row > ? ORDER "
            "BY row LIMIT 1",
            position,
        )
        return int(rows[0][0]) if rows else None

    def quarantined(self) -> "list[quarantine.QuarantinedMessage]":
        """Return the quarantined messages, oldest first."""
        # A list of runs does not read it.
        from edgemeter.agent.ledger import quarantine  # noqa: PLC0415

        return [
            quarantine.QuarantinedMessage(*row)
            for row in self.query(
                "SELECT row, topic, payload, size_bytes, reason, received_ns, last_ns, times FROM "
                "quarantine ORDER BY row"
            )
        ]

    def quarantined_count(self) -> int:
        return int(self._value("SELECT count(*) FROM quarantine"))

    def left_out_count(self) -> int:
        """Return how many quarantined messages are of devices.

        No view has their records.
        """
        # A list of runs does not read it.
        from edgemeter.agent.ledger import quarantine  # noqa: PLC0415

        # The SQL contains only our own words.
        return int(
            self._value(
                "SELECT count(*) FROM quarantine "  # noqa: S608
                f"WHERE {quarantine.FROM_DEVICES}"
            )
        )

    def sessions(self) -> "list[presence.SessionHeld]":
        """Return every session of every device, with its stored records.

        The number of missing ones is returned too.
        """
        from edgemeter.agent.ledger import presence  # noqa: PLC0415 - a list of runs reads neither

        forgotten: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for device, session, first, last in self.query(
            "SELECT device, session, first, last FROM forgotten"
        ):
            forgotten[device, session].append((first, last))
        sessions = []
        for fleet, device, session, records, highest, received_ns in self.query(_SESSIONS):
            gone = sum(
                max(0, min(last, highest) - first + 1) for first, last in forgotten[device, session]
            )
            sessions.append(
                presence.SessionHeld(
                    fleet, device, session, records, highest - records - gone, received_ns
                )
            )
        return sorted(sessions, key=operator.attrgetter("fleet", "device", "session"))

    def devices(self) -> "list[presence.DevicePresence]":
        """Return every device that reported its presence, by fleet and name."""
        from edgemeter.agent.ledger import presence  # noqa: PLC0415 - a list of runs reads neither

        return [
            presence.present_device(*row)
            for row in self.query(
                "SELECT fleet, device, state, session, birth, changed_ns, health FROM presence "
                "ORDER BY fleet, device"
            )
        ]

    def backlogs(self) -> "list[presence.DeviceBacklog]":
        """Return the state and the backlog of every device, without the rest of its reports."""
        from edgemeter.agent.ledger import presence  # noqa: PLC0415 - a list of runs reads neither

        return [presence.backlog(*row) for row in self.query("SELECT state, health FROM presence")]

    def retained(self) -> "list[presence.RetainedMessage]":
        """Return the current activities: the latest message of each topic, by topic."""
        from edgemeter.agent.ledger import presence  # noqa: PLC0415 - a list of runs reads neither

        return [
            presence.RetainedMessage(*row)
            for row in self.query("SELECT topic, payload, received_ns FROM retained ORDER BY topic")
        ]

    def stats(self) -> LedgerStats:
        """Return the ledger in numbers, without reading records."""
        first_ns, last_ns, chunks = self.query(
            "SELECT min(received_ns), max(received_ns), count(*) FROM chunks"
        )[0]
        kinds = self.query(
            "SELECT device, case_number, verdict, count(*) FROM runs GROUP BY device, "
            "case_number, verdict"
        )
        verdicts: Counter[str] = Counter()
        for _, _, verdict, count in sorted(kinds, key=operator.itemgetter(2)):
            verdicts[verdict] += count
        return LedgerStats(
            path=self.where, runs=verdicts.total(), devices=len({device for device, *_ in kinds}),
            cases=len({case for _, case, *_ in kinds}), verdicts=dict(verdicts),
            first_received_ns=first_ns, last_received_ns=last_ns, chunks=chunks,
            quarantined=self.quarantined_count(), sinks=self.positions(),
            chunks_with_samples=int(self._value("SELECT count(*) FROM chunks WHERE has_samples")),
            last_row=self.last_row(), growth_bytes_per_day=self._growth(last_ns),
            parts=self.parts(), safety=self.safety(),
        )  # fmt: skip

    def _growth(self, last_ns: int | None) -> float | None:
        if last_ns is None:
            return None
        size_bytes, first_ns = self.query(
            "SELECT coalesce(sum(length(body)), 0), min(received_ns) FROM chunks WHERE "
            "received_ns > ?",
            last_ns - GROWTH_DAYS * NS_PER_DAY,
        )[0]
        days = (last_ns - first_ns) / NS_PER_DAY
        return float(size_bytes) / days if days >= 1 else None

    def _value(self, query: str, *values: Any) -> Any:
        return self.query(query, *values)[0][0]

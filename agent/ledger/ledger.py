"""The ledger: where runs are kept, those that this machine measures and those that a collector receives.

A collector sends a receipt only for what it has committed. `SqliteLedger` is a file of one machine; a database server that several
collectors share is behind the same protocol.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Protocol

from edgemeter.agent.base import config
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch, Committed, HeldChunk
from edgemeter.agent.ledger.presence import DevicePresence, PresenceChange, RetainedMessage, SessionHeld
from edgemeter.agent.ledger.quarantine import QuarantinedMessage, RecordReference, Rejection
from edgemeter.agent.ledger.retention import Retention, RetentionRemoved


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """One record in the ledger; `row` increases in the order of commits."""

    row: int
    received_ns: int
    record: RunRecord


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """Which records: every field that is not None must match."""

    device: str | None = None
    fleet: str | None = None
    role: str | None = None
    model: str | None = None
    runtime: str | None = None
    precision: str | None = None
    task: str | None = None
    dataset_sha256: str | None = None
    scenario: str | None = None
    verdict: str | None = None

    def wanted(self) -> dict[str, str]:
        """Return the fields that are not None."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}


EVERY_RECORD = LedgerFilter()


# The growth per day is the mean over this many of the last days.
GROWTH_DAYS = 7
# How long a lease lasts that is not prolonged.
LEASE_S = 10.0


def default_path() -> Path:
    """Return the ledger of this machine: `ledger.sqlite` in $EDGEMETER_HOME."""
    return config.home() / "ledger.sqlite"


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """A part of the disk space."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """A ledger in numbers. Times are None if it is empty; `growth_bytes_per_day` is the mean of the days before the newest record.

    `safety` says on how many disks a record is when its receipt is sent.
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


class Ledger(Protocol):
    """A ledger, open. Use one object per thread; readers and writers do not block each other.

    Every method may block for the time of a database's transaction, and raises:
        ConfigError: it is damaged, of another version, or may not be used in this way: somebody has to fix it.
        UnavailableError: its disk is full, or its server does not answer; nothing is committed.
        TransientError: somebody else holds it; nothing is committed, retry.
    """

    # Whether `commit` accepts records of which only the envelope was validated, and `check` validates them later.
    defers_checks: bool

    def __enter__(self) -> "Ledger": ...  # noqa: PYI034 - Self needs Python 3.11

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def close(self) -> None:
        """Close it; may be called twice."""

    def identity(self) -> str:
        """Return the id of the ledger: random, created with it, 16 hexadecimal digits."""

    def epoch(self) -> str:
        """Return what changes when rows may be numbered differently: a file derived from another epoch must be rebuilt."""

    def safety(self) -> str:
        """Return on how many disks a record is when its receipt is sent, in words."""

    def stall(self) -> str | None:
        """Return what a commit that does not end waits for, if that can be seen from outside, in words."""

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[PresenceChange | RetainedMessage] = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        """Commit what arrived in one transaction, durable when this returns; return the outcome.

        A record whose number belongs to another record goes to the quarantine, as do the `rejections`; `changes` is what devices
        reported about themselves.
        """

    def check(self, limit_chunks: int) -> list[Rejection] | None:
        """Validate records of which only the envelope was; return those that are invalid, now quarantined; None if none was left."""

    def forget(self, retention: Retention, now_ns: int) -> RetentionRemoved:
        """Remove one slice of what `retention` does not keep; call again until all is removed."""

    def records(
        self, *, with_samples: bool = False, after_row: int = 0, limit: int | None = None, where: LedgerFilter = EVERY_RECORD
    ) -> Iterator[HeldRecord]:
        """Yield the records after `after_row` in the order of commits; without samples unless asked for."""

    def texts(self, *, after_row: int = 0, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield row, time of receipt in ns and JSON text of the records after `after_row`, in the order of commits."""

    def chunks(self, *, after_row: int = 0) -> Iterator[HeldChunk]:
        """Yield the records after `after_row` in the order of commits, as many together as are stored together."""

    def text(self, record: RunRecord | RecordReference) -> bytes | None:
        """Return the stored JSON text of a record with its samples; None if it is not stored."""

    def ranges(self, device: str, session: int) -> list[tuple[int, int]]:
        """Return the ranges of sequence numbers (inclusive) that the ledger holds of one session, in order."""

    def count(self) -> int:
        """Return how many records the ledger holds."""

    def last_row(self) -> int:
        """Return the row of the newest record, 0 if there is none."""

    def rows(self) -> Iterator[int]:
        """Yield the row of every record."""

    def lease(self, work: str) -> bool:
        """Return whether this object has the `work` for the next `LEASE_S`, which one at a time does; call again to prolong it."""

    def position(self, sink: str) -> int:
        """Return the row up to which `sink` has every record, 0 at first."""

    def positions(self) -> dict[str, int]:
        """Return the row that each sink has reached, by its name."""

    def advance(self, sink: str, position: int, rejections: Sequence[Rejection] = (), *, after: int | None = None) -> bool:
        """Record that `sink` has every record up to row `position`, except the `rejections`, which are quarantined.

        If `after` is given and is not the position now, somebody has set it back meanwhile: it stays, and False is returned.
        """

    def claim_position(self, sink: str, identity: str) -> None:
        """Bind the position of `sink`, an address, to the bucket that is there now: another one there begins at row 0.

        A bucket that moved from another address keeps its position; a position from before identities were known is this bucket's.
        """

    def set_back(self, name: str, since_ns: int | None) -> int:
        """Set the position `name` back to before what was received since then (None: to the beginning); return how many records follow."""

    def behind(self, name: str) -> int:
        """Return how many records lie behind the position `name`."""

    def waiting_since_ns(self, position: int) -> int | None:
        """Return when the oldest record after row `position` was received, UTC in ns; None if there is none."""

    def quarantined(self) -> list[QuarantinedMessage]:
        """Return the quarantined messages, oldest first."""

    def quarantined_count(self) -> int:
        """Return how many messages are quarantined."""

    def release(self, row: int, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch], *, drain_again: bool) -> Committed:
        """Commit the records of a quarantined entry and remove it, unless a number belongs to another record.

        With `drain_again` a record that is stored already gets a new row, so that every sink receives it again.
        """

    def sessions(self) -> list[SessionHeld]:
        """Return what is stored of every session of every device, and how many of its numbers are missing."""

    def devices(self) -> list[DevicePresence]:
        """Return every device that reported its presence, by fleet and name."""

    def retained(self) -> list[RetainedMessage]:
        """Return what is measured now: the latest message of each topic, by topic."""

    def stats(self) -> LedgerStats:
        """Return the ledger in numbers, without reading records."""

    def size_bytes(self) -> int:
        """Return how much of a disk it takes."""

"""The outbox: every record stays on the device, on its disk, until a collector's receipt says that it holds it.

One file per device, which several processes may have open at once (not across a fork). It is bounded: see `shedding`.
"""

import contextlib
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from edgemeter.agent import record_parts, records
from edgemeter.agent.delivery import shedding, sqlite_file
from edgemeter.agent.delivery.messages import Receipt
from edgemeter.agent.delivery.outbox_file import FORMAT
from edgemeter.agent.delivery.reserve import Reserve
from edgemeter.agent.delivery.shedding import Dropped
from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.agent.records import RunRecord

__all__ = ["FORMAT", "LIMIT_BYTES", "Dropped", "Outbox", "Pending"]

logger = logging.getLogger(__name__)

# Some thousand runs with their raw traces.
LIMIT_BYTES = 512 << 20
_ENDLESS = 2**63 - 1
# SQLite's log is brought in after so many pages (1 MB): what the reserve has to be enough for.
_LOG_PAGES = 250
_FORGET_RECORDS = 64

# A session number is a JSON number that every language reads exactly (< 2**53).
_RANDOM_BITS = 37
_COUNTER_BITS = 16


_SELECT = (
    "SELECT size_bytes, row, device, fleet, session, seq, record, is_shed,"
    " (SELECT series FROM samples WHERE samples.row = records.row) FROM records"
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A record that no receipt has named yet; `row` rises in the order of `put`."""

    row: int
    device: str
    fleet: str
    session: int
    seq: int
    payload: bytes


class Outbox:
    """The outbox at `path`, made when absent, of at most about `limit_bytes`. Its methods may be called from any thread.

    Opening it starts a session: a number that no other opening has, on this device or on one whose card is a copy of this one's or
    was written anew; so (device, session, seq) names one record for ever.

    Raises:
        ConfigError: the file is not an outbox, or of a newer version.
        UnavailableError: it may not be opened, or the disk is full.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._reserve = Reserve(path)
        self._connection = self._reserve.in_need(lambda: sqlite_file.connect(path, FORMAT))
        self._lock = threading.Lock()
        self._device: str | None = None
        self._said = Dropped()
        with sqlite_file.mapped(path, FORMAT):
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        self._reserve.in_need(self._begin_session)

    def __enter__(self) -> "Outbox":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def session(self) -> int:
        """The number of the session that this opening started."""
        return self._session

    def put(self, record: RunRecord) -> RunRecord:
        """Keep `record`; return it with its session and its number (1, 2, 3, ... without gaps), once it is on the disk.

        What does not fit beside it goes: the oldest raw traces first, the oldest records last.

        Raises:
            UnavailableError: the disk is full or gone; the record is not kept and its number is not used up.
            TransientError: another process holds the file for too long; as above.
        """
        with self._lock:
            self._reserve.keep()
            if self._device not in {None, record.device}:
                # Gaps are looked for per device, so another device's records need a session of their own.
                self._begin_session()
            numbered = msgspec.structs.replace(record, session=self._session, seq=self._last_seq + 1)
            with sqlite_file.mapped(self.path, FORMAT):
                dropped = self._insert(numbered)
            self._say(dropped)
            self._device = record.device
            self._last_seq += 1
            return numbered

    def pending(
        self, limit_records: int, limit_bytes: int, *, after_row: int = 0, device: str | None = None, fleet: str | None = None
    ) -> list[Pending]:
        """Return the records that no receipt has named, oldest first, earlier sessions' too; at least one if there is one.

        `limit_bytes` counts their JSON; `after_row` goes on where an earlier call ended; `device` picks one device's, `fleet` one
        fleet's. It ends before the first record whose stamp may still be set right.
        """
        held = f"row < (SELECT coalesce(min(row), {_ENDLESS}) FROM unstamped)"  # noqa: S608 - a number
        query = f"{_SELECT} WHERE row > ?1 AND (?2 IS NULL OR device = ?2) AND (?3 IS NULL OR fleet = ?3) AND {held} ORDER BY row LIMIT ?4"
        found: list[Pending] = []
        left_bytes = limit_bytes
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            for size_bytes, *row in self._connection.execute(query, (after_row, device, fleet, limit_records)):
                if found and size_bytes > left_bytes:
                    break
                left_bytes -= size_bytes
                found.append(_pending(*row))
        return found

    def read(self, row: int) -> Pending | None:
        """Return the record in that row, None when a receipt has named it meanwhile."""
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            found = self._connection.execute(f"{_SELECT} WHERE row = ?", (row,)).fetchone()
        return _pending(*found[1:]) if found else None

    def fleets(self, device: str) -> list[str]:
        """Return the fleets that the records of `device` belong to: its own, and former ones."""
        query = "SELECT DISTINCT fleet FROM records WHERE device = ? ORDER BY fleet"
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return [fleet for (fleet,) in self._connection.execute(query, (device,))]

    def forget(self, receipt: Receipt) -> int:
        """Drop the records that `receipt` names; return how many there were."""
        with self._lock:
            dropped = self._reserve.in_need(lambda: self._forget(receipt))
            if not self._reserve.is_whole():
                self._give_back()
            return dropped

    def _forget(self, receipt: Receipt) -> int:
        # A few at a time: on a full disk there is room for a small change only, after which SQLite can use the same room again.
        some = f"SELECT row FROM records WHERE session = ? AND seq BETWEEN ? AND ? LIMIT {_FORGET_RECORDS}"  # noqa: S608 - a number
        statement = f"DELETE FROM records WHERE row IN ({some})"  # noqa: S608 - our own words
        dropped = 0
        with sqlite_file.mapped(self.path, FORMAT):
            # What a power cut brings back is only sent again, so this one need not wait for the disk.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                for first, last in receipt.held:
                    while count := self._connection.execute(statement, (receipt.session, first, last)).rowcount:
                        dropped += count
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")
        return dropped

    def _give_back(self) -> None:
        # The disk was full: an outbox that is empty by now needs a few pages and holds on to all that it ever had.
        with contextlib.suppress(UnavailableError, TransientError), sqlite_file.mapped(self.path, FORMAT):
            if self._connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._reserve.keep()

    def count(self, device: str | None = None) -> int:
        """Return how many records no receipt has named, of one device or of all."""
        query = "SELECT count(*) FROM records WHERE ? IS NULL OR device = ?"
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return int(self._connection.execute(query, (device, device)).fetchone()[0])

    def waiting(self) -> dict[str, int]:
        """Return how many records no receipt has named, by device."""
        query = "SELECT device, count(*) FROM records GROUP BY device ORDER BY device"
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return dict(self._connection.execute(query).fetchall())

    def is_empty(self, device: str) -> bool:
        """Return whether receipts have named every record of `device`."""
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return self._connection.execute("SELECT 1 FROM records WHERE device = ? LIMIT 1", (device,)).fetchone() is None

    def dropped(self, device: str | None = None) -> Dropped:
        """Return what had to go since the file was made because the outbox or the disk was full, of one device or of all."""
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return shedding.count(self._connection, device)

    def has_unstamped(self) -> bool:
        """Return whether a record is held back because its stamp may still be set right."""
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return self._connection.execute("SELECT 1 FROM unstamped LIMIT 1").fetchone() is not None

    def stamp(self, boot_id: str, boot_ns: int) -> int:
        """Compute the stamps of the records held back that were measured in this boot; return how many.

        `boot_ns` is when it began: UTC, by a clock that is right.
        """
        query = "SELECT row, since_boot_ns, record FROM unstamped JOIN records USING (row) WHERE boot_id = ?"
        with self._lock, sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            found = self._connection.execute(query, (boot_id,)).fetchall()
            for row, since_boot_ns, head in found:
                right = record_parts.changed(head, started_at_ns=boot_ns + since_boot_ns, stamped_by="device-later")
                self._connection.execute("UPDATE records SET record = ? WHERE row = ?", (right, row))
            self._connection.execute("DELETE FROM unstamped WHERE boot_id = ?", (boot_id,))
        return len(found)

    def leave_unstamped(self, all_but_boot_id: str = "") -> int:
        """Hold back no longer what was measured in other boots than this, or anything; return how many records that frees."""
        with self._lock, sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            return self._connection.execute("DELETE FROM unstamped WHERE boot_id != ?", (all_but_boot_id,)).rowcount

    def close(self) -> None:
        """Give the file back; may be called twice."""
        with self._lock:
            self._connection.close()

    def _begin_session(self) -> None:
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            self._connection.execute("UPDATE opened SET times = times + 1")
            times = int(self._connection.execute("SELECT times FROM opened").fetchone()[0])
        # The counter alone repeats on a copied card, the random bits alone could repeat here; the counter is never 0, nor is a session.
        self._session = secrets.randbits(_RANDOM_BITS) << _COUNTER_BITS | (times % ((1 << _COUNTER_BITS) - 1) + 1)
        self._last_seq = 0

    def _insert(self, record: RunRecord) -> Dropped:
        payload = records.encode(record)
        head, samples = record_parts.part(payload)
        values = (record.device, record.fleet, record.session, record.seq, time.time_ns(), len(payload), head)
        statement = "INSERT INTO records (device, fleet, session, seq, kept_ns, size_bytes, record) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with sqlite_file.transaction(self._connection):
            row = self._connection.execute(statement, values).lastrowid
            if samples != record_parts.NO_SAMPLES:
                self._connection.execute("INSERT INTO samples VALUES (?, ?)", (row, samples))
            if record.clock_synchronised is False and record.stamped_by == "device" and record.environment.boot_id:
                since_boot_ns = record.monotonic_ns + _suspended_ns()
                self._connection.execute("INSERT INTO unstamped VALUES (?, ?, ?)", (row, record.environment.boot_id, since_boot_ns))
            return shedding.down_to(self._connection, self._limit_bytes)

    def _say(self, dropped: Dropped) -> None:
        # Said the first time; `dropped` has the count.
        if dropped.traces and not self._said.traces:
            logger.warning("the outbox %s is full: the oldest raw traces are dropped, their records stay", self.path)
        if dropped.records and not self._said.records:
            logger.error("the outbox %s is full: the oldest records are dropped; bring a collector up, or raise the limit", self.path)
        self._said = Dropped(self._said.traces + dropped.traces, self._said.records + dropped.records)


def _suspended_ns() -> int:
    # The monotonic clock stands still while the machine is suspended, the time since boot goes on.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def _pending(row: int, device: str, fleet: str, session: int, seq: int, head: bytes, is_shed: int, samples: bytes | None) -> Pending:
    if is_shed:
        head = record_parts.changed(head, samples_reason=shedding.REASON)
    return Pending(row, device, fleet, session, seq, record_parts.whole(head, samples or record_parts.NO_SAMPLES))

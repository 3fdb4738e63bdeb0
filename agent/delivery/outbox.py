"""The outbox: every record stays on the device, on its disk, until a collector's receipt says that it holds it.

One file per device, which several processes may have open at once (not across a fork). The raw samples lie in a table of their
own, so that they can go before a record does.
"""

import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from edgemeter.agent import record_parts, records
from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.delivery.messages import Receipt
from edgemeter.agent.records import RunRecord

FORMAT = sqlite_file.Format(
    what="outbox",
    application_id=0x45644F62,  # "EdOb"
    version=1,
    schema="""CREATE TABLE opened (times INTEGER NOT NULL);
INSERT INTO opened VALUES (0);
CREATE TABLE records (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kept_ns INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (session, seq)
);
CREATE TABLE samples (row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE, series BLOB NOT NULL);
""",
    elsewhere="move it away (a new outbox is made) or choose another place with EDGEMETER_HOME",
)

# A session number is a JSON number that every language reads exactly (< 2**53).
_RANDOM_BITS = 37
_COUNTER_BITS = 16


_SELECT = (
    "SELECT size_bytes, row, device, fleet, session, seq, record, (SELECT series FROM samples WHERE samples.row = records.row) FROM records"
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
    """The outbox at `path`, made when absent. Its methods may be called from any thread.

    Opening it starts a session: a number that no other opening has, on this device or on one whose card is a copy of this one's or
    was written anew; so (device, session, seq) names one record for ever.

    Raises:
        ConfigError: the file is not an outbox, or of a newer version.
        UnavailableError: it may not be opened, or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite_file.connect(path, FORMAT)
        self._lock = threading.Lock()
        self._device: str | None = None
        with sqlite_file.mapped(path, FORMAT):
            self._connection.execute("PRAGMA foreign_keys = ON")
        self._begin_session()

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

        Raises:
            UnavailableError: the disk is full or gone; the record is not kept and its number is not used up.
            TransientError: another process holds the file for too long; as above.
        """
        with self._lock:
            if self._device not in {None, record.device}:
                # Gaps are looked for per device, so another device's records need a session of their own.
                self._begin_session()
            numbered = msgspec.structs.replace(record, session=self._session, seq=self._last_seq + 1)
            self._insert(numbered)
            self._device = record.device
            self._last_seq += 1
            return numbered

    def pending(self, limit_records: int, limit_bytes: int, *, after_row: int = 0, device: str | None = None) -> list[Pending]:
        """Return the records that no receipt has named, oldest first, earlier sessions' too; at least one if there is one.

        `limit_bytes` counts their JSON; `after_row` goes on where an earlier call ended; `device` picks one device's.
        """
        query = f"{_SELECT} WHERE row > ? AND (? IS NULL OR device = ?) ORDER BY row LIMIT ?"
        found: list[Pending] = []
        left_bytes = limit_bytes
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            for size_bytes, *row in self._connection.execute(query, (after_row, device, device, limit_records)):
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
        statement = "DELETE FROM records WHERE session = ? AND seq BETWEEN ? AND ?"
        dropped = 0
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            # What a power cut brings back is only sent again, so this one need not wait for the disk.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                with sqlite_file.transaction(self._connection):
                    for first, last in receipt.held:
                        dropped += self._connection.execute(statement, (receipt.session, first, last)).rowcount
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")
        return dropped

    def count(self, device: str | None = None) -> int:
        """Return how many records no receipt has named, of one device or of all."""
        query = "SELECT count(*) FROM records WHERE ? IS NULL OR device = ?"
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return int(self._connection.execute(query, (device, device)).fetchone()[0])

    def is_empty(self, device: str) -> bool:
        """Return whether receipts have named every record of `device`."""
        with self._lock, sqlite_file.mapped(self.path, FORMAT):
            return self._connection.execute("SELECT 1 FROM records WHERE device = ? LIMIT 1", (device,)).fetchone() is None

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

    def _insert(self, record: RunRecord) -> None:
        payload = records.encode(record)
        head, samples = record_parts.part(payload)
        values = (record.device, record.fleet, record.session, record.seq, time.time_ns(), len(payload), head)
        statement = "INSERT INTO records (device, fleet, session, seq, kept_ns, size_bytes, record) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            row = self._connection.execute(statement, values).lastrowid
            if samples != record_parts.NO_SAMPLES:
                self._connection.execute("INSERT INTO samples VALUES (?, ?)", (row, samples))


def _pending(row: int, device: str, fleet: str, session: int, seq: int, head: bytes, samples: bytes | None) -> Pending:
    return Pending(row, device, fleet, session, seq, record_parts.whole(head, samples or record_parts.NO_SAMPLES))

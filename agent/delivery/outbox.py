"""The outbox stores every record on the device's disk until a collector's receipt confirms it.

It keeps records longer if there is room. It is one file per device, which several processes may
open at once (not across a fork). Its size is limited: see `outbox_file`.
"""

import contextlib
import logging
import secrets
import sqlite3
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.sqlite_file import Database
from edgemeter.agent.contract.messages import AgainRequest, Receipt
from edgemeter.agent.contract.record import (
    NO_SAMPLES,
    RunRecord,
    change_fields,
    decode,
    encode,
    join_samples,
    split_samples,
)
from edgemeter.agent.contract.record_time import is_timeless
from edgemeter.agent.delivery import outbox_file

logger = logging.getLogger(__name__)

# Some thousand runs with their raw traces.
LIMIT_BYTES = 512 << 20
# SQLite writes its log back after this many pages (1 MB), which must fit into the reserve.
_LOG_PAGES = 250
_FORGET_RECORDS = 64

# A session number is a JSON number that every language reads exactly (< 2**53).
_RANDOM_BITS = 37
_COUNTER_BITS = 16


_SELECT = (
    "SELECT size_bytes, row, device, fleet, session, seq, record,"
    " (SELECT series FROM samples WHERE samples.row = records.row) FROM waiting "
    "JOIN records USING (row)"
)
# Requests that are remembered, so that a retained one is answered once.
_REQUESTS_REMEMBERED = 100


@dataclass(frozen=True, slots=True)
class Pending:
    """A record to be sent; `row` rises in the order of `put`."""

    row: int
    device: str
    fleet: str
    session: int
    seq: int
    payload: bytes


class Outbox(Database):
    """The outbox at `path`, created if absent, of at most about `limit_bytes`.

    Its methods may be called from any thread.

    Opening it starts a session: a number that no other opening has, on this device or on one with a
    copied or rewritten card. So (device, session, seq) identifies one record for ever.

    Raises:
        ConfigError: the file is not an outbox, or of another version.
        UnavailableError: it may not be opened, or the disk is full.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._reserve = outbox_file.DiskReserve(path)
        self._reserve.in_need(partial(super().__init__, path, outbox_file.FORMAT))
        self._device: str | None = None
        self._reported = outbox_file.Dropped()
        with self.mapped() as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        self._reserve.in_need(self._begin_session)

    def put(self, record: RunRecord) -> RunRecord:
        """Store `record` durably, and return it with its session and its number.

        Numbers are 1, 2, 3, ... without gaps.

        If there is no room, it deletes receipted records first, then the oldest raw traces, the
        oldest records last.

        Raises:
            UnavailableError: the disk is full or gone; the record is not stored and its number is
                not used.
            TransientError: another process holds the file for too long; as above.
        """
        with self._lock:
            try:
                return self._put(record)
            except UnavailableError:
                # The disk is full: receipted records make room for the others.
                if not self._reserve.in_need(self._delete_receipted):
                    raise
                self._give_back()
                return self._put(record)

    def _put(self, record: RunRecord) -> RunRecord:
        self._reserve.keep()
        if self._device not in {None, record.device}:
            # The collector looks for gaps per device, so another device's records need a session of
            # their own.
            self._begin_session()
        numbered = msgspec.structs.replace(record, session=self.session, seq=self._last_seq + 1)
        self._report_dropped(self._insert(numbered))
        self._device = record.device
        self._last_seq += 1
        return numbered

    def pending(
        self,
        limit_records: int,
        limit_bytes: int,
        *,
        after_row: int = 0,
        device: str | None = None,
        fleet: str | None = None,
    ) -> list[Pending]:
        """Return the records to be sent, oldest first, of earlier sessions too.

        At least one is returned if there is one.

        `limit_bytes` counts their JSON; `after_row` continues after an earlier call; `device`
        selects one device's, `fleet` one fleet's. Records whose timestamp may still be corrected
        are excluded.
        """
        query = (
            # The SQL contains only our own words.
            f"{_SELECT} WHERE row > ? AND (? IS NULL OR device = ?) AND "  # noqa: S608
            "(? IS NULL OR fleet = ?) AND row NOT IN (SELECT row FROM unstamped) "
            "ORDER BY row LIMIT ?"
        )
        values = (after_row, device, device, fleet, fleet, limit_records)
        records: list[Pending] = []
        left_bytes = limit_bytes
        with self.mapped() as connection:
            for size_bytes, *row in connection.execute(query, values):
                if records and size_bytes > left_bytes:
                    break
                left_bytes -= size_bytes
                records.append(_pending(*row))
        return records

    def read(self, row: int) -> Pending | None:
        """Return the record in that row; None if it has been receipted since."""
        rows = self.query(f"{_SELECT} WHERE row = ?", row)
        return _pending(*rows[0][1:]) if rows else None

    def leave_samples(self, row: int) -> bool:
        """Deliver the record in that row without its raw samples; return whether it had any."""
        with self._lock:
            return self._reserve.in_need(lambda: self._leave_samples(row))

    def _leave_samples(self, row: int) -> bool:
        with self.transaction() as connection:
            if not connection.execute("DELETE FROM samples WHERE row = ?", (row,)).rowcount:
                return False
            connection.execute(
                "UPDATE records SET size_bytes = length(record) WHERE row = ?", (row,)
            )
            return True

    def set_aside(self, row: int, reason: str) -> bool:
        """Note that the record in that row is too large to be sent, and why.

        Returns whether that is new.
        """
        statement = """INSERT INTO too_large SELECT row, ? FROM waiting WHERE row = ?
            ON CONFLICT DO UPDATE SET reason = excluded.reason WHERE reason != excluded.reason"""
        return bool(self._reserve.in_need(lambda: self._write(statement, reason, row)))

    def too_large(self, device: str) -> list[str]:
        """Return why records of `device` are not sent, one reason for each that is too large."""
        with self.mapped() as connection:
            return outbox_file.too_large(connection, device)

    def refusals(self, broker: str) -> list[outbox_file.Refusal]:
        return [
            outbox_file.Refusal(*row)
            for row in self.query(
                "SELECT size_bytes, answer FROM refusals WHERE broker = ?", broker
            )
        ]

    def add_refusal(self, broker: str, refusal: outbox_file.Refusal) -> None:
        self._reserve.in_need(
            lambda: self._write("INSERT INTO refusals VALUES (?, ?, ?)", broker, *refusal)
        )

    def drop_refusals(self, broker: str, size_bytes: int) -> None:
        """Forget refusals of messages no larger than this: the broker has accepted one."""
        self._reserve.in_need(
            lambda: self._write(
                "DELETE FROM refusals WHERE broker = ? AND size_bytes <= ?", broker, size_bytes
            )
        )

    def doubt_refusals(self, broker: str, count: int) -> None:
        """Forget the refusals that are not certain, except for the `count` smallest."""
        uncertain = "FROM refusals WHERE broker = ? AND answer != '0x95'"
        statement = (
            f"DELETE {uncertain} AND rowid NOT IN "
            f"(SELECT rowid {uncertain} ORDER BY size_bytes LIMIT ?)"
        )
        self._reserve.in_need(lambda: self._write(statement, broker, broker, count))

    def _write(self, statement: str, *values: object) -> int:
        with self.transaction() as connection:
            return connection.execute(statement, values).rowcount

    def fleets(self, device: str) -> list[str]:
        """Return the fleets of the records of `device`: its own, and previous ones."""
        return [
            fleet
            for (fleet,) in self.query(
                "SELECT DISTINCT fleet FROM waiting JOIN records USING (row) WHERE device = ? "
                "ORDER BY fleet",
                device,
            )
        ]

    def forget(self, receipt: Receipt) -> int:
        """Mark the records that `receipt` names as delivered; return their number.

        They are deleted only for room.
        """
        with self._lock:
            dropped = self._reserve.in_need(lambda: self._forget(receipt))
            if not self._reserve.is_whole():
                self._give_back()
            return dropped

    def _forget(self, receipt: Receipt) -> int:
        # A few at a time: on a full disk there is room for a small change only, after which SQLite
        # can reuse it.
        dropped = 0
        with self.mapped() as connection:
            # If a power cut undoes this, records are only sent again: no need to wait for the disk.
            connection.execute("PRAGMA synchronous = NORMAL")
            try:
                for first, last in receipt.held:
                    if receipt.received_ns is not None:
                        self._place(connection, (receipt.session, first, last), receipt.received_ns)
                    while count := self._end_some(connection, (receipt.session, first, last)):
                        dropped += count
                connection.execute(
                    "DELETE FROM unstamped WHERE row NOT IN (SELECT row FROM waiting)"
                )
            finally:
                connection.execute("PRAGMA synchronous = FULL")
        return dropped

    def _place(
        self, connection: sqlite3.Connection, named: tuple[int, int, int], received_ns: int
    ) -> None:
        """Give records without a time of their own that of their first receipt.

        They keep it when sent again.
        """
        rows = (
            "FROM waiting JOIN records USING (row) WHERE session = ? AND seq BETWEEN ? AND ? AND "
            "row NOT IN (SELECT row FROM receipted)"
        )
        for row, head in connection.execute(f"SELECT row, record {rows}", named).fetchall():
            # A measured time is not changed.
            if is_timeless(decode(head), received_ns):
                placed = change_fields(head, started_at_ns=received_ns, stamped_by="collector")
                connection.execute("UPDATE records SET record = ? WHERE row = ?", (placed, row))

    def _end_some(self, connection: sqlite3.Connection, named: tuple[int, int, int]) -> int:
        rows = (
            "SELECT row FROM waiting JOIN records USING (row) WHERE session = ? AND "
            "seq BETWEEN ? AND ?"
        )
        if not self._reserve.is_whole():
            # On a full disk none stays. The SQL contains only our own words.
            return connection.execute(
                f"DELETE FROM records WHERE row IN ({rows} LIMIT {_FORGET_RECORDS})",  # noqa: S608
                named,
            ).rowcount
        # Killed between the two, a record is sent again.
        connection.execute(f"INSERT OR IGNORE INTO receipted {rows} LIMIT {_FORGET_RECORDS}", named)
        return connection.execute(
            # As above.
            "DELETE FROM waiting "  # noqa: S608
            f"WHERE row IN ({rows} AND row IN (SELECT row FROM receipted))",
            named,
        ).rowcount

    def _give_back(self) -> None:
        # The disk was full: an outbox that is empty now needs few pages, but still holds all that
        # it ever had.
        with contextlib.suppress(UnavailableError, TransientError), self.mapped() as connection:
            outbox_file.delete_receipted(connection)
            if connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None:
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._reserve.keep()

    def _delete_receipted(self) -> int:
        with self.mapped() as connection:
            return outbox_file.delete_receipted(connection)

    def send_again(self, request: AgainRequest, device: str, fleet: str) -> int | None:
        """Mark the receipted records that `request` names as waiting.

        Returns the row of the first, None if there is none.

        A request is answered once, whenever it arrives and after any restart: this is durable when
        the method returns.
        """
        return self._reserve.in_need(lambda: self._send_again(request, device, fleet))

    def _send_again(self, request: AgainRequest, device: str, fleet: str) -> int | None:
        statement = """\
INSERT OR IGNORE INTO waiting SELECT row FROM receipted JOIN records USING (row)
            WHERE device = ? AND fleet = ? AND kept_ns >= ?"""
        with self.transaction() as connection:
            if not connection.execute(
                "INSERT OR IGNORE INTO requests (id) VALUES (?)", (request.again,)
            ).rowcount:
                return None
            connection.execute(
                "DELETE FROM requests WHERE number <= (SELECT max(number) FROM requests) - ?",
                (_REQUESTS_REMEMBERED,),
            )
            connection.execute(statement, (device, fleet, request.since_ns))
            first_row: int | None = connection.execute(
                "SELECT min(row) FROM waiting JOIN receipted USING (row)"
            ).fetchone()[0]
        return first_row

    def receipted(self, device: str) -> int:
        """Return the number of receipted records of `device` that are still stored.

        Those that are requested again do not count.
        """
        rows = self.query(
            "SELECT count(*) FROM receipted JOIN records USING (row) WHERE device = ? AND row "
            "NOT IN (SELECT row FROM waiting)",
            device,
        )
        return int(rows[0][0])

    def count(self, device: str | None = None) -> int:
        """Return the number of records to be sent, of one device or of all."""
        with self.mapped() as connection:
            return outbox_file.waiting_count(connection, device)

    def waiting(self) -> dict[str, int]:
        """Return the number of records to be sent, by device."""
        query = (
            "SELECT device, count(*) FROM waiting JOIN records USING (row) GROUP BY "
            "device ORDER BY device"
        )
        return {name: count for name, count in self.query(query)}  # noqa: C416 - rows of sqlite3

    def is_empty(self, device: str) -> bool:
        """Return whether `device` has no record to be sent."""
        return not self.query(
            "SELECT 1 FROM waiting JOIN records USING (row) WHERE device = ? LIMIT 1", device
        )

    def dropped(self, device: str | None = None) -> outbox_file.Dropped:
        """Return what was dropped since the file was created, of one device or of all.

        Records are dropped because the outbox or the disk is full.
        """
        with self.mapped() as connection:
            return outbox_file.dropped_count(connection, device)

    def has_unstamped(self) -> bool:
        """Return whether a record is held back because its timestamp may still be corrected."""
        return self.first_unstamped() is not None

    def first_unstamped(self) -> int | None:
        """Return the row of the oldest record that is held back; None if there is none."""
        row = self.query("SELECT min(row) FROM unstamped")[0][0]
        return None if row is None else int(row)

    def wait_for_clock(self, boot_id: str, until_s: float) -> None:
        """Hold back the records of this boot until then, in seconds since boot.

        Only the first call in a boot counts.
        """
        with self.transaction() as connection:
            connection.execute("DELETE FROM patience WHERE boot_id != ?", (boot_id,))
            connection.execute("INSERT OR IGNORE INTO patience VALUES (?, ?)", (boot_id, until_s))

    def waits_until_s(self, boot_id: str) -> float:
        """Return the time from `wait_for_clock` in this boot, or 0."""
        return float(
            self.query("SELECT coalesce(max(until_s), 0) FROM patience WHERE boot_id = ?", boot_id)[
                0
            ][0]
        )

    def stamp(self, boot_id: str, boot_ns: int) -> None:
        """Compute the timestamps of the records held back in this boot.

        `boot_ns` is the time of the boot: UTC, by a correct clock.
        """
        query = (
            "SELECT row, since_boot_ns, record FROM unstamped JOIN records USING "
            "(row) WHERE boot_id = ?"
        )
        with self.transaction() as connection:
            for row, since_boot_ns, head in connection.execute(query, (boot_id,)).fetchall():
                right = change_fields(
                    head, started_at_ns=boot_ns + since_boot_ns, stamped_by="device-later"
                )
                connection.execute("UPDATE records SET record = ? WHERE row = ?", (right, row))
            connection.execute("DELETE FROM unstamped WHERE boot_id = ?", (boot_id,))

    def leave_unstamped(self, all_but_boot_id: str = "") -> None:
        """Release the records of other boots than this, or all."""
        self._write("DELETE FROM unstamped WHERE boot_id != ?", all_but_boot_id)

    def _begin_session(self) -> None:
        with self.transaction() as connection:
            connection.execute("UPDATE opened SET times = times + 1")
            times = int(connection.execute("SELECT times FROM opened").fetchone()[0])
        # The counter alone repeats on a copied card, and random bits alone could repeat here;
        # neither the counter nor a session is ever 0.
        self.session = secrets.randbits(_RANDOM_BITS) << _COUNTER_BITS | (
            times % ((1 << _COUNTER_BITS) - 1) + 1
        )
        self._last_seq = 0

    def _insert(self, record: RunRecord) -> outbox_file.Dropped:
        payload = encode(record)
        head, samples = split_samples(payload)
        values = (
            record.device,
            record.fleet,
            record.session,
            record.seq,
            time.time_ns(),
            len(payload),
            head,
        )
        statement = (
            "INSERT INTO records (device, fleet, session, seq, kept_ns, size_bytes, record) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        with self.transaction() as connection:
            row = connection.execute(statement, values).lastrowid
            connection.execute("INSERT INTO waiting VALUES (?)", (row,))
            if samples != NO_SAMPLES:
                connection.execute("INSERT INTO samples VALUES (?, ?)", (row, samples))
            if (
                record.clock_synchronised is False
                and record.stamped_by == "device"
                and record.environment.boot_id
            ):
                # The monotonic clock stops while the machine is suspended, the time since boot does
                # not.
                since_boot_ns = (
                    record.monotonic_ns
                    + time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                    - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                )
                connection.execute(
                    "INSERT INTO unstamped VALUES (?, ?, ?)",
                    (row, record.environment.boot_id, since_boot_ns),
                )
            outbox_file.drop_receipted(
                connection,
                self._limit_bytes,
                time.time_ns(),
                has_disk=outbox_file.has_disk_room(self.path),
            )
            return outbox_file.drop_down_to(connection, self._limit_bytes)

    def _report_dropped(self, dropped: outbox_file.Dropped) -> None:
        # Logged the first time; `dropped` has the count.
        if dropped.traces and not self._reported.traces:
            logger.warning(
                "the outbox %s is full: the oldest raw traces are dropped, their records stay",
                self.path,
            )
        if dropped.records and not self._reported.records:
            logger.error(
                "the outbox %s is full: the oldest records are dropped; bring a collector up, or "
                "raise the limit",
                self.path,
            )
        self._reported = outbox_file.Dropped(
            self._reported.traces + dropped.traces, self._reported.records + dropped.records
        )


def _pending(
    row: int, device: str, fleet: str, session: int, seq: int, head: bytes, samples: bytes | None
) -> Pending:
    return Pending(row, device, fleet, session, seq, join_samples(head, samples or NO_SAMPLES))

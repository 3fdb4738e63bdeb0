"""The outbox's file, with its tables and a reserve on the disk.

The module also sets the order in which the file drops records when full.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.sqlite_file import FileFormat

# The most space that SQLite needs before it can reuse free pages: a write-ahead log that is due for
# a checkpoint, and one more.
RESERVE_BYTES = 4 << 20

# On a disk of a few megabytes it is smaller.
RESERVE_SHARE_OF_DISK = 4

_Result = TypeVar("_Result")


class DiskReserve:
    """The reserve of the outbox at `outbox`, shared by all processes that have it open."""

    def __init__(self, outbox: Path) -> None:
        self.path = outbox.with_name(f"{outbox.name}.reserve")
        self._outbox = outbox

    def is_whole(self) -> bool:
        return self.path.exists()

    def keep(self) -> None:
        """Create the reserve if needed; raises UnavailableError if the disk has no room for it."""
        if self.is_whole():
            return
        making = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            disk = os.statvfs(making.parent)
            size_bytes = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_SHARE_OF_DISK)
            with making.open("wb") as file:
                # Not a sparse file: space that nobody else gets.
                os.posix_fallocate(file.fileno(), 0, max(1, size_bytes))
            making.replace(self.path)
        except OSError as error:
            making.unlink(missing_ok=True)
            raise UnavailableError(
                f"the outbox {str(self._outbox)!r} cannot grow, the disk is full: free some "
                "space; nothing kept so far is lost"
            ) from error

    def in_need(self, write: Callable[[], _Result]) -> _Result:
        """Return the result of `write`, which may use the disk's reserve.

        If the disk is too full for it, the reserve is deleted and `write` is tried once more.

        Raises:
            UnavailableError: it fails without the reserve too.
        """
        try:
            return write()
        except UnavailableError:
            if not self._is_given_up():
                raise
            return write()

    def _is_given_up(self) -> bool:
        try:
            self.path.unlink()
        except OSError:
            # There was none; or nothing can be changed here, as on a card that has become
            # read-only, or in another user's folder.
            return False
        return True


# More is dropped than needed, so that not every further record has to make room.
SLACK_RATIO = 0.05

# Receipted records stay for days, in case a collector loses its ledger: while the file is below a
# share of its limit and the disk has room.
KEPT_DAYS = 14.0
KEPT_RATIO = 0.5
KEPT_SLACK_RATIO = 0.005
KEPT_DISK_RATIO = 0.1
# Deleted at a time, for age or lack of disk space.
KEPT_STEP = 64


# The remedy for records that are too large for a message.
TOO_LARGE_REMEDY = (
    "raise its packet limit (mosquitto: max_packet_size and message_size_limit; that of AWS IoT "
    "Core is 128 KiB and fixed) and run "
    "`edgemeter agent publish`, or take them from here with `edgemeter report -o runs.json`"
)


# The answer of a broker: a reason code of MQTT 5, or a closed connection.
Answer = Literal["0x81", "0x82", "0x83", "0x95", "0x97", "closed"]


class Refusal(NamedTuple):
    """A message that a broker did not accept."""

    size_bytes: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of dropped raw traces (of records that stayed) and whole records."""

    traces: int = 0
    records: int = 0


def drop_receipted(
    connection: sqlite3.Connection, limit_bytes: int, now_ns: int, *, has_disk: bool
) -> None:
    """Delete receipted records, oldest first, within the caller's transaction.

    Expired ones are deleted, and those for which there is no room.
    """
    excess_bytes = sqlite_file.space_bytes(connection)[0] - int(KEPT_RATIO * limit_bytes)
    if excess_bytes > 0:
        up_to, _ = _oldest(
            connection,
            "SELECT row, size_bytes FROM receipted JOIN records USING (row) ORDER BY row",
            excess_bytes + int(KEPT_SLACK_RATIO * limit_bytes),
        )
        connection.execute(
            "DELETE FROM records WHERE row IN (SELECT row FROM receipted WHERE row <= ?)", (up_to,)
        )
    oldest = connection.execute(
        "SELECT kept_ns FROM receipted JOIN records USING (row) ORDER BY row LIMIT 1"
    ).fetchone()
    before_ns = now_ns - int(KEPT_DAYS * NS_PER_DAY)
    if oldest is not None and (oldest[0] < before_ns or not has_disk):
        connection.execute(
            # The SQL contains only our own words.
            "DELETE FROM records WHERE row IN ("  # noqa: S608
            "SELECT row FROM receipted JOIN records USING (row) "
            f"WHERE kept_ns < ? OR ? ORDER BY row LIMIT {KEPT_STEP})",
            (before_ns, not has_disk),
        )


def delete_receipted(connection: sqlite3.Connection) -> int:
    """Delete every receipted record, a few at a time to fit on a full disk; return the number."""
    # The limit is a number.
    statement = (
        "DELETE FROM records WHERE row IN "  # noqa: S608
        f"(SELECT row FROM receipted LIMIT {KEPT_STEP})"
    )
    deleted = 0
    while count := connection.execute(statement).rowcount:
        deleted += count
    return deleted


def has_disk_room(path: Path) -> bool:
    """Return whether the disk of the outbox at `path` has room for more.

    It is for records that are kept only for safety.
    """
    disk = os.statvfs(path.parent)
    return disk.f_bavail >= KEPT_DISK_RATIO * disk.f_blocks


def is_delivered(path: Path, numbers: Iterable[tuple[str, int, int]]) -> bool:
    """Return whether a collector confirmed one of these records (device, session, seq).

    That is as far as the outbox at `path` remembers.
    """
    if not path.exists():
        return False
    query = (
        "SELECT 1 FROM records JOIN receipted USING (row) WHERE (device, session, seq) = (?, ?, ?)"
    )
    with sqlite_file.Database(path, FORMAT, "read") as outbox:
        return any(outbox.query(query, *number) for number in numbers)


def withdraw(path: Path, numbers: Iterable[tuple[str, int, int]]) -> bool:
    """Delete these records (device, session, seq) from the outbox at `path`.

    Returns whether one of them was to be sent.

    Raises:
        EdgemeterError: there is an outbox, and it cannot be written.
    """
    if not path.exists():
        return False
    is_waiting = False
    with sqlite_file.Database(path, FORMAT) as outbox, outbox.transaction() as connection:
        for number in numbers:
            query = (
                "SELECT row, row IN (SELECT row FROM waiting) FROM records WHERE (device, "
                "session, seq) = (?, ?, ?)"
            )
            for row, is_to_be_sent in connection.execute(query, number).fetchall():
                is_waiting = is_waiting or bool(is_to_be_sent)
                for table in (
                    "records",
                    "samples",
                    "unstamped",
                    "waiting",
                    "too_large",
                    "receipted",
                ):
                    # The SQL contains only our own names.
                    connection.execute(f"DELETE FROM {table} WHERE row = ?", (row,))  # noqa: S608
    return is_waiting


def try_again(path: Path) -> None:
    """Forget which messages were too large.

    So the outbox at `path`, if there is one, sends its records again.

    Raises:
        EdgemeterError: it cannot be written.
    """
    if path.exists():
        with sqlite_file.Database(path, FORMAT) as outbox, outbox.transaction() as connection:
            connection.execute("DELETE FROM refusals")
            connection.execute("DELETE FROM too_large")


def too_large(connection: sqlite3.Connection, device: str | None) -> list[str]:
    """Return why waiting records are not sent, of one device or of all.

    There is one reason for each that is too large for a message.
    """
    query = (
        "SELECT reason FROM too_large JOIN records USING (row) WHERE ? IS NULL OR device = ? "
        "ORDER BY row"
    )
    return [reason for (reason,) in connection.execute(query, (device, device))]


def waiting_count(connection: sqlite3.Connection, device: str | None = None) -> int:
    """Return the number of records without a receipt, of one device or of all.

    It includes those that are requested again.
    """
    query = "SELECT count(*) FROM waiting JOIN records USING (row) WHERE ? IS NULL OR device = ?"
    return int(connection.execute(query, (device, device)).fetchone()[0])


def drop_down_to(connection: sqlite3.Connection, limit_bytes: int) -> Dropped:
    """Drop records until the rest fits, within the caller's transaction.

    Call `drop_receipted` first.
    """
    excess_bytes = sqlite_file.space_bytes(connection)[0] - limit_bytes
    if excess_bytes <= 0:
        return Dropped()
    size_bytes = excess_bytes + int(SLACK_RATIO * limit_bytes)
    traces, freed_bytes = _drop_traces(connection, size_bytes)
    return Dropped(
        traces,
        _drop_records(connection, size_bytes - freed_bytes) if freed_bytes < excess_bytes else 0,
    )


def _drop_traces(connection: sqlite3.Connection, size_bytes: int) -> tuple[int, int]:
    up_to, found_bytes = _oldest(
        connection, "SELECT row, length(series) FROM samples ORDER BY row", size_bytes
    )
    shed = "WHERE row IN (SELECT row FROM samples WHERE row <= ?)"
    _add_dropped(connection, "traces", shed, up_to)
    # The SQL contains only our own words.
    connection.execute(
        f"UPDATE records SET size_bytes = length(record) {shed}",  # noqa: S608
        (up_to,),
    )
    return connection.execute("DELETE FROM samples WHERE row <= ?", (up_to,)).rowcount, found_bytes


def _drop_records(connection: sqlite3.Connection, size_bytes: int) -> int:
    up_to, _ = _oldest(
        connection,
        "SELECT row, length(record) FROM records "
        "WHERE row < (SELECT max(row) FROM records) ORDER BY row",
        size_bytes,
    )
    _add_dropped(connection, "records", "WHERE row <= ?", up_to)
    return connection.execute("DELETE FROM records WHERE row <= ?", (up_to,)).rowcount


def _oldest(connection: sqlite3.Connection, query: str, size_bytes: int) -> tuple[int, int]:
    """Return the row up to which the oldest have `size_bytes`, and their size in bytes."""
    up_to = found_bytes = 0
    for row, length in connection.execute(query):
        up_to, found_bytes = row, found_bytes + length
        if found_bytes >= size_bytes:
            break
    return up_to, found_bytes


def _add_dropped(connection: sqlite3.Connection, column: str, which: str, up_to: int) -> None:
    counted = connection.execute(
        # The SQL contains only our own words.
        f"SELECT device, count(*) FROM records {which} GROUP BY device",  # noqa: S608
        (up_to,),
    ).fetchall()
    for device, count in counted:
        connection.execute("INSERT OR IGNORE INTO dropped VALUES (?, 0, 0)", (device,))
        connection.execute(
            f"UPDATE dropped SET {column} = {column} + ? WHERE device = ?",  # noqa: S608 - as above
            (count, device),
        )


def dropped_count(connection: sqlite3.Connection, device: str | None) -> Dropped:
    """Return the dropped records so far, of one device or of all."""
    query = (
        "SELECT coalesce(sum(traces), 0), coalesce(sum(records), 0) FROM dropped WHERE ? IS NULL "
        "OR device = ?"
    )
    return Dropped(*connection.execute(query, (device, device)).fetchone())


_TABLES = """CREATE TABLE opened (times INTEGER NOT NULL);
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
CREATE TABLE samples (row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE, \
series BLOB NOT NULL);
CREATE TABLE unstamped (
    row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE,
    boot_id TEXT NOT NULL,
    since_boot_ns INTEGER NOT NULL
);
CREATE TABLE dropped (device TEXT PRIMARY KEY, traces INTEGER NOT NULL, records INTEGER NOT NULL);
-- Until when, in seconds since boot, records of a boot wait for its clock after the network came \
back. Once a boot.
CREATE TABLE patience (boot_id TEXT PRIMARY KEY, until_s REAL NOT NULL);
-- Which records are to be sent: those without a receipt, and those that a collector asks for again.
CREATE TABLE waiting (row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE);
-- Which of these are too large for a message, and why.
CREATE TABLE too_large (row INTEGER PRIMARY KEY REFERENCES waiting (row) ON DELETE CASCADE, \
reason TEXT NOT NULL);
-- Messages that a broker did not accept.
CREATE TABLE refusals (broker TEXT NOT NULL, size_bytes INTEGER NOT NULL, answer TEXT NOT NULL);
-- What a collector has confirmed at least once: it makes room before anything else.
CREATE TABLE receipted (row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE);
-- The requests of collectors that were answered.
CREATE TABLE requests (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);
"""
OUTBOX = "outbox.sqlite"
FORMAT = FileFormat(
    what="outbox",
    application_id=0x45644F62,  # "EdOb"
    version=1,
    schema=_TABLES,
    elsewhere="move it away (a new outbox is made) or choose another place with EDGEMETER_HOME",
)

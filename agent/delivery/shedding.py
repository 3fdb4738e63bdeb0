"""What goes when the outbox is full: the oldest raw traces first; the oldest records last, when no trace is left.

Everything that goes is counted per device. The newest record stays, whatever its size.
"""

import sqlite3
from dataclasses import dataclass

# More goes than must, so that not every further record has to look for room.
SLACK_RATIO = 0.05
# What stands in a record whose traces went.
REASON = "dropped on the device, whose outbox was full"
# Source: the reason's own JSON, `"samples_reason":"..."` and a comma.
_REASON_BYTES = len(REASON) + 20


@dataclass(frozen=True, slots=True)
class Dropped:
    """How much went: raw traces (of records that stayed) and whole records."""

    traces: int = 0
    records: int = 0


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return how much of the file holds something."""
    pages, free, size_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size"))
    return int((pages - free) * size_bytes)


def down_to(connection: sqlite3.Connection, limit_bytes: int) -> Dropped:
    """Drop what does not fit, within the caller's transaction."""
    excess_bytes = used_bytes(connection) - limit_bytes
    if excess_bytes <= 0:
        return Dropped()
    size_bytes = excess_bytes + int(SLACK_RATIO * limit_bytes)
    newest = connection.execute("SELECT max(row) FROM records").fetchone()[0] or 0
    traces, freed_bytes = _drop_traces(connection, size_bytes)
    return Dropped(traces, _drop_records(connection, size_bytes - freed_bytes, newest) if freed_bytes < excess_bytes else 0)


def _drop_traces(connection: sqlite3.Connection, size_bytes: int) -> tuple[int, int]:
    up_to, found_bytes = _oldest(connection, "SELECT row, length(series) FROM samples ORDER BY row", size_bytes)
    shed = "WHERE row IN (SELECT row FROM samples WHERE row <= ?)"
    _count(connection, "traces", shed, up_to)
    connection.execute(f"UPDATE records SET is_shed = 1, size_bytes = length(record) + {_REASON_BYTES} {shed}", (up_to,))  # noqa: S608 - our own words
    return connection.execute("DELETE FROM samples WHERE row <= ?", (up_to,)).rowcount, found_bytes


def _drop_records(connection: sqlite3.Connection, size_bytes: int, newest: int) -> int:
    up_to, _ = _oldest(connection, f"SELECT row, length(record) FROM records WHERE row < {newest} ORDER BY row", size_bytes)  # noqa: S608 - a number
    _count(connection, "records", "WHERE row <= ?", up_to)
    return connection.execute("DELETE FROM records WHERE row <= ?", (up_to,)).rowcount


def _oldest(connection: sqlite3.Connection, query: str, size_bytes: int) -> tuple[int, int]:
    """Return the row up to which the oldest make `size_bytes`, and how many bytes they are."""
    up_to = found_bytes = 0
    for row, length in connection.execute(query):
        up_to, found_bytes = row, found_bytes + length
        if found_bytes >= size_bytes:
            break
    return up_to, found_bytes


def _count(connection: sqlite3.Connection, column: str, which: str, up_to: int) -> None:
    counted = connection.execute(f"SELECT device, count(*) FROM records {which} GROUP BY device", (up_to,)).fetchall()  # noqa: S608 - our own words
    for device, count in counted:
        connection.execute("INSERT OR IGNORE INTO dropped VALUES (?, 0, 0)", (device,))
        connection.execute(f"UPDATE dropped SET {column} = {column} + ? WHERE device = ?", (count, device))  # noqa: S608 - as above


def count(connection: sqlite3.Connection, device: str | None) -> Dropped:
    """Return what went so far, of one device or of all."""
    query = "SELECT coalesce(sum(traces), 0), coalesce(sum(records), 0) FROM dropped WHERE ? IS NULL OR device = ?"
    return Dropped(*connection.execute(query, (device, device)).fetchone())

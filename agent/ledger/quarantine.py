"""The quarantine: rejected messages with the reason; bounded, so that a flood of garbage cannot fill the disk."""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.contract.messages import TOPIC_ROOT

PAYLOAD_LIMIT_BYTES = 1 << 20
ROWS_LIMIT = 10_000
TOTAL_LIMIT_BYTES = 64 << 20

QUARANTINE_SCHEMA = """CREATE TABLE quarantine (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    size_bytes INTEGER NOT NULL,
    kept_bytes INTEGER NOT NULL,
    reason TEXT NOT NULL,
    received_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    times INTEGER NOT NULL
);
CREATE INDEX quarantine_kept ON quarantine (kept_bytes);
"""

# A repeated message (a device resends until it has a receipt) is counted, not stored twice.
_ADD = """INSERT INTO quarantine (digest, topic, payload, size_bytes, kept_bytes, reason, received_ns, last_ns, times)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (digest) DO UPDATE SET times = times + 1, last_ns = excluded.last_ns"""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected message, or record in one, and the reason."""

    topic: str
    payload: bytes
    reason: str
    received_ns: int


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """One entry: `payload` is truncated to 1 MiB, `size_bytes` is its full size; `times` is how often it arrived."""

    row: int
    topic: str
    payload: bytes
    size_bytes: int
    reason: str
    received_ns: int
    last_ns: int
    times: int


def add(connection: sqlite3.Connection, rejections: Sequence[Rejection]) -> None:
    """Add `rejections`, within the caller's transaction; beyond the limits the oldest entries are dropped.

    Records that a sink rejected are dropped first: the ledger still holds those.
    """
    if not rejections:
        return
    for rejection in rejections:
        kept = rejection.payload[:PAYLOAD_LIMIT_BYTES]
        digest = hashlib.sha256(b"\0".join((rejection.topic.encode(), rejection.reason.encode(), rejection.payload))).digest()
        stamps = (rejection.received_ns, rejection.received_ns)
        connection.execute(_ADD, (digest, rejection.topic, kept, len(rejection.payload), len(kept), rejection.reason, *stamps))
    _drop_oldest(connection)


def read(connection: sqlite3.Connection) -> list[QuarantinedMessage]:
    """Return every entry, oldest first."""
    query = "SELECT row, topic, payload, size_bytes, reason, received_ns, last_ns, times FROM quarantine ORDER BY row"
    return [QuarantinedMessage(*row) for row in connection.execute(query)]


def count(connection: sqlite3.Connection) -> int:
    """Return how many entries there are."""
    return int(connection.execute("SELECT count(*) FROM quarantine").fetchone()[0])


def is_sinks(topic: str) -> bool:
    """Return whether a sink rejected the entry: then `topic` is the sink's name."""
    return not topic.startswith(f"{TOPIC_ROOT}/")


def remove(connection: sqlite3.Connection, row: int) -> None:
    """Remove an entry, within the caller's transaction."""
    connection.execute("DELETE FROM quarantine WHERE row = ?", (row,))


def _drop_oldest(connection: sqlite3.Connection) -> None:
    rows, kept_bytes = connection.execute("SELECT count(*), coalesce(sum(kept_bytes), 0) FROM quarantine").fetchone()
    oldest = "SELECT row, kept_bytes FROM quarantine ORDER BY topic GLOB ?, row LIMIT 1"
    while rows > ROWS_LIMIT or kept_bytes > TOTAL_LIMIT_BYTES:
        row, size = connection.execute(oldest, (f"{TOPIC_ROOT}/*",)).fetchone()
        connection.execute("DELETE FROM quarantine WHERE row = ?", (row,))
        rows, kept_bytes = rows - 1, kept_bytes - size

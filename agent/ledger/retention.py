"""Retention: the removal of data for age or size; raw samples are removed before records.

Whole chunks are removed, oldest first. Records that an active sink does not have yet stay, whatever
their age. The numbers of removed records are kept as ranges, so that a repeated one does not count
as new. A file does not shrink; free space is reused.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.sqlite_file import space_bytes
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.ledger.chunks import coalesce, without_samples
from edgemeter.agent.ledger.run_row import judge_siblings

SLICE_CHUNKS = 50
# Local runs are removed a tenth of the limit at a time, so that a full ledger is not rearranged at
# every run.
_OWN_ROOM_SHARE = 10
_TOUCHING = "FROM forgotten WHERE device = ? AND session = ? AND last >= ? AND first <= ?"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept; None is unlimited.

    A record is removed only once the sink named `sink` has it.
    """

    records_days: float | None = None
    samples_days: float | None = None
    limit_bytes: int | None = None
    sink: str | None = None


@dataclass(frozen=True, slots=True)
class RetentionRemoved:
    """The removed records, and chunks whose samples were removed.

    `is_all` if nothing more is due now.
    """

    records: int
    stripped_chunks: int
    is_all: bool


def before_ns(days: float | None, now_ns: int) -> int:
    """Return the time before which data kept for this many days are removed, -1 for never."""
    # Beyond the range of the clock is for ever.
    return -1 if days is None else max(-1, now_ns - int(days * NS_PER_DAY))


def drained_row(positions: Mapping[str, int], sink: str | None) -> int:
    """Return the row up to which the `sink` has every record."""
    return 2**63 - 1 if sink is None else positions.get(sink, 0)


def apply_retention(
    connection: sqlite3.Connection, retention: Retention, now_ns: int
) -> RetentionRemoved:
    """Remove the due data in one slice of chunks, within the caller's transaction."""
    drained = drained_row(
        dict(connection.execute("SELECT name, position FROM sinks")), retention.sink
    )
    is_too_large = (
        retention.limit_bytes is not None and space_bytes(connection)[0] > retention.limit_bytes
    )
    stripped = _strip(
        connection, before_ns(retention.samples_days, now_ns), drained, is_any=is_too_large
    )
    records = _delete(
        connection,
        before_ns(retention.records_days, now_ns),
        drained,
        is_any=is_too_large and not stripped,
    )
    return RetentionRemoved(records, stripped, is_all=not stripped and not records)


def bound_own(connection: sqlite3.Connection, limit_bytes: int) -> None:
    """Remove the oldest of this machine's own runs, within the caller's transaction.

    Raw samples are removed first, then records.

    Received records are not removed; the newest run stays whole. Some more than needed is removed,
    as room for further runs.
    """
    chunks = connection.execute(
        "SELECT chunk, last_row, length(body), has_samples FROM chunks WHERE is_own ORDER BY chunk"
    ).fetchall()
    over_bytes = sum(size for _, _, size, _ in chunks) - limit_bytes
    if over_bytes <= 0:
        return
    over_bytes += limit_bytes // _OWN_ROOM_SHARE
    for chunk, _, size_bytes, has_samples in chunks[:-1]:
        if over_bytes > 0 and has_samples:
            (body,) = connection.execute(
                "SELECT body FROM chunks WHERE chunk = ?", (chunk,)
            ).fetchone()
            smaller = without_samples(body)
            connection.execute(
                "UPDATE chunks SET body = ?, has_samples = 0 WHERE chunk = ?", (smaller, chunk)
            )
            over_bytes -= size_bytes - len(smaller)
    for chunk, last_row, _, _ in chunks[:-1]:
        if over_bytes > 0:
            over_bytes -= connection.execute(
                "SELECT length(body) FROM chunks WHERE chunk = ?", (chunk,)
            ).fetchone()[0]
            remember(
                connection,
                connection.execute(
                    "SELECT device, session, seq FROM runs WHERE row = ?", (last_row,)
                ).fetchall(),
            )
            connection.execute("DELETE FROM runs WHERE row = ?", (last_row,))
            connection.execute("DELETE FROM chunks WHERE chunk = ?", (chunk,))


def _strip(connection: sqlite3.Connection, before_ns: int, drained: int, *, is_any: bool) -> int:
    chunks = connection.execute(
        "SELECT chunk, body FROM chunks WHERE has_samples AND (? OR received_ns < ?) "
        "AND last_row <= ? ORDER BY received_ns LIMIT ?",
        (is_any, before_ns, drained, SLICE_CHUNKS),
    ).fetchall()
    for chunk, body in chunks:
        try:
            smaller = without_samples(body)
        except ConfigError:
            # A field that this version skips is broken text: it is removed with the record.
            smaller = body
        connection.execute(
            "UPDATE chunks SET body = ?, has_samples = 0 WHERE chunk = ?", (smaller, chunk)
        )
    return len(chunks)


def _delete(connection: sqlite3.Connection, before_ns: int, drained: int, *, is_any: bool) -> int:
    # Rows and chunks increase together: the oldest chunks have the lowest rows.
    query = (
        "SELECT chunk, last_row, received_ns FROM chunks WHERE last_row <= ? ORDER BY chunk LIMIT ?"
    )
    due = list(
        itertools.takewhile(
            lambda row: is_any or row[2] < before_ns,
            connection.execute(query, (drained, SLICE_CHUNKS)),
        )
    )
    if not due:
        return 0
    chunk, last_row, _ = due[-1]
    remember(
        connection,
        connection.execute(
            "SELECT device, session, seq FROM runs WHERE row <= ?", (last_row,)
        ).fetchall(),
    )
    connection.execute("DELETE FROM chunks WHERE chunk <= ?", (chunk,))
    return remove_rows(connection, last_row)


def remove_rows(statements: Statements, last_row: int) -> int:
    """Remove the rows up to `last_row`; return how many.

    The remaining siblings are judged again.
    """
    touched = statements.execute(
        "SELECT DISTINCT session_started_at_ns, case_number FROM runs WHERE row <= ? AND "
        "session_started_at_ns IS NOT NULL",
        (last_row,),
    ).fetchall()
    removed: int = statements.execute("DELETE FROM runs WHERE row <= ?", (last_row,)).rowcount
    judge_siblings(statements, touched)
    return removed


def recall(statements: Statements, device: str, session: int, seq: int) -> None:
    """Remove the number of one record from the kept ranges, so that the record may come again."""
    values = (device, session, seq, seq)
    for first, last in statements.execute(f"SELECT first, last {_TOUCHING}", values).fetchall():
        statements.execute(f"DELETE {_TOUCHING}", values)
        for start, end in ((first, seq - 1), (seq + 1, last)):
            if start <= end:
                statements.execute(
                    "INSERT INTO forgotten VALUES (?, ?, ?, ?)", (device, session, start, end)
                )


def remember(statements: Statements, removed: Iterable[tuple[str, int, int]]) -> None:
    """Keep the numbers (device, session, seq) of removed records as ranges.

    Ranges that adjoin are merged.
    """
    sessions: dict[tuple[str, int], list[int]] = {}
    for device, session, seq in removed:
        sessions.setdefault((device, session), []).append(seq)
    for name, numbers in sessions.items():
        for first, last in coalesce(sorted(numbers)):
            values = (*name, first - 1, last + 1)
            joined = [
                (first, last),
                *statements.execute(f"SELECT first, last {_TOUCHING}", values).fetchall(),
            ]
            statements.execute(f"DELETE {_TOUCHING}", values)
            merged = min(start for start, _ in joined), max(end for _, end in joined)
            statements.execute("INSERT INTO forgotten VALUES (?, ?, ?, ?)", (*name, *merged))

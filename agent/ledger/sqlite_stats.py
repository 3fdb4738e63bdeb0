"""Statistics of a SQLite ledger: its contents and what takes the space, without reading records."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.ledger.ledger import GROWTH_DAYS, LedgerPart, LedgerStats
from edgemeter.agent.ledger.ledger_file import space_bytes


def ledger_stats(connection: sqlite3.Connection, path: Path) -> LedgerStats:
    """Return the numbers of the ledger at `path`, read over `connection`."""
    first_ns, last_ns, chunks = connection.execute("SELECT min(received_ns), max(received_ns), count(*) FROM chunks").fetchone()
    query = "SELECT device, subject, verdict, count(*) FROM runs GROUP BY device, subject, verdict"
    kinds = connection.execute(query).fetchall()
    verdicts = {state: sum(one[3] for one in kinds if one[2] == state) for state in sorted({one[2] for one in kinds})}
    return LedgerStats(
        path=str(path),
        runs=sum(verdicts.values()),
        devices=len({one[0] for one in kinds}),
        cases=len({one[:2] for one in kinds}),
        verdicts=verdicts,
        first_received_ns=first_ns,
        last_received_ns=last_ns,
        chunks=chunks,
        chunks_with_samples=_number(connection, "SELECT count(*) FROM chunks WHERE has_samples"),
        quarantined=_number(connection, "SELECT count(*) FROM quarantine"),
        sinks=dict(connection.execute("SELECT name, position FROM sinks ORDER BY name")),
        last_row=_number(connection, "SELECT coalesce(max(row), 0) FROM runs"),
        growth_bytes_per_day=_growth(connection, last_ns),
        parts=tuple(_parts(connection, path)),
    )


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _growth(connection: sqlite3.Connection, last_ns: int | None) -> float | None:
    if last_ns is None:
        return None
    query = "SELECT coalesce(sum(length(body)), 0), min(received_ns) FROM chunks WHERE received_ns > ?"
    size_bytes, first_ns = connection.execute(query, (last_ns - GROWTH_DAYS * NS_PER_DAY,)).fetchone()
    days = (last_ns - first_ns) / NS_PER_DAY
    return size_bytes / days if days >= 1 else None


def _parts(connection: sqlite3.Connection, path: Path) -> Sequence[LedgerPart]:
    used_bytes, free_bytes = space_bytes(connection)
    records = "SELECT coalesce(sum(length(body)), 0) FROM chunks WHERE has_samples"
    with_samples, without = _number(connection, records), _number(connection, f"{records} = 0")
    wal = path.with_name(f"{path.name}-wal")
    rest = used_bytes - with_samples - without
    return (
        LedgerPart("records with raw samples", with_samples),
        LedgerPart("records without raw samples", without),
        LedgerPart("rows, indexes, quarantine and the rest", max(0, rest)),
        LedgerPart("free, to be reused", free_bytes),
        LedgerPart("not written back yet (WAL)", wal.stat().st_size if wal.exists() else 0),
    )

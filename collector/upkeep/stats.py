"""What a ledger holds and what takes the space, without reading records."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT, space_bytes
from edgemeter.collector.upkeep.copies import derived_files

_DAY_NS = 86_400 * 1_000_000_000
# The growth per day is the mean over this many of the last days.
GROWTH_DAYS = 7


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """A part of the disk space."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """A ledger in numbers. Times are None if it is empty; `growth_bytes_per_day` is the mean of the days before the newest record."""

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

    @property
    def size_bytes(self) -> int:
        """The size of all parts."""
        return sum(part.size_bytes for part in self.parts)


def ledger_stats(path: Path) -> LedgerStats:
    """Return the numbers of the ledger at `path`.

    Raises:
        ConfigError: there is no ledger.
        TransientError: it is in use; retry.
    """
    with closing(sqlite_file.connect(path, LEDGER_FORMAT, "read")) as connection, sqlite_file.mapped(path, LEDGER_FORMAT):
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
    size_bytes, first_ns = connection.execute(query, (last_ns - GROWTH_DAYS * _DAY_NS,)).fetchone()
    days = (last_ns - first_ns) / _DAY_NS
    return size_bytes / days if days >= 1 else None


def _parts(connection: sqlite3.Connection, path: Path) -> Sequence[LedgerPart]:
    used_bytes, free_bytes = space_bytes(connection)
    records = "SELECT coalesce(sum(length(body)), 0) FROM chunks WHERE has_samples"
    with_samples, without = _number(connection, records), _number(connection, f"{records} = 0")
    wal = path.with_name(f"{path.name}-wal")
    rest = used_bytes - with_samples - without
    derived = sum(one.stat().st_size for one in derived_files(path))
    return (
        LedgerPart("records with raw samples", with_samples),
        LedgerPart("records without raw samples", without),
        LedgerPart("rows, indexes, quarantine and the rest", max(0, rest)),
        LedgerPart("free, to be reused", free_bytes),
        LedgerPart("not written back yet (WAL)", wal.stat().st_size if wal.exists() else 0),
        LedgerPart("derived files beside it: roll-up and indexes", derived),
    )

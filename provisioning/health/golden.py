"""The golden runs of each device: when the next one is due, and what the last ones gave, by which the next one is judged."""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.health.contract import Health
from edgemeter.agent.jobs.contract import Golden
from edgemeter.provisioning.health import band
from edgemeter.provisioning.jobs import jobs
from edgemeter.provisioning.jobs.jobs import NewJob

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE golden_runs (
    job TEXT NOT NULL,
    device TEXT NOT NULL,
    ended_ns INTEGER NOT NULL,
    figures TEXT NOT NULL,
    beside TEXT NOT NULL,
    doubted TEXT NOT NULL,
    is_kept INTEGER NOT NULL,
    PRIMARY KEY (device, ended_ns, job)
) WITHOUT ROWID;
CREATE TABLE golden_plan (
    device TEXT PRIMARY KEY,
    fleet TEXT NOT NULL,
    due_ns INTEGER NOT NULL,
    boot_id TEXT,
    is_first INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX golden_plan_due ON golden_plan (due_ns);
"""

_DUE = """SELECT device, golden_plan.fleet, is_first FROM golden_plan JOIN presence USING (device)
WHERE due_ns <= ? AND state = 'online' AND NOT EXISTS (
    SELECT 1 FROM executions WHERE executions.device = golden_plan.device AND ended_ns IS NULL AND job GLOB 'golden-*'
) ORDER BY due_ns LIMIT ?"""
NS_PER_S = 1_000_000_000
TIMEOUT_S = 1800.0
NEVER_NS = 2**62
# After a start: what starts with the board has settled, and a thousand boards that got their power back do not measure at once.
AFTER_START_S, SPREAD_S = 120, 600
SOON_S = 600
# Beside the figures they are held to, kept for people.
KEPT_RUNS = 60


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """What one golden run gave, what stood beside it, and on which sides it was outside; `is_kept` where it is part of the band."""

    job: str
    device: str
    ended_ns: int
    figures: Mapping[str, float]
    beside: Mapping[str, str]
    doubted: tuple[str, ...] = ()
    is_kept: bool = True


@dataclass(frozen=True, slots=True)
class Due:
    """A device whose golden job is due; `is_first` since a start of the board, so that its first run says nothing."""

    device: str
    fleet: str
    is_first: bool = field(default=False)


def add_job(connection: sqlite3.Connection, devices: Iterable[Due], now_ns: int) -> list[str]:
    """Queue the golden job for devices within the caller's transaction; return the names of the jobs."""
    made = []
    groups: dict[bool, list[tuple[str, str]]] = {}
    for one in devices:
        groups.setdefault(one.is_first, []).append((one.device, one.fleet))
    for is_first, members in groups.items():
        new = NewJob(Golden(discard_first=is_first), "golden", TIMEOUT_S)
        made.append(jobs.add(connection, new, members, now_ns))
    return made


def plan(connection: sqlite3.Connection, health: Health, now_ns: int) -> None:
    """Plan the first golden job of a device, or the one after a start of its board, within the caller's transaction."""
    due_ns = now_ns + (AFTER_START_S + _slot(health.device)) * NS_PER_S
    connection.execute(
        "INSERT INTO golden_plan (device, fleet, due_ns, boot_id, is_first) VALUES (?, ?, ?, ?, 1) ON CONFLICT (device) DO UPDATE"
        " SET fleet = excluded.fleet, due_ns = min(due_ns, excluded.due_ns), boot_id = excluded.boot_id, is_first = 1"
        " WHERE excluded.boot_id IS NOT NULL AND boot_id IS NOT excluded.boot_id",
        (health.device, health.fleet, due_ns, health.boot_id),
    )


def take_due(connection: sqlite3.Connection, now_ns: int, every_ns: int, limit: int) -> list[Due]:
    """Return the devices that are there and whose golden job is due, and plan the one after it; one that is open already waits."""
    rows = connection.execute(_DUE, (now_ns, limit)).fetchall()
    found = [Due(row[0], row[1], bool(row[2])) for row in rows]
    next_ns = now_ns + every_ns if every_ns else NEVER_NS
    connection.executemany("UPDATE golden_plan SET due_ns = ?, is_first = 0 WHERE device = ?", [(next_ns, one.device) for one in found])
    return found


def replan(connection: sqlite3.Connection, now_ns: int, every_ns: int) -> None:
    """Plan all anew after somebody changed how often; 0: never, but when it is asked for."""
    if every_ns:
        connection.execute("UPDATE golden_plan SET due_ns = ? WHERE due_ns > ?", (now_ns + every_ns, now_ns + every_ns))
    else:
        connection.execute("UPDATE golden_plan SET due_ns = ?", (NEVER_NS,))


def soon(connection: sqlite3.Connection, device: str, now_ns: int, failures: int) -> None:
    """Plan the next golden job before its day: in ten minutes, after each further failure in twice the time."""
    due_ns = now_ns + (SOON_S << min(failures, 7)) * NS_PER_S
    statement = "UPDATE golden_plan SET due_ns = min(due_ns, ?), failures = ? WHERE device = ?"
    connection.execute(statement, (due_ns, failures + 1, device))


def at_once(connection: sqlite3.Connection, device: str, fleet: str, now_ns: int) -> None:
    """Plan the golden job for now."""
    connection.execute(
        "INSERT INTO golden_plan (device, fleet, due_ns, is_first) VALUES (?, ?, ?, 0)"
        " ON CONFLICT (device) DO UPDATE SET due_ns = excluded.due_ns, failures = 0",
        (device, fleet, now_ns),
    )


def failures(connection: sqlite3.Connection, device: str) -> int:
    """Return how many golden jobs in a row failed or were outside."""
    found = connection.execute("SELECT failures FROM golden_plan WHERE device = ?", (device,)).fetchone()
    return 0 if found is None else int(found[0])


def all_well(connection: sqlite3.Connection, device: str) -> None:
    """Forget earlier failures."""
    connection.execute("UPDATE golden_plan SET failures = 0 WHERE device = ?", (device,))


def keep(connection: sqlite3.Connection, run: GoldenRun) -> None:
    """Keep a golden run within the caller's transaction; the oldest go."""
    values = (
        run.job,
        run.device,
        run.ended_ns,
        msgspec.json.encode(dict(run.figures)).decode(),
        msgspec.json.encode(dict(run.beside)).decode(),
        msgspec.json.encode(run.doubted).decode(),
        run.is_kept,
    )
    connection.execute("INSERT OR REPLACE INTO golden_runs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    oldest = "SELECT ended_ns FROM golden_runs WHERE device = ? ORDER BY ended_ns DESC LIMIT 1 OFFSET ?"
    connection.execute(f"DELETE FROM golden_runs WHERE device = ? AND ended_ns <= ({oldest})", (run.device, run.device, KEPT_RUNS))  # noqa: S608 - our own words


def new_band(connection: sqlite3.Connection, device: str) -> None:
    """Begin the band of a device anew: what it showed so far counts no more, but for what was outside since."""
    newest = "SELECT max(ended_ns) FROM golden_runs WHERE device = ? AND is_kept"
    connection.execute(
        f"UPDATE golden_runs SET is_kept = ended_ns > coalesce(({newest}), 0) WHERE device = ?",  # noqa: S608 - our own words
        (device, device),
    )


def runs(registry: "Registry", device: str) -> list[GoldenRun]:
    """Return what is kept of a device's golden runs, the oldest first."""
    return [_run(row) for row in registry.query("SELECT * FROM golden_runs WHERE device = ? ORDER BY ended_ns", device)]


def told(run: GoldenRun | None, earlier: list[GoldenRun]) -> str:
    """Return in words how a device stands to its band, for who looks at it."""
    if run is None:
        return "no golden run yet"
    if not band.has_band(run.figures, [one.figures for one in earlier if one.is_kept]):
        return f"no band yet: {sum(one.is_kept for one in earlier)} of {band.FEWEST} earlier golden runs"
    if run.doubted:
        return f"the last golden run was outside ({', '.join(run.doubted)})"
    return "within the band"


def _slot(device: str) -> int:
    return int.from_bytes(hashlib.sha256(device.encode()).digest()[:4], "big") % SPREAD_S


def _run(row: sqlite3.Row) -> GoldenRun:
    return GoldenRun(
        job=row["job"],
        device=row["device"],
        ended_ns=row["ended_ns"],
        figures=msgspec.json.decode(row["figures"], type=dict[str, float]),
        beside=msgspec.json.decode(row["beside"], type=dict[str, str]),
        doubted=msgspec.json.decode(row["doubted"], type=tuple[str, ...]),
        is_kept=bool(row["is_kept"]),
    )

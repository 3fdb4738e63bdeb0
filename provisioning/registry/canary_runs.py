"""The canary runs of each device: when the next one is due, and the results of the last ones, which the next one is judged by."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.orders import Canary
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry, put_row

_DUE = """SELECT device, golden_plan.fleet, is_first FROM golden_plan JOIN presence USING (device)
WHERE due_ns <= ? AND state = 'online' AND NOT EXISTS (
    SELECT 1 FROM executions WHERE executions.device = golden_plan.device AND ended_ns IS NULL AND substr(job, 1, 7) = 'golden-'
) ORDER BY due_ns LIMIT ?"""
TIMEOUT_S = 1800.0
NEVER_NS = 2**62
# After a boot: start-up work has settled, and a thousand boards that got their power back do not measure at once.
AFTER_START_S, SPREAD_S = 120, 600
SOON_S = 600
# More than the baseline uses, for people to look at.
KEPT_RUNS = 60


@dataclass(frozen=True, slots=True)
class CanaryRun:
    """The figures of one canary run, the conditions `beside` it, and the sides on which it was outside (`doubted`).

    `is_kept` where it is part of the baseline.
    """

    job: str
    device: str
    ended_ns: int
    figures: Mapping[str, float]
    beside: Mapping[str, str]
    doubted: tuple[str, ...] = ()
    is_kept: bool = True


def plan_canary(statements: Statements, health: Health, now_ns: int) -> None:
    """Plan the first canary run of a device, or the one after a boot, within the caller's transaction."""
    slot_s = int.from_bytes(hashlib.sha256(health.device.encode()).digest()[:4], "big") % SPREAD_S
    due_ns = now_ns + (AFTER_START_S + slot_s) * NS_PER_S
    statements.execute(
        "INSERT INTO golden_plan (device, fleet, due_ns, boot_id, is_first) VALUES (?, ?, ?, ?, 1) ON CONFLICT (device) DO UPDATE"
        " SET fleet = excluded.fleet, boot_id = excluded.boot_id, is_first = 1,"
        " due_ns = CASE WHEN golden_plan.due_ns < excluded.due_ns THEN golden_plan.due_ns ELSE excluded.due_ns END"
        " WHERE excluded.boot_id IS NOT NULL AND coalesce(golden_plan.boot_id, '') <> excluded.boot_id",
        (health.device, health.fleet, due_ns, health.boot_id),
    )


def order_due_canaries(statements: Statements, now_ns: int, every_ns: int, limit: int) -> None:
    """Queue the due canary runs of devices that are online, and plan the next ones; a device with an open one waits.

    The first run since a board booted is discarded.
    """
    next_ns = now_ns + every_ns if every_ns else NEVER_NS
    groups: dict[bool, list[tuple[str, str]]] = defaultdict(list)
    for device, fleet, is_first in statements.execute(_DUE, (now_ns, limit)).fetchall():
        groups[bool(is_first)].append((device, fleet))
        statements.execute("UPDATE golden_plan SET due_ns = ?, is_first = 0 WHERE device = ?", (next_ns, device))
    for is_first, devices in groups.items():
        jobs.add(statements, NewJob(Canary(discard_first=is_first), "golden", TIMEOUT_S), devices, now_ns)


def replan_canaries(statements: Statements, now_ns: int, every_ns: int) -> None:
    """Plan all again after the interval was changed; 0: only on request."""
    if every_ns:
        statements.execute("UPDATE golden_plan SET due_ns = ? WHERE due_ns > ?", (now_ns + every_ns, now_ns + every_ns))
    else:
        statements.execute("UPDATE golden_plan SET due_ns = ?", (NEVER_NS,))


def plan_canary_soon(statements: Statements, device: str, now_ns: int, failures: int) -> None:
    """Plan the next canary run early: in ten minutes, doubled after each further failure."""
    due_ns = now_ns + (SOON_S << min(failures, 7)) * NS_PER_S
    statement = "UPDATE golden_plan SET due_ns = CASE WHEN due_ns < ? THEN due_ns ELSE ? END, failures = ? WHERE device = ?"
    statements.execute(statement, (due_ns, due_ns, failures + 1, device))


def plan_canary_now(statements: Statements, device: str, fleet: str, now_ns: int) -> None:
    """Plan the canary run for now."""
    statements.execute(
        "INSERT INTO golden_plan (device, fleet, due_ns, is_first) VALUES (?, ?, ?, 0)"
        " ON CONFLICT (device) DO UPDATE SET due_ns = excluded.due_ns, failures = 0",
        (device, fleet, now_ns),
    )


def count_canary_failures(statements: Statements, device: str) -> int:
    """Return how many canary runs in a row failed or were outside."""
    row = statements.execute("SELECT failures FROM golden_plan WHERE device = ?", (device,)).fetchone()
    return 0 if row is None else int(row[0])


def reset_canary_failures(statements: Statements, device: str) -> None:
    """Reset the count of failures."""
    statements.execute("UPDATE golden_plan SET failures = 0 WHERE device = ?", (device,))


def put_canary_run(statements: Statements, run: CanaryRun) -> None:
    """Write a canary run within the caller's transaction; the oldest are deleted."""
    put_row(statements, "golden_runs", run, "device", "ended_ns", "job")
    oldest = "SELECT ended_ns FROM golden_runs WHERE device = ? ORDER BY ended_ns DESC LIMIT 1 OFFSET ?"
    statements.execute(f"DELETE FROM golden_runs WHERE device = ? AND ended_ns <= ({oldest})", (run.device, run.device, KEPT_RUNS))  # noqa: S608 - our own words


def restart_baseline(statements: Statements, device: str) -> None:
    """Start the baseline of a device again, from the runs that were outside since its last one within."""
    newest = "SELECT max(ended_ns) FROM golden_runs WHERE device = ? AND is_kept = 1"
    statement = f"UPDATE golden_runs SET is_kept = CASE WHEN ended_ns > coalesce(({newest}), 0) THEN 1 ELSE 0 END WHERE device = ?"  # noqa: S608 - our own words
    statements.execute(statement, (device, device))


def read_canary_runs(registry: Registry, device: str) -> list[CanaryRun]:
    """Return the canary runs of a device, the oldest first."""
    return registry.rows(CanaryRun, "SELECT * FROM golden_runs WHERE device = ? ORDER BY ended_ns", device)

"""Whether a device is to be believed: good, or suspect with the reason in words. A suspect device measures nothing but its golden job."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE standings (
    device TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT,
    since_ns INTEGER NOT NULL,
    good_runs INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX standings_suspect ON standings (device) WHERE state = 'suspect';
"""

# So many golden runs within the band, one after the other, make a suspect good again.
GOOD_AGAIN = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """How a device stands, since when, and how many golden runs were good in a row since it is suspect."""

    device: str
    state: Literal["good", "suspect"]
    reason: str | None
    since_ns: int
    good_runs: int = 0


def suspects(registry: "Registry") -> dict[str, str]:
    """Return why which devices are suspect."""
    return {row["device"]: row["reason"] or "" for row in registry.query("SELECT device, reason FROM standings WHERE state = 'suspect'")}


def read(registry: "Registry") -> dict[str, Standing]:
    """Return how every device stands of which anything is known, by name."""
    return {row["device"]: Standing(**dict(row)) for row in registry.query("SELECT * FROM standings")}


def find(registry: "Registry", device: str) -> Standing | None:
    """Return how a device stands, None where nothing is known."""
    rows = registry.query("SELECT * FROM standings WHERE device = ?", device)
    return Standing(**dict(rows[0])) if rows else None


def put(connection: sqlite3.Connection, standing: Standing) -> None:
    """Keep how a device stands, within the caller's transaction."""
    values = (standing.device, standing.state, standing.reason, standing.since_ns, standing.good_runs)
    connection.execute("INSERT OR REPLACE INTO standings VALUES (?, ?, ?, ?, ?)", values)


def after(before: Standing | None, device: str, fault: str | None, now_ns: int) -> Standing:
    """Return how a device stands after a golden run; `fault` is why it is to be suspected, None where the run was as it should be."""
    if fault is not None:
        since_ns = before.since_ns if before and before.state == "suspect" else now_ns
        return Standing(device, "suspect", fault, since_ns)
    if before is None or before.state == "good":
        return before or Standing(device, "good", None, now_ns)
    if before.good_runs + 1 >= GOOD_AGAIN:
        return Standing(device, "good", f"good again after {GOOD_AGAIN} golden runs within the band", now_ns)
    return Standing(device, "suspect", before.reason, before.since_ns, before.good_runs + 1)

"""What was done to the power of each device, by whom and with what outcome; and how far the rescue of a lost one has come."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE rescues (
    device TEXT PRIMARY KEY,
    attempts INTEGER NOT NULL,
    next_ns INTEGER NOT NULL,
    needs_hand INTEGER NOT NULL,
    reason TEXT
);
CREATE TABLE power_actions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    device TEXT NOT NULL,
    switch TEXT NOT NULL,
    action TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    began_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    outcome TEXT
);
CREATE INDEX power_actions_of_device ON power_actions (device, id);
CREATE INDEX power_actions_open ON power_actions (id) WHERE ended_ns IS NULL;
"""


@dataclass(frozen=True, slots=True)
class Rescue:
    """How far the rescue of a lost device has come: cut off `attempts` times, again not before `next_ns`; or it needs a hand."""

    device: str
    attempts: int
    next_ns: int
    needs_hand: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PowerAction:
    """One thing done to the power of a device; `outcome` is None while it is being done."""

    device: str
    switch: str
    action: str
    asked_by: str
    began_ns: int
    ended_ns: int | None
    outcome: str | None


def read(registry: "Registry") -> dict[str, Rescue]:
    """Return the rescues under way, and the devices that need a hand, by name."""
    return {row["device"]: _rescue(row) for row in registry.query("SELECT * FROM rescues")}


def put(connection: sqlite3.Connection, rescue: Rescue) -> None:
    """Keep how far a rescue has come, within the caller's transaction."""
    values = (rescue.device, rescue.attempts, rescue.next_ns, rescue.needs_hand, rescue.reason)
    connection.execute("INSERT OR REPLACE INTO rescues VALUES (?, ?, ?, ?, ?)", values)


def clear(connection: sqlite3.Connection, device: str) -> None:
    """Forget the rescue of a device: it is back, or somebody has seen to it."""
    connection.execute("DELETE FROM rescues WHERE device = ?", (device,))


def begin(connection: sqlite3.Connection, device: str, switch: str, action: str, asked_by: str, now_ns: int) -> int:
    """Note, before it is done, what is about to be done to a device's power; return the number of the note."""
    statement = "INSERT INTO power_actions (device, switch, action, asked_by, began_ns) VALUES (?, ?, ?, ?, ?)"
    return int(connection.execute(statement, (device, switch, action, asked_by, now_ns)).lastrowid or 0)


def end(connection: sqlite3.Connection, number: int, outcome: str, now_ns: int) -> None:
    """Note what came of it."""
    connection.execute("UPDATE power_actions SET ended_ns = ?, outcome = ? WHERE id = ?", (now_ns, outcome, number))


def left_open(registry: "Registry") -> list[tuple[int, PowerAction]]:
    """Return what was begun and never ended: a server that died meanwhile, perhaps between off and on."""
    return [(row["id"], _action(row)) for row in registry.query("SELECT * FROM power_actions WHERE ended_ns IS NULL ORDER BY id")]


def of_device(registry: "Registry", device: str, latest: int = 10) -> list[PowerAction]:
    """Return what was last done to a device's power, the newest first."""
    rows = registry.query("SELECT * FROM power_actions WHERE device = ? ORDER BY id DESC LIMIT ?", device, latest)
    return [_action(row) for row in rows]


def _rescue(row: sqlite3.Row) -> Rescue:
    return Rescue(row["device"], row["attempts"], row["next_ns"], bool(row["needs_hand"]), row["reason"])


def _action(row: sqlite3.Row) -> PowerAction:
    known = dict(row)
    del known["id"]
    return PowerAction(**known)

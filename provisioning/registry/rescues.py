"""Power actions on each device, by whom and with what outcome; how far the rescue of a lost one has come; who measures."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgemeter.agent.base.statements import Statements
from edgemeter.provisioning.registry.registry import Registry, put_row


@dataclass(frozen=True, slots=True)
class Rescue:
    """The rescue of a lost device: its power was cycled `attempts` times, the next time not before `next_ns`; or it needs attention."""

    device: str
    attempts: int
    next_ns: int
    needs_attention: bool = field(default=False, metadata={"column": "needs_hand"})
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PowerAction:
    """One action on the power of a device, by its number; `outcome` is None while it is under way."""

    number: int = field(metadata={"column": "id"})
    device: str
    switch: str
    action: str
    asked_by: str
    began_ns: int
    ended_ns: int | None
    outcome: str | None


def read_rescues(registry: Registry) -> dict[str, Rescue]:
    """Return the rescues under way, and the devices that need attention, by name."""
    return {rescue.device: rescue for rescue in registry.rows(Rescue, "SELECT * FROM rescues")}


def put_rescue(statements: Statements, rescue: Rescue) -> None:
    """Write the state of a rescue, within the caller's transaction."""
    put_row(statements, "rescues", rescue, "device")


def clear_rescue(statements: Statements, device: str) -> None:
    """Delete the rescue of a device: it is back, or was cleared by hand."""
    statements.execute("DELETE FROM rescues WHERE device = ?", (device,))


def begin_power_action(statements: Statements, device: str, switch: str, action: str, asked_by: str, now_ns: int) -> int:
    """Note what is about to be done to a device's power, before it is done; return the number of the action."""
    statement = """INSERT INTO power_actions (id, device, switch, action, asked_by, began_ns)
    SELECT coalesce(max(id), 0) + 1, ?, ?, ?, ?, ? FROM power_actions RETURNING id"""
    return int(statements.execute(statement, (device, switch, action, asked_by, now_ns)).fetchone()[0])


def end_power_action(statements: Statements, number: int, outcome: str, now_ns: int) -> None:
    """Note the outcome of an action."""
    statements.execute("UPDATE power_actions SET ended_ns = ?, outcome = ? WHERE id = ?", (now_ns, outcome, number))


def open_power_actions(registry: Registry) -> list[PowerAction]:
    """Return the actions that began and never ended: a server died meanwhile, perhaps between off and on."""
    return registry.rows(PowerAction, "SELECT * FROM power_actions WHERE ended_ns IS NULL ORDER BY id")


def read_power_actions(registry: Registry, device: str, latest: int = 10) -> list[PowerAction]:
    """Return the last actions on a device's power, the newest first."""
    return registry.rows(PowerAction, "SELECT * FROM power_actions WHERE device = ? ORDER BY id DESC LIMIT ?", device, latest)


def put_measuring(statements: Statements, heard: Mapping[str, int]) -> None:
    """Note when devices last reported a measurement, within the caller's transaction: a restarted service then cuts off no run."""
    statement = "INSERT INTO heard_measuring VALUES (?, ?) ON CONFLICT (device) DO UPDATE SET heard_ns = excluded.heard_ns"
    statements.executemany(statement, list(heard.items()))


def read_measuring(registry: Registry) -> dict[str, int]:
    """Return when each device last reported a measurement (UTC, ns)."""
    return {row["device"]: row["heard_ns"] for row in registry.query("SELECT * FROM heard_measuring")}

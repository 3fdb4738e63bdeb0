"""Devices in the registry: their identity, and their last reports.

A name is a label, the board's serial number is the identity, the key can be replaced.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.health import Health, ReportedMessage
from edgemeter.agent.contract.messages import Activity, DeviceState, Measuring
from edgemeter.provisioning.registry.registry import Registry

# expected: in fleet.toml or given a token, no report yet; pending: waits for approval; revoked: out
# for good.
TrustState = Literal["expected", "pending", "accepted", "revoked"]
# A late Will of a session that is over does not apply to the next session. Retained states are
# repeated each time the service starts, also of a revoked and disconnected device, whose Will the
# broker's rules hold back.
_STATE = """INSERT INTO presence (device, fleet, state, session, challenge, since_ns) \
SELECT ?, ?, ?, ?, ?, ?
WHERE NOT EXISTS (SELECT 1 FROM devices WHERE device = ? AND trust = 'revoked')
ON CONFLICT (device) DO UPDATE \
SET fleet = excluded.fleet, state = excluded.state, session = excluded.session,
    challenge = excluded.challenge,
    since_ns = CASE WHEN presence.state = excluded.state AND presence.session = excluded.session \
THEN presence.since_ns
        ELSE excluded.since_ns END
WHERE excluded.state = 'online' OR presence.session IS NULL \
OR presence.session = excluded.session"""
_HEALTH = (
    "INSERT INTO presence (device, fleet, health) VALUES (?, ?, ?) ON CONFLICT (device) DO "
    "UPDATE SET health = excluded.health"
)
# A retained message that the broker repeats after a restart of the service does not count as new.
_ACTIVITY = """INSERT INTO presence (device, fleet, activity, activity_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (device) DO UPDATE SET activity = excluded.activity, activity_ns = excluded.activity_ns
WHERE presence.activity IS NULL OR presence.activity <> excluded.activity"""
_REPORTS: dict[str, type] = {"health": Health, "activity": Activity}


@dataclass(frozen=True, slots=True)
class Device:
    """One device as known by the fleet."""

    device: str
    fleet: str
    serial: str | None = None
    board: str | None = None
    tags: tuple[str, ...] = ()
    trust: TrustState = "expected"
    changed_ns: int = 0


def put(statements: Statements, device: Device) -> None:
    # A board has one name: another loses its number.
    statements.execute(
        "UPDATE devices SET serial = NULL WHERE serial = ? AND device <> ?",
        (device.serial, device.device),
    )
    tags = msgspec.json.encode(device.tags).decode()
    values = (
        device.device,
        device.fleet,
        device.serial,
        device.board,
        tags,
        device.trust,
        device.changed_ns,
    )
    statements.execute("INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def read(registry: Registry) -> list[Device]:
    return [_device(row) for row in registry.query("SELECT * FROM devices ORDER BY fleet, device")]


def find(registry: Registry, device: str) -> Device | None:
    return next(
        map(_device, registry.query("SELECT * FROM devices WHERE device = ?", device)), None
    )


def find_by_serial(registry: Registry, serial: str) -> Device | None:
    return next(
        map(_device, registry.query("SELECT * FROM devices WHERE serial = ?", serial)), None
    )


def _device(row: sqlite3.Row) -> Device:
    return Device(**{**row, "tags": tuple(msgspec.json.decode(row["tags"]))})


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A report of a device, and when it was received."""

    device: str
    fleet: str
    message: ReportedMessage
    heard_ns: int


@dataclass(frozen=True, slots=True)
class Presence:
    """The last reports of a device, None if not reported.

    It is in `state` since `since_ns` (UTC, by the server's clock).

    Orders to it must repeat `challenge`.
    """

    device: str
    fleet: str
    state: str | None = None
    session: int | None = None
    since_ns: int | None = None
    health: Health | None = None
    activity: Activity | None = None
    activity_ns: int | None = None
    challenge: str | None = None

    @property
    def measuring(self) -> Measuring | None:
        """The current measurement, None if unknown; reported at `activity_ns`."""
        if self.activity is None or self.activity_ns is None:
            return None
        return self.activity.current(self.activity_ns, self.state, self.session, self.since_ns)


def put_reports(statements: Statements, reports: Iterable[DeviceReport]) -> None:
    for report in reports:
        message = report.message
        values: tuple[object, ...]
        if isinstance(message, DeviceState):
            statement, values = (
                _STATE,
                (message.state, message.session, message.challenge, report.heard_ns, report.device),
            )
        elif isinstance(message, Activity):
            statement, values = _ACTIVITY, (msgspec.json.encode(message), report.heard_ns)
        else:
            statement, values = _HEALTH, (msgspec.json.encode(message),)
        statements.execute(statement, (report.device, report.fleet, *values))


def put_offline(statements: Statements, device: str, now_ns: int) -> None:
    """Mark a device as offline if it cannot report that itself.

    It is done within the caller's transaction.
    """
    statements.execute(
        "UPDATE presence SET state = 'offline', since_ns = ? WHERE device = ? AND state = 'online'",
        (now_ns, device),
    )


def read_presence(registry: Registry) -> dict[str, Presence]:
    """Return every device that ever reported, by name."""
    return {
        row["device"]: _presence(row)
        for row in registry.query("SELECT * FROM presence ORDER BY device")
    }


def find_presence(registry: Registry, device: str) -> Presence | None:
    return next(
        map(_presence, registry.query("SELECT * FROM presence WHERE device = ?", device)), None
    )


def _presence(row: sqlite3.Row) -> Presence:
    reports = {
        name: None if row[name] is None else msgspec.json.decode(row[name], type=kind)
        for name, kind in _REPORTS.items()
    }
    return Presence(**{**row, **reports})

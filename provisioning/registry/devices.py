"""Devices in the registry: a name is a label, the board's serial number is the identity, the key can be replaced."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE devices (
    device TEXT PRIMARY KEY,
    fleet TEXT NOT NULL,
    serial TEXT UNIQUE,
    board TEXT,
    tags TEXT NOT NULL DEFAULT '[]',
    standing TEXT NOT NULL,
    circuit TEXT,
    power_w REAL,
    enrolled_ns INTEGER,
    changed_ns INTEGER NOT NULL
);
"""

# expected: in fleet.toml or given a token, not heard of yet; pending: asks, and somebody has to say yes; revoked: out for good.
Standing = Literal["expected", "pending", "accepted", "revoked"]


@dataclass(frozen=True, slots=True)
class Device:
    """One device as the fleet knows it; `power_w` is what it may draw from its `circuit` while it measures."""

    device: str
    fleet: str
    serial: str | None
    board: str | None
    tags: tuple[str, ...]
    standing: Standing
    circuit: str | None
    power_w: float | None
    enrolled_ns: int | None
    changed_ns: int


def put(connection: sqlite3.Connection, device: Device) -> None:
    """Keep `device` as it is said here, within the caller's transaction."""
    values = (
        device.device,
        device.fleet,
        device.serial,
        device.board,
        msgspec.json.encode(device.tags).decode(),
        device.standing,
        device.circuit,
        device.power_w,
        device.enrolled_ns,
        device.changed_ns,
    )
    connection.execute("INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def read(registry: "Registry") -> list[Device]:
    """Return every device, by fleet and name."""
    return [_device(row) for row in registry.query("SELECT * FROM devices ORDER BY fleet, device")]


def find(registry: "Registry", device: str) -> Device | None:
    """Return the device of that name, None when there is none."""
    rows = registry.query("SELECT * FROM devices WHERE device = ?", device)
    return _device(rows[0]) if rows else None


def find_serial(registry: "Registry", serial: str) -> Device | None:
    """Return the device with that serial number, None when there is none."""
    rows = registry.query("SELECT * FROM devices WHERE serial = ?", serial)
    return _device(rows[0]) if rows else None


def _device(row: sqlite3.Row) -> Device:
    return Device(**{**dict(row), "tags": tuple(msgspec.json.decode(row["tags"], type=list[str]))})

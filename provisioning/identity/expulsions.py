"""Devices in the registry that are to be thrown out of the running broker, until that is done."""

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE expulsions (
    device TEXT PRIMARY KEY,
    since_ns INTEGER NOT NULL
);
"""


def put(connection: sqlite3.Connection, device: str, now_ns: int) -> None:
    """Have a device thrown out."""
    connection.execute("INSERT OR REPLACE INTO expulsions VALUES (?, ?)", (device, now_ns))


def undone(registry: "Registry") -> list[str]:
    """Return the devices that are to be thrown out, the first first."""
    return [row["device"] for row in registry.query("SELECT device FROM expulsions ORDER BY since_ns, device")]


def done(connection: sqlite3.Connection, device: str) -> None:
    """Note that a device was thrown out, or that nobody wants it any more."""
    connection.execute("DELETE FROM expulsions WHERE device = ?", (device,))

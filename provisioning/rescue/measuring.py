"""When each device was last heard to measure: kept, so that a service that starts anew cuts nobody's run off."""

import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE heard_measuring (
    device TEXT PRIMARY KEY,
    heard_ns INTEGER NOT NULL
);
"""


def note(connection: sqlite3.Connection, heard: Mapping[str, int]) -> None:
    """Keep when devices were heard, within the caller's transaction."""
    connection.executemany("INSERT OR REPLACE INTO heard_measuring VALUES (?, ?)", list(heard.items()))


def read(registry: "Registry") -> dict[str, int]:
    """Return when which device was last heard to measure (UTC, ns)."""
    return {row["device"]: row["heard_ns"] for row in registry.query("SELECT * FROM heard_measuring")}

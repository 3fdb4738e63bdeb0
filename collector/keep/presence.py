"""Presence: which devices there are, and whether they are there, from the birth, state and health that they publish retained."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from edgemeter.agent.delivery.messages import Birth, State
from edgemeter.agent.health.contract import Health

_Said = TypeVar("_Said")

SCHEMA = """CREATE TABLE presence (
    fleet TEXT NOT NULL,
    device TEXT NOT NULL,
    state TEXT,
    session INTEGER,
    birth BLOB,
    changed_ns INTEGER NOT NULL,
    health BLOB,
    PRIMARY KEY (fleet, device)
);
"""

# A late Will of a session that is over says nothing about the one that came after it; that a device was revoked holds for each.
_STATE = """INSERT INTO presence (fleet, device, state, session, changed_ns) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (fleet, device) DO UPDATE SET state = excluded.state, session = excluded.session, changed_ns = excluded.changed_ns
WHERE excluded.state IN ('online', 'revoked') OR session IS NULL OR session = excluded.session"""
_BIRTH = """INSERT INTO presence (fleet, device, birth, changed_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (fleet, device) DO UPDATE SET birth = excluded.birth"""
_HEALTH = """INSERT INTO presence (fleet, device, health, changed_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (fleet, device) DO UPDATE SET health = excluded.health"""


@dataclass(frozen=True, slots=True)
class Change:
    """What a device said of itself, and when it was heard."""

    fleet: str
    device: str
    message: Birth | State | Health
    received_ns: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device as last heard of; null what it has not said."""

    fleet: str
    device: str
    state: str | None
    session: int | None
    birth: Birth | None
    changed_ns: int
    health: Health | None = None


def note(connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
    """Keep `changes`, within the caller's transaction."""
    for change in changes:
        name = (change.fleet, change.device)
        if isinstance(change.message, State):
            connection.execute(_STATE, (*name, change.message.state, change.message.session, change.received_ns))
        else:
            statement = _BIRTH if isinstance(change.message, Birth) else _HEALTH
            connection.execute(statement, (*name, msgspec.json.encode(change.message), change.received_ns))


def read(connection: sqlite3.Connection) -> list[Device]:
    """Return every device, by fleet and name."""
    query = "SELECT fleet, device, state, session, birth, changed_ns, health FROM presence ORDER BY fleet, device"
    return [
        Device(fleet, device, state, session, _decoded(birth, Birth), changed_ns, _decoded(health, Health))
        for fleet, device, state, session, birth, changed_ns, health in connection.execute(query)
    ]


def _decoded(said: bytes | None, kind: type[_Said]) -> _Said | None:
    return msgspec.json.decode(said, type=kind) if said else None

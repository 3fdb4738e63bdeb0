"""What each device last said of itself, and whether it is there: from the state, the birth and the health that the broker retains."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from edgemeter.agent.delivery.messages import Birth, State
from edgemeter.agent.health.contract import Health

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

_Kind = TypeVar("_Kind")

SCHEMA = """CREATE TABLE presence (
    device TEXT PRIMARY KEY,
    fleet TEXT NOT NULL,
    state TEXT,
    session INTEGER,
    since_ns INTEGER,
    birth BLOB,
    health BLOB,
    heard_ns INTEGER NOT NULL
);
CREATE INDEX presence_lost ON presence (since_ns) WHERE state = 'lost';
"""

# A late Will of a session that is over says nothing about the one that came after it; what is retained comes again at each start of ours,
# also of a device that was thrown out, whose Will the broker's rules hold back.
_STATE = """INSERT INTO presence (device, fleet, state, session, since_ns, heard_ns) VALUES (:device, :fleet, :state, :session, :now, :now)
ON CONFLICT (device) DO UPDATE SET fleet = :fleet, since_ns = CASE WHEN state IS :state AND session IS :session THEN since_ns ELSE :now END,
    state = :state, session = :session, heard_ns = :now
WHERE (:state = 'online' OR presence.session IS NULL OR presence.session = :session)
    AND NOT EXISTS (SELECT 1 FROM devices WHERE devices.device = presence.device AND standing = 'revoked')"""
_HEALTH = """INSERT INTO presence (device, fleet, health, heard_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (device) DO UPDATE SET health = excluded.health, heard_ns = excluded.heard_ns"""
_BIRTH = """INSERT INTO presence (device, fleet, birth, heard_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (device) DO UPDATE SET birth = excluded.birth, heard_ns = excluded.heard_ns"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a device said, and when it was heard."""

    device: str
    fleet: str
    message: State | Birth | Health
    heard_ns: int


@dataclass(frozen=True, slots=True)
class Presence:
    """A device as last heard of; None what it has not said. It is in `state` since `since_ns` (UTC, by the server's clock)."""

    device: str
    fleet: str
    state: str | None
    session: int | None
    since_ns: int | None
    birth: Birth | None
    health: Health | None
    heard_ns: int

    @property
    def agent(self) -> str | None:
        """The version of its agent, as it said last."""
        return self.health.agent if self.health else self.birth.agent if self.birth else None

    @property
    def board(self) -> str | None:
        """What it calls its board."""
        return self.health.board if self.health else self.birth.board if self.birth else None


def note(connection: sqlite3.Connection, said: Iterable[Said]) -> None:
    """Keep what devices said, in that order, within the caller's transaction."""
    for one in said:
        if isinstance(one.message, State):
            values = {
                "device": one.device,
                "fleet": one.fleet,
                "state": one.message.state,
                "session": one.message.session,
                "now": one.heard_ns,
            }
            connection.execute(_STATE, values)
        else:
            statement = _BIRTH if isinstance(one.message, Birth) else _HEALTH
            connection.execute(statement, (one.device, one.fleet, msgspec.json.encode(one.message), one.heard_ns))


def thrown_out(connection: sqlite3.Connection, device: str, now_ns: int) -> None:
    """Note within the caller's transaction that a device is not there any more: nobody else will say so."""
    connection.execute("UPDATE presence SET state = 'offline', since_ns = ? WHERE device = ? AND state = 'online'", (now_ns, device))


def read(registry: "Registry") -> dict[str, Presence]:
    """Return every device that was ever heard, by name."""
    return {row["device"]: _presence(row) for row in registry.query("SELECT * FROM presence ORDER BY device")}


def find(registry: "Registry", device: str) -> Presence | None:
    """Return what a device last said, None where it was never heard."""
    rows = registry.query("SELECT * FROM presence WHERE device = ?", device)
    return _presence(rows[0]) if rows else None


def lost(registry: "Registry", before_ns: int) -> list[Presence]:
    """Return the devices that have been lost since before that moment, the longest first."""
    rows = registry.query("SELECT * FROM presence WHERE state = 'lost' AND since_ns < ? ORDER BY since_ns", before_ns)
    return [_presence(row) for row in rows]


def lost_together(registry: "Registry", since_ns: int, within_ns: int) -> tuple[int, int]:
    """Return how many devices were lost within that time of `since_ns`, and how many are online or lost in all."""
    near = "SELECT count(*) FROM presence WHERE state = 'lost' AND since_ns BETWEEN ? AND ?"
    together = registry.query(near, since_ns - within_ns, since_ns + within_ns)[0][0]
    return int(together), int(registry.query("SELECT count(*) FROM presence WHERE state IN ('online', 'lost')")[0][0])


def mentioning(registry: "Registry", text: str) -> list[Presence]:
    """Return the devices in whose health that text stands somewhere: those that may name it as a sensor."""
    return [_presence(row) for row in registry.query("SELECT * FROM presence WHERE instr(health, CAST(? AS BLOB)) > 0", text)]


def _presence(row: sqlite3.Row) -> Presence:
    return Presence(**{**dict(row), "birth": _decoded(row["birth"], Birth), "health": _decoded(row["health"], Health)})


def _decoded(said: bytes | None, kind: type[_Kind]) -> _Kind | None:
    return msgspec.json.decode(said, type=kind) if said else None

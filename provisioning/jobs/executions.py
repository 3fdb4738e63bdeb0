"""Executions in the registry: one job on one device, its state, version and attempt, and what came of it.

Every change of a row gives it a new `serial`, the highest of all: whoever follows what happens asks for rows above the last one it saw.
"""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from edgemeter.agent.jobs import contract

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

# held: a campaign has not come to it yet; queued: waits for its device; sent: the device has not answered; the rest says the device.
State: TypeAlias = Literal["held", "queued", "sent"] | contract.State
IN_FLIGHT = frozenset({"sent", "accepted", "running"})
FINAL = contract.FINAL

SCHEMA = """CREATE TABLE executions (
    id INTEGER PRIMARY KEY,
    serial INTEGER NOT NULL UNIQUE,
    job TEXT NOT NULL,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    wish TEXT,
    reason TEXT,
    due_ns INTEGER NOT NULL,
    sent_ns INTEGER,
    accepted_ns INTEGER,
    running_ns INTEGER,
    ended_ns INTEGER,
    deadline_ns INTEGER,
    done_ratio REAL,
    doing TEXT,
    runs TEXT NOT NULL,
    figures TEXT NOT NULL,
    text TEXT,
    campaign TEXT,
    wave INTEGER,
    UNIQUE (job, device)
);
CREATE INDEX executions_of_device ON executions (device, id);
CREATE INDEX executions_of_campaign ON executions (campaign, wave, state, serial) WHERE campaign IS NOT NULL;
CREATE UNIQUE INDEX executions_in_flight ON executions (device) WHERE state IN ('sent', 'accepted', 'running');
CREATE INDEX executions_open ON executions (id) WHERE ended_ns IS NULL;
"""


@dataclass(frozen=True, slots=True)
class Execution:
    """One job on one device. `attempt` is 0 until it was sent for the first time; `version` counts what the server accepted of it.

    `due_ns` is the earliest start, `deadline_ns` when the server gives it up; `wish` is `cancel` where somebody wants it ended; `wave`
    is the group of its campaign. `reason` says why it is where it is.
    """

    id: int
    serial: int
    job: str
    device: str
    fleet: str
    state: State
    version: int = 1
    attempt: int = 0
    wish: Literal["cancel"] | None = None
    reason: str | None = None
    due_ns: int = 0
    sent_ns: int | None = None
    accepted_ns: int | None = None
    running_ns: int | None = None
    ended_ns: int | None = None
    deadline_ns: int | None = None
    done_ratio: float | None = None
    doing: str | None = None
    runs: tuple[str, ...] = ()
    figures: dict[str, float] | None = None
    text: str | None = None
    campaign: str | None = None
    wave: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.state in FINAL


_NAMES = tuple(field.name for field in fields(Execution))
_CHANGING = tuple(name for name in _NAMES if name not in {"id", "job", "device", "fleet", "campaign", "wave"})
_INSERT = f"INSERT INTO executions ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))})"  # noqa: S608 - our own names
_UPDATE = f"UPDATE executions SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE id = ?"  # noqa: S608 - our own names


def last_serial(connection: sqlite3.Connection) -> int:
    """Return the serial of the latest change, 0 where nothing was ever written."""
    found = connection.execute("SELECT MAX(serial) FROM executions").fetchone()[0]
    return 0 if found is None else int(found)


def insert(connection: sqlite3.Connection, executions: Collection[Execution]) -> None:
    """Keep new executions, within the caller's transaction; their `id` and `serial` are given here."""
    serial = last_serial(connection)
    highest = connection.execute("SELECT MAX(id) FROM executions").fetchone()[0] or 0
    rows = [
        (highest + place, serial + place, *(_column(execution, name) for name in _NAMES[2:]))
        for place, execution in enumerate(executions, start=1)
    ]
    connection.executemany(_INSERT, rows)


def write(connection: sqlite3.Connection, changed: Collection[Execution]) -> None:
    """Keep executions as they are said here, within the caller's transaction; each gets a new serial."""
    serial = last_serial(connection)
    rows = [
        (serial + place, *(_column(execution, name) for name in _CHANGING[1:]), execution.id)
        for place, execution in enumerate(changed, start=1)
    ]
    connection.executemany(_UPDATE, rows)


def since(registry: "Registry", serial: int, *, job: str | None = None) -> list[Execution]:
    """Return what was changed after that serial, in the order of the changes; of one job only where it is named."""
    if job is None:
        rows = registry.query("SELECT * FROM executions WHERE serial > ? ORDER BY serial", serial)
    else:
        rows = registry.query("SELECT * FROM executions WHERE job = ? AND serial > ? ORDER BY serial", job, serial)
    return [_execution(row) for row in rows]


def unfinished(registry: "Registry") -> list[Execution]:
    """Return every execution that is not final, oldest first."""
    return [_execution(row) for row in registry.query("SELECT * FROM executions WHERE ended_ns IS NULL ORDER BY id")]


def of_job(registry: "Registry", job: str) -> list[Execution]:
    """Return the executions of a job, by device."""
    return [_execution(row) for row in registry.query("SELECT * FROM executions WHERE job = ? ORDER BY device", job)]


def counts(registry: "Registry", job: str) -> dict[str, int]:
    """Return how many executions of a job are in which state."""
    return {
        row["state"]: row["n"] for row in registry.query("SELECT state, COUNT(*) AS n FROM executions WHERE job = ? GROUP BY state", job)
    }


def of_device(registry: "Registry", device: str, latest: int = 50) -> list[Execution]:
    """Return what a device was last asked to do, the newest first."""
    rows = registry.query("SELECT * FROM executions WHERE device = ? ORDER BY id DESC LIMIT ?", device, latest)
    return [_execution(row) for row in rows]


def of_campaign(registry: "Registry", campaign: str) -> list[Execution]:
    """Return the executions of a campaign, in the order in which they were made."""
    return [_execution(row) for row in registry.query("SELECT * FROM executions WHERE campaign = ? ORDER BY id", campaign)]


def find(registry: "Registry", job: str, device: str) -> Execution | None:
    """Return the execution of a job on a device, None when there is none."""
    rows = registry.query("SELECT * FROM executions WHERE job = ? AND device = ?", job, device)
    return _execution(rows[0]) if rows else None


def in_flight_of(registry: "Registry", device: str) -> Execution | None:
    """Return what the device is busy with, None when nothing is."""
    statement = "SELECT * FROM executions WHERE device = ? AND state IN ('sent', 'accepted', 'running')"
    rows = registry.query(statement, device)
    return _execution(rows[0]) if rows else None


def _column(execution: Execution, name: str) -> object:
    value = getattr(execution, name)
    if name == "runs":
        return msgspec.json.encode(value).decode()
    if name == "figures":
        return msgspec.json.encode(value or {}).decode()
    return value


def _execution(row: sqlite3.Row) -> Execution:
    known = dict(row)
    known["runs"] = tuple(msgspec.json.decode(known["runs"], type=list[str]))
    known["figures"] = msgspec.json.decode(known["figures"], type=dict[str, float])
    return Execution(**known)

"""Requests in the registry that somebody has to decide: `edgemeter fleet accept` and `reject` write, the enrolment desk answers."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgemeter.agent.errors import ConfigError

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

# `topic` is where the answer goes; `name` what the device is to be called; `decision` is NULL until somebody has decided.
SCHEMA = """CREATE TABLE requests (
    request TEXT PRIMARY KEY,
    topic TEXT NOT NULL,
    claim TEXT,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    serial TEXT NOT NULL,
    serial_source TEXT NOT NULL,
    board TEXT,
    csr TEXT NOT NULL,
    key_sha256 TEXT NOT NULL,
    why TEXT NOT NULL,
    asked_ns INTEGER NOT NULL,
    decision TEXT,
    name TEXT
);
"""
KEPT_UNDECIDED = 10_000

Decision = Literal["accepted", "rejected"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request: which board asks for which name, and why that is not granted by itself."""

    request: str
    topic: str
    claim: str | None
    device: str
    fleet: str
    serial: str
    serial_source: str
    board: str | None
    csr: str
    key_sha256: str
    why: str
    asked_ns: int
    decision: Decision | None = None
    name: str | None = None


def put(connection: sqlite3.Connection, one: Request) -> None:
    """Keep a request; of one board and topic the last, and no more than 10,000 in all."""
    connection.execute("DELETE FROM requests WHERE topic = ? AND serial = ?", (one.topic, one.serial))
    values = (
        *(one.request, one.topic, one.claim, one.device, one.fleet, one.serial, one.serial_source),
        *(one.board, one.csr, one.key_sha256, one.why, one.asked_ns, one.decision, one.name),
    )
    connection.execute("INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    oldest = "SELECT request FROM requests WHERE decision IS NULL ORDER BY asked_ns DESC LIMIT -1 OFFSET ?"
    connection.execute(f"DELETE FROM requests WHERE request IN ({oldest})", (KEPT_UNDECIDED,))  # noqa: S608 - our own text


def of_board(registry: "Registry", topic: str, serial: str) -> Request | None:
    """Return the request of the board with that serial on that topic, None when there is none."""
    rows = registry.query("SELECT * FROM requests WHERE topic = ? AND serial = ?", topic, serial)
    return Request(**dict(rows[0])) if rows else None


def undecided(registry: "Registry") -> list[Request]:
    """Return what waits for somebody, the oldest first."""
    return [Request(**dict(row)) for row in registry.query("SELECT * FROM requests WHERE decision IS NULL ORDER BY asked_ns, request")]


def decided(registry: "Registry") -> list[Request]:
    """Return the accepted requests that have no certificate yet."""
    return [Request(**dict(row)) for row in registry.query("SELECT * FROM requests WHERE decision = 'accepted' ORDER BY asked_ns")]


def pick(registry: "Registry", said: str) -> Request:
    """Return the one undecided request of the device `said`, or whose own name begins with `said`.

    Raises:
        ConfigError: there is none, or more than one.
    """
    waiting = undecided(registry)
    found = [one for one in waiting if one.device == said] or [one for one in waiting if one.request.startswith(said)]
    if not found:
        message = f"nobody who waits is called {said!r}: `edgemeter fleet pending` lists who does"
        raise ConfigError(message)
    if len(found) > 1:
        which = ", ".join(f"{one.request[:12]} (serial {one.serial})" for one in found)
        message = f"{len(found)} boards ask as {said!r}: say which by its request: {which}"
        raise ConfigError(message)
    return found[0]


def decide(connection: sqlite3.Connection, request: str, decision: Decision, name: str | None = None) -> None:
    """Note what somebody decided."""
    connection.execute("UPDATE requests SET decision = ?, name = ? WHERE request = ?", (decision, name, request))


def forget(connection: sqlite3.Connection, request: str) -> None:
    """Forget a request that was answered."""
    connection.execute("DELETE FROM requests WHERE request = ?", (request,))

"""Claims in the registry: each stands for one token, which itself is kept nowhere on the server."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

# `password` is the token as the broker's password file holds it, salted and hashed; `key_sha256` whose key it was used for.
SCHEMA = """CREATE TABLE claims (
    claim TEXT PRIMARY KEY,
    password TEXT NOT NULL,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    made_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    key_sha256 TEXT,
    closed_ns INTEGER
);
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One token: for which device, until when, and what became of it."""

    claim: str
    password: str
    device: str
    fleet: str
    made_ns: int
    expires_ns: int
    key_sha256: str | None = None
    closed_ns: int | None = None


def put(connection: sqlite3.Connection, claim: Claim) -> None:
    """Keep a new claim, and close what the device had before: one device, one token."""
    close_of_device(connection, claim.device, claim.made_ns)
    values = (claim.claim, claim.password, claim.device, claim.fleet, claim.made_ns, claim.expires_ns, claim.key_sha256, claim.closed_ns)
    connection.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def find(registry: "Registry", claim: str) -> Claim | None:
    """Return the claim of that name, None when there is none."""
    rows = registry.query("SELECT * FROM claims WHERE claim = ?", claim)
    return Claim(**dict(rows[0])) if rows else None


def open_at(registry: "Registry", now_ns: int) -> list[Claim]:
    """Return the claims that may still be used at `now_ns`, by name."""
    rows = registry.query("SELECT * FROM claims WHERE closed_ns IS NULL AND expires_ns > ? ORDER BY claim", now_ns)
    return [Claim(**dict(row)) for row in rows]


def bind(connection: sqlite3.Connection, claim: str, key_sha256: str) -> None:
    """Note for which key the token was used: it serves no other."""
    connection.execute("UPDATE claims SET key_sha256 = ? WHERE claim = ?", (key_sha256, claim))


def close(connection: sqlite3.Connection, claim: str, now_ns: int) -> None:
    """End a claim."""
    connection.execute("UPDATE claims SET closed_ns = ? WHERE claim = ? AND closed_ns IS NULL", (now_ns, claim))


def close_of_device(connection: sqlite3.Connection, device: str, now_ns: int) -> None:
    """End every claim of a device."""
    connection.execute("UPDATE claims SET closed_ns = ? WHERE device = ? AND closed_ns IS NULL", (now_ns, device))

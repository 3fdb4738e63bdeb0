"""Device certificates in the registry: every one that was issued, and whether it was revoked."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

# `serial` is the board's, `number` the certificate's own.
SCHEMA = """CREATE TABLE certificates (
    number TEXT PRIMARY KEY,
    device TEXT NOT NULL,
    serial TEXT NOT NULL,
    key_sha256 TEXT NOT NULL,
    pem TEXT NOT NULL,
    issued_ns INTEGER NOT NULL,
    not_after_ns INTEGER NOT NULL,
    revoked_ns INTEGER,
    reason TEXT
);
CREATE INDEX certificates_by_key ON certificates (key_sha256);
"""


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate: for which device and board, until when, and why it is out."""

    number: str
    device: str
    serial: str
    key_sha256: str
    pem: str
    issued_ns: int
    not_after_ns: int
    revoked_ns: int | None = None
    reason: str | None = None


def put(connection: sqlite3.Connection, one: Certificate) -> None:
    """Keep a certificate that was issued."""
    values = (one.number, one.device, one.serial, one.key_sha256, one.pem, one.issued_ns, one.not_after_ns, one.revoked_ns, one.reason)
    connection.execute("INSERT INTO certificates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def of_device(registry: "Registry", device: str) -> list[Certificate]:
    """Return every certificate of a device, the newest first."""
    rows = registry.query("SELECT * FROM certificates WHERE device = ? ORDER BY issued_ns DESC, number", device)
    return [Certificate(**dict(row)) for row in rows]


def of_key(registry: "Registry", key_sha256: str) -> list[Certificate]:
    """Return every certificate of a key, the newest first."""
    rows = registry.query("SELECT * FROM certificates WHERE key_sha256 = ? ORDER BY issued_ns DESC, number", key_sha256)
    return [Certificate(**dict(row)) for row in rows]


def revoke(connection: sqlite3.Connection, device: str, now_ns: int, reason: str) -> int:
    """Revoke whatever certificates of a device are not; return how many."""
    statement = "UPDATE certificates SET revoked_ns = ?, reason = ? WHERE device = ? AND revoked_ns IS NULL"
    return connection.execute(statement, (now_ns, reason, device)).rowcount


def revoked(registry: "Registry") -> set[str]:
    """Return the numbers of all revoked certificates."""
    return {row["number"] for row in registry.query("SELECT number FROM certificates WHERE revoked_ns IS NOT NULL")}

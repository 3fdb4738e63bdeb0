"""Releases in the registry: signed bundles that are among the fleet's content, one row each; a version has one for each kind of board."""

import sqlite3
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from edgemeter.agent.update import version_order

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

SCHEMA = """CREATE TABLE releases (
    sha256 TEXT PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    board TEXT NOT NULL,
    arch TEXT NOT NULL,
    python TEXT NOT NULL,
    glibc TEXT NOT NULL,
    checked TEXT NOT NULL,
    built_ns INTEGER NOT NULL,
    added_ns INTEGER NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Release:
    """One bundle: what of the content it is, what it holds, and for what; `checked` says how it was tried before it was signed."""

    sha256: str
    size_bytes: int
    name: str
    version: str
    board: str
    arch: str
    python: str
    glibc: str
    checked: str
    built_ns: int
    added_ns: int


def put(connection: sqlite3.Connection, release: Release) -> None:
    """Keep a release, within the caller's transaction; the same bundle stands once."""
    connection.execute("INSERT OR IGNORE INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(release))


def read(registry: "Registry") -> list[Release]:
    """Return every release, the newest version first, of one version and target the latest build first."""
    found = [Release(**dict(row)) for row in registry.query("SELECT * FROM releases ORDER BY board, python, built_ns DESC, sha256")]
    return sorted(found, key=lambda one: version_order.key(one.version), reverse=True)

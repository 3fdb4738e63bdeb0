"""The outbox's file: its tables, and how a file of an older version becomes one of this.

The raw samples lie in a table of their own, so that they can go before a record does. `unstamped` names the records whose start could
not be stamped right yet; `dropped` counts what had to go because the outbox was full.
"""

import sqlite3

from edgemeter.agent.delivery import sqlite_file

_RECORDS = """CREATE TABLE records (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kept_ns INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    record BLOB NOT NULL,
    is_shed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, seq)
)"""
_UNSTAMPED = """CREATE TABLE unstamped (
    row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE,
    boot_id TEXT NOT NULL,
    since_boot_ns INTEGER NOT NULL
)"""
_DROPPED = "CREATE TABLE dropped (device TEXT PRIMARY KEY, traces INTEGER NOT NULL, records INTEGER NOT NULL)"


def _from_1_to_2(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE records ADD COLUMN is_shed INTEGER NOT NULL DEFAULT 0")
    connection.execute(_UNSTAMPED)
    connection.execute(_DROPPED)


_TABLES = (
    "CREATE TABLE opened (times INTEGER NOT NULL)",
    "INSERT INTO opened VALUES (0)",
    _RECORDS,
    "CREATE TABLE samples (row INTEGER PRIMARY KEY REFERENCES records (row) ON DELETE CASCADE, series BLOB NOT NULL)",
    _UNSTAMPED,
    _DROPPED,
)
FORMAT = sqlite_file.Format(
    what="outbox",
    application_id=0x45644F62,  # "EdOb"
    version=2,
    schema="".join(f"{statement};\n" for statement in _TABLES),
    elsewhere="move it away (a new outbox is made) or choose another place with EDGEMETER_HOME",
    steps={1: _from_1_to_2},
)

"""The digest's file: beside the ledger, made again from it at any time, so that nothing is lost with it."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from edgemeter.agent import records
from edgemeter.agent.delivery import sqlite_file
from edgemeter.collector import compare

APPLICATION_ID = 0x45644467  # "EdDg"
BUSY_TIMEOUT_S = 30.0

SCHEMA = """CREATE TABLE place (identity TEXT NOT NULL, position INTEGER NOT NULL, has_repeats INTEGER);
CREATE TABLE cases (
    case_number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    template BLOB NOT NULL,
    is_stale INTEGER NOT NULL,
    first_session INTEGER,
    first_seq INTEGER,
    summary BLOB
);
CREATE TABLE runs (row INTEGER PRIMARY KEY, case_number INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX runs_of_case ON runs (case_number);
CREATE TABLE unusable (
    row INTEGER PRIMARY KEY,
    started_at_ns INTEGER NOT NULL,
    device TEXT NOT NULL,
    session INTEGER,
    seq INTEGER,
    role TEXT NOT NULL,
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    body BLOB NOT NULL
)"""
TABLES = ("place", "cases", "runs", "unusable")


def path_of(ledger: Path) -> Path:
    """Return where the digest of a ledger lies."""
    return ledger.with_name(f"{ledger.name}.digest")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection to the file at `path`, which is made when it is absent; raises what SQLite raises."""
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        _refuse_foreign(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        # Nothing is lost with it, so nothing waits for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -65536")
        if not _is_ours(connection):
            with sqlite_file.transaction(connection):
                # Another process may have done it meanwhile.
                if not _is_ours(connection):
                    for statement in SCHEMA.split(";\n"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        yield connection


def _is_ours(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID)


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    if not _is_ours(connection) and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        message = f"{str(path)!r} is another program's"
        raise sqlite3.NotSupportedError(message)


def remove(path: Path) -> None:
    """Remove the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def code() -> str:
    """Return what tells the code that sums up from any other: figures that other code computed are computed again."""
    told = hashlib.sha256(SCHEMA.encode())
    folders = (Path(compare.__file__).parent, Path(__file__).parent)
    for source in (Path(records.__file__), *(one for folder in folders for one in sorted(folder.glob("*.py")))):
        told.update(source.read_bytes())
    return told.hexdigest()[:16]

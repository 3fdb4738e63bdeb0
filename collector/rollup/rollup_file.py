"""The roll-up's file: beside the ledger, and rebuilt from it at any time.

A record is stored without the fields that no comparison reads, compressed against another record of its case.
The core's SQLite file is not used, because a damaged roll-up is rebuilt instead of reported, and because it needs no durability.
"""

import contextlib
import hashlib
import sqlite3
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.contract import record
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector import compare, trend
from edgemeter.collector.ledgers.place import LedgerPlace, beside
from edgemeter.collector.runs import cases

APPLICATION_ID = 0x45644467  # "EdDg"
BUSY_TIMEOUT_S = 30.0

# Raised whenever the tables change: a file of another version is made anew.
ROLLUP_VERSION = 1

ROLLUP_SCHEMA = """CREATE TABLE place (identity TEXT NOT NULL, position INTEGER NOT NULL, has_repeats INTEGER);
CREATE TABLE cases (
    case_number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    template BLOB NOT NULL,
    is_stale INTEGER NOT NULL,
    first_session INTEGER,
    first_seq INTEGER,
    summary BLOB,
    all_days BLOB
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
ROLLUP_TABLES = ("place", "cases", "runs", "unusable")


def rollup_path(ledger: LedgerPlace) -> Path:
    """Return the path of a ledger's roll-up."""
    return beside(ledger, ".digest")


@contextlib.contextmanager
def open_rollup(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection to the file at `path`, created if absent; raises what SQLite raises."""
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        _refuse_foreign(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        # It can be rebuilt, so nothing waits for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -65536")
        if not _is_current(connection):
            with sqlite_file.transaction(connection):
                # Another process may have created it meanwhile.
                if not _is_current(connection):
                    _create(connection)
        yield connection


def _create(connection: sqlite3.Connection) -> None:
    """Create the tables, in place of those of another version."""
    for table in ROLLUP_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in ROLLUP_SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {ROLLUP_VERSION}")


def _is_current(connection: sqlite3.Connection) -> bool:
    return _is_ours(connection) and bool(connection.execute("PRAGMA user_version").fetchone()[0] == ROLLUP_VERSION)


def _is_ours(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID)


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    if not _is_ours(connection) and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise sqlite3.NotSupportedError(f"{str(path)!r} belongs to another program")


def remove_rollup(path: Path) -> None:
    """Remove the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Return a hash of the code that sums up: figures computed by other code are computed again."""
    digest = hashlib.sha256(ROLLUP_SCHEMA.encode())
    records = sorted(Path(record.__file__).parent.glob("record*.py"))
    folders = (Path(compare.__file__).parent, Path(trend.__file__).parent, Path(cases.__file__).parent, Path(__file__).parent)
    for source in (*records, *(one for folder in folders for one in sorted(folder.glob("*.py")))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


# Fields that no comparison reads; the ledger has them.
_LEFT_AWAY = {
    "samples": (),
    "outputs": (),
    "power_traces": (),
    "windows": None,
    "sustained": None,
    "cool_down": None,
    "scheduling": None,
    "observer": None,
    "answers": None,
    "agreement": None,
}

# A small window and little memory: setting up deflate costs more than compressing one record.
_WINDOW = -13
_MEMORY = 5
_LEVEL = 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RunRecord).decode


def slim_record(record: RunRecord) -> bytes:
    """Return the record without the fields that no comparison reads, not compressed; the first of a case is the template of the others."""
    return _encode(msgspec.structs.replace(record, **_LEFT_AWAY))


def pack_record(text: bytes, template: bytes) -> bytes:
    """Return `text` compressed against `template`."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, template)
    return compressor.compress(text) + compressor.flush()


def unpack_record(body: bytes, template: bytes) -> RunRecord:
    """Return the record that `pack_record` compressed."""
    return _decode(zlib.decompressobj(_WINDOW, template).decompress(body))

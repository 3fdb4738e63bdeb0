"""The index's file: beside the ledger, and made again from it at any time.

`compare`, `trend` and the page read the same rows: a run in figures, and what runs have in common (how they were measured, and on what
software) once for all of them. For summaries, a run is also kept as a record without the fields that no comparison reads, compressed
against the first record of the same case on any device and its own figures. The core's SQLite file is not used, because a damaged index is
made again instead of reported, and because it needs no durability.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from sys import intern
from typing import Any, NamedTuple

import msgspec

from edgemeter.agent.base import deflate
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.sqlite_file import BUSY_TIMEOUT_S, transaction
from edgemeter.agent.contract import case_identity, figures, record, run_figures, series
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS
from edgemeter.agent.verdict import judge, siblings
from edgemeter.collector import compare, trend
from edgemeter.collector.index.stored_runs import COMMON, OF_RUN
from edgemeter.collector.ledgers.place import LedgerPlace, path_beside
from edgemeter.collector.runs import cases

_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode

APPLICATION_ID = 0x4564_4978  # "EdIx"

# Raised whenever the tables change: a file of another version is made anew.
INDEX_VERSION = 25
# Pages of the file that are held in memory; in larger ones less is left over beside a summary.
CACHE_KB, PAGE_BYTES = 16 << 10, 8 << 10

# What a view may be narrowed to, each a column of `cases`.
FACETS = ("fleet", "device", "board", "model", "runtime", "precision")

# Random ids differ in their last letters, and others too: a third of the bytes finds a run.
ID_END = "substr(id, -8)"
# A run by its id.
WITH_ID = f"{ID_END} = substr(?1, -8) AND id = ?1"

# SQL over the runs of a case in the table `measured`; those since `since_ns` are of the level that the board has now.
COUNTED = {
    "latency_p50_ms": "median(measured.latency_p50_ms) FILTER (WHERE is_usable AND started_at_ns >= since_ns)",
    "runs": "count(*)",
    "usable": "count(*) FILTER (WHERE is_usable)",
    "disturbed": "count(*) FILTER (WHERE is_usable AND verdict = 'disturbed')",
    "throttled": "count(*) FILTER (WHERE is_throttled)",
    "throttling_known": "count(is_throttled)",
    "first_ns": "min(started_at_ns)",
    "newest_ns": "max(started_at_ns)",
    "temperature_max_c": "max(measured.temperature_max_c) FILTER (WHERE is_usable)",
}
# Counts the runs of the case of a number, and takes the board of the newest.
COUNT_CASE = f"""UPDATE cases SET ({", ".join(COUNTED)}, latency_p50_of_all_ms) = (
    SELECT {", ".join(COUNTED.values())}, median(measured.latency_p50_ms) FILTER (WHERE is_usable)
    FROM measured WHERE measured.case_number = ?1
), board = (
    SELECT json_extract(CAST(key AS TEXT), '$.board') FROM measured JOIN series USING (series)
    WHERE measured.case_number = ?1 ORDER BY started_at_ns DESC, row DESC LIMIT 1
) WHERE case_number = ?1"""  # noqa: S608 - our own names

# A board type is a row of `series` without a device; its version changes with each of its members.
INDEX_SCHEMA = f"""CREATE TABLE place (
    identity TEXT NOT NULL, position INTEGER NOT NULL, runs INTEGER NOT NULL, has_repeats INTEGER NOT NULL
);
CREATE TABLE cases (
    case_number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    {", ".join(f"{name} TEXT NOT NULL" for name in FACETS)},
    template INTEGER NOT NULL,
    since_ns INTEGER NOT NULL DEFAULT 0,
    {", ".join(COUNTED)},
    latency_p50_of_all_ms
);
CREATE INDEX cases_by_facet ON cases ({", ".join(FACETS)});
CREATE TABLE summaries (
    case_number INTEGER PRIMARY KEY,
    started_at_ns INTEGER NOT NULL,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    head BLOB NOT NULL,
    summary BLOB NOT NULL,
    run_values BLOB NOT NULL,
    head_of_all BLOB,
    summary_of_all BLOB,
    run_values_of_all BLOB
);
CREATE TABLE common (
    fingerprint INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, text TEXT NOT NULL, {", ".join(f"{name} TEXT" for name in COMMON)}
);
CREATE TABLE measured (
    row INTEGER PRIMARY KEY, {", ".join(OF_RUN[1:])},
    at_ns AS (coalesce(own_at_ns, started_at_ns)),
    verdict AS (CASE WHEN siblings IS NULL THEN own_verdict ELSE 'disturbed' END)
);
CREATE INDEX runs_of_case ON measured (case_number, started_at_ns);
CREATE INDEX runs_of_session ON measured (case_number, session_started_at_ns) WHERE session_started_at_ns IS NOT NULL;
CREATE INDEX runs_of_series ON measured (series, at_ns);
CREATE INDEX runs_by_time ON measured (started_at_ns);
CREATE INDEX runs_by_id ON measured ({ID_END});
CREATE INDEX runs_of_job ON measured (job) WHERE job IS NOT NULL;
CREATE INDEX unusable_runs ON measured (started_at_ns) WHERE NOT is_usable;
CREATE VIEW runs AS SELECT row, case_number, series, {", ".join((*RUN_COLUMNS, *VALUE_COLUMNS))}
FROM measured LEFT JOIN common USING (fingerprint);
CREATE TABLE templates (template INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, text BLOB NOT NULL);
CREATE TABLE bodies (row INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE series (
    series INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    place TEXT NOT NULL,
    of_type INTEGER,
    newest INTEGER NOT NULL,
    version INTEGER NOT NULL
);
CREATE TABLE stale (case_number INTEGER PRIMARY KEY);
CREATE TABLE skipped (row INTEGER PRIMARY KEY, device TEXT NOT NULL, id TEXT, reason TEXT NOT NULL)"""  # noqa: S608 - our own names


class IndexedCase(NamedTuple):
    """One case of the index: its number, its identity, the board that it last ran on, and the number of its runs.

    `throttled` are of those that report it (`throttling_known`). Of the figures, invalid runs have no part; `latency_p50_ms` is the
    median of the level that the board has now, or of all days where that was asked for.
    """

    number: int
    key: CaseKey
    board: str
    latency_p50_ms: float | None
    runs: int
    usable: int
    disturbed: int
    throttled: int
    throttling_known: int
    first_ns: int
    newest_ns: int
    temperature_max_c: float | None


def decode_case(row: Sequence[Any]) -> IndexedCase:
    """Return the case of a row of its fields, the key as JSON."""
    number, key, *figures = row
    # The same words in ten thousand keys are kept once.
    fields: dict[str, Any] = {name: intern(value) if isinstance(value, str) else value for name, value in _decode_fields(key).items()}
    return IndexedCase(number, CaseKey(**fields), *figures)


def index_path(ledger: LedgerPlace) -> Path:
    """Return the path of a ledger's index."""
    return path_beside(ledger, ".index")


def connect_index(path: Path) -> sqlite3.Connection:
    """Return a connection to the file at `path`, made if absent, made again if damaged.

    Raises:
        sqlite3.NotSupportedError: it belongs to another program.
        sqlite3.OperationalError: it cannot be written.
    """
    try:
        return _connect(path)
    except (sqlite3.OperationalError, sqlite3.NotSupportedError):
        raise
    except sqlite3.DatabaseError:
        remove_index(path)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _refuse_foreign(connection, path)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        # It can be made again, so nothing waits for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        connection.create_aggregate("median", 1, _Median)  # type: ignore[arg-type]
        if not _is_current(connection):
            with transaction(connection):
                # Another process may have made it meanwhile.
                if not _is_current(connection):
                    _create(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class _Median:
    """The median of a column, as SQL's `median`: NULL where there is no value."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def step(self, value: float | None) -> None:
        """Take a value."""
        if value is not None:
            self._values.append(value)

    def finalize(self) -> float | None:
        """Return the median of the values."""
        return median(self._values) if self._values else None


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    if not _is_ours(connection) and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise sqlite3.NotSupportedError(f"{str(path)!r} belongs to another program")


def _create(connection: sqlite3.Connection) -> None:
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'table')").fetchall():
        connection.execute(f'DROP {kind} "{name}"')
    for statement in INDEX_SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO place VALUES ('', 0, 0, 0)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")


def empty_index(connection: sqlite3.Connection, identity: str) -> None:
    """Remove all that is in the index, and begin it anew for the ledger of this identity."""
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 - our own names
    connection.execute("INSERT INTO place VALUES (?, 0, 0, 0)", (identity,))


def _is_current(connection: sqlite3.Connection) -> bool:
    return _is_ours(connection) and bool(connection.execute("PRAGMA user_version").fetchone()[0] == INDEX_VERSION)


def _is_ours(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID)


def unavailable(path: Path, error: sqlite3.DatabaseError) -> UnavailableError:
    """Return the error that says what to do where an index cannot be used."""
    remedy = "check its disk and its folder; it may be deleted, and is then made again"
    return UnavailableError(f"cannot use the index {str(path)!r} ({error}): {remedy}")


def remove_index(path: Path) -> None:
    """Remove the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Return a hash of the code that sums up: figures computed by other code are computed again."""
    digest = hashlib.sha256(INDEX_SCHEMA.encode())
    rules = (
        Path(figures.__file__),
        Path(case_identity.__file__),
        Path(judge.__file__),
        Path(siblings.__file__),
        Path(series.__file__),
        Path(run_figures.__file__),
    )
    folders = (Path(compare.__file__).parent, Path(trend.__file__).parent, Path(cases.__file__).parent, Path(__file__).parent)
    records = sorted(Path(record.__file__).parent.glob("record*.py"))
    for source in (*records, *rules, *(path for folder in folders for path in sorted(folder.glob("*.py")))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


# Fields that no comparison reads, but for those that figures are worked out from; the ledger has them.
_FIGURES_READ = {path.partition(".")[0] for entry in figures.FIGURES for path in (*entry.reads, entry.path)}
_NOT_COMPARED: dict[str, Any] = {
    **dict.fromkeys(("samples", "power_traces"), ()),
    **dict.fromkeys(("windows", "sustained")),
}
_LEFT_AWAY = {name: absent for name, absent in _NOT_COMPARED.items() if name not in _FIGURES_READ}

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RunRecord).decode


def slim_record(record: RunRecord) -> bytes:
    """Return the record without the fields that no comparison reads, not compressed; the first of a kind is the template of the others."""
    return _encode(msgspec.structs.replace(record, **_LEFT_AWAY))


def pack_record(text: bytes, template: bytes, own_values: Sequence[Any]) -> bytes:
    """Return `text` compressed against `template` and the values of `BESIDE_BODY` in its row."""
    return deflate.compress_beside(text, template + _encode(own_values))


def unpack_record(body: bytes, template: bytes, own_values: Sequence[Any]) -> RunRecord:
    """Return the record that `pack_record` compressed."""
    return _decode(deflate.expand_beside(body, template + _encode(own_values)))

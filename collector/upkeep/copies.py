"""Backup and restore of a ledger, with its watch file, which people wrote.

A collector may be running.
"""

import contextlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base import durable_file, sqlite_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.sqlite_file import FileFormat
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT
from edgemeter.collector.trend.watch_file import WATCH_FORMAT, watch_file_beside


@dataclass(frozen=True, slots=True)
class LedgerCopy:
    """A finished copy, with the number of runs and the files.

    It has when the newest run was received (None: there is none).
    """

    runs: int
    files: tuple[Path, ...]
    last_received_ns: int | None


def backup(ledger: Path, to: Path) -> LedgerCopy:
    """Copy the ledger, and the watch file next to it, to a new file.

    The ledger may be written meanwhile.

    Raises:
        ConfigError: there is no ledger, or the file exists.
        UnavailableError: the copy cannot be written, or is damaged.
    """
    watched, copied_watch = watch_file_beside(str(ledger)), watch_file_beside(str(to))
    for path in (to, copied_watch) if watched.exists() else (to,):
        if path.exists():
            raise ConfigError(f"{str(path)!r} exists: give another name; nothing is overwritten")
    _copy_file(ledger, to, LEDGER_FORMAT)
    files = [to]
    if watched.exists():
        _copy_file(watched, copied_watch, WATCH_FORMAT)
        files.append(copied_watch)
    with closing(sqlite3.connect(to)) as connection:
        runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        last_ns = connection.execute("SELECT max(received_ns) FROM chunks").fetchone()[0]
    return LedgerCopy(runs, tuple(files), last_ns)


def restore(copy: Path, ledger: Path) -> LedgerCopy:
    """Restore a backup as a ledger that does not exist.

    Raises:
        ConfigError: there is no backup, or a ledger exists.
        UnavailableError: it cannot be written, or the backup is damaged.
    """
    stray = [
        path
        for path in (ledger.with_name(f"{ledger.name}{part}") for part in ("", "-wal", "-shm"))
        if path.exists()
    ]
    if stray:
        raise ConfigError(
            f"{str(stray[0])!r} exists: stop the collector, move the ledger with its -wal and "
            "-shm away, then restore"
        )
    result = backup(copy, ledger)
    with sqlite_file.mapped(ledger, LEDGER_FORMAT), closing(sqlite3.connect(ledger)) as connection:
        # A copy is not in WAL mode: readers and the writer would block each other.
        connection.execute("PRAGMA journal_mode = WAL")
    return result


def _copy_file(source: Path, to: Path, form: FileFormat) -> None:
    part = to.with_name(f"{to.name}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with (
            closing(sqlite_file.connect(source, form, "read")) as connection,
            sqlite_file.mapped(source, form),
        ):
            # The copy is another file; the ledger itself is not written.
            connection.execute("PRAGMA query_only = OFF")
            connection.execute("VACUUM INTO ?", (str(part),))
        with sqlite_file.mapped(part, form), closing(sqlite3.connect(part)) as connection:
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise UnavailableError(
                f"the copy of {str(source)!r} is damaged ({result}): check the disk "
                f"and the {form.what}"
            )
        durable_file.sync(part)
        part.rename(to)
        durable_file.sync(to.parent)
    except OSError as error:
        raise UnavailableError(
            f"cannot write the copy {str(to)!r} ({error.strerror}): give a writable folder with "
            "enough space"
        ) from error
    finally:
        for stray in (part, part.with_name(f"{part.name}-journal")):
            with contextlib.suppress(OSError):
                stray.unlink()

"""A ledger copied away, brought back, and packed; a collector may go on meanwhile, but for the packing, which waits for it.

A copy is one file that SQLite wrote from one moment's content, packed and checked before it gets its name: there is never half of one.
"""

import contextlib
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.delivery.sqlite_file import Format
from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.collector.keep.ledger_file import FORMAT
from edgemeter.collector.trend import watch_file
from edgemeter.collector.upkeep import beside


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied: how many runs, to which files, and when the newest of the runs came (None: there is none)."""

    runs: int
    files: tuple[Path, ...]
    last_received_ns: int | None


@dataclass(frozen=True, slots=True)
class Packed:
    """The size of the file before and after."""

    before_bytes: int
    after_bytes: int


def backup(ledger: Path, to: Path) -> Copied:
    """Copy the ledger, and the annotations beside it, to a file that is not there yet; the ledger may be written meanwhile.

    Raises:
        ConfigError: there is no ledger, or a file of that name is there.
        UnavailableError: the copy cannot be written, or is not what it should be.
    """
    return _copy_all(ledger, to)


def restore(copy: Path, ledger: Path) -> Copied:
    """Put a backup in the place of a ledger that is not there any more; what was made from the old one is removed.

    Raises:
        ConfigError: there is no backup, or something is where the ledger would be.
        UnavailableError: it cannot be written, or the backup is damaged.
    """
    stray = [path for path in (ledger.with_name(f"{ledger.name}{part}") for part in beside.SQLITE) if path.exists()]
    if stray:
        message = f"{str(stray[0])!r} is there: end the collector, move the ledger with its -wal and -shm away, then restore"
        raise ConfigError(message)
    done = _copy_all(copy, ledger)
    # Rows get their numbers anew: what was made from the other ledger would count its rows among them.
    for path in beside.derived(ledger):
        path.unlink(missing_ok=True)
    with sqlite_file.mapped(ledger, FORMAT), closing(sqlite3.connect(ledger)) as connection:
        # A copy is not in the mode of a ledger: readers and the writer would wait for each other.
        connection.execute("PRAGMA journal_mode = WAL")
    return done


def vacuum(ledger: Path) -> Packed:
    """Give the file's free space back to the disk.

    Raises:
        ConfigError: there is no ledger.
        TransientError: a collector is writing to it.
        UnavailableError: the disk has no room for the second copy that this takes meanwhile.
    """
    before_bytes = _size_bytes(ledger)
    with closing(sqlite_file.connect(ledger, FORMAT, "read")) as connection:
        pages, free, page_bytes = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        needed_bytes = 2 * (pages - free) * page_bytes
        free_bytes = shutil.disk_usage(ledger.parent).free
        if free_bytes < needed_bytes:
            message = (
                f"packing {str(ledger)!r} takes {needed_bytes / 1e6:.0f} MB of the disk for a while, {free_bytes / 1e6:.0f} MB are free: "
                "`edgemeter collector backup` to another disk is packed too"
            )
            raise UnavailableError(message)
        connection.execute("PRAGMA query_only = OFF")
        with sqlite_file.mapped(ledger, FORMAT):
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Packed(before_bytes, _size_bytes(ledger))


def _copy_all(ledger: Path, to: Path) -> Copied:
    watched, copied_watch = beside.watch(ledger), beside.watch(to)
    for path in (to, copied_watch) if watched.exists() else (to,):
        if path.exists():
            message = f"{str(path)!r} is there already: give another name, nothing is overwritten"
            raise ConfigError(message)
    _copy(ledger, to, FORMAT)
    files = [to]
    if watched.exists():
        _copy(watched, copied_watch, watch_file.FORMAT)
        files.append(copied_watch)
    with closing(sqlite3.connect(to)) as connection:
        runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        last_ns = connection.execute("SELECT max(received_ns) FROM chunks").fetchone()[0]
    return Copied(runs, tuple(files), last_ns)


def _copy(source: Path, to: Path, form: Format) -> None:
    part = to.with_name(f"{to.name}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with closing(sqlite_file.connect(source, form, "read")) as connection, sqlite_file.mapped(source, form):
            # The copy is another file: the ledger itself is not written.
            connection.execute("PRAGMA query_only = OFF")
            connection.execute("VACUUM INTO ?", (str(part),))
        _check(part, source, form)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.rename(to)
    except OSError as error:
        message = f"cannot write the copy {str(to)!r} ({error.strerror}): give a folder that may be written and has room"
        raise UnavailableError(message) from error
    finally:
        for stray in (part, part.with_name(f"{part.name}-journal")):
            with contextlib.suppress(OSError):
                stray.unlink()


def _check(part: Path, source: Path, form: Format) -> None:
    with sqlite_file.mapped(part, form), closing(sqlite3.connect(part)) as connection:
        said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        message = f"the copy of {str(source)!r} is damaged ({said}): the disk or the {form.what} itself is"
        raise UnavailableError(message)


def _size_bytes(ledger: Path) -> int:
    return sum(path.stat().st_size for path in (ledger, ledger.with_name(f"{ledger.name}-wal")) if path.exists())

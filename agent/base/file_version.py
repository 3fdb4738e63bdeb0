"""The versions of our SQLite files: an older file is brought to the present format, and a build that was rolled back goes on.

Each file says from which version on programs can write it (`min_version`). Where a change shuts earlier ones out, the file is copied
before it, as NAME.before-vN. An earlier program that finds the changed file puts it aside as NAME.aside-vN and goes on with the copy; a
later one that can read what was put aside takes over what it has.
"""

import contextlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError

logger = logging.getLogger(__name__)

# A release that has run for so long is not rolled back any more.
COPY_KEPT_S = 14 * 24 * 3600
_MIN_VERSION = "CREATE TABLE IF NOT EXISTS file_version (min_version INTEGER NOT NULL)"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One kind of file: `application_id` and `version` stand in its header (SQLite's PRAGMAs application_id and user_version).

    `schema` is its statements, each ended by a semicolon and a line end; `elsewhere` is the remedy when a file is not of this kind.
    Programs that know version `min_version` (default: this one) can write it; `upgrades` are the statements from each version to the next.
    """

    what: str
    application_id: int
    version: int
    schema: str
    elsewhere: str
    min_version: int | None = None
    upgrades: Mapping[int, str] = field(default_factory=dict)

    @property
    def oldest_writer(self) -> int:
        """The lowest version whose programs can write files of this one."""
        return self.version if self.min_version is None else self.min_version


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return a number of a file."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock for the block; commit at its end, roll back when it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def stamp(connection: sqlite3.Connection, form: FileFormat) -> None:
    """Write the versions into the file, within the caller's transaction."""
    if form.min_version is not None:
        connection.execute(_MIN_VERSION)
        connection.execute("DELETE FROM file_version")
        connection.execute("INSERT INTO file_version VALUES (?)", (form.min_version,))
    connection.execute(f"PRAGMA user_version = {form.version}")


def is_usable(connection: sqlite3.Connection, form: FileFormat) -> bool:
    """Return whether this program can use the file as it is: it has this version, or a later one that says so."""
    version = pragma(connection, "user_version")
    return version == form.version or (version > form.version and _oldest_writer(connection, version) <= form.version)


def upgrade(connection: sqlite3.Connection, path: Path, form: FileFormat) -> None:
    """Bring the file of an earlier version to this one; before a change that shuts earlier programs out it is copied.

    Raises:
        ConfigError: nothing leads from its version to this one.
        UnavailableError: the disk has no room for the copy; the file is as it was.
    """
    version = pragma(connection, "user_version")
    if any(step not in form.upgrades for step in range(version, form.version)):
        raise ConfigError(
            f"the {form.what} {str(path)!r} has version {version}, this edgemeter needs {form.version}: move it away, or use the edgemeter "
            "that made it"
        )
    # One that waited here for another process finds the work done.
    with transaction(connection):
        if pragma(connection, "user_version") == version:
            if form.oldest_writer > version:
                _copy(path, form)
            for step in range(version, form.version):
                for statement in form.upgrades[step].split(";\n"):
                    connection.execute(statement)
            stamp(connection, form)
    logger.warning("the %s %r was brought from version %d to %d", form.what, str(path), version, form.version)


def go_back(connection: sqlite3.Connection, path: Path, form: FileFormat, *, may_write: bool) -> None:
    """Put a file of a later version aside, and the copy from before in its place; closes the connection.

    Raises:
        ConfigError: there is no such copy that this program can use, or it only reads.
        TransientError: another process uses the file.
    """
    version = pragma(connection, "user_version")
    # Another program beside this one may be the one in use: only who writes takes the file over.
    copies = [copy for copy in _numbered(path, "before") if _version_of(copy) == form.version] if may_write else []
    if not copies:
        raise ConfigError(
            f"the {form.what} {str(path)!r} has version {version}, this edgemeter knows up to {form.version}: update edgemeter here"
        )
    # All that is in its log comes into the file, which can then be moved.
    if connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
        raise TransientError(f"the {form.what} {str(path)!r} of version {version} is still used by another process: end it or try again")
    connection.close()
    aside = path.with_name(f"{path.name}.aside-v{version}")
    while aside.exists() and not aside.samefile(path):
        aside = aside.with_name(f"{aside.name}-again")
    if not aside.exists():
        # Until the copy takes its name, the file has both: whatever happens in between, it is there.
        try:
            aside.hardlink_to(path)
        except OSError:
            import shutil  # noqa: PLC0415 - few file systems need it

            shutil.copyfile(path, aside)
    copies[-1].replace(path)
    durable_file.sync(path.parent)
    logger.warning(
        "the %s %r is of a later edgemeter (version %d): put aside as %r, and the copy from before that is used again",
        form.what,
        str(path),
        version,
        aside.name,
    )


def put_aside(path: Path, form: FileFormat) -> list[Path]:
    """Return what an earlier program put aside and this one can read or upgrade."""
    return [aside for aside in _numbered(path, "aside") if (version := _version_of(aside)) is not None and version <= form.version]


def drop_old_copies(path: Path) -> None:
    """Delete the copies from before a change to which nobody goes back any more."""
    for copy in _numbered(path, "before"):
        with contextlib.suppress(OSError):
            if time.time() - copy.stat().st_mtime > COPY_KEPT_S:
                copy.unlink()


def _oldest_writer(connection: sqlite3.Connection, version: int) -> int:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'file_version'").fetchone() is None:
        return version
    row = connection.execute("SELECT min_version FROM file_version").fetchone()
    return version if row is None else int(row[0])


def _copy(path: Path, form: FileFormat) -> None:
    target = path.with_name(f"{path.name}.before-v{form.version}")
    making = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        # Of what was committed; a connection of its own, as a transaction cannot copy what it holds.
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as source:
            source.execute("VACUUM INTO ?", (str(making),))
        with contextlib.closing(sqlite3.connect(making, isolation_level=None)) as copy:
            copy.execute("PRAGMA journal_mode = WAL")
        with making.open("rb") as file:
            os.fsync(file.fileno())
        making.replace(target)
        durable_file.sync(path.parent)
    except (OSError, sqlite3.Error) as error:
        making.unlink(missing_ok=True)
        raise UnavailableError(
            f"the {form.what} {str(path)!r} cannot be copied before it is changed to version {form.version} ({error}): free "
            f"{path.stat().st_size / 1e6:,.0f} MB; nothing was changed"
        ) from error


def _numbered(path: Path, kind: str) -> list[Path]:
    pattern = re.compile(rf"{re.escape(path.name)}\.{kind}-v(\d+)(-again)*")
    matches = [(int(match[1]), entry) for entry in path.parent.glob(f"{path.name}.{kind}-v*") if (match := pattern.fullmatch(entry.name))]
    return [entry for _, entry in sorted(matches)]


def _version_of(path: Path) -> int | None:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return pragma(connection, "user_version")
    except sqlite3.Error:
        return None

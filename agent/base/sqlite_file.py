"""Our SQLite files: commits are durable, foreign files are recognised, and errors have a remedy."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError

Access = Literal["write", "read"]
_Opened = TypeVar("_Opened", bound="Database")
BUSY_TIMEOUT_S = 30.0
# The index of a write-ahead log starts with this size, and a first transaction needs as much again.
SMALLEST_ROOM_BYTES = 64 << 10
MOUNTS = Path("/proc/self/mountinfo")
# Mount options that keep locks local to one machine, by file system; sshfs has no others. Sources:
# proc_pid_mountinfo(5); nfs(5), `nolock` and `local_lock`; mount.cifs(8), `nobrl`;
# sqlite.org/lockingv3.html.
_LOCAL_LOCKS = {
    "nfs": {"nolock", "local_lock=all", "local_lock=posix"},
    "nfs4": {"local_lock=all", "local_lock=posix"},
    "cifs": {"nobrl", "nolock"},
    "smb3": {"nobrl", "nolock"},
}


class FileFormat(NamedTuple):
    """One kind of file, known by the `application_id` and `version` in its header.

    These are SQLite's PRAGMAs application_id and user_version.

    `schema` contains its statements, each ended by a semicolon and a line end; `elsewhere` is the
    remedy for a file of another kind.
    """

    what: str
    application_id: int
    version: int
    schema: str
    elsewhere: str


def pragma(connection: sqlite3.Connection, name: str) -> int:
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


def connect(path: Path, form: FileFormat, access: Access = "write") -> sqlite3.Connection:
    """Return a connection to the file at `path`, usable from any one thread at a time.

    It uses WAL, and every commit is synced (FULL).

    With access `write` an absent file is created; with `read` nothing can be written.

    Raises:
        ConfigError: it is absent (access `read`), not a file of this kind, or of another version.
        UnavailableError: it may not be opened, or the disk is full.
    """
    try:
        return _connect(path, form, access)
    except ConfigError as error:
        # Not earlier: if a process opens and closes the file without SQLite, its SQLite locks on
        # the file are lost.
        if (
            access == "read"
            or not isinstance(error.__cause__, sqlite3.DatabaseError)
            or not _is_torso(path, form)
        ):
            raise
    return _connect(path, form, access)


def _connect(path: Path, form: FileFormat, access: Access) -> sqlite3.Connection:
    _look(path, form, access)
    with mapped(path, form), contextlib.ExitStack() as stack:
        connection = _open(path)
        stack.callback(connection.close)
        connection.execute("PRAGMA synchronous = FULL")
        if access == "write" and _is_blank(connection):
            _switch_to_wal(connection)
            _create(connection, form)
        _refuse_foreign(connection, path, form)
        if access == "read":
            connection.execute("PRAGMA query_only = ON")
        stack.pop_all()
        return connection


@contextlib.contextmanager
def mapped(path: Path, form: FileFormat) -> Iterator[None]:
    """Map SQLite's errors about the file at `path` to ours.

    Raises:
        ConfigError: the file is not of this kind, or damaged.
        UnavailableError: it may not be opened or written, or the disk is full.
        TransientError: another process holds it longer than the busy timeout.
    """
    began_s = time.monotonic()
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _operational(error, path, form, time.monotonic() - began_s) from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"{str(path)!r} is not an edgemeter {form.what} ({error}): {form.elsewhere}"
        ) from error


class Database:
    """The open file at `path`, usable from any thread and by several processes.

    Raises as `connect`.
    """

    def __init__(self, path: Path, form: FileFormat, access: Access = "write") -> None:
        self.path = path
        self._form = form
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = connect(path, form, access)
        self._open.row_factory = sqlite3.Row

    def __enter__(self: _Opened) -> _Opened:  # noqa: PYI019 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connection(self) -> sqlite3.Connection:
        if self._open is None:
            raise ValueError(f"the {self._form.what} was closed")
        return self._open

    @contextlib.contextmanager
    def mapped(self) -> Iterator[sqlite3.Connection]:
        """Lock the file for the block, and map SQLite's errors to ours."""
        with self._lock, mapped(self.path, self._form):
            yield self.connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for the block.

        The block's writes are durable after it, or undone if it raises. Errors are those of
        `mapped`.
        """
        with self.mapped() as connection, transaction(connection):
            yield connection

    def query(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a SELECT; raises as `mapped`."""
        with self.mapped() as connection:
            return connection.execute(statement, values).fetchall()

    def close(self) -> None:
        with self._lock:
            connection, self._open = self._open, None
            if connection is not None:
                connection.close()


def space_bytes(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the used and the free bytes in the file."""
    pages, free, size_bytes = (
        pragma(connection, name) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size_bytes, free * size_bytes


def _operational(
    error: sqlite3.OperationalError, path: Path, form: FileFormat, waited_s: float
) -> ConfigError | UnavailableError | TransientError:
    text = str(error)
    # If not even the log's index can be made, SQLite reports the same as for a full disk.
    if "full" in text or ("disk I/O error" in text and _is_full(path)):
        return UnavailableError(
            f"the {form.what} {str(path)!r} cannot grow, the disk is full: free some space; "
            "nothing kept so far is lost"
        )
    if ("locked" in text or "busy" in text) and _refuses_locks(path.parent):
        return UnavailableError(
            f"the {form.what} {str(path)!r} cannot be locked, its file system gives no locks "
            "(ENOLCK): start its lock service (NFS: "
            "rpc.statd), or put the file on a local disk"
        )
    if ("locked" in text or "busy" in text) and waited_s < BUSY_TIMEOUT_S:
        # SQLite does not wait if that cannot help, as for a transaction within a read that is out
        # of date.
        return TransientError(
            f"the {form.what} {str(path)!r} is locked by another connection: try again"
        )
    if "locked" in text or "busy" in text:
        return TransientError(
            f"the {form.what} {str(path)!r} has been locked by another process for over "
            f"{BUSY_TIMEOUT_S:g} s: end it or try again"
        )
    if "no such table" in text or "no such column" in text:
        return ConfigError(
            f"{str(path)!r} is not an edgemeter {form.what} ({text}): {form.elsewhere}"
        )
    return UnavailableError(
        f"cannot use the {form.what} {str(path)!r} ({text}): check that its folder may be "
        f"written, or {form.elsewhere}"
    )


def _is_full(path: Path) -> bool:
    import shutil  # noqa: PLC0415 - few opened files need it

    with contextlib.suppress(OSError):
        return shutil.disk_usage(path.parent).free < SMALLEST_ROOM_BYTES
    return False


def _look(path: Path, form: FileFormat, access: Access) -> None:
    try:
        if path.is_dir():
            raise ConfigError(
                f"{str(path)!r} is a folder, not an edgemeter {form.what}: {form.elsewhere}"
            )
        if access == "write" and (kind := shared_without_locks(path.parent)) is not None:
            raise ConfigError(
                f"the {form.what} {str(path)!r} would be on {kind}, where locks do not exclude "
                "other machines: put it on a local disk, or "
                "mount with locks"
            )
        if path.exists():
            return
        if access == "read":
            raise ConfigError(f"there is no {form.what} at {str(path)!r}: {form.elsewhere}")
        with mapped(path, form):
            _make(path, form)
    except OSError as error:
        raise UnavailableError(
            f"cannot open or make the {form.what} {str(path)!r}: {error.strerror}; {form.elsewhere}"
        ) from error


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def _is_torso(path: Path, form: FileFormat) -> bool:
    """Return whether the file is the remains of a new one on a full disk.

    It is shorter than its header says, for a file without content.

    It is renamed to NAME.torso. Source: the SQLite database file format, 1.3: page size at byte 16,
    the number of pages at byte 28.
    """
    with path.open("rb") as file:
        header = file.read(100)
    page_bytes, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    is_short = header[:15] == b"SQLite format 3" and path.stat().st_size < page_bytes * pages
    if not is_short or path.with_name(f"{path.name}-wal").exists():
        return False
    with contextlib.closing(_open(Path(":memory:"))) as blank:
        _create(blank, form)
        is_new = pages == pragma(blank, "page_count")
    if is_new:
        aside = path.replace(path.with_name(f"{path.name}.torso"))
        import logging  # noqa: PLC0415 - few opened files need it

        logging.getLogger(__name__).warning(
            "the %s %r was cut short by a full disk when it was created: moved to %r",
            form.what,
            str(path),
            aside.name,
        )
    return is_new


def _make(path: Path, form: FileFormat) -> None:
    import tempfile  # noqa: PLC0415 - few opened files need it

    # Written under another name and then renamed, so that no reader sees half of it, and one of
    # several writers wins.
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        blank = Path(folder) / "new"
        with contextlib.closing(_open(blank)) as connection:
            # Not in WAL mode: a write-back at close would not report a full disk.
            _create(connection, form)
            _switch_to_wal(connection)
        try:
            path.hardlink_to(blank)
        except FileExistsError:
            return
        except OSError:
            # A file system without hard links (FAT): the last of several writers wins, which
            # matters within one millisecond only.
            blank.replace(path)
    durable_file.sync(path.parent)


def _is_blank(connection: sqlite3.Connection) -> bool:
    if pragma(connection, "application_id") or pragma(connection, "user_version"):
        return False
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def _create(connection: sqlite3.Connection, form: FileFormat) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    with transaction(connection):
        if not _is_blank(connection):
            return
        for statement in form.schema.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {form.application_id}")
        connection.execute(f"PRAGMA user_version = {form.version}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # SQLite does not use its busy timeout here: two processes that create the file together would
    # fail at once.
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
            return
        time.sleep(0.02)
    connection.execute("PRAGMA journal_mode = WAL")


def _refuse_foreign(connection: sqlite3.Connection, path: Path, form: FileFormat) -> None:
    if pragma(connection, "application_id") != form.application_id:
        raise ConfigError(
            f"{str(path)!r} is a SQLite file, but not an edgemeter {form.what}: {form.elsewhere}"
        )
    if (version := pragma(connection, "user_version")) != form.version:
        raise ConfigError(
            f"the {form.what} {str(path)!r} has version {version}, this edgemeter needs "
            f"{form.version}: move it away, or use the edgemeter "
            "that made it"
        )


def shared_without_locks(folder: Path) -> str | None:
    """Return the file system of `folder` in words if machines share it without locks.

    Otherwise None.

    For a folder that does not exist yet, its parent counts. A board that boots over the network has
    its root to itself.
    """
    device = (
        next(
            existing
            for existing in (folder.absolute(), *folder.absolute().parents)
            if existing.exists()
        )
        .stat()
        .st_dev
    )
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            mount, _, about = line.partition(" - ")
            kind, _, options = about.partition(" ")
            fields = mount.split()
            if fields[2] != number or fields[4] == "/":
                continue
            local = sorted(
                _LOCAL_LOCKS.get(kind, set()).intersection(options.rpartition(" ")[2].split(","))
            )
            return "sshfs" if kind == "fuse.sshfs" else f"{kind} with {local[0]}" if local else None
    return None


def _refuses_locks(folder: Path) -> bool:
    """Return whether no file in `folder` can be locked.

    This is a network file system whose lock service does not answer.
    """
    import tempfile  # noqa: PLC0415 - few opened files need it

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in {errno.ENOLCK, errno.EOPNOTSUPP}
    return False

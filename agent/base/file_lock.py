"""Locks of the kernel (flock) on files: each goes with the process that holds it, however that ends, and with no other.

The device lock says which process speaks for the device. MQTT lets a client id in once: a second client of the same id displaces the first
one, which comes back and displaces the second, for ever. So one process at a time carries the device's id, its Will and its state; another
that measures at the same time publishes its records under an id of its own.

The run lock says which process measures on this board, or does what would disturb that (an update's switch, a restart, a power cycle).
There is one for all users of a board, and for its containers if they share the folder; where no such file can be made, one in the home.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError

# `update/supervisor.py` and `apply/on_device.py`, which run without a release, name the same files.
BOARD_RUN_LOCK = Path("/run/lock/edgemeter-run.lock")
HOME_RUN_LOCK = "run.lock"
POLL_S = 1.0
_HOLDER_BYTES = 200


class FileLock:
    """The lock on the file at `path`; `take`, then `release`, once or more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, holder: str = "") -> bool:
        """Return whether this process holds the lock now; `holder` is shown to those that wait for it.

        Raises:
            UnavailableError: the lock file cannot be made.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = self._open()
        except OSError as error:
            raise UnavailableError(
                f"cannot make the lock {str(self.path)!r} ({error.strerror}): check that its folder may be written"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        # Who may only read the file holds the lock all the same.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{holder} (pid {os.getpid()})\n".encode()[:_HOLDER_BYTES], 0)
        return True

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def release(self) -> None:
        """Let another process take it; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def descriptor(self) -> int:
        """Return the open file, for a child process that inherits the lock; it is held until both have let go."""
        if self._descriptor is None:
            raise ValueError(f"the lock {self.path.name!r} is not held")
        return self._descriptor

    def holder(self) -> str:
        """Return who holds it, as that one wrote."""
        try:
            with self.path.open("rb") as file:
                text = file.read(_HOLDER_BYTES).decode(errors="replace").strip()
        except OSError:
            text = ""
        return "".join(letter for letter in text if letter.isprintable()) or "another run"


class DeviceLock(FileLock):
    """The lock of the process that speaks for `device`, among those that share the outbox (or other file) at `outbox`."""

    def __init__(self, outbox: Path, device: str) -> None:
        super().__init__(outbox.with_name(f"{outbox.name}.{device}.lock"))


class RunLock(FileLock):
    """The run lock of this board; where it cannot be made, the one in `home`, which other users of the board do not see."""

    def __init__(self, home: Path) -> None:
        super().__init__(home / run_lock_file())
        self._home = home
        self._note: str | None = None

    def take(self, holder: str = "") -> bool:
        """Return whether this process holds the lock now; `holder` is shown to those that wait for it.

        Raises:
            UnavailableError: neither the board's lock file nor one in the home can be made.
        """
        home_lock = self._home / HOME_RUN_LOCK
        if self.path == home_lock:
            # What is wrong with the folder shows when the lock is taken.
            with suppress(OSError):
                self._home.mkdir(parents=True, exist_ok=True)
            return super().take(holder)
        try:
            return super().take(holder)
        except UnavailableError as error:
            self._note = f"{error}; using {str(home_lock)!r}, so runs of other users on this board do not wait for each other"
            self.path = home_lock
            return self.take(holder)

    def pop_note(self) -> str | None:
        """Return once why the lock of the board is not used; None if it is, or was not tried yet."""
        note, self._note = self._note, None
        return note

    def _open(self) -> int:
        """Open the file, owned by the user who created it; in a shared folder nobody may open another's with O_CREAT (proc_sys_fs(5))."""
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with suppress(FileNotFoundError):
            return _open_regular(self.path, flags)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
        except FileExistsError:
            return _open_regular(self.path, flags)
        # For every user, whatever the umask.
        os.fchmod(descriptor, 0o666)
        return descriptor

    def wait(self, holder: str, report: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> None:
        """Return when it is ours; who holds it is reported once. Raises UnavailableError if the file cannot be made."""
        if self.take(holder):
            return
        report(f"{self.holder()} is in progress: waiting, because parallel runs disturb each other")
        sleep(POLL_S)
        while not self.take(holder):
            sleep(POLL_S)


@contextmanager
def run_lock(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block, and wait for it first; without a lock where none can be made."""
    lock = RunLock(home)
    try:
        lock.wait(holder, report)
        if (note := lock.pop_note()) is not None:
            report(f"note: {note}")
    except UnavailableError as error:
        report(f"note: {error}: other runs here do not know of this one")
    try:
        yield
    finally:
        lock.release()


def run_lock_file() -> Path:
    """Return the file of the board's run lock; a relative one lies in the home."""
    return Path(os.environ.get("EDGEMETER_RUN_LOCK") or BOARD_RUN_LOCK)


def is_run_locked(home: Path) -> bool:
    """Return whether a measurement, or other work that must not be disturbed, is in progress on this board."""
    return any(is_locked(path) for path in {home / run_lock_file(), home / HOME_RUN_LOCK})


def _open_regular(path: Path, flags: int) -> int:
    """Open an existing file to write, else to read: a lock needs no more."""
    try:
        descriptor = os.open(path, os.O_RDWR | flags)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        descriptor = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on the file at `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two that check at once do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False

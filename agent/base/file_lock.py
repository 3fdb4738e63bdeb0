"""Kernel locks (flock) on files: each is released when its process ends, however that ends.

The device lock belongs to the process that represents the device. MQTT accepts a client id once: a
second client with the same id displaces the first one, which reconnects and displaces the second,
for ever. So one process at a time uses the device's id, its Will and its state; another process
that measures at the same time publishes its records under an id of its own.

The run lock belongs to the process that measures on this board, or does work that would disturb a
run (an update's switch, a restart, a power cycle). There is one for all users of a board, and for
its containers if they share the folder; if that file cannot be made, there is one in the home
folder. Waiting processes get it in the order in which they asked.

The agent lock belongs to the agent of a home folder.
"""

import errno
import fcntl
import logging
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import UnavailableError, os_error_as
from edgemeter.agent.base.number_text import on_one_line
from edgemeter.agent.base.service_manager import notify_service_manager

logger = logging.getLogger(__name__)

# `release/supervisor.py` and `apply/on_device.py`, which run without a release, name the same
# files.
BOARD_RUN_LOCK = Path("/run/lock/edgemeter-run.lock")
HOME_RUN_LOCK = "run.lock"
# One agent per home folder.
AGENT_LOCK = "agent.lock"
# An agent that is stopping first disconnects from the broker.
ENDING_S = 10.0
POLL_S = 1.0
_HOLDER_BYTES = 200


class FileLock:
    """The lock on the file at `path`; `take` and `release` may be called several times."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, holder: str = "") -> bool:
        """Return whether this process holds the lock now; `holder` is shown to waiting processes.

        Raises:
            UnavailableError: the lock file cannot be made.
        """
        if self._descriptor is not None:
            return True
        with os_error_as(
            UnavailableError,
            f"cannot make the lock {str(self.path)!r}",
            "check that its folder may be written",
        ):
            descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        # A user who may only read the file can still hold the lock.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            since = time.strftime("%Y-%m-%d %H:%M")
            os.pwrite(
                descriptor,
                f"{holder} (pid {os.getpid()}, since {since})\n".encode()[:_HOLDER_BYTES],
                0,
            )
        return True

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def descriptor(self) -> int:
        """Return the open file, for a child process that inherits the lock.

        The lock is held until both have released it.
        """
        if self._descriptor is None:
            raise ValueError(f"the lock {self.path.name!r} is not held")
        return self._descriptor

    def holder(self) -> str:
        """Return the text that the holder wrote."""
        try:
            with self.path.open("rb") as file:
                text = file.read(_HOLDER_BYTES).decode(errors="replace").strip()
        except OSError:
            text = ""
        return on_one_line(text) or "another run"


@contextmanager
def agent_lock(home: Path) -> Iterator[FileLock]:
    """Hold the lock of the agent of `home`; an agent that is stopping gets some seconds to finish.

    A service manager's agent waits for one that was started by hand: the supervisor rolls back a
    release whose start fails repeatedly.

    Raises:
        UnavailableError: another agent holds it, or it cannot be made.
    """
    # A fault of the folder is reported when the lock is acquired.
    with suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    lock, ends_s, is_reported = FileLock(home / AGENT_LOCK), time.monotonic() + ENDING_S, False
    while not lock.take("`edgemeter agent up`"):
        if time.monotonic() >= ends_s and not is_reported:
            text = (
                f"{str(home)!r} belongs to another agent, {lock.holder()}: stop that one "
                "(`systemctl stop edgemeter-agent` where it is a"
                " service), or set EDGEMETER_HOME to a folder of this one's own"
            )
            if "NOTIFY_SOCKET" not in os.environ:
                raise UnavailableError(text)
            logger.warning("%s; this one waits", text)
            is_reported = True
        notify_service_manager("READY=1\nWATCHDOG=1")
        interrupts.sleep(POLL_S)
    try:
        yield lock
    finally:
        lock.release()


class DeviceLock(FileLock):
    """The lock of the process that represents `device`.

    It is among the processes that share the outbox (or other file) at `outbox`.
    """

    def __init__(self, outbox: Path, device: str) -> None:
        super().__init__(outbox.with_name(f"{outbox.name}.{device}.lock"))


class _Queue:
    """The queue for the lock at `path`.

    Each process locks one byte of a file, at the offset of its arrival time (monotonic, ns). Such a
    lock needs no write permission, and ends with its process. Source: fcntl_locking(2).
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.queue")
        self._descriptor: int | None = None
        self._came_ns = 0

    def ahead(self) -> int:
        """Join the queue if needed, and return the number of processes ahead.

        0 if no file can be made.
        """
        try:
            if self._descriptor is None:
                self._descriptor = _open_shared(self._path)
                self._came_ns = time.monotonic_ns()
                _ask(self._descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, self._came_ns, 1)
            count = start = 0
            while start < self._came_ns:
                kind, _, first, length, _ = _ask(
                    self._descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, self._came_ns - start
                )
                if kind == fcntl.F_UNLCK:
                    break
                count, start = count + 1, first + length
        except OSError:
            return 0
        return count

    def leave(self) -> None:
        """Leave the queue; may be called twice."""
        if self._descriptor is not None:
            # A forked child has the file open too.
            _ask(self._descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _ask(descriptor: int, command: int, kind: int, start: int, length: int) -> tuple[int, ...]:
    # Source: struct flock: l_type, l_whence, l_start, l_len, l_pid.
    content = struct.pack("@hhqqi4x", kind, os.SEEK_SET, start, length, 0)
    return struct.unpack("@hhqqi4x", fcntl.fcntl(descriptor, command, content))


class RunLock(FileLock):
    """The run lock of this board, which every user may take, whoever created its file.

    If it cannot be made, it is the one in `home`, which other users of the board do not see. A
    process that did not get it is in the queue until `take` returns True or `release` is called.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home / run_lock_file())
        self._home = home
        self._note: str | None = None
        self._queue = _Queue(self.path)

    def _open(self) -> int:
        return _open_shared(self.path)

    def release(self) -> None:
        """Release the lock and leave the queue; may be called twice."""
        self._queue.leave()
        super().release()

    def take(self, holder: str = "") -> bool:
        """Return whether this process holds the lock now; `holder` is shown to waiting processes.

        Raises:
            UnavailableError: neither the board's lock file nor one in the home folder can be made.
        """
        home_lock = self._home / HOME_RUN_LOCK
        if self.path == home_lock:
            # A fault of the folder is reported when the lock is acquired.
            with suppress(OSError):
                self._home.mkdir(parents=True, exist_ok=True)
            return self._take_in_turn(holder)
        try:
            return self._take_in_turn(holder)
        except UnavailableError as error:
            self._note = (
                f"{error}; using {str(home_lock)!r}, so runs of other users on this board do not "
                "wait for each other"
            )
            self._queue.leave()
            self.path, self._queue = home_lock, _Queue(home_lock)
            return self.take(holder)

    def _take_in_turn(self, holder: str) -> bool:
        is_held = not self._queue.ahead() and super().take(holder)
        if is_held:
            self._queue.leave()
        return is_held

    def pop_note(self) -> str | None:
        """Return once the reason why the board's lock is not used.

        None if it is used, or was not tried yet.
        """
        note, self._note = self._note, None
        return note

    def wait(
        self,
        holder: str,
        report: Callable[[str], None],
        sleep: Callable[[float], None] = interrupts.sleep,
    ) -> None:
        """Wait until the lock is held.

        The holder and the number of waiting processes are reported once.

        Raises:
            UnavailableError: the file cannot be made.
        """
        if self.take(holder):
            return
        ahead = self._queue.ahead()
        turn = f", and {ahead} more wait{'s' * (ahead == 1)} before this one" if ahead else ""
        report(
            f"{self.holder()} is in progress{turn}: waiting, because parallel runs "
            "disturb each other"
        )
        try:
            sleep(POLL_S)
            while not self.take(holder):
                sleep(POLL_S)
        except BaseException:
            self.release()
            raise


@contextmanager
def run_lock(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Wait for the run lock, and hold it for the block; without a lock if none can be made."""
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
    """Return the file of the board's run lock; a relative path is in the home folder."""
    return Path(os.environ.get("EDGEMETER_RUN_LOCK") or BOARD_RUN_LOCK)


def run_lock_descriptors(home: Path) -> tuple[int, ...]:
    """Return this process's open files of the run lock, its own or inherited.

    A child that inherits them holds the lock until it ends.
    """
    files = set()
    for path in (home / run_lock_file(), home / HOME_RUN_LOCK):
        with suppress(OSError):
            files.add((path.stat().st_dev, path.stat().st_ino))
    descriptors = []
    for path in Path("/proc/self/fd").iterdir():
        # The descriptor of the listing itself is closed by now.
        with suppress(OSError):
            status = os.fstat(int(path.name))
            descriptors += [int(path.name)] if (status.st_dev, status.st_ino) in files else []
    return tuple(descriptors)


def is_run_locked(home: Path) -> bool:
    """Return whether this board is measuring, or does other work that must not be disturbed."""
    return any(is_locked(path) for path in {home / run_lock_file(), home / HOME_RUN_LOCK})


def _open_shared(path: Path) -> int:
    """Open a file that every user may lock, owned by its creator.

    Others may not open it with O_CREAT (proc_sys_fs(5)).
    """
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(FileNotFoundError):
        return _open_regular(path, flags)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
    except FileExistsError:
        return _open_regular(path, flags)
    # Writable by every user, whatever the umask.
    os.fchmod(descriptor, 0o666)
    return descriptor


def _open_regular(path: Path, flags: int) -> int:
    """Open an existing file for writing, else for reading: a lock needs no more."""
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
        # A shared lock: two simultaneous checks do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False

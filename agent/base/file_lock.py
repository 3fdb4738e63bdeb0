"""Locks of the kernel (flock) on files: each goes with the process that holds it, however that ends, and with no other.

The device lock says which process speaks for the device. MQTT lets a client id in once: a second client of the same id displaces the first
one, which comes back and displaces the second, for ever. So one process at a time carries the device's id, its Will and its state; another
that measures at the same time publishes its records under an id of its own.

The run lock says which process measures on this board, or does what would disturb that (an update's switch, a restart, a power cycle).
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError

RUN_LOCK = "run.lock"
POLL_S = 1.0
_HOLDER_BYTES = 200


class FileLock:
    """The lock on the file at `path`; `take`, then `release`, once or more."""

    mode = 0o600

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
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self.mode)
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
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{holder} (pid {os.getpid()})\n".encode()[:_HOLDER_BYTES], 0)
        return True

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
    """The run lock of the board whose files are in `home`."""

    mode = 0o644

    def __init__(self, home: Path) -> None:
        super().__init__(home / RUN_LOCK)
        # What is wrong with the folder shows when the lock is taken.
        with suppress(OSError):
            home.mkdir(parents=True, exist_ok=True)

    def wait(self, holder: str, report: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> None:
        """Return when it is ours; who holds it is reported once.

        Raises:
            UnavailableError: the file cannot be made.
        """
        is_reported = False
        while not self.take(holder):
            if not is_reported:
                report(f"{self.holder()} is in progress: waiting, because parallel runs disturb each other")
                is_reported = True
            sleep(POLL_S)


@contextmanager
def run_lock(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block, and wait for it first; without a lock where none can be made."""
    lock = RunLock(home)
    try:
        lock.wait(holder, report)
    except UnavailableError as error:
        report(f"note: {error}: other runs here do not know of this one")
    try:
        yield
    finally:
        lock.release()


def is_run_locked(home: Path) -> bool:
    """Return whether somebody measures on this board, or does what must not be disturbed."""
    return is_locked(home / RUN_LOCK)


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

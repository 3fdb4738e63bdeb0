"""The run lock: who measures on this board holds it, and so does who would disturb that (an update's switch, a restart, a power cycle).

A lock of the kernel (flock) on `run.lock` beside the outbox: it goes with the process that holds it, however that ends, and with no other.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgemeter.agent.errors import UnavailableError

NAME = "run.lock"
LOOK_S = 1.0
_HOLDER_BYTES = 200


class RunLock:
    """The lock of the board whose files are in `home`. `take` or `wait`, then `release`, once or more."""

    def __init__(self, home: Path) -> None:
        self.path = home / NAME
        self._descriptor: int | None = None

    def take(self, what: str) -> bool:
        """Return whether it is ours now; `what` is told to those who wait for it.

        Raises:
            UnavailableError: the file cannot be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = f"cannot make the lock {str(self.path)!r} ({error.strerror}): check that its folder may be written"
            raise UnavailableError(message) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{what} (process {os.getpid()})\n".encode()[:_HOLDER_BYTES], 0)
        return True

    def wait(self, what: str, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> None:
        """Return when it is ours; who holds it is said once.

        Raises:
            UnavailableError: the file cannot be made.
        """
        has_said = False
        while not self.take(what):
            if not has_said:
                say(f"waits for {self.holder()}: two at once would measure each other")
                has_said = True
            sleep(LOOK_S)

    def holder(self) -> str:
        """Return who holds it, as that one says."""
        try:
            with self.path.open("rb") as file:
                said = file.read(_HOLDER_BYTES).decode(errors="replace").strip()
        except OSError:
            said = ""
        return "".join(letter for letter in said if letter.isprintable()) or "another run"

    def descriptor(self) -> int:
        """Return the open file, for a child process that inherits the lock; it is held until both have let go."""
        if self._descriptor is None:
            message = "the run lock is not held"
            raise ValueError(message)
        return self._descriptor

    def release(self) -> None:
        """Let others measure."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def held(home: Path, what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Keep others from measuring on this board for the block, and wait first until nobody does; without a lock where none can be made."""
    lock = RunLock(home)
    try:
        lock.wait(what, say)
    except UnavailableError as error:
        say(f"note: {error}: other runs here do not know of this one")
    try:
        yield
    finally:
        lock.release()


def is_held(home: Path) -> bool:
    """Return whether somebody measures on this board, or does what must not be disturbed."""
    return is_locked(home / NAME)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on the file at `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two who look at once do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False

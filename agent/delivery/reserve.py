"""A reserve on the disk beside the outbox: given up when the disk is full, so that what is delivered can still be forgotten.

To forget a record SQLite has to write. Without it a full outbox could never empty itself: nothing would go out, because nothing could be
struck off. Who keeps new records needs the reserve whole; who forgets may use it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edgemeter.agent.errors import UnavailableError

# What SQLite may want at most before it can use its own free pages again: a log that is due to be brought in, and one more beside it.
SIZE_BYTES = 4 << 20
# On a disk of a few megabytes it is less.
SHARE_OF_DISK = 4

_Result = TypeVar("_Result")


class Reserve:
    """The reserve of the outbox at `outbox`, shared by all who have it open."""

    def __init__(self, outbox: Path) -> None:
        self.path = outbox.with_name(f"{outbox.name}.reserve")
        self._outbox = outbox

    def is_whole(self) -> bool:
        """Return whether it is there."""
        return self.path.exists()

    def keep(self) -> None:
        """Make it whole where it is not.

        Raises:
            UnavailableError: the disk has no room for it.
        """
        if self.is_whole():
            return
        making = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            _allocate(making)
            making.replace(self.path)
        except OSError as error:
            making.unlink(missing_ok=True)
            message = f"the outbox {str(self._outbox)!r} cannot grow, the disk is full: free some space; nothing kept so far is lost"
            raise UnavailableError(message) from error

    def in_need(self, write: Callable[[], _Result]) -> _Result:
        """Return what `write` returns; when the disk is too full for it, give the reserve up and try once more.

        Raises:
            UnavailableError: it is not possible without the reserve either.
        """
        try:
            return write()
        except UnavailableError:
            if not self._is_given_up():
                raise
            return write()

    def _is_given_up(self) -> bool:
        try:
            self.path.unlink()
        except OSError:
            # It was not there; or nothing can be changed here, as on a card that has gone read-only, or in somebody else's folder.
            return False
        return True


def _allocate(path: Path) -> None:
    disk = os.statvfs(path.parent)
    size_bytes = min(SIZE_BYTES, disk.f_blocks * disk.f_frsize // SHARE_OF_DISK)
    with path.open("wb") as file:
        # Not a hole: room that nobody else gets.
        os.posix_fallocate(file.fileno(), 0, max(1, size_bytes))

"""Which process speaks for the device: the one that holds the lock beside its outbox.

MQTT lets one client id in once: a second client of the same id throws the first one out, which comes back and throws out the
second, for ever. So one process at a time carries the device's id, its Will and its state; another that measures at the same
time publishes its records under an id of its own and says nothing about the device. The lock goes with the process, however it ends.
"""

import fcntl
import os
from pathlib import Path

from edgemeter.agent.errors import UnavailableError


class DeviceClaim:
    """The claim to speak for `device` among the processes that share the outbox at `outbox`."""

    def __init__(self, outbox: Path, device: str) -> None:
        self.path = outbox.with_name(f"{outbox.name}.{device}.lock")
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Return whether this process speaks for the device now.

        Raises:
            UnavailableError: the lock file cannot be made.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"cannot make the lock {str(self.path)!r} ({error.strerror}): check that its folder may be written"
            raise UnavailableError(message) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let another process speak for the device; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

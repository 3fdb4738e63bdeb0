"""The inbox: between the network thread, which must not wait for a disk, and the writer, which commits in groups."""

import threading
from collections import deque

from edgemeter.agent.delivery.mqtt_session import Message

LIMIT_BYTES = 64 << 20


class Inbox:
    """A queue of messages bounded in bytes; a full one stops the network thread, and with it the broker: backpressure, not loss."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._taken = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, message: Message) -> None:
        """Add a message; wait while the inbox is full, unless it is closed, when the message is dropped (it comes again)."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._messages or self._bytes < self._limit_bytes)
            if not self._is_closed:
                self._messages.append(message)
                self._bytes += len(message.payload)
                self._changed.notify_all()

    def take(self, limit: int, timeout_s: float) -> list[Message]:
        """Return what is there, at most `limit` messages, waiting at most `timeout_s` for the first; call `done` after each."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._is_closed, timeout_s)
            taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
            self._bytes -= sum(len(message.payload) for message in taken)
            self._taken = len(taken)
            self._changed.notify_all()
        return taken

    def done(self) -> None:
        """Say that what `take` returned last is dealt with."""
        with self._changed:
            self._taken = 0
            self._changed.notify_all()

    def is_idle(self) -> bool:
        """Return whether nothing waits and nothing is being dealt with."""
        with self._changed:
            return not self._messages and not self._taken

    def close(self) -> None:
        """Take nothing more and let everybody go who waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

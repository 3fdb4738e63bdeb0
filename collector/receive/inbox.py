"""The inbox: between the network thread, which must not wait for a disk, and the writer, which commits in groups."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from edgemeter.agent.delivery.mqtt_session import Message

LIMIT_BYTES = 32 << 20


class Inbox:
    """A queue of messages bounded in bytes: whoever fills it asks `is_full` first, and is told by `has_room` when it no longer is."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, has_room: Callable[[], None] = lambda: None) -> None:
        self._limit_bytes = limit_bytes
        self._has_room = has_room
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._taken = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Sequence[Message]) -> None:
        """Add messages; when the inbox is closed they are dropped (they come again)."""
        size_bytes = sum(len(message.payload) for message in messages)
        with self._changed:
            if not self._is_closed:
                self._messages.extend(messages)
                self._bytes += size_bytes
                self._changed.notify_all()

    def is_full(self) -> bool:
        """Return whether nothing more should be put in: backpressure, not loss."""
        return self._bytes >= self._limit_bytes

    def take(self, limit: int, limit_bytes: int, timeout_s: float) -> list[Message]:
        """Return what is there, waiting at most `timeout_s` for the first; call `done` after each.

        It ends with the message that reaches `limit` messages or `limit_bytes`.
        """
        taken: list[Message] = []
        taken_bytes = 0
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._is_closed, timeout_s)
            was_full = self.is_full()
            while self._messages and len(taken) < limit and taken_bytes < limit_bytes:
                taken.append(self._messages.popleft())
                taken_bytes += len(taken[-1].payload)
            self._bytes -= taken_bytes
            self._taken = len(taken)
        if was_full and not self.is_full():
            self._has_room()
        return taken

    def done(self) -> None:
        """Say that what `take` returned last is dealt with."""
        with self._changed:
            self._taken = 0

    def is_idle(self) -> bool:
        """Return whether nothing waits and nothing is being dealt with."""
        with self._changed:
            return not self._messages and not self._taken

    def close(self) -> None:
        """Take nothing more and let everybody go who waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

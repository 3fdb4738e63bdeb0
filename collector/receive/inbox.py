"""The inbox is between the network thread and the writer thread, which commits in groups.

The network thread must not wait for the disk.
"""

import threading
from collections import Counter
from collections.abc import Sequence

from edgemeter.agent.base.mqtt_session import Message

INBOX_LIMIT_BYTES = 24 << 20
MOST_WAITING = 100_000
# The share of a device; in bytes only while the inbox is half full, so that a record may follow a
# large one. A device sends its records in batches, with at most 8 MiB in flight. A broker sends at
# most 2,000 messages ahead, most of which remain for other devices. Messages other than results are
# few and never repeated, so they have a share of their own.
DEVICE_RATIO = 1 / 3
MOST_RESULTS, MOST_REPORTS = 500, 64


class Inbox:
    """A queue of messages, first in, first out, limited in bytes and count.

    The producer waits until it `has_room`.

    A device has at most a share of the waiting messages. Messages taken from the queue count until
    they are `done`.
    """

    def __init__(self, limit_bytes: int = INBOX_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: list[Message] = []
        # Waiting messages by device, results apart from other messages.
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._sizes: Counter[tuple[str, bool]] = Counter()
        self._count = self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, messages: Sequence[Message]) -> list[Message]:
        """Add messages, and return those that exceed the share of their device.

        They may be acknowledged to the broker: without a receipt the device sends results again. A
        closed inbox drops all.
        """
        with self._changed:
            if self._is_closed:
                return []
            shed = [message for message in messages if not self._add(message)]
            self._changed.notify_all()
        return shed

    def has_room(self, timeout_s: float = 0.0) -> bool:
        """Return whether the producer may continue, waiting at most `timeout_s` until it may."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    self._is_closed
                    or (self._bytes < self._limit_bytes and self._count < MOST_WAITING)
                ),
                timeout_s,
            )

    def take(self, timeout_s: float) -> list[Message]:
        """Return the messages since the last call, waiting at most `timeout_s` for the first.

        Call `done` with each.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout_s)
            messages, self._waiting = self._waiting, []
            self._counts.clear()
            self._sizes.clear()
        return messages

    def done(self, messages: Sequence[Message]) -> None:
        """Release messages that were taken."""
        with self._changed:
            self._bytes -= sum(len(message.payload) for message in messages)
            self._count -= len(messages)
            self._changed.notify_all()

    def is_idle(self) -> bool:
        """Return whether nothing is queued or being processed."""
        return not self._count

    def close(self) -> None:
        """Accept no more messages, and release waiting threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _add(self, message: Message) -> bool:
        source, size_bytes = _source(message), len(message.payload)
        count, filled_bytes = self._counts[source], self._sizes[source] + size_bytes
        is_half_full = 2 * self._bytes >= self._limit_bytes
        exceeds_share = (
            count > 0 and is_half_full and filled_bytes > DEVICE_RATIO * self._limit_bytes
        )
        if exceeds_share or count >= (MOST_RESULTS if source[1] else MOST_REPORTS):
            return False
        self._counts[source] = count + 1
        self._sizes[source] = filled_bytes
        self._bytes += size_bytes
        self._count += 1
        self._waiting.append(message)
        return True


def _source(message: Message) -> tuple[str, bool]:
    """Return the sender of a message, and whether it contains results."""
    device, _, kind = message.topic.rpartition("/")
    return device, kind == "result"

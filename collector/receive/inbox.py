"""The inbox between the network thread, which must not wait for the disk, and the writer thread, which commits in groups."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.messages import TOPIC_ROOT

INBOX_LIMIT_BYTES = 24 << 20
# What a device may have taken in its turn: one with large messages waits while the others have theirs.
QUANTUM_BYTES = 64 << 10
# What the smallest message costs in a turn.
SMALLEST_BYTES = 256
# In an inbox that is half full the results of a device may fill this share; its other messages may at any time.
DEVICE_RATIO = 0.25
# A device has at most 1,000 records on their way. Its other messages are few, and nobody sends them again.
MOST_RESULTS, MOST_REPORTS = 4000, 64
MOST_WAITING = 100_000
RESULT_KIND = "result"


@dataclass(slots=True)
class _Waiting:
    """The messages of one device that wait, and how many bytes it may still have taken."""

    messages: deque[Message] = field(default_factory=deque)
    bytes: int = 0
    reports: int = 0
    report_bytes: int = 0
    credit_bytes: int = 0


class Inbox:
    """A queue of messages, bounded in bytes: the producer waits until it `has_room`.

    Devices take turns, so that none starves the others; the messages of one device keep their order.
    """

    def __init__(self, limit_bytes: int = INBOX_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: dict[str, _Waiting] = {}
        self._turns: deque[str] = deque()
        self._count = 0
        self._bytes = 0
        self._taken = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    def put(self, messages: Sequence[Message]) -> list[Message]:
        """Add messages, and return those that have no room because their device waits with too many already.

        They may be acknowledged to the broker: without a receipt the device sends results again. A closed inbox drops all.
        """
        with self._changed:
            if self._is_closed:
                return []
            shed = [message for message in messages if not self._add(message)]
            self._changed.notify_all()
        return shed

    def has_room(self, timeout_s: float = 0.0) -> bool:
        """Return whether the producer may go on, waiting at most `timeout_s` until it may: backpressure, not loss."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed or not self._is_full(), timeout_s)

    def take(self, limit: int, limit_bytes: int, timeout_s: float) -> list[Message]:
        """Return the next messages, up to `limit` or `limit_bytes`, waiting at most `timeout_s` for the first; call `done` afterwards."""
        batch: list[Message] = []
        taken_bytes = 0
        with self._changed:
            self._changed.wait_for(lambda: self._count or self._is_closed, timeout_s)
            was_full = self._is_full()
            while self._turns and len(batch) < limit and taken_bytes < limit_bytes:
                taken_bytes += self._take_turn(batch, limit, limit_bytes - taken_bytes)
            self._count -= len(batch)
            self._bytes -= taken_bytes
            self._taken = len(batch)
            if was_full:
                self._changed.notify_all()
        return batch

    def done(self) -> None:
        """Mark what `take` returned last as processed."""
        with self._changed:
            self._taken = 0

    def is_idle(self) -> bool:
        """Return whether nothing is queued or being processed."""
        with self._changed:
            return not self._count and not self._taken

    def close(self) -> None:
        """Accept no more messages, and release waiting threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return self._bytes >= self._limit_bytes or self._count >= MOST_WAITING

    def _add(self, message: Message) -> bool:
        device, _, kind = message.topic.rpartition("/")
        size_bytes = len(message.payload)
        waiting = self._waiting.get(device)
        if waiting is None:
            waiting = self._waiting[device] = _Waiting()
            self._turns.append(device)
        elif self._has_too_much(waiting, size_bytes, kind):
            return False
        if kind != RESULT_KIND:
            waiting.reports += 1
            waiting.report_bytes += size_bytes
        waiting.messages.append(message)
        waiting.bytes += size_bytes
        self._bytes += size_bytes
        self._count += 1
        return True

    def _has_too_much(self, waiting: _Waiting, size_bytes: int, kind: str) -> bool:
        share_bytes = DEVICE_RATIO * self._limit_bytes
        if kind != RESULT_KIND:
            return waiting.reports >= MOST_REPORTS or waiting.report_bytes + size_bytes > share_bytes
        is_half_full = 2 * self._bytes >= self._limit_bytes
        return len(waiting.messages) >= MOST_RESULTS or (is_half_full and waiting.bytes + size_bytes > share_bytes)

    def _take_turn(self, batch: list[Message], limit: int, limit_bytes: int) -> int:
        """Take what the next device may have; return how many bytes."""
        device = self._turns[0]
        waiting = self._waiting[device]
        is_alone = len(self._turns) == 1
        credit_bytes = waiting.credit_bytes + QUANTUM_BYTES
        turn_bytes = spent_bytes = 0
        while waiting.messages and len(batch) < limit and turn_bytes < limit_bytes:
            message = waiting.messages[0]
            size_bytes = len(message.payload)
            if spent_bytes + max(SMALLEST_BYTES, size_bytes) > credit_bytes and not is_alone:
                break
            batch.append(waiting.messages.popleft())
            turn_bytes += size_bytes
            spent_bytes += max(SMALLEST_BYTES, size_bytes)
            if not message.topic.endswith(f"/{RESULT_KIND}"):
                waiting.reports -= 1
                waiting.report_bytes -= size_bytes
        waiting.bytes -= turn_bytes
        waiting.credit_bytes = max(0, credit_bytes - spent_bytes)
        self._turns.popleft()
        if waiting.messages:
            self._turns.append(device)
        else:
            del self._waiting[device]
        return turn_bytes


# What a device may send that is rejected or has no room, for long and at once; a message costs one, and one for each so many bytes. Without
# receipts a board sends its 1,000 records, or 8 MB, again after 5 s, 10 s, 20 s, ...
USELESS_PER_S, USELESS_AT_ONCE, USELESS_BYTES = 200.0, 4000.0, 16 << 10


def source_of(topic: str) -> str:
    """Return whose topic this is: all levels but the last."""
    return topic.rpartition("/")[0]


class UselessMessages:
    """Counts what was rejected or had no room, by device; usable from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowance = Allowance(USELESS_PER_S, USELESS_AT_ONCE, clock)
        self._lock = threading.Lock()
        self._flooders: set[str] = set()

    def count(self, topic: str, size_bytes: int) -> None:
        """Count one message."""
        source = source_of(topic)
        with self._lock:
            if source.startswith(TOPIC_ROOT) and not self._allowance.spend(source, 1 + size_bytes / USELESS_BYTES):
                self._flooders.add(source)

    def flooders(self) -> list[str]:
        """Return the names of the devices that flooded since the last call."""
        with self._lock:
            flooders, self._flooders = self._flooders, set()
        return sorted(source.rpartition("/")[2] for source in flooders)

"""Messages that wait for the service.

Each sender has a limited share and its turn, and flooding senders are named.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.identity import RESERVED_PREFIX
from edgemeter.agent.contract.messages import TOPIC_ROOT

# Waiting QoS 0 messages; for QoS 1 the broker limits unacknowledged messages.
MOST_WAITING = 20_000
# Waiting messages of one sender, of which the newest stay; a board sends lost ones again.
MOST_OF_ONE = 256
LARGEST_OF_ONE_BYTES = 4 << 20

# Rate and burst of one sender; a message costs one, plus one per 4 KiB. A board at work sends a few
# a second. After the service was away, some hundreds a day arrive at once.
UNITS_PER_S = 250.0
BURST_UNITS = 2000.0
UNIT_BYTES = 4096


def sender_of(topic: str) -> str:
    """Return the device that sent a message on this topic.

    The broker's rules bind the topic to the device's certificate. Return the topic itself, which is
    not a device name, if a part of the server sent it.
    """
    if topic.startswith(f"{TOPIC_ROOT}/") and not (name := topic.split("/")[3]).startswith(
        RESERVED_PREFIX
    ):
        return name
    return topic


@dataclass(slots=True)
class _Share:
    messages: deque[Message] = field(default_factory=deque)
    size_bytes: int = 0


class ServiceInbox:
    """Messages by sender; `put` from the network's thread, all else from the service's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Messages dropped for exceeding the rate, since the session began.
        self.dropped_count = 0
        self._allowance = Allowance(UNITS_PER_S, BURST_UNITS, clock)
        # In the order of their turns.
        self._waiting: OrderedDict[str, _Share] = OrderedDict()
        self._count = 0
        self._banned: Collection[str] = ()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    def put(self, message: Message) -> list[Message]:
        """Add a message, and return the dropped ones.

        Those are dropped whose sender is banned, floods, or has newer ones than its share.
        """
        sender = sender_of(message.topic)
        with self._changed:
            is_device = sender != message.topic
            if sender in self._banned or (
                is_device
                and not self._allowance.spend(sender, 1.0 + len(message.payload) / UNIT_BYTES)
            ):
                self.dropped_count += 1
                return [message]
            if message.qos == 0 and self._count >= MOST_WAITING:
                return [message]
            superseded = self._add(sender, message)
            self._changed.notify_all()
            return superseded

    def take(self, timeout_s: float) -> Message | None:
        """Return the next message of the sender whose turn it is.

        It is None if none arrives within `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, timeout_s):
                return None
            sender, share = self._waiting.popitem(last=False)
            message = share.messages.popleft()
            share.size_bytes -= len(message.payload)
            self._count -= 1
            if share.messages:
                self._waiting[sender] = share
            return message

    def flooders(self) -> list[str]:
        """Return the senders that exceeded the rate since the last call."""
        return self._allowance.exceeded()

    def ban(self, names: Collection[str]) -> None:
        """Drop messages of these senders from now on, and of no others."""
        self._banned = names

    def _add(self, sender: str, message: Message) -> list[Message]:
        share = self._waiting.setdefault(sender, _Share())
        share.messages.append(message)
        share.size_bytes += len(message.payload)
        self._count += 1
        superseded = []
        while len(share.messages) > 1 and (
            len(share.messages) > MOST_OF_ONE or share.size_bytes > LARGEST_OF_ONE_BYTES
        ):
            superseded.append(share.messages.popleft())
            share.size_bytes -= len(superseded[-1].payload)
            self._count -= 1
        return superseded

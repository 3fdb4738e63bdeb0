"""Messages that wait for the service: each sender has a bounded share and its turn, and who sends more than any board needs is named."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.identity import RESERVED_PREFIX
from edgemeter.agent.contract.messages import TOPIC_ROOT

# Of QoS 0; of QoS 1 the broker sends no more than the session has not acknowledged.
MOST_WAITING = 20_000
# Of one sender: a board has a few messages on their way. The newest count, and what is lost with the older ones is sent again.
MOST_OF_ONE = 256
LARGEST_OF_ONE_BYTES = 4 << 20

# Of one sender, for long and at once; a message costs one, and one for each 4 KiB. A board at work sends a few a second. What
# it sent while the service was away comes at once, some hundreds a day.
UNITS_PER_S = 250.0
BURST_UNITS = 2000.0
UNIT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class MessageSender:
    """Who sent a message, by its topic, which the broker's rules bind to the certificate; `kind` is None for a part of the server."""

    name: str
    kind: str | None


def sender_of(topic: str) -> MessageSender:
    """Return who sent a message on this topic: a `device`, or the server's own part that has this topic."""
    if topic.startswith(f"{TOPIC_ROOT}/"):
        name = topic.split("/")[3]
        return MessageSender(name, None if name.startswith(RESERVED_PREFIX) else "device")
    return MessageSender(topic, None)


@dataclass(slots=True)
class _Share:
    messages: deque[Message] = field(default_factory=deque)
    bytes: int = 0


class ServiceInbox:
    """Messages by sender; `put` from the network's thread, all else from the service's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowance = Allowance(UNITS_PER_S, BURST_UNITS, clock)
        self._waiting: dict[MessageSender, _Share] = {}
        self._turns: deque[MessageSender] = deque()
        self._count = 0
        # Of flooders, by quality of service.
        self._dropped = [0, 0]
        self._flooders: set[MessageSender] = set()
        self._banned: Collection[str] = ()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    def put(self, message: Message) -> list[Message]:
        """Add a message, and return those that nobody will take: of a sender who is banned, floods, or has newer ones than its share."""
        sender = sender_of(message.topic)
        with self._changed:
            if sender.name in self._banned:
                self._dropped[message.qos] += 1
                return [message]
            if sender.kind is not None and not self._allowance.spend(sender.name, 1.0 + len(message.payload) / UNIT_BYTES):
                self._dropped[message.qos] += 1
                self._flooders.add(sender)
                self._changed.notify_all()
                return [message]
            if message.qos == 0 and self._count >= MOST_WAITING:
                return [message]
            superseded = self._add(sender, message)
            self._changed.notify_all()
            return superseded

    def take(self, timeout_s: float) -> Message | None:
        """Return the next message of the sender whose turn it is, None where none comes within `timeout_s`, or somebody floods."""
        with self._changed:
            self._changed.wait_for(lambda: self._turns or self._flooders, timeout_s)
            if not self._turns:
                return None
            sender = self._turns.popleft()
            waiting = self._waiting[sender]
            message = waiting.messages.popleft()
            waiting.bytes -= len(message.payload)
            self._count -= 1
            if waiting.messages:
                self._turns.append(sender)
            else:
                del self._waiting[sender]
            return message

    def flooders(self) -> set[MessageSender]:
        """Return who sent more than it may since the last call."""
        with self._changed:
            flooders, self._flooders = self._flooders, set()
        return flooders

    def ban(self, names: Collection[str]) -> None:
        """Drop what comes of these senders from now on, and of no others."""
        self._banned = names

    def dropped(self) -> tuple[int, int]:
        """Return how many messages of flooders were dropped since `reset`: of QoS 0, and of QoS 1."""
        return self._dropped[0], self._dropped[1]

    def reset(self) -> None:
        """Expect another session: count what is dropped anew."""
        self._dropped = [0, 0]

    def _add(self, sender: MessageSender, message: Message) -> list[Message]:
        waiting = self._waiting.get(sender)
        if waiting is None:
            waiting = self._waiting[sender] = _Share()
            self._turns.append(sender)
        waiting.messages.append(message)
        waiting.bytes += len(message.payload)
        self._count += 1
        superseded = []
        while len(waiting.messages) > 1 and (len(waiting.messages) > MOST_OF_ONE or waiting.bytes > LARGEST_OF_ONE_BYTES):
            superseded.append(waiting.messages.popleft())
            waiting.bytes -= len(superseded[-1].payload)
            self._count -= 1
        return superseded

"""The largest message for one broker: its announced limit, or less if the broker or the line failed at a smaller message.

Brokers announce more than they accept (AWS IoT Core), or cannot announce a limit (MQTT 3.1.1). They answer a larger message with DISCONNECT
0x95, or close the connection silently, as a failing line does.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base import mqtt_session
from edgemeter.agent.base.mqtt_session import MqttSession
from edgemeter.agent.delivery.outbox import Outbox, Pending
from edgemeter.agent.delivery.outbox_file import Refusal

# A generous size of a packet's topic, properties and header.
PACKET_OVERHEAD_BYTES = 1024
# The largest size of a message after one that was too large: half of the records compress to a little more than half.
SMALLER_RATIO = 0.75
# A line may fail by itself: a closed connection counts only after this many times.
CLOSED_TIMES = 3
# Messages of several records are never larger, so that a single large record is not limited.
BATCH_BYTES = 512 << 10
# Messages that failed again after they had grown need this many times as many answers to grow again.
ANSWERS_PER_FAILURE = 8


@dataclass(frozen=True, slots=True)
class _SentMessage:
    size_bytes: int
    records: Sequence[Pending]


@dataclass(frozen=True, slots=True)
class _Loss:
    reason: str
    unanswered: Sequence[_SentMessage]

    @property
    def largest_bytes(self) -> int:
        """The size of the too-large message, if there is one."""
        return max(message.size_bytes for message in self.unanswered)


class MessageLimit:
    """The limit of messages to `broker`; `lost` is called from the session's thread, the rest from the publisher's.

    A message that was unanswered when the connection was lost reduces the size of messages with several records; answered ones let it grow
    again, more slowly each time. Until then one message is sent at a time, so that the next loss shows the cause. A record that was
    alone when the connection was closed is `deferred`: the others go first. Its size can be the cause only if some of them are accepted.
    """

    def __init__(self, outbox: Outbox, broker: str) -> None:
        self.deferred: set[int] = set()
        self.trouble: str | None = None
        self._outbox = outbox
        self._broker = broker
        self._refusals: list[Refusal] = []
        self._leaving: _SentMessage | None = None
        self._on_the_way: dict[int, _SentMessage] = {}
        self._losses: deque[_Loss] = deque()
        self._is_lost = False
        self._has_passed = False
        self._together_bytes: int | None = None
        self._lost_bytes = 0
        self._has_grown = False
        self._failed_growths = 0
        self._answered = 0

    def publish(
        self,
        session: MqttSession,
        topic: str,
        payload: bytes,
        records: Sequence[Pending] = (),
        lasting: Literal["passing", "retained"] = "passing",
    ) -> int:
        """Publish a message of QoS 1 with these records; return its number."""
        # The broker's answer may arrive before `publish` returns.
        leaving = self._leaving = _SentMessage(len(payload), records)
        number = session.publish(topic, payload, lasting=lasting)
        self._on_the_way[number] = leaving
        self._leaving = None
        return number

    def lost(self, session: MqttSession, reason: str) -> str | None:
        """Note the end of a connection; return the size of the message that may have caused it, in words."""
        leaving, on_the_way = self._leaving, self._on_the_way
        self._on_the_way = {}
        self._is_lost = True
        unanswered = [message for number, message in list(on_the_way.items()) if session.is_on_its_way(number)]
        if leaving is not None and leaving not in unanswered:
            unanswered.append(leaving)
        if not unanswered:
            return None
        loss = _Loss(reason, unanswered)
        self._losses.append(loss)
        size_text = f"right after a message of {loss.largest_bytes} bytes"
        self.trouble = f"lost {size_text} ({reason})"
        return size_text

    def restart(self) -> None:
        self._on_the_way = {}
        self._is_lost = False
        self._refusals = self._outbox.refusals(self._broker)

    def learn(self, session: MqttSession) -> None:
        """Process the answers and losses since the last call."""
        on_the_way = self._on_the_way
        answered = [number for number in on_the_way if not session.is_on_its_way(number)]
        # Messages sent on a lost connection look acknowledged on the next one.
        if not self._is_lost:
            messages = [on_the_way.pop(number) for number in answered]
            if sizes := [message.size_bytes for message in messages if message.records]:
                session.progressed()
                self._learn_answers(sizes)
        while self._losses:
            self._learn_loss(self._losses.popleft())

    def alone_bytes(self, session: MqttSession) -> int:
        """Return the size limit of a message with one record."""
        announced_bytes = session.largest_bytes() - PACKET_OVERHEAD_BYTES
        refusal = self.refusal()
        return announced_bytes if refusal is None else min(announced_bytes, refusal.size_bytes - 1)

    def together_bytes(self, session: MqttSession) -> int:
        """Return the size limit of a message with several records."""
        refusal = self.refusal()
        limits = [self.alone_bytes(session)] if refusal is None else [self.alone_bytes(session), int(SMALLER_RATIO * refusal.size_bytes)]
        return min(limits if self._together_bytes is None else [*limits, self._together_bytes])

    def room(self, session: MqttSession) -> int:
        """Return how many messages may be sent now."""
        room = session.room()
        if self._together_bytes is None and not self._refusals:
            return room
        return 0 if self._on_the_way else min(room, 1)

    def refusal(self) -> Refusal | None:
        """Return the refusal of the smallest message that this broker did not accept."""
        closed = sorted(refusal for refusal in self._refusals if refusal.answer == "closed")
        certain = [refusal for refusal in self._refusals if refusal.answer == "0x95"]
        return min([*certain, *closed[CLOSED_TIMES - 1 : CLOSED_TIMES]], default=None)

    def why(self, session: MqttSession) -> str:
        """Return the reason for the limit of a message with one record, in words."""
        refusal = self.refusal()
        if refusal is None or refusal.size_bytes > session.largest_bytes() - PACKET_OVERHEAD_BYTES:
            return f"a message to the broker at {self._broker} may have at most {session.largest_bytes()} bytes"
        if refusal.answer == "0x95":
            return f"the broker at {self._broker} answered {refusal.size_bytes} bytes with 0x95 (packet too large)"
        closed_text = f"closed the connection {CLOSED_TIMES} times right after {refusal.size_bytes} bytes"
        return f"the broker at {self._broker} {closed_text}, while smaller messages passed"

    def _learn_answers(self, sizes_bytes: Sequence[int]) -> None:
        self._has_passed, self.trouble = True, None
        largest_bytes = max(sizes_bytes)
        if any(refusal.size_bytes <= largest_bytes for refusal in self._refusals):
            self._outbox.drop_refusals(self._broker, largest_bytes)
            self._refusals = self._outbox.refusals(self._broker)
        if largest_bytes >= self._lost_bytes:
            self._together_bytes, self._lost_bytes, self._failed_growths = None, 0, 0
        elif self._together_bytes is not None:
            self._answered += len(sizes_bytes)
            if self._answered >= ANSWERS_PER_FAILURE ** min(self._failed_growths, 4):
                self._together_bytes = 2 * self._together_bytes if self._together_bytes <= BATCH_BYTES else None
                self._has_grown, self._answered = True, 0

    def _learn_loss(self, loss: _Loss) -> None:
        size_bytes = loss.largest_bytes
        # A broker reads messages in order.
        smaller_bytes = int(SMALLER_RATIO * loss.unanswered[0].size_bytes)
        self._together_bytes = smaller_bytes if self._together_bytes is None else min(smaller_bytes, self._together_bytes)
        self._lost_bytes = max(self._lost_bytes, size_bytes)
        self._failed_growths += self._has_grown
        self._has_grown, self._answered = False, 0
        if loss.reason == mqtt_session.PACKET_TOO_LARGE:
            self._add(Refusal(size_bytes, "0x95"))
        elif loss.reason == mqtt_session.CUT and [len(message.records) for message in loss.unanswered] == [1]:
            self.deferred.add(loss.unanswered[0].records[0].row)
            if self._has_passed:
                self._add(Refusal(size_bytes, "closed"))

    def _add(self, refusal: Refusal) -> None:
        self._refusals.append(refusal)
        self._outbox.add_refusal(self._broker, refusal)

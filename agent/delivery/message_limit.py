"""The largest message that one broker accepts.

It is the broker's announced limit, or less if the broker or the line failed at a smaller message.

Brokers announce more than they accept (AWS IoT Core), or cannot announce a limit (MQTT 3.1.1).
`ANSWERS` lists what they do at a larger message. A broker of MQTT 3.1.1 may also acknowledge and
drop it (mosquitto's message_size_limit): no receipt comes.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base import mqtt_session
from edgemeter.agent.base.mqtt_session import MqttSession
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Outbox, Pending
from edgemeter.agent.delivery.outbox_file import Answer, Refusal

logger = logging.getLogger(__name__)

# The answers of brokers to a message that is too large, by the reason of the lost connection or of
# the refused message. Only 0x95 says so for certain; the others count if the message was alone on
# the way, `CLOSED_TIMES` times, while smaller ones and none as large passed.
ANSWERS: dict[str, Answer] = {
    mqtt_session.PACKET_TOO_LARGE: "0x95",
    # PUBACK: mosquitto's message_size_limit.
    "Packet too large": "0x95",
    "Quota exceeded": "0x97",
    mqtt_session.QUOTA_EXCEEDED: "0x97",
    "Malformed packet": "0x81",
    "Protocol error": "0x82",
    "Implementation specific error": "0x83",
    mqtt_session.CUT: "closed",
}
_CERTAIN = "0x95"
# Acknowledged by a broker of MQTT 3.1.1, and no receipt came.
_NO_RECEIPT = "no receipt"
# A generous size of a packet's topic, properties and header.
PACKET_OVERHEAD_BYTES = 1024
# The largest size of a message after one that was too large: half of the records compress to a
# little more than half.
SMALLER_RATIO = 0.75
# A line may fail by itself: a closed connection counts only after this many times.
CLOSED_TIMES = 3
# After this time the message that a broker did not accept is tried once more: its limit may have
# been raised, or it failed by itself.
RETRY_S = 3600.0
# Records above this share of the largest in a message that was lost are sent after the others.
SUSPECT_RATIO = 0.5
# Messages of several records are never larger, so that a single large record is not limited.
BATCH_BYTES = 512 << 10
# Messages that failed again after they had grown need this many times as many answers to grow
# again.
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
    """The limit of messages to `broker`.

    `lost` is called from the session's thread, the rest from the publisher's.

    A message that was unanswered when the connection was lost reduces the size of messages with
    several records; answered ones let it grow again, more slowly each time. Until then one message
    is sent at a time, so that the next loss shows the cause. The largest records of a lost message
    are `deferred`: the others go first. A size can be the cause only if some of them are accepted.
    An MQTT 5 broker answers a message with its PUBACK; of MQTT 3.1.1 only the receipts of all its
    records are an answer.
    """

    def __init__(self, outbox: Outbox, broker: str) -> None:
        self.deferred: set[int] = set()
        self.trouble: str | None = None
        self._outbox = outbox
        self._broker = broker
        self._refusals: list[Refusal] = []
        self._leaving: _SentMessage | None = None
        self._on_the_way: dict[int, _SentMessage] = {}
        # The largest message without records that was lost.
        self._lost_other_bytes: int | None = None
        self._unconfirmed: list[_SentMessage] = []
        self._silences: Counter[int] = Counter()
        self._losses: deque[_Loss] = deque()
        self._is_lost = False
        self._passed_bytes = 0
        self._retry_s: float | None = None
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
        """Note the end of a connection.

        Returns the size of the message that may have caused it, in words.
        """
        leaving, on_the_way = self._leaving, self._on_the_way
        self._on_the_way = {}
        self._is_lost = True
        unanswered = [
            message for number, message in list(on_the_way.items()) if session.is_on_its_way(number)
        ]
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

    def learn(self, session: MqttSession, is_held: Callable[[Pending], bool]) -> list[Pending]:
        """Process the answers and losses since the last call.

        Returns the records to be sent again in smaller messages. `is_held` returns whether a record
        was sent and has no receipt.
        """
        on_the_way = self._on_the_way
        answered = [number for number in on_the_way if not session.is_on_its_way(number)]
        too_large: list[Pending] = []
        # Messages sent on a lost connection look acknowledged on the next one.
        if not self._is_lost:
            passed: list[_SentMessage] = []
            for number in answered:
                message = on_the_way.pop(number)
                if (reason := session.refusal(number)) is None:
                    passed.append(message)
                elif message.records and reason in ANSWERS:
                    self._losses.append(_Loss(reason, [message]))
                    too_large += message.records if ANSWERS[reason] == _CERTAIN else ()
            largest_other_bytes = max(
                (message.size_bytes for message in passed if not message.records), default=0
            )
            if self._lost_other_bytes is not None and largest_other_bytes >= self._lost_other_bytes:
                self._lost_other_bytes = None
            self._learn_passed(session, [message for message in passed if message.records], is_held)
        while self._losses:
            self._learn_loss(self._losses.popleft())
        return too_large

    def records_go_first(self) -> bool:
        """Return whether other messages have to wait.

        They do if the connection ended at one and would end again before any record.
        """
        return self._lost_other_bytes is not None

    def is_idle(self) -> bool:
        """Return whether no message is on the way."""
        return not self._on_the_way

    def receipted(self, receipt: Receipt) -> None:
        """Learn from the receipts of messages that a broker of MQTT 3.1.1 has acknowledged.

        It may have done so on an earlier connection.
        """

        def is_passed(message: _SentMessage) -> bool:
            return any(
                record.session == receipt.session and first <= record.seq <= last
                for first, last in receipt.held
                for record in message.records
            )

        if passed := [message for message in self._unconfirmed if is_passed(message)]:
            self._unconfirmed = [message for message in self._unconfirmed if not is_passed(message)]
            self._learn_answers([message.size_bytes for message in passed])

    def unconfirmed(self, rows: Sequence[int]) -> None:
        """Note that the receipts of these records are overdue.

        A broker of MQTT 3.1.1 may have dropped their messages.
        """
        overdue = set(rows)
        silent = [
            message
            for message in self._unconfirmed
            if overdue.intersection(record.row for record in message.records)
        ]
        if silent:
            self._unconfirmed = [
                message
                for message in self._unconfirmed
                if overdue.isdisjoint(record.row for record in message.records)
            ]
            self._learn_loss(_Loss(_NO_RECEIPT, silent))
            self._name(message for message in silent if len(message.records) == 1)

    def alone_bytes(self, session: MqttSession) -> int:
        """Return the size limit of a message with one record."""
        announced_bytes = session.largest_bytes() - PACKET_OVERHEAD_BYTES
        refusal = self.refusal()
        return announced_bytes if refusal is None else min(announced_bytes, refusal.size_bytes - 1)

    def together_bytes(self, session: MqttSession) -> int:
        """Return the size limit of a message with several records."""
        refusal = self.refusal()
        limits = (
            [self.alone_bytes(session)]
            if refusal is None
            else [self.alone_bytes(session), int(SMALLER_RATIO * refusal.size_bytes)]
        )
        return min(limits if self._together_bytes is None else [*limits, self._together_bytes])

    def room(self, session: MqttSession) -> int:
        """Return how many messages may be sent now."""
        if self._together_bytes is None and not self._refusals:
            return session.room()
        return 0 if self._on_the_way else min(session.room(), 1)

    def refusal(self) -> Refusal | None:
        """Return the refusal of the smallest message that this broker did not accept."""
        certain = [refusal for refusal in self._refusals if refusal.answer == _CERTAIN]
        closed = sorted(refusal for refusal in self._refusals if refusal.answer != _CERTAIN)
        # One message at least was tried again: several that were on the way when a broker was
        # killed are no sign.
        count = next(
            (
                count
                for count in range(CLOSED_TIMES, len(closed) + 1)
                if len({refusal.size_bytes for refusal in closed[:count]}) < count
            ),
            0,
        )
        return min([*certain, *closed[:count][-1:]], default=None)

    def is_retry_due(self, now_s: float) -> bool:
        """Return whether all records are tried again.

        Now and then, a broker that did not say for certain why it accepted none is asked. One more
        failure is enough to restore the limit.
        """
        is_due = self._retry_s is not None and now_s >= self._retry_s
        if self._retry_s is None or is_due:
            self._retry_s = now_s + RETRY_S
        limit = self.refusal()
        if not is_due or limit is None or limit.answer == _CERTAIN:
            return False
        self._outbox.doubt_refusals(self._broker, CLOSED_TIMES - 1)
        self._refusals = self._outbox.refusals(self._broker)
        return True

    def why(self, session: MqttSession) -> str:
        """Return the reason for the limit of a message with one record, in words."""
        refusal = self.refusal()
        if refusal is None or refusal.size_bytes > session.largest_bytes() - PACKET_OVERHEAD_BYTES:
            return (
                f"a message to the broker at {self._broker} may have at most "
                f"{session.largest_bytes()} bytes"
            )
        if refusal.answer == _CERTAIN:
            return (
                f"the broker at {self._broker} answered {refusal.size_bytes} bytes with 0x95 "
                "(packet too large)"
            )
        answer_text = (
            "closed the connection" if refusal.answer == "closed" else f"answered {refusal.answer}"
        )
        return (
            f"the broker at {self._broker} {answer_text} {CLOSED_TIMES} times right after "
            f"{refusal.size_bytes} bytes, while smaller messages passed"
        )

    def _learn_passed(
        self,
        session: MqttSession,
        passed: Sequence[_SentMessage],
        is_held: Callable[[Pending], bool],
    ) -> None:
        if passed:
            session.progressed()
        if session.version == "3.1.1":
            self._unconfirmed += [
                message for message in passed if any(map(is_held, message.records))
            ]
            passed = [message for message in passed if not any(map(is_held, message.records))]
        if passed:
            self._learn_answers([message.size_bytes for message in passed])

    def _learn_answers(self, sizes_bytes: Sequence[int]) -> None:
        self.trouble = None
        largest_bytes = max(sizes_bytes)
        self._passed_bytes = max(self._passed_bytes, largest_bytes)
        if any(refusal.size_bytes <= largest_bytes for refusal in self._refusals):
            self._outbox.drop_refusals(self._broker, largest_bytes)
            self._refusals = self._outbox.refusals(self._broker)
        if largest_bytes >= self._lost_bytes:
            self._together_bytes, self._lost_bytes, self._failed_growths = None, 0, 0
        elif self._together_bytes is not None:
            self._answered += len(sizes_bytes)
            if self._answered >= ANSWERS_PER_FAILURE ** min(self._failed_growths, 4):
                self._together_bytes = (
                    2 * self._together_bytes if self._together_bytes <= BATCH_BYTES else None
                )
                self._has_grown, self._answered = True, 0

    def _learn_loss(self, loss: _Loss) -> None:
        size_bytes = loss.largest_bytes
        # A broker reads messages in order.
        smaller_bytes = int(SMALLER_RATIO * loss.unanswered[0].size_bytes)
        self._together_bytes = (
            smaller_bytes
            if self._together_bytes is None
            else min(smaller_bytes, self._together_bytes)
        )
        self._lost_bytes = max(self._lost_bytes, size_bytes)
        self._failed_growths += self._has_grown
        self._has_grown, self._answered = False, 0
        self._lost_other_bytes = max(
            (message.size_bytes for message in loss.unanswered if not message.records),
            default=self._lost_other_bytes,
        )
        self._defer([record for message in loss.unanswered for record in message.records])
        answer = ANSWERS.get(loss.reason)
        was_alone = [len(message.records) for message in loss.unanswered] == [1]
        # A broker that is killed is no sign, whatever was on the way: a message as large has passed
        # before.
        is_suspicious = was_alone and 0 < self._passed_bytes < size_bytes
        if answer == _CERTAIN or (answer is not None and is_suspicious):
            refusal = Refusal(size_bytes, answer)
            self._refusals.append(refusal)
            self._outbox.add_refusal(self._broker, refusal)

    def _defer(self, records: Sequence[Pending]) -> None:
        """Send the largest of these records after all others, unless they are alike."""
        largest_bytes = max((len(record.payload) for record in records), default=0)
        suspects = {
            record.row for record in records if len(record.payload) > SUSPECT_RATIO * largest_bytes
        }
        if len(suspects) < len(records) or len(records) == 1:
            self.deferred |= suspects

    def _name(self, silent: Iterable[_SentMessage]) -> None:
        """Note records that were alone on the way and larger than all that were confirmed.

        They are repeated all the same.
        """
        for message in silent:
            (record,) = message.records
            self._silences[record.row] += 1
            if (
                self._silences[record.row] < CLOSED_TIMES
                or not 0 < self._passed_bytes < message.size_bytes
            ):
                continue
            reason = (
                f"record {record.seq} of session {record.session} has {message.size_bytes} bytes; "
                f"the broker at {self._broker} acknowledged it {CLOSED_TIMES} times and it was "
                "not confirmed, while smaller ones were"
            )
            if self._outbox.set_aside(record.row, f"{reason} (MQTT 3.1.1 does not report why)"):
                logger.error("%s: it stays in the outbox", reason)

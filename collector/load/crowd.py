"""Thousands of simulated devices over a few connections: the records, topics and receipts of each, without its outbox and its Will.

A broker that lets a device write below its own name only (`deploy/acl`) refuses this: use it where anybody may write.
"""

import secrets
import threading
import time
from dataclasses import dataclass, field

from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.mqtt_session import Message, MqttSession, Profile
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import ConfigError
from edgemeter.collector.load.tally import Plan, Tally
from edgemeter.collector.load.template import Number, Template

# Sent and without a receipt, of one connection.
WINDOW_RECORDS = 2000
OVERDUE_S = 5.0
LOOK_S = 0.005

Key = tuple[int, int]


@dataclass(slots=True)
class _Sent:
    device: str
    number: Number
    due_s: float
    again_s: float


@dataclass(slots=True)
class Crowd:
    """The devices `first, first + step, ...` of the plan, over one connection; their records are those that fall to them."""

    address: BrokerAddress
    plan: Plan
    template: Template
    tally: Tally
    first: int
    step: int
    resent: int = 0
    refusal: str | None = None
    _sent: dict[Key, _Sent] = field(default_factory=dict)
    _sessions: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _session: MqttSession | None = None

    @property
    def fleet(self) -> str:
        """The fleet of this connection's devices, so that it hears their receipts and no others."""
        return f"{self.plan.name}-{self.first}"

    def connect(self) -> None:
        """Return when the broker has accepted us.

        Raises:
            UnavailableError: no broker answers.
            ConfigError: it refuses us.
        """
        session = self._session = MqttSession(self.address, Profile(self.fleet), self)
        session.connect()

    def run(self, start_s: float, stop: threading.Event) -> None:
        """Send each record when it is due, again when its receipt is overdue, until every receipt is here or patience ends."""
        if self._session is None:
            return
        done, share = 0, len(range(self.first, self.plan.records, self.step))
        deadline_s = float("inf")
        while not stop.is_set() and time.monotonic() < deadline_s and self.refusal is None:
            done += self._send_due(self._session, start_s, done, share)
            if done >= share:
                if not self._sent:
                    return
                deadline_s = min(deadline_s, time.monotonic() + self.plan.patience_s)
            self._send_again(self._session)
            stop.wait(LOOK_S)

    def close(self) -> None:
        """End the connection; may be called twice."""
        if self._session is not None:
            self._session.close()

    def connected(self) -> None:
        """Session event: a connection is up."""
        if self._session is not None:
            self._session.subscribe([f"{topics.ROOT}/{self.fleet}/+/receipt"])
            with self._lock:
                for sent in self._sent.values():
                    sent.again_s = 0.0

    def disconnected(self, reason: str) -> None:
        """Session event: the connection is gone; it comes back by itself."""

    def received(self, message: Message) -> None:
        """Session event: a receipt."""
        try:
            receipt = messages.decode_receipt(message.payload)
        except ConfigError:
            return
        for first, last in receipt.held:
            for seq in range(first, last + 1):
                with self._lock:
                    sent = self._sent.pop((receipt.session, seq), None)
                if sent is not None:
                    self.tally.was_receipted(sent.due_s)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's word on a publish or a subscription."""
        if refusal is not None and "uthorized" in refusal:
            self.refusal = refusal

    def _send_due(self, session: MqttSession, start_s: float, done: int, share: int) -> int:
        room = min(session.room(), WINDOW_RECORDS - len(self._sent), share - done) if session.is_connected() else 0
        for turn in range(done, done + room):
            now_s = time.monotonic()
            due_s = start_s + (turn * self.step + self.first) / self.plan.rate_per_s
            if due_s > now_s:
                return turn - done
            sent = self._next(turn, due_s, now_s)
            with self._lock:
                self._sent[sent.number.session, sent.number.seq] = sent
            self._publish(session, sent)
            self.tally.was_sent()
        return room

    def _next(self, turn: int, due_s: float, now_s: float) -> _Sent:
        own = len(range(self.first, self.plan.devices, self.step))
        device = self.first + self.step * (turn % own)
        if device not in self._sessions:
            self._sessions[device] = secrets.randbits(52) | 1
        number = Number(self._sessions[device], turn // own + 1, time.time_ns())
        return _Sent(self.plan.device(device), number, due_s, now_s + OVERDUE_S)

    def _send_again(self, session: MqttSession) -> None:
        now_s = time.monotonic()
        with self._lock:
            overdue = [sent for sent in self._sent.values() if sent.again_s <= now_s]
        for sent in overdue[: session.room() if session.is_connected() else 0]:
            sent.again_s = now_s + OVERDUE_S
            self._publish(session, sent)
            self.resent += 1

    def _publish(self, session: MqttSession, sent: _Sent) -> None:
        session.publish(str(Topic(self.fleet, sent.device, "result")), self.template.payload(sent.device, self.fleet, sent.number))

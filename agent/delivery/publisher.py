"""The publisher, which brings the outbox to a collector over MQTT.

Receipted records are not sent again unless a collector requests them.

The broker's own acknowledgement does not count: no broker in use keeps acknowledged messages
through every crash. A record is sent again after a reconnect, and when its receipt is overdue; the
collector drops duplicates.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol

import msgspec

from edgemeter.agent.base import interrupts, mqtt_session
from edgemeter.agent.base.backoff import backoff_s
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic, TopicKind
from edgemeter.agent.delivery.broker_name import BrokerName
from edgemeter.agent.delivery.message_limit import MessageLimit
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import TOO_LARGE_REMEDY
from edgemeter.agent.delivery.send_window import (
    FIRST_TIMEOUT_S,
    WINDOW_BYTES,
    WINDOW_RECORDS,
    SendWindow,
)
from edgemeter.agent.delivery.sender import Sender
from edgemeter.agent.delivery.stamps import Stamping

logger = logging.getLogger(__name__)

GOODBYE_S = 2.0
IDLE_S = 1.0
# After this time the broker may accept a refused message.
REFUSED_PAUSE_S = 60.0
# The state is published again at most this often, after another process has replaced it.
RESTATED_S = 10.0
# Handlers' messages (`publish`) that wait for room in the broker's window.
WAITING_MESSAGES = 100


class _HandlerMessage(NamedTuple):
    """A message of a handler that waits for a connection with room."""

    topic: str
    payload: bytes
    lasting: Literal["passing", "retained"]


class PublisherListener(Protocol):
    """Receives the device's messages other than receipts.

    It is called from the publisher's threads, and may not block.
    """

    @property
    def topics(self) -> Sequence[str]:
        """The topics to subscribe to with every connection under the device's name."""

    def connected(self) -> None:
        """Handle a new connection, subscribed to `topics`."""

    def received(self, message: mqtt_session.Message) -> None:
        """Handle one message on one of `topics`."""


class Publisher:
    """Publishes the outbox's records of one device.

    Use it as: connect or start, (put, wake)*, drain, close.

    `birth` describes the device; `lasting` is whether the broker keeps its subscriptions and
    messages while it is away.

    A second process of the same device publishes under another client id, without birth, state and
    Will (see `DeviceLock`). If both share an outbox both may send the same record: the collector
    drops one.
    """

    # The transport, and the clock (monotonic seconds).
    make_session = mqtt_session.MqttSession
    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        address: BrokerAddress,
        outbox: Outbox,
        birth: messages.Birth,
        *,
        window_records: int = WINDOW_RECORDS,
        receipt_timeout_s: float = FIRST_TIMEOUT_S,
        lasting: Literal["clean", "persistent"] = "clean",
        stamping: Stamping | None = None,
        listener: PublisherListener | None = None,
    ) -> None:
        self.address = address
        self._outbox = outbox
        self._birth = birth
        self._device_lock = DeviceLock(outbox.path, birth.device)
        self._name = BrokerName(
            self._device_lock, birth.session, is_resident=lasting == "persistent"
        )
        self._lasting = lasting
        self._stamping = stamping or Stamping(outbox)
        self._limit = MessageLimit(outbox, str(address))
        self._sender = Sender(
            outbox,
            birth.device,
            birth.fleet,
            self._limit,
            SendWindow(window_records, WINDOW_BYTES, receipt_timeout_s),
        )
        self._listener = listener
        self._activity: messages.Activity | None = None
        self._challenge: str | None = None
        self._restated_s = float("-inf")
        self._outgoing: deque[_HandlerMessage] = deque()
        self._handler_messages: set[int] = set()
        self._session: mqtt_session.MqttSession | None = None
        self._thread: threading.Thread | None = None
        self._receipts: deque[messages.Receipt] = deque()
        self._requests: deque[tuple[str, messages.AgainRequest]] = deque(maxlen=WAITING_MESSAGES)
        self._wake = threading.Event()
        self._forgot = threading.Condition()
        self._closing = False
        self._is_new_connection = False
        self._first_held: int | None = None
        self._refusal: str | None = None
        self._refused_s = 0.0
        self._reported_reason: str | None = None
        self._was_offline = False

    def connect(self, timeout_s: float = mqtt_session.CONNECT_TIMEOUT_S) -> None:
        """Connect; return when the broker has accepted this device.

        From then on the outbox is sent automatically.

        Raises:
            UnavailableError: no broker answers within `timeout_s`.
            ConfigError: the broker refuses our user, password or certificate.
        """
        self._open_session(timeout_s)
        # The thread retries, and logs the reason.
        with suppress(EdgemeterError):
            self._welcome()
        self.start()

    def start(self) -> None:
        """Start without waiting for a broker.

        Connecting is retried, and the outbox is sent when a broker answers.
        """
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="edgemeter-publisher", daemon=True
            )
            self._thread.start()

    def wake(self) -> None:
        """Read the outbox now: it has a new record."""
        self._wake.set()

    def drain(self, timeout_s: float) -> int:
        """Wait until every record of this device that can be sent is receipted.

        It waits at most `timeout_s`, and returns the number of the others.

        Raises:
            UnavailableError: the broker refuses this device's records or its subscription (MQTT 5;
                a 3.1.1 broker does not report it).
        """
        deadline = time.monotonic() + timeout_s
        self.wake()
        while not self._outbox.is_empty(self._birth.device):
            interrupts.check()
            if self._refusal is not None:
                raise UnavailableError(self.why_left())
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._outbox.count(self._birth.device) == len(
                self._sender.too_large
            ):
                break
            with self._forgot:
                self._forgot.wait(min(remaining, 0.2))
        return self._outbox.count(self._birth.device)

    def why_left(self) -> str:
        """Return why records are still in the outbox, in one line."""
        outlook = "the records stay in the outbox"
        if self._refusal is not None:
            return (
                f"the broker at {self.address} refuses device {self._birth.device!r} "
                f"({self._refusal}): allow it its own topics; {outlook}"
            )
        if self._session is None or not self._session.is_connected():
            why = f": it was {self._limit.trouble}" if self._limit.trouble else ""
            return (
                f"the connection to the broker at {self.address} is down{why}; {outlook} and go "
                "out when it is back"
            )
        if self._sender.holds_previous:
            return (
                f"the broker at {self.address} refuses records of a previous fleet: deliver them "
                f"to a broker of that fleet; {outlook}"
            )
        if self._outbox.has_unstamped():
            return (
                "they wait for this device's clock to be set: check that it can reach a time "
                f"server (NTP); {outlook}"
            )
        if (why_limited := self._why_limited()) is not None:
            return f"{why_limited}; {outlook}"
        silent = (
            " (or the broker refuses this device: MQTT 3.1.1 does not report it)"
            if self._session.version == "3.1.1"
            else ""
        )
        return (
            f"no collector has confirmed them{silent}: check that one runs at {self.address} "
            f"(`edgemeter collector up`); {outlook}"
        )

    def _why_limited(self) -> str | None:
        if reasons := self._outbox.too_large(self._birth.device):
            return (
                f"{len(reasons)} records are too large for a message ({reasons[0]}): "
                f"{TOO_LARGE_REMEDY}"
            )
        return (
            f"the connection to the broker at {self.address} was {self._limit.trouble}"
            if self._limit.trouble
            else None
        )

    def report_activity(self, measuring: messages.Measuring | None) -> None:
        """Report the current measurement, at once or not at all.

        Nothing may be sent later, while a query is timed.

        Without a connection, the end of a measurement is reported with the next one.
        """
        self._activity = messages.Activity(session=self._birth.session, measuring=measuring)
        if self._session is not None and self.is_connected():
            self._publish_activity(self._session, self._activity)

    def report_challenge(self, challenge: str) -> None:
        """Report the value that orders must repeat in this device's state.

        It is reported now and with every connection.
        """
        self._challenge = challenge
        self._restate()

    def _restate(self) -> None:
        if self._name.state == "own":
            self.publish(self._topic("state"), self._state("online"), lasting="retained")

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: Literal[0, 1] = 1,
        lasting: Literal["passing", "retained"] = "passing",
    ) -> bool:
        """Send one message of a handler; return False if that is not possible now.

        It goes before any record, unless the connection ended at such a message.
        """
        session = self._session
        if (
            session is None
            or not self.is_connected()
            or len(payload) > self._limit.alone_bytes(session)
        ):
            return False
        if qos == 0:
            session.publish(topic, payload, qos=0, lasting=lasting)
            return True
        if len(self._outgoing) >= WAITING_MESSAGES:
            return False
        self._outgoing.append(_HandlerMessage(topic, payload, lasting))
        self._wake.set()
        return True

    def is_connected(self) -> bool:
        return (
            self._session is not None
            and self._session.is_connected()
            and not self._is_new_connection
        )

    @property
    def resent(self) -> int:
        """The number of records sent again."""
        return self._sender.window.resent

    def close(self) -> None:
        """Disconnect and end the threads; other records stay in the outbox. May be called twice."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._session is not None:
            if self._name.state == "own":
                self._publish_state("offline")
                self._session.flush(GOODBYE_S)
            self._session.close()
        self._device_lock.release()

    def connected(self) -> None:
        self._name.connected(self.clock())
        self._reported_reason = None
        self._is_new_connection = True
        self._wake.set()

    def disconnected(self, reason: str) -> None:
        self._name.disconnected(reason, self.clock())
        self._was_offline = True
        size_text = None if self._session is None else self._limit.lost(self._session, reason)
        # A client that is refused retries for ever, and logs it once.
        if not self._closing and reason != self._reported_reason:
            self._reported_reason = reason
            logger.info(
                "connection to the broker at %s lost%s: %s",
                self.address,
                f" {size_text}" if size_text else "",
                reason,
            )
        self._wake.set()

    def received(self, message: mqtt_session.Message) -> None:
        """Handle a receipt, or the device's state, from the session.

        Other messages are ignored (amqtt sends retained messages to all clients).
        """
        suffix = f"/{self._birth.device}/"
        try:
            if message.topic.endswith(f"{suffix}receipt"):
                received = messages.decode_from_collector(message.payload)
                if isinstance(received, messages.Receipt):
                    self._receipts.append(received)
                else:
                    self._requests.append((messages.parse_topic(message.topic).fleet, received))
                self._wake.set()
            elif message.topic.endswith(f"{suffix}state"):
                self._see_state(messages.decode_state(message.payload), self.clock())
            elif self._listener is not None and message.topic in self._listener.topics:
                self._listener.received(message)
        except ConfigError as error:
            logger.warning("ignored a message on %s: %s", message.topic, error)

    def _see_state(self, state: messages.DeviceState, now_s: float) -> None:
        """Another's state has replaced ours: publish ours again."""
        if self._name.state_seen(state, now_s) and now_s - self._restated_s >= RESTATED_S:
            self._restated_s = now_s
            self._restate()
        # The name may be ours again.
        self._wake.set()

    def answered(self, refusal: str | None) -> None:
        if self._concerns_handlers(refusal):
            # The broker's ACL may be older than this agent: results are still delivered.
            logger.warning(
                "the broker at %s refuses: %s; update its ACL to that of this version",
                self.address,
                refusal,
            )
        # Any other failure concerns one message, which is sent again when its receipt is overdue.
        elif (
            refusal is not None
            and "uthorized" in refusal
            and not self._concerns_previous_fleet(refusal)
        ):
            self._refused_s = self.clock()
            self._refusal = refusal
        self._wake.set()

    def _concerns_previous_fleet(self, refusal: str) -> bool:
        session, was_holding = self._session, self._sender.holds_previous
        # A subscription to the receipts of a previous fleet, or one of its records.
        is_previous = "/receipt:" in refusal and f" {self._topic('receipt')}:" not in refusal
        is_previous = is_previous or (session is not None and self._sender.refused(session))
        if is_previous and self._sender.holds_previous and not was_holding:
            logger.warning(
                "the broker at %s refuses results of a previous fleet: they stay in the outbox",
                self.address,
            )
        return is_previous

    def _concerns_handlers(self, refusal: str | None) -> bool:
        session = self._session
        answered = {
            number
            for number in self._handler_messages.copy()
            if session is None or not session.is_on_its_way(number)
        }
        self._handler_messages.difference_update(answered)
        if refusal is None or self._listener is None:
            return False
        return bool(answered) or any(
            f"subscription {topic}:" in refusal for topic in self._listener.topics
        )

    def _topic(self, kind: TopicKind) -> str:
        return str(Topic(self._birth.fleet, self._birth.device, kind))

    def _publish_activity(
        self, session: mqtt_session.MqttSession, activity: messages.Activity
    ) -> None:
        session.publish(
            self._topic("activity"), messages.encode_message(activity), qos=0, lasting="retained"
        )

    def _publish_state(self, state: str) -> None:
        if self._session is not None:
            self._session.publish(self._topic("state"), self._state(state), lasting="retained")

    def _state(self, state: str) -> bytes:
        return messages.encode_message(
            messages.DeviceState(
                state=state,  # type: ignore[arg-type]
                session=self._birth.session,
                challenge=self._challenge if state == "online" else None,
            )
        )

    def _open_session(self, timeout_s: float) -> None:
        if self._session is not None:
            self._session.close()
        before = self._name.state
        if self._name.choose(self.clock()) == "own":
            profile = mqtt_session.SessionProfile(
                self._birth.device,
                self._lasting,
                will=mqtt_session.Will(self._topic("state"), self._state("lost")),
            )
            if before == "displaced":
                logger.warning(
                    "this process takes the name of device %r at the broker again",
                    self._birth.device,
                )
        else:
            profile = mqtt_session.SessionProfile(f"{self._birth.device}~{self._birth.session}")
        if self._name.state == "displaced" != before:
            logger.warning(
                "another process publishes as device %r: this one uses a client id of "
                "its own for now",
                self._birth.device,
            )
        session = self._session = self.make_session(self.address, profile, self)
        try:
            session.connect(timeout_s)
        except EdgemeterError:
            self._session = None
            raise

    def _run(self) -> None:
        failures = 0
        while not self._closing:
            self._wake.clear()
            try:
                pause_s = self.step()
                failures = 0
            except EdgemeterError as error:
                # Logged once, not at every attempt.
                logger.log(
                    logging.DEBUG if failures else logging.WARNING, "cannot publish now: %s", error
                )
                pause_s = backoff_s(failures)
                failures += 1
                self._was_offline = True
            self._wake.wait(pause_s)

    def step(self) -> float:
        """Do the work that is due; return the seconds until the next.

        The thread calls it repeatedly.

        Raises:
            EdgemeterError: no broker answers, or the outbox cannot be used.
        """
        self._take_receipts()
        self._take_requests()
        if self._session is None or self._name.is_due(self.clock()):
            self._open_session(mqtt_session.CONNECT_TIMEOUT_S)
        session = self._session
        if session is None:
            return IDLE_S
        self._sender.learn(session)
        if not session.is_connected():
            return IDLE_S
        self._welcome()
        records_first = self._refusal is None and self._limit.records_go_first()
        if not records_first:
            self._send_outgoing(session)
        if self._refusal is not None:
            left_s = self._refused_s + REFUSED_PAUSE_S - self.clock()
            if left_s <= 0:
                self._refusal = None
                self._sender.restart()
            return max(0.0, left_s)
        held_s = self._settle_stamps()
        pause_s = min(self._sender.send(session, self.clock()), self._name.wait_s(self.clock()))
        if records_first and self._limit.is_idle():
            self._send_outgoing(session)
        return pause_s if held_s is None else min(pause_s, held_s)

    def _send_outgoing(self, session: mqtt_session.MqttSession) -> None:
        while self._outgoing and session.room() > 0:
            topic, payload, lasting = self._outgoing.popleft()
            self._handler_messages.add(
                self._limit.publish(session, topic, payload, lasting=lasting)
            )

    def _welcome(self) -> None:
        """Send the first messages of a new connection."""
        if self._session is None or not self._is_new_connection:
            return
        self._is_new_connection = False
        try:
            self._greet(self._session)
        except EdgemeterError:
            self._is_new_connection = True
            raise
        if self._listener is not None:
            self._listener.connected()

    def _settle_stamps(self) -> float | None:
        # Another process with the outbox open may settle them too.
        rows = [
            row for row in (self._first_held, self._outbox.first_unstamped()) if row is not None
        ]
        held_s = self._stamping.settle()
        self._first_held = self._outbox.first_unstamped()
        if rows and self._first_held != min(rows):
            self._sender.look_back(min(rows))
        return held_s

    def _greet(self, session: mqtt_session.MqttSession) -> None:
        self._sender.restart()
        self._outgoing.clear()
        self._handler_messages.clear()
        if self._was_offline:
            self._stamping.is_online()
        session.subscribe(
            [
                str(Topic(fleet, self._birth.device, "receipt"))
                for fleet in sorted({self._birth.fleet, *self._outbox.fleets(self._birth.device)})
            ]
        )
        if self._name.state != "beside":
            session.subscribe([self._topic("state")])
        if self._name.state == "own":
            # One process listens to the fleet's commands: the one that reports the challenge.
            if self._listener is not None and self._listener.topics:
                session.subscribe(self._listener.topics)
            dropped = self._outbox.dropped(self._birth.device)
            birth = msgspec.structs.replace(
                self._birth, dropped_traces=dropped.traces, dropped_records=dropped.records
            )
            self._limit.publish(
                session, self._topic("birth"), messages.encode_message(birth), lasting="retained"
            )
            self._publish_state("online")
        if self._activity is not None and self._activity.measuring is None:
            self._publish_activity(session, self._activity)
        self._refusal = None

    def _take_requests(self) -> None:
        while self._requests:
            fleet, request = self._requests.popleft()
            try:
                row = self._outbox.send_again(request, self._birth.device, fleet)
            except (UnavailableError, TransientError) as error:
                # The broker retains it; waiting messages are sent meanwhile.
                logger.warning(
                    "a collector's request for records is answered with the next connection: %s",
                    error,
                )
                return
            if row is not None:
                logger.info(
                    "a collector asks for records again: %d are to be sent",
                    self._outbox.count(self._birth.device),
                )
                self._sender.look_back(row)

    def _take_receipts(self) -> None:
        while self._receipts:
            receipt = self._receipts.popleft()
            self._sender.receipted(receipt, self.clock())
            self._outbox.forget(receipt)
            with self._forgot:
                self._forgot.notify_all()

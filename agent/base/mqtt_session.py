"""A client's session with an MQTT broker, which reconnects automatically, with jitter.

It speaks MQTT 5, or 3.1.1 if the broker has only that.
"""

import itertools
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from edgemeter.agent.base.backoff import backoff_s
from edgemeter.agent.base.broker_address import BrokerAddress, MqttVersion, mqtt_version
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.tls import renew, tls_context

if TYPE_CHECKING:
    import ssl

    from paho.mqtt.client import Client

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 30
CONNECT_TIMEOUT_S = 5.0
PERSISTENT_EXPIRY_S = 24 * 3600
NEVER_EXPIRES = 0xFFFFFFFF
# The most unacknowledged messages that the broker may send us, and the largest message.
RECEIVE_MAXIMUM = 2000
LARGEST_MESSAGE_BYTES = 16 << 20
# 3.1.1 cannot state how many messages a broker accepts at once; every broker accepts this many.
WINDOW_OF_3_1_1 = 100
# The broker's reason if another client connected with our name; it stays as it is, others are put
# into words.
TAKEN_OVER = "Session taken over"
# MQTT 3.1.1, and mosquitto 2.0 with MQTT 5 too, close without a reason if another client connects
# with our name. Connections that end this soon, this often, indicate it.
SHORT_LIFE_S = 10.0
SHORT_LIVES = 3
# paho-mqtt's name for a disconnect without a reason.
_UNSPECIFIED = "Unspecified error"
CUT = (
    "closed without a reason: the network or the broker failed, or the broker ended it (revoked, "
    "or another client uses this name)"
)
_NEVER_UP = (
    "closed before an answer: the broker refuses our certificate (revoked or expired), "
    "or is starting"
)

PACKET_TOO_LARGE = "DISCONNECT 0x95, packet too large: the broker accepts no message of this size"
QUOTA_EXCEEDED = "the broker's quota for this client is used up: raise it there"

# Source: MQTT 5.0, section 3.14.2.1, as paho-mqtt names the codes.
_MEANINGS = {
    "Keep alive timeout": "no answer in time: the network is down, or the broker is too busy",
    "Not authorized": (
        "not authorized: was this client revoked, or are the broker's rules older than it?"
    ),
    "Server shutting down": "the broker is being stopped",
    "Administrative action": "somebody ended it at the broker: was this client revoked?",
    "Packet too large": PACKET_TOO_LARGE,
    "Quota exceeded": QUOTA_EXCEEDED,
    "Message rate too high": "the broker accepts fewer messages a second: raise its limit",
}


def disconnect_reason(reason: str, *, was_up: bool) -> str:
    """Return the meaning of a disconnect reason.

    `was_up` is true if the broker had accepted the connection.
    """
    if reason == _UNSPECIFIED:
        return CUT if was_up else _NEVER_UP
    return _MEANINGS.get(reason, reason)


def expiry_s(address: BrokerAddress) -> int:
    """Return how long a broker stores messages for a persistent client that is away.

    A client with a certificate belongs to a fleet, whose broker may get a SIGHUP. mosquitto 2.0.11
    then disconnects sessions that wait for their client once more, and crashes at the second entry
    in its list of expiring sessions: after 6 to 22 reloads; with sessions that never expire it took
    479.
    """
    return PERSISTENT_EXPIRY_S if address.tls.certificate is None else NEVER_EXPIRES


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes for us if the connection is lost without a DISCONNECT.

    It is retained, with QoS 1.
    """

    topic: str
    payload: bytes


class Message(NamedTuple):
    """One received message.

    `mid`, `qos` and `generation` (the connection) serve to acknowledge it later.

    `arrived_s` is the monotonic time when the feed read it. A tuple, because a collector creates
    tens of thousands of them a second.
    """

    topic: str
    payload: bytes
    mid: int = 0
    qos: int = 0
    generation: int = 0
    arrived_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionProfile:
    """Our client id, and whether the broker keeps our subscriptions and messages while we are away.

    With `later`, messages are acknowledged by `MqttSession.acknowledge`; the broker sends
    RECEIVE_MAXIMUM messages of QoS 1 ahead.
    """

    client_id: str
    lasting: Literal["clean", "persistent"] = "clean"
    will: Will | None = None
    acknowledges: Literal["at once", "later"] = "at once"


class SessionEvents(Protocol):
    """Callbacks from a session's network thread, of which none may raise or block.

    A broker without traffic ends the session. A subclass ignores the events that it does not
    define.
    """

    def connected(self) -> None:
        """A connection is up: subscribe and publish here, each time."""
        return

    def disconnected(self, reason: str) -> None:  # noqa: ARG002 - ignored here
        """Handle the loss of the connection, for the `reason` in words.

        It is re-established automatically unless the reason is `TAKEN_OVER`.
        """
        return

    def received(self, message: Message) -> None:  # noqa: ARG002 - ignored here
        return

    def answered(self, refusal: str | None) -> None:  # noqa: ARG002 - ignored here
        """Handle the broker's answer to a publish or a subscription.

        It has acknowledged one publish of QoS 1 (None), or refused it or a subscription.
        """
        return


class OutstandingPublishes:
    """Message ids of QoS 1 in flight.

    Its lock is never held while paho-mqtt is called, which holds locks of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[int] = set()
        self._unasked: set[int] = set()
        self._early: set[int] = set()
        self._refused: dict[int, str] = {}
        self._leaving = 0

    def __len__(self) -> int:
        return len(self._waiting) + self._leaving

    def __contains__(self, mid: int) -> bool:
        return mid in self._waiting

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Count a message that is being published and has no id yet."""
        with self._lock:
            self._leaving += 1
        try:
            yield
        finally:
            with self._lock:
                self._leaving -= 1

    def published(self, mid: int, qos: int) -> None:
        """Note the return values of `publish`."""
        with self._lock:
            if mid in self._early:
                self._early.discard(mid)
            elif qos:
                self._waiting.add(mid)
                # An earlier message had this id.
                self._refused.pop(mid, None)
            else:
                self._unasked.add(mid)

    def reported(self, mid: int, refusal: str | None = None) -> bool:
        """Note a message reported as done or refused.

        Returns False for QoS 0, whose report means nothing.
        """
        with self._lock:
            if refusal is not None:
                self._refused[mid] = refusal
            if mid in self._unasked:
                self._unasked.discard(mid)
                return False
            if mid in self._waiting:
                self._waiting.discard(mid)
            else:
                self._early.add(mid)
            return True

    def refusal(self, mid: int) -> str | None:
        """Return why the broker refused that message, once; None if it did not."""
        with self._lock:
            return self._refused.pop(mid, None)

    def reconnected(self) -> None:
        """Forget all messages: they were lost with the connection."""
        with self._lock:
            self._refused.clear()
            self._waiting.clear()
            self._unasked.clear()
            self._early.clear()


_GENERATIONS = itertools.count(1)


class MqttSession:
    """A session; `connect` once. Its methods may be called from any thread."""

    def __init__(
        self, address: BrokerAddress, profile: SessionProfile, events: SessionEvents
    ) -> None:
        self.address = address
        self.profile = profile
        self.version: MqttVersion = "5"
        self._events = events
        self._client: Client | None = None
        self._outstanding = OutstandingPublishes()
        self._subscriptions: dict[int, Sequence[str]] = {}
        self._window = WINDOW_OF_3_1_1
        self._largest_bytes = LARGEST_MESSAGE_BYTES
        self._socket: Any = None
        self._first_answer = threading.Event()
        self._refusal: str | None = None
        self._failures = 0
        self._is_up = False
        self._generation = 0
        self._tls: ssl.SSLContext | None = None

    def connect(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connect, and return when the broker has accepted us.

        Raises:
            UnavailableError: no broker answers within `timeout_s`.
            ConfigError: it rejects our user, password or certificate.
        """
        deadline = time.monotonic() + timeout_s
        self.version = mqtt_version(self.address, timeout_s)
        client = self._client = self._build()
        try:
            self._start(client)
            if not self._first_answer.wait(max(0.1, deadline - time.monotonic())):
                tls = (
                    ""
                    if self.address.scheme == "mqtts"
                    else f"; if this port speaks TLS, write mqtts://{self.address}"
                )
                raise UnavailableError(
                    f"the broker at {self.address} accepted the connection but did not answer "
                    f"within {timeout_s:g} s: look at its log{tls}"
                )
            if self._refusal is not None:
                raise _refused(self.address, self._refusal)
        except EdgemeterError:
            self.close()
            raise

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        lasting: Literal["passing", "retained"] = "passing",
        expires_s: int | None = None,
    ) -> int:
        """Pass one message to the network thread; return its number.

        Messages without an answer are lost with the connection.

        An MQTT 5 broker drops the message after `expires_s`.
        """
        if (client := self._client) is None:
            return 0
        properties = None
        if expires_s is not None and self.version == "5":
            from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415 - as below
            from paho.mqtt.properties import Properties  # noqa: PLC0415 - as below

            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = expires_s
        with self._outstanding.leaving():
            number = client.publish(
                topic, payload, qos=qos, retain=lasting == "retained", properties=properties
            ).mid
            self._outstanding.published(number, qos)
        return number

    def is_on_its_way(self, number: int) -> bool:
        """Return whether the broker has yet to acknowledge the QoS 1 message of that number."""
        return number in self._outstanding

    def refusal(self, number: int) -> str | None:
        """Return why the broker refused the message of that number, once; None if it did not."""
        return self._outstanding.refusal(number)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe at QoS 1; call it from `connected`: an earlier subscription is lost."""
        if self._client is not None:
            _, number = self._client.subscribe([(topic, 1) for topic in topics])
            if number is not None:
                self._subscriptions[number] = topics

    def acknowledge(self, message: Message) -> None:
        """Acknowledge a message of a profile with `later`.

        It does nothing if the message's connection is gone.
        """
        client = self._client
        if (
            message.qos
            and self._is_up
            and message.generation == self._generation
            and client is not None
        ):
            client.ack(message.mid, message.qos)

    def room(self) -> int:
        """Return how many more QoS 1 messages the broker accepts before it acknowledges earlier.

        0 until a quarter is free.
        """
        free = self._window - len(self._outstanding)
        return free if 4 * free >= self._window else 0

    def largest_bytes(self) -> int:
        """Return the largest payload that the broker accepts."""
        return self._largest_bytes

    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected()

    def progressed(self) -> None:
        """Reset the reconnect delay: the broker has answered usefully."""
        self._failures = 0

    def flush(self, timeout_s: float) -> None:
        """Wait until the broker has acknowledged all QoS 1 messages, at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while len(self._outstanding) and self.is_connected() and time.monotonic() < deadline:
            time.sleep(0.01)

    def close(self) -> None:
        """Disconnect (the Will is not published) and end the network thread.

        It may be called twice.
        """
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()

    def _build(self) -> "Client":
        # A run without a broker does not pay these 40 ms.
        from paho.mqtt import client as paho  # noqa: PLC0415
        from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415 - as above

        is_5 = self.version == "5"
        _accept_puback_0x95()
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.profile.client_id,
            clean_session=None if is_5 else self.profile.lasting == "clean",
            protocol=paho.MQTTv5 if is_5 else paho.MQTTv311,
            manual_ack=self.profile.acknowledges == "later",
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        # We limit the window (`room`), because paho ignores the broker's Receive Maximum.
        client.max_inflight_messages = 0
        if self.address.user is not None:
            client.username_pw_set(self.address.user, self.address.password)
        if self.address.scheme == "mqtts":
            self._tls = tls_context(self.address.tls)
            client.tls_set_context(self._tls)
        if self.profile.will is not None:
            client.will_set(self.profile.will.topic, self.profile.will.payload, qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_connect_fail = self._on_connect_fail
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_socket_open = self._on_socket_open
        return client

    def _start(self, client: "Client") -> None:
        settings: dict[str, Any] = {}
        if self.version == "5":
            from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415 - as above
            from paho.mqtt.properties import Properties  # noqa: PLC0415 - as above

            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.ReceiveMaximum = RECEIVE_MAXIMUM
            properties.MaximumPacketSize = LARGEST_MESSAGE_BYTES
            if self.profile.lasting == "persistent":
                properties.SessionExpiryInterval = expiry_s(self.address)
            settings = {"clean_start": self.profile.lasting == "clean", "properties": properties}
        try:
            client.connect(self.address.host, self.address.port, KEEP_ALIVE_S, **settings)
        except OSError as error:
            raise UnavailableError(
                f"the broker at {self.address} answered once, then stopped ({error}): try again"
            ) from error
        client.loop_start()

    def _on_socket_open(self, _client: Any, _data: Any, opened: Any) -> None:
        self._socket = opened
        self._generation = next(_GENERATIONS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _on_connect(
        self, client: Any, _data: Any, _flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            self._failures += 1
            self._refusal = str(reason)
            if self._first_answer.is_set():
                logger.warning(
                    "the broker at %s refuses %r: %s", self.address, self.profile.client_id, reason
                )
            self._first_answer.set()
            return
        if self.version == "5":
            self._window = min(
                RECEIVE_MAXIMUM, getattr(properties, "ReceiveMaximum", RECEIVE_MAXIMUM)
            )
            self._largest_bytes = min(
                LARGEST_MESSAGE_BYTES,
                getattr(properties, "MaximumPacketSize", LARGEST_MESSAGE_BYTES),
            )
        self._is_up = True
        # paho-mqtt would send all of it again, as the owners do themselves: on an unreliable line
        # it would accumulate.
        client.drop_out_messages()
        self._outstanding.reconnected()
        self._subscriptions.clear()
        self._events.connected()
        self._first_answer.set()

    def _on_disconnect(
        self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        if str(reason) == TAKEN_OVER:
            # Reconnecting would take the session back, and so on for ever.
            client.disconnect()
        was_up, self._is_up = self._is_up, False
        has_unanswered = was_up and len(self._outstanding) > 0
        if was_up and not has_unanswered:
            self._failures = 0
        self._prepare_the_next_try(client)
        # An unanswered message may have ended the connection, and would end the next one.
        self._failures += has_unanswered
        # Our own disconnect loses nothing.
        if self._client is not None:
            self._events.disconnected(disconnect_reason(str(reason), was_up=was_up))

    def _on_connect_fail(self, client: Any, _data: Any) -> None:
        self._failures += 1
        self._prepare_the_next_try(client)

    def _prepare_the_next_try(self, client: Any) -> None:
        wait_s = backoff_s(self._failures)
        client.reconnect_delay_set(wait_s, wait_s)
        if self._tls is not None:
            renew(self._tls, self.address.tls)

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            # This is only for the message that says what was wrong.
            topic = repr(message._topic)  # noqa: SLF001
        self._acknowledge_quickly()
        self._events.received(
            Message(topic, bytes(message.payload), message.mid, message.qos, self._generation)
        )

    def _on_publish(
        self, _client: Any, _data: Any, mid: int, reason: Any, _properties: Any
    ) -> None:
        refusal = str(reason) if reason.is_failure else None
        if self._outstanding.reported(mid, refusal):
            self._events.answered(refusal)

    def _on_subscribe(
        self, _client: Any, _data: Any, mid: int, reasons: Any, _properties: Any
    ) -> None:
        # The answer may arrive before its number: then the topic is not named.
        topics = self._subscriptions.pop(mid, [""] * len(reasons))
        for topic, reason in zip(topics, reasons, strict=False):
            if reason.is_failure:
                self._events.answered(f"subscription {topic}: {reason}")

    def _acknowledge_quickly(self) -> None:
        # A broker without TCP_NODELAY holds its next message back until our kernel has acknowledged
        # the last one. Linux resets this option after a while, so it is set again.
        with suppress(OSError, AttributeError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _accept_puback_0x95() -> None:
    """Let paho-mqtt decode PUBACK 0x95, which mosquitto's message_size_limit sends.

    MQTT 5.0 does not have it. Otherwise paho-mqtt ends the connection ("Protocol error").
    """
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415 - as above
    from paho.mqtt.reasoncodes import ReasonCode  # noqa: PLC0415 - as above

    packets = [PacketTypes.CONNACK, PacketTypes.DISCONNECT, PacketTypes.PUBACK]
    ReasonCode.names = {**ReasonCode.names, 0x95: {"Packet too large": packets}}


def _refused(address: BrokerAddress, reason: str) -> ConfigError | UnavailableError:
    if "uthori" in reason or "password" in reason.lower():
        who = f"user {address.user!r}" if address.user else "a client without a user name"
        return ConfigError(
            f"the broker at {address} refuses {who} ({reason}): check the user in the address "
            "(mqtt://USER@HOST) and the password (EDGEMETER_MQTT_PASSWORD, or ?password_file=FILE)"
        )
    return UnavailableError(
        f"the broker at {address} refuses the connection ({reason}): look at its log"
    )

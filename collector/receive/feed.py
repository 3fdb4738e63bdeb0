"""The feed: the collector's own session with a broker, made for many messages. One thread owns the socket and reconnects by itself.

Nothing blocks in here: while the handler is full the socket is not read, so that the broker waits; pings and receipts go on.
"""

import contextlib
import logging
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from edgemeter.agent.base.broker_address import BrokerAddress, MqttVersion, connect_socket, mqtt_version
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S, SHORT_LIFE_S, SHORT_LIVES, TAKEN_OVER, Message, expiry_s
from edgemeter.agent.base.tls import tls_refusal
from edgemeter.collector.receive import mqtt_wire
from edgemeter.collector.receive.mqtt_wire import BrokerResponse, MqttLogin, PacketReader

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 30
READ_BYTES = 256 << 10
GOODBYE_S = 2.0
LONGEST_PAUSE_S = 30.0
# Added when connections keep ending early: each reconnect then waits longer than the one before.
_AGAIN = ", again and again: does another collector work with a copy of this ledger?"
# Source: MQTT 5.0, 3.2.2.2 (bad user name or password, not authorized); 3.1.1, 3.2.2.3.
_UNAUTHORISED = (0x86, 0x87, 4, 5)


class MessageHandler(Protocol):
    """Handles what arrives, called from the feed's thread; no method may block or raise."""

    def is_full(self) -> bool:
        """Return whether no more messages fit now; call the feed's `wake` when that changes."""

    def received(self, messages: Sequence[Message]) -> None:
        """Handle messages, in the order of arrival."""

    def disconnected(self, reason: str) -> None:
        """Handle the loss of the connection; it is restored automatically unless `reason` is `TAKEN_OVER`."""

    def refused(self, reasons: Mapping[str, str]) -> None:
        """Handle the broker's refusal of subscriptions: why, by topic."""


class Feed:
    """A session of `client_id`, subscribed to `topics`; `connect` once, `close` once or more. Any thread may call.

    While a persistent session is disconnected, the broker keeps its messages for `mqtt_session.expiry_s`. Once connected, `version` is the
    broker's.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        topics: Sequence[str],
        handler: MessageHandler,
        *,
        lasting: Literal["clean", "persistent"] = "persistent",
    ) -> None:
        self.address = address
        self._topics = topics
        self._handler = handler
        kept_s = expiry_s(address) if lasting == "persistent" else 0
        self._login = MqttLogin(client_id, KEEP_ALIVE_S, kept_s, address.user, address.password)
        self.version: MqttVersion = "5"
        self._generation = 0
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._outgoing = bytearray()
        self._spoke_s = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-feed", daemon=True)

    def connect(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when the broker has accepted us.

        Raises:
            UnavailableError: no broker answers within `timeout_s`.
            ConfigError: it refuses the credentials.
        """
        try:
            self.version = mqtt_version(self.address, timeout_s)
            self._open(timeout_s)
        except EdgemeterError:
            self.close()
            raise
        self._thread.start()

    def publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Send messages, topic and payload of each, at QoS 0; they are lost with the connection."""
        self._send(b"".join([mqtt_wire.publish_packet(topic, payload, self.version) for topic, payload in messages]))

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Acknowledge `messages` to the broker; those of an earlier connection are redelivered."""
        now = self._generation
        self._send(mqtt_wire.acknowledgements(message.mid for message in messages if message.qos and message.generation == now), now)

    def is_connected(self) -> bool:
        """Return whether the connection is up."""
        return self._socket is not None

    def wake(self) -> None:
        """Make the thread check for work."""
        # A full pipe means that it is about to do so anyway.
        with contextlib.suppress(OSError):
            self._wake_in.send(b"x")

    def close(self) -> None:
        """Disconnect and end the thread; may be called twice."""
        self._closing.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._drop()
        self._wake_in.close()
        self._wake_out.close()

    def _send(self, data: bytes, generation: int | None = None) -> None:
        with self._lock:
            if self._socket is None or generation not in {None, self._generation}:
                return
            was_empty = not self._outgoing
            # At once, as the thread may have to wait long for the interpreter. Over TLS only one thread may use a socket.
            if was_empty and not isinstance(self._socket, ssl.SSLSocket):
                with contextlib.suppress(OSError):
                    data = data[self._socket.send(data) :]
                    self._spoke_s = time.monotonic()
            self._outgoing += data
        if was_empty and data:
            self.wake()

    def _run(self) -> None:
        failures = short_lives = 0
        while not self._closing.is_set():
            begun_s = time.monotonic()
            try:
                if self._socket is None:
                    self._open(CONNECT_TIMEOUT_S)
                failures = max(0, short_lives - SHORT_LIVES)
                self._converse()
            except (EdgemeterError, OSError) as error:
                was_connected = self._socket is not None
                self._drop()
                if was_connected and not self._closing.is_set():
                    short_lives = short_lives + 1 if time.monotonic() - begun_s < SHORT_LIFE_S else 0
                    self._handler.disconnected(f"{error}{_AGAIN if short_lives > SHORT_LIVES else ''}")
                elif not failures:
                    logger.warning("cannot reconnect: %s", error)
                if str(error) == TAKEN_OVER:
                    return
                failures += 1
                # Many collectors lose one broker at the same moment: their reconnects are spread.
                spread = random.uniform(0.3, 1.0)  # noqa: S311 - spreads reconnects, no secret
                self._closing.wait(min(LONGEST_PAUSE_S, 2.0 ** min(failures - 1, 10)) * spread)

    def _open(self, timeout_s: float) -> None:
        opened = self._reach(timeout_s)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.sendall(mqtt_wire.connect_packet(self._login, self.version))
            reader = PacketReader(self.version, self._generation + 1)
            messages, answers = self._await_answer(opened, reader)
            if answers[0].reason():
                raise _refused(self.address, answers[0].reason())
            opened.sendall(mqtt_wire.subscribe_packet(self._topics, self.version))
            opened.setblocking(False)
        except OSError as error:
            opened.close()
            raise UnavailableError(
                f"the broker at {self.address} accepted the connection but did not answer within {timeout_s:g} s ({error}): check its log"
            ) from error
        except EdgemeterError:
            opened.close()
            raise
        with self._lock:
            self._generation += 1
            self._outgoing = bytearray()
            self._reader = reader
            self._socket = opened
        self._take(messages, answers[1:])

    def _reach(self, timeout_s: float) -> socket.socket:
        try:
            return connect_socket(self.address, timeout_s)
        except ssl.SSLError as error:
            raise tls_refusal(self.address, error) from error
        except OSError as error:
            raise UnavailableError(f"the broker at {self.address} does not answer ({error}): trying again") from error

    def _await_answer(self, opened: socket.socket, reader: PacketReader) -> tuple[list[Message], list[BrokerResponse]]:
        while True:
            data = opened.recv(READ_BYTES)
            if not data:
                raise UnavailableError(f"the broker at {self.address} closed the connection on CONNECT: check its log")
            messages, answers = reader.read(data)
            if answers:
                return messages, answers

    def _converse(self) -> None:
        opened = self._socket
        if opened is None:
            return
        heard_s = self._spoke_s = time.monotonic()
        while True:
            if self._closing.is_set():
                self._disconnect(opened)
                return
            awaited = [self._wake_out] if self._handler.is_full() else [self._wake_out, opened]
            readable, _, _ = select.select(awaited, [opened] if self._outgoing else [], [], KEEP_ALIVE_S / 4)
            now_s = time.monotonic()
            if self._wake_out in readable:
                self._wake_out.recv(4096)
            if self._outgoing:
                self._write(opened)
            if opened in readable and self._read(opened):
                heard_s = now_s
            if now_s - self._spoke_s > KEEP_ALIVE_S / 2 or now_s - heard_s > KEEP_ALIVE_S / 2:
                if now_s - heard_s > 1.5 * KEEP_ALIVE_S and opened in awaited:
                    raise TransientError(f"nothing received for {1.5 * KEEP_ALIVE_S:g} s")
                if now_s - self._spoke_s > KEEP_ALIVE_S / 4:
                    self._send(mqtt_wire.PING)

    def _read(self, opened: socket.socket) -> bool:
        _acknowledge_quickly(opened)
        parts: list[bytes] = []
        left_bytes = READ_BYTES
        # Over TLS each message is a record, and a `recv`, of its own; what was decrypted already no `select` sees.
        while left_bytes > 0:
            try:
                data = opened.recv(left_bytes)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                if parts:
                    break
                raise TransientError("the broker closed the connection")
            parts.append(data)
            left_bytes -= len(data)
        if parts:
            self._take(*self._reader.read(b"".join(parts)))
        return bool(parts)

    def _take(self, messages: list[Message], answers: Sequence[BrokerResponse]) -> None:
        if messages:
            self._handler.received(messages)
        for answer in answers:
            if answer.kind == mqtt_wire.DISCONNECT:
                reason = answer.reason()
                raise TransientError(TAKEN_OVER if reason == mqtt_wire.SESSION_TAKEN_OVER else f"the broker ended it, reason {reason:#x}")
            if answer.kind == mqtt_wire.SUBACK and (codes := mqtt_wire.refusals(answer, self.version)):
                refused = {self._topics[index]: f"reason {code:#x}" for index, code in codes.items() if index < len(self._topics)}
                self._handler.refused(refused)

    def _write(self, opened: socket.socket) -> None:
        with self._lock:
            data = bytes(self._outgoing[:READ_BYTES])
        try:
            sent = opened.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        with self._lock:
            del self._outgoing[:sent]
        self._spoke_s = time.monotonic()

    def _disconnect(self, opened: socket.socket) -> None:
        with self._lock:
            outgoing = bytes(self._outgoing) + mqtt_wire.GOODBYE
            self._outgoing = bytearray()
        opened.settimeout(GOODBYE_S)
        with contextlib.suppress(OSError):
            opened.sendall(outgoing)

    def _drop(self) -> None:
        with self._lock:
            opened, self._socket = self._socket, None
            self._outgoing = bytearray()
        if opened is not None:
            opened.close()


def _refused(address: BrokerAddress, reason: int) -> ConfigError | UnavailableError:
    if reason in _UNAUTHORISED:
        who = f"user {address.user!r}" if address.user else "a client without a user name"
        remedy = "give the user in the address (mqtt://USER@HOST) and the password in EDGEMETER_MQTT_PASSWORD"
        return ConfigError(f"the broker at {address} refuses {who} (Not authorized, {reason:#x}): {remedy}")
    return UnavailableError(f"the broker at {address} refuses the connection (reason {reason:#x}): check its log")


def _acknowledge_quickly(opened: socket.socket) -> None:
    # A broker without TCP_NODELAY holds its next message back until our kernel has acknowledged the last one; Linux forgets this
    # option after a while, so it is set anew.
    with contextlib.suppress(OSError, AttributeError):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

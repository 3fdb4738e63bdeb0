"""The feed is a fast session with a broker.

paho-mqtt does all except reading messages and passing them on many at a time.

paho-mqtt reads each packet with several calls of the socket. Measured on two busy cores: 41 to 44
us of processor time per message, 10 us to acknowledge it and 22 us to publish a receipt, against 3
us here; the whole collector took 265 to 280 us per record, one per message, against 75 to 94 us. It
has to handle 8,000 a second, which leaves 125 us. Source: MQTT Version 5.0 and 3.1.1, OASIS,
sections 2 and 3.
"""

import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from edgemeter.agent.base.broker_address import BrokerAddress, MqttVersion
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import (
    LARGEST_MESSAGE_BYTES,
    Message,
    MqttSession,
    SessionEvents,
    SessionProfile,
)

logger = logging.getLogger(__name__)

READ_BYTES = 256 << 10
# The longest time that outgoing messages wait for a busy handler.
FULL_S = 0.1
# The part of a message above the limit that is kept for diagnosis, with its topic; only a 3.1.1
# broker delivers such a message.
KEPT_OF_TOO_LARGE_BYTES = 128 << 10
_PUBLISH, _PUBACK, _PING_ANSWER = 0x30, 0x40, b"\xd0\x00"
_NOT_MQTT = "the broker's data is not MQTT: reconnecting"
_ACKNOWLEDGEMENT = struct.Struct(">BBH")


class FeedEvents(SessionEvents, Protocol):
    """A session's events, and messages in groups.

    They are called from the network thread, and no method but `has_room` may block.
    """

    def has_room(self, timeout_s: float) -> bool:
        """Return whether more messages fit; wait at most `timeout_s` until they do."""

    def received_all(self, messages: Sequence[Message]) -> None:
        """Receive messages, in the order of arrival."""


class Feed(MqttSession):
    """A session whose messages arrive in groups.

    While `events` have no room its socket is not read, so that the broker waits.
    """

    def __init__(self, address: BrokerAddress, profile: SessionProfile, events: FeedEvents) -> None:
        super().__init__(address, profile, events)
        self._handler = events
        self._reader = PacketReader("5", 0)
        # The packet that paho-mqtt is to handle now; empty is the end of the connection, None is no
        # packet.
        self._packet: bytes | None = None

    def acknowledge_all(self, messages: Iterable[Message]) -> None:
        """Acknowledge messages to the broker; it repeats those of an earlier connection."""
        now = self._generation
        self._send(
            [
                _ACKNOWLEDGEMENT.pack(_PUBACK, 2, message.mid)
                for message in messages
                if message.qos and message.generation == now
            ]
        )

    def publish_all(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Publish messages, topic and payload of each, at QoS 0.

        They are lost with the connection.
        """
        properties = b"\0" if self.version == "5" else b""
        packets = []
        for topic, payload in messages:
            name = topic.encode()
            size, digits = 2 + len(name) + len(properties) + len(payload), b""
            while size > 0x7F:
                digits += bytes([size & 0x7F | 0x80])
                size >>= 7
            packets += [
                bytes([_PUBLISH]),
                digits,
                bytes([size]),
                len(name).to_bytes(2, "big"),
                name,
                properties,
                payload,
            ]
        self._send(packets)

    def _send(self, packets: list[bytes]) -> None:
        if packets and self._is_up and (client := self._client) is not None:
            # All are sent as one packet: a PUBACK has no answer, and `publish` and `ack` take one
            # at a time.
            client._packet_queue(_PUBACK, b"".join(packets), 0, 0)  # noqa: SLF001

    def _build(self) -> Any:
        client = super()._build()
        # paho-mqtt has no other place to read from.
        self._receive, self._handle = client._sock_recv, client.loop_read  # noqa: SLF001
        client._sock_recv = (  # type: ignore[method-assign]  # noqa: SLF001
            self._take_packet  # type: ignore[assignment]
        )
        client.loop_read = self._read  # type: ignore[method-assign, assignment]
        return client

    def _on_socket_open(self, client: Any, data: Any, opened: Any) -> None:
        super()._on_socket_open(client, data, opened)
        self._reader, self._packet = PacketReader(self.version, self._generation), None

    def _take_packet(self, size: int) -> bytes:
        if self._packet is None:
            raise BlockingIOError
        part, self._packet = self._packet[:size], self._packet[size:] or None
        return part

    def _read(self, _max_packets: int = 1) -> int:
        if self._is_up and not self._handler.has_room(FULL_S):
            # The answer to a ping is behind unread data.
            self._packet = _PING_ANSWER
            return self._handle()
        self._acknowledge_quickly()
        left_bytes = READ_BYTES
        # With TLS each message is a record, and a `recv`, of its own: one per pass of paho-mqtt
        # would be slow.
        while left_bytes > 0:
            try:
                data = self._receive(left_bytes)
                left_bytes -= len(data)
                for came in self._reader.read(data):
                    if isinstance(came, list):
                        self._handler.received_all(came)
                        continue
                    self._packet = came
                    if code := self._handle():
                        return code
            except BlockingIOError:
                return 0
            except (OSError, TransientError) as error:
                logger.log(
                    logging.DEBUG if isinstance(error, OSError) else logging.WARNING,
                    "the connection ends: %s",
                    error,
                )
                data = b""
            if not data:
                self._packet = b""
                return self._handle()
        return 0


class PacketReader:
    """Parses one connection's stream of bytes.

    An incomplete packet is buffered, at most one message of 16 MiB.
    """

    def __init__(
        self, version: MqttVersion, generation: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_5 = version == "5"
        self._generation = generation
        self._clock = clock
        self._buffer = bytearray()
        self._skipped_bytes = 0

    def read(self, data: bytes) -> Iterator[list[Message] | bytes]:
        """Yield the packets that `data` completes, in order.

        Consecutive messages are one group; any other packet is bytes.

        Raises:
            TransientError: this is not MQTT; reconnect.
        """
        self._buffer += data[self._skipped_bytes :]
        self._skipped_bytes = max(0, self._skipped_bytes - len(data))
        messages: list[Message] = []
        arrived_s = self._clock()
        begin = 0
        with memoryview(self._buffer) as view:
            while bounds := self._bounds(begin):
                content, end = bounds
                if view[begin] & 0xF0 == _PUBLISH:
                    messages.append(
                        self._message(view[begin] >> 1 & 3, view[content:end], arrived_s)
                    )
                else:
                    if messages:
                        yield messages
                        messages = []
                    yield bytes(view[begin:end])
                begin = end
        del self._buffer[:begin]
        if messages:
            yield messages

    def _bounds(self, begin: int) -> tuple[int, int] | None:
        """Return start and end of the content of the packet at `begin`.

        It returns None if the packet is incomplete.
        """
        length = len(self._buffer)
        try:
            size, content = _number(self._buffer, begin + 1)
        except IndexError:
            return None
        end = content + size
        if end > length:
            is_too_large = size > LARGEST_MESSAGE_BYTES and self._buffer[begin] & 0xF0 == _PUBLISH
            if not is_too_large or length - begin < KEPT_OF_TOO_LARGE_BYTES:
                return None
            self._skipped_bytes = end - length
        return content, min(end, length)

    def _message(self, qos: int, content: memoryview, arrived_s: float) -> Message:
        mid = 0
        try:
            topic_end = begin = 2 + (content[0] << 8) + content[1]
            if qos:
                mid = (content[begin] << 8) + content[begin + 1]
                begin += 2
            if self._is_5:
                begin = sum(_number(content, begin))
        except IndexError:
            begin = len(content) + 1
        if begin > len(content):
            raise TransientError(_NOT_MQTT)
        # MQTT requires UTF-8, and brokers reject anything else; other bytes match no topic of ours.
        topic = str(content[2:topic_end], "utf-8", "backslashreplace")
        return Message(topic, bytes(content[begin:]), mid, qos, self._generation, arrived_s)


def _number(data: bytearray | memoryview, begin: int) -> tuple[int, int]:
    """Return a variable byte integer and its end.

    It raises IndexError if the integer is incomplete, and TransientError if it is invalid.
    """
    value = 0
    for index in range(4):
        byte = data[begin + index]
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value, begin + index + 1
    raise TransientError(_NOT_MQTT)

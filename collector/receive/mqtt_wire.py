"""MQTT packets as bytes: what a subscriber at QoS 1 that publishes at QoS 0 needs of MQTT 5 and 3.1.1, and nothing else.

Why not paho-mqtt: it reads each packet with several calls of the socket. Measured on two busy cores: 41 to 44 us of processor a message
and 10 us to acknowledge it, beside 3 us here; the whole collector took 265 to 280 us a record, one a message, beside 75 to 94 us. The
collector has to take 8,000 a second, which leaves 125 us. Source: MQTT Version 5.0 and 3.1.1, OASIS, sections 2 and 3.
"""

import io
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edgemeter.agent.base.broker_address import MqttVersion
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import LARGEST_MESSAGE_BYTES, Message

RECEIVE_MAXIMUM = 65535
CONNACK, PUBLISH, PUBACK, SUBACK, DISCONNECT = 0x20, 0x30, 0x40, 0x90, 0xE0
PING = b"\xc0\x00"
GOODBYE = b"\xe0\x00"
SESSION_TAKEN_OVER = 0x8E
# Of a message above the limit (only a 3.1.1 broker delivers one) this much is kept for diagnosis.
KEPT_OF_TOO_LARGE_BYTES = 64 << 10
# Topic, properties and what goes before them; a packet of more than four times that is put together apart.
_HEAD_BYTES = (64 << 10) + 32
_LARGE_BYTES = 4 * _HEAD_BYTES

_PUBACK = struct.Struct(">BBH")


@dataclass(frozen=True, slots=True)
class MqttLogin:
    """The fields of CONNECT; the broker keeps the session for `expiry_s` (0: it ends with the connection)."""

    client_id: str
    keep_alive_s: int
    expiry_s: int
    user: str | None = None
    password: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """A packet that carries no message: its type (the high half of the first byte) and the bytes after the header."""

    kind: int
    body: bytes

    def reason(self) -> int:
        """Return the reason or return code of a CONNACK or DISCONNECT, 0 where there is none."""
        index = 1 if self.kind == CONNACK else 0
        return self.body[index] if len(self.body) > index else 0


def connect_packet(login: MqttLogin, version: MqttVersion) -> bytes:
    """Return a CONNECT, which resumes the session of this client id if the broker kept it."""
    is_5 = version == "5"
    flags = (0 if login.expiry_s else 0x02) | (0x80 if login.user is not None else 0) | (0x40 if login.password is not None else 0)
    body = _text("MQTT") + struct.pack(">BBH", 5 if is_5 else 4, flags, login.keep_alive_s)
    if is_5:
        body += sized(struct.pack(">BIBHBI", 0x11, login.expiry_s, 0x21, RECEIVE_MAXIMUM, 0x27, LARGEST_MESSAGE_BYTES))
    body += _text(login.client_id)
    for text in (login.user, login.password):
        body += b"" if text is None else _text(text)
    return b"\x10" + sized(body)


def subscribe_packet(topics: Iterable[str], version: MqttVersion) -> bytes:
    """Return a SUBSCRIBE at QoS 1 with packet id 1, the only id that we assign."""
    body = b"\x00\x01" + (b"\x00" if version == "5" else b"")
    return b"\x82" + sized(body + b"".join(_text(topic) + b"\x01" for topic in topics))


def publish_packet(topic: str, payload: bytes, version: MqttVersion) -> bytes:
    """Return a PUBLISH at QoS 0."""
    return b"\x30" + sized(_text(topic) + (b"\x00" if version == "5" else b"") + payload)


def acknowledgements(mids: Iterable[int]) -> bytes:
    """Return a PUBACK for each packet id."""
    pack = _PUBACK.pack
    return b"".join([pack(PUBACK, 2, mid) for mid in mids])


def refusals(answer: BrokerResponse, version: MqttVersion) -> Mapping[int, int]:
    """Return the failure codes in a SUBACK, by the place of the topic."""
    start = 2
    if version == "5":
        size, start = _number(answer.body, 2)
        start += size
    return {index: code for index, code in enumerate(answer.body[start:]) if code >= 0x80}


class PacketReader:
    """Parses a stream of bytes; an incomplete packet is buffered, at most one message of 16 MiB, once."""

    def __init__(self, version: MqttVersion, generation: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_5 = version == "5"
        self._generation = generation
        self._clock = clock
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = 2
        # A large message: what it is, its payload so far in a buffer that grows in place, and how much is to come.
        self._large: Message | None = None
        self._payload = io.BytesIO()
        self._kept_bytes = self._left_bytes = 0

    def read(self, data: bytes) -> tuple[list[Message], list[BrokerResponse]]:
        """Return the messages and other packets that `data` completes; it continues where the last call ended.

        Raises:
            TransientError: this is not MQTT; reconnect.
        """
        messages: list[Message] = []
        answers: list[BrokerResponse] = []
        if self._large is not None:
            data = self._go_on(self._large, data, messages)
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return messages, answers
        buffer = b"".join(self._parts)
        try:
            remainder = self._take(buffer, messages, answers)
        except (IndexError, struct.error) as error:
            raise TransientError(f"what the broker sent is not MQTT ({error}): reconnecting") from error
        self._parts = [remainder]
        self._size = len(remainder)
        return messages, answers

    def _take(self, buffer: bytes, messages: list[Message], answers: list[BrokerResponse]) -> bytes:
        begin, end_of_data = 0, len(buffer)
        is_5, generation, arrived_s = self._is_5, self._generation, self._clock()
        self._needed = 2
        while end_of_data - begin >= 2:
            first, size = buffer[begin], buffer[begin + 1]
            at = begin + 2
            if size & 0x80:
                if end_of_data - begin < 5 and all(byte & 0x80 for byte in buffer[begin + 1 : begin + 5]):
                    break
                size, at = _number(buffer, begin + 1)
            end = at + size
            if end > end_of_data:
                self._needed = end - begin
                if self._needed > _LARGE_BYTES and first & 0xF0 == PUBLISH:
                    return self._begin_large(buffer[begin:], self._needed)
                break
            if first & 0xF0 != PUBLISH:
                answers.append(BrokerResponse(first & 0xF0, buffer[at:end]))
                begin = end
                continue
            topic_end = at + 2 + (buffer[at] << 8) + buffer[at + 1]
            topic = buffer[at + 2 : topic_end]
            qos = first >> 1 & 3
            mid = 0
            if qos:
                mid = (buffer[topic_end] << 8) + buffer[topic_end + 1]
                topic_end += 2
            if is_5:
                size = buffer[topic_end]
                topic_end = topic_end + 1 + size if size < 0x80 else sum(_number(buffer, topic_end))
            if topic_end > end:
                raise IndexError("a packet is shorter than its fields")
            # MQTT requires UTF-8, and brokers reject anything else; what is not UTF-8 matches no topic of ours.
            name = topic.decode("utf-8", "backslashreplace")
            messages.append(Message(name, buffer[topic_end:end], mid, qos, generation, arrived_s))
            begin = end
        return buffer[begin:]

    def _begin_large(self, packet: bytes, size_bytes: int) -> bytes:
        if len(packet) < _HEAD_BYTES:
            self._needed = _HEAD_BYTES
            return packet
        _, at = _number(packet, 1)
        head = PacketReader("5" if self._is_5 else "3.1.1", self._generation, self._clock)
        is_too_large = size_bytes - at > LARGEST_MESSAGE_BYTES
        try:
            (self._large,), _ = head.read(packet[:1] + sized(packet[at:]))
        except TransientError:
            # Its properties are longer than that.
            if is_too_large:
                raise
            return packet
        self._needed = 2
        self._kept_bytes = KEPT_OF_TOO_LARGE_BYTES if is_too_large else LARGEST_MESSAGE_BYTES
        self._payload.write(self._large.payload)
        self._left_bytes = size_bytes - len(packet)
        return b""

    def _go_on(self, message: Message, data: bytes, messages: list[Message]) -> bytes:
        """Add to a large message; return what comes after it."""
        portion = data[: self._left_bytes]
        self._left_bytes -= len(portion)
        self._payload.write(portion[: max(0, self._kept_bytes - self._payload.tell())])
        if not self._left_bytes:
            messages.append(message._replace(payload=self._payload.getvalue(), arrived_s=self._clock()))
            self._large, self._payload = None, io.BytesIO()
        return data[len(portion) :]


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def sized(body: bytes) -> bytes:
    """Return `body` prefixed with its length, as packets and property lists are encoded."""
    size, digits = len(body), bytearray()
    while True:
        size, digit = size >> 7, size & 0x7F
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(digits) + body


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a variable byte integer and where it ends."""
    value = 0
    for shift in (0, 7, 14, 21):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
    raise IndexError("a number of more than four bytes")

import random

import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import LARGEST_MESSAGE_BYTES, Message
from edgemeter.collector.receive import mqtt_wire
from edgemeter.collector.receive.mqtt_wire import BrokerResponse, PacketReader
from tests.fixtures.rows import table_row


def packet(topic, payload, *, mid=0, version="5", properties=b""):
    """Return a PUBLISH as a broker sends it; QoS 1 when it has a packet id."""
    raw = topic.encode()
    body = len(raw).to_bytes(2, "big") + raw
    body += mid.to_bytes(2, "big") if mid else b""
    body += mqtt_wire.sized(properties) if version == "5" else b""
    return (b"\x32" if mid else b"\x30") + mqtt_wire.sized(body + payload)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_packets_are_the_same_however_the_stream_is_cut(version):
    """Cut anywhere, even within the length: no message lost, none doubled, none changed, order kept."""
    draw = random.Random(7)  # noqa: S311
    properties = [b"", b"\x02\x00\x00\x00\x07", b"\x26\x00\x01a\x00" + bytes([200]) + b"v" * 200]
    expected, stream = [], b""
    for number in range(1, 60):
        payload = draw.randbytes(draw.choice([0, 1, 113, 127, 128, 16_384, 70_000]))
        mid = number if number % 3 else 0
        stream += packet(f"a/{number}", payload, mid=mid, version=version, properties=draw.choice(properties))
        expected.append(Message(f"a/{number}", payload, mid, 1 if mid else 0, 4, 7.5))
        stream += b"\xd0\x00"
    for sizes in ([1], [2, 3], [7, 4096], [100_000], [len(stream)]):
        reader = PacketReader(version, 4, clock=lambda: 7.5)
        messages, answers, position = [], [], 0
        while position < (len(stream) if sizes != [1] else 30_000):
            size = draw.choice(sizes)
            read, other = reader.read(stream[position : position + size])
            messages += read
            answers += other
            position += size
        assert messages == expected[: len(messages)]
        assert len(messages) == len(expected) or sizes == [1]
        assert abs(len(answers) - len(messages)) <= 1


def test_replies_are_distinguished_from_messages():
    """CONNACK with its reason, SUBACK with its refusals, a DISCONNECT with its reason."""
    reader = PacketReader("5", 1)
    stream = b"\x20\x03\x00\x87\x00" + b"\x90\x06\x00\x01\x00\x01\x87\x80" + b"\xe0\x01\x8e" + b"\xe0\x00"
    _, (connack, suback, taken_over, ended) = reader.read(stream)
    assert connack.reason() == 0x87
    assert mqtt_wire.refusals(suback, "5") == {1: 0x87, 2: 0x80}
    assert (taken_over.reason(), ended.reason()) == (mqtt_wire.SESSION_TAKEN_OVER, 0)
    assert mqtt_wire.refusals(BrokerResponse(mqtt_wire.SUBACK, b"\x00\x01\x01\x80"), "3.1.1") == {1: 0x80}


def test_a_message_beyond_the_limit_is_cut_and_the_next_one_is_whole():
    """A 3.1.1 broker heeds no limit of ours: the memory stays bounded and the stream in step."""
    large = packet("a/large", b"x" * (LARGEST_MESSAGE_BYTES + 5000), mid=3, version="3.1.1")
    stream = packet("a/1", b"one", mid=2, version="3.1.1") + large + packet("a/2", b"two", mid=4, version="3.1.1")
    reader = PacketReader("3.1.1", 1, clock=lambda: 7.5)
    messages, longest = [], 0
    for position in range(0, len(stream), 65_536):
        messages += reader.read(stream[position : position + 65_536])[0]
        longest = max(longest, sum(map(len, reader._parts)) + len(reader._payload.getbuffer()))
    assert [(message.topic, message.mid) for message in messages] == [("a/1", 2), ("a/large", 3), ("a/2", 4)]
    assert {message.arrived_s for message in messages} == {7.5}
    assert messages[2].payload == b"two"
    assert set(messages[1].payload) == {ord("x")}
    assert len(messages[1].payload) < 200_000
    assert longest < 500_000


def test_what_is_not_mqtt_ends_the_connection_and_nothing_else():
    """A length that runs out of its packet, one of five bytes: connect anew."""
    for garbage in (b"\x30\x01\x00", b"\x32\x02\x00\x09", b"\x20\xff\xff\xff\xff\x7f", b"\x32\x04\x00\x01a\x00"):
        with table_row(garbage), pytest.raises(TransientError, match="is not MQTT"):
            PacketReader("5", 1).read(garbage)

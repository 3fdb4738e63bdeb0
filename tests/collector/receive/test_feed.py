"""Test the feed at a real broker, and its reader on streams cut anywhere.

Messages are acknowledged later, held back while there is no room, and sent over TLS.
"""

import random
import threading
from contextlib import contextmanager

import pytest

from edgemeter.agent.base import mqtt_session
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import LARGEST_MESSAGE_BYTES, Message, SessionProfile
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.collector.receive.feed import Feed, FeedEvents, PacketReader
from tests.fixtures.certificates import Authority
from tests.fixtures.collecting import TUNED
from tests.fixtures.mqtt_packets import publish_packet
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import started
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, address_of, mosquitto


class Handler(FeedEvents):
    """Keeps what a feed reports; without `room` it stops it."""

    def __init__(self):
        self.messages = []
        self.reasons = []
        self.room = threading.Event()
        self.room.set()
        self.has_refused = threading.Event()

    def connected(self):
        self.feed.subscribe(["a/+"])

    def has_room(self, timeout_s):
        if not self.room.is_set():
            self.has_refused.set()
        return self.room.wait(timeout_s)

    def received_all(self, messages):
        self.messages += messages

    def disconnected(self, reason):
        self.reasons.append(reason)

    def payloads(self):
        return [message.payload for message in self.messages]


@contextmanager
def feeding(address, handler, lasting="persistent"):
    feed = handler.feed = Feed(address, SessionProfile(f"feed-{lasting}", lasting), handler)
    feed.connect()
    # The broker answers this after the subscription.
    feed.publish("marker", b"x")
    feed.flush(60)
    try:
        yield feed
    finally:
        feed.close()


@pytest.fixture
def tuned(tmp_path):
    """Return a running mosquitto that queues whatever is not taken yet."""
    server = mosquitto(tmp_path, *TUNED)
    with started(server):
        yield server


@pytest.mark.mosquitto
def test_what_was_not_acknowledged_comes_again_and_what_came_meanwhile_comes_too(tuned):
    """A collector that died before its commit gets uncommitted messages again at once.

    In a group the other collectors had them.
    """
    address = address_of(tuned)
    numbers = [b"%d" % number for number in range(10)]
    for lasting, expected in (("persistent", [*numbers[4:], b"missed"]), ("clean", [])):
        handler, resumed = Handler(), Handler()
        peer = Peer(address)
        with feeding(address, handler, lasting) as feed:
            for payload in numbers:
                peer.session.publish("a/1", payload)
            assert wait_until(lambda handler=handler: len(handler.messages) == 10)
            feed.acknowledge_all(handler.messages[:4])
        peer.session.publish("a/1", b"missed")
        peer.session.flush(5)
        with feeding(address, resumed, lasting):
            peer.session.publish("a/1", b"last")
            assert wait_until(lambda resumed=resumed: b"last" in resumed.payloads())
        assert resumed.payloads() == [*expected, b"last"]
        peer.close()


@pytest.mark.mosquitto
def test_a_full_handler_is_sent_nothing_and_loses_nothing(tuned, monkeypatch):
    """The connection survives two keep-alives without reading, and then everything comes.

    Answers go on meanwhile.
    """
    monkeypatch.setattr(mqtt_session, "KEEP_ALIVE_S", 1)
    handler = Handler()
    with feeding(address_of(tuned), handler) as feed:
        peer = Peer(address_of(tuned), "b")
        handler.room.clear()
        for number in range(300):
            peer.session.publish("a/1", b"%03d" % number + b"x" * 100_000)
        assert handler.has_refused.wait(60)
        for number in range(4):
            feed.publish_all([("b", b"%d" % number * size) for size in (1, 200)])
            assert wait_until(lambda count=2 * number + 2: len(peer.messages) == count)
            assert not wait_until(lambda: handler.reasons, 0.8, patience=1.0)
        assert [(len(message.payload), message.qos) for message in peer.messages] == [
            (1, 0),
            (200, 0),
        ] * 4
        assert len(handler.messages) < 300
        handler.room.set()
        assert wait_until(lambda: len(handler.messages) == 300)
        assert [payload[:3] for payload in handler.payloads()] == [
            b"%03d" % number for number in range(300)
        ]
        assert handler.reasons == []
        peer.close()


@pytest.mark.mosquitto
def test_a_broker_that_dies_is_found_again_and_old_acknowledgements_are_dropped(tuned):
    """An acknowledgement of the old connection would make the new one forget another message."""
    handler = Handler()
    with feeding(address_of(tuned), handler) as feed:
        peer = Peer(address_of(tuned))
        peer.session.publish("a/1", b"old")
        assert wait_until(lambda: handler.messages)
        tuned.kill()
        assert wait_until(lambda: handler.reasons)
        assert not feed.is_connected()
        tuned.start()
        assert wait_until(lambda: feed.is_connected() and peer.session.is_connected())
        peer.session.publish("a/1", b"new")
        assert wait_until(lambda: handler.messages[-1].payload == b"new")
        assert handler.messages[-1].mid == handler.messages[0].mid
        feed.acknowledge_all(handler.messages[:1])
        peer.close()
    resumed = Handler()
    with feeding(address_of(tuned), resumed):
        assert wait_until(lambda: resumed.payloads() == [b"new"])


@pytest.mark.needs("openssl")
@pytest.mark.mosquitto
def test_many_messages_come_whole_through_mtls(tmp_path):
    """Data that TLS has already decrypted is read too."""
    authority = Authority(tmp_path / "ca")
    pair = authority.signed("broker", "IP:127.0.0.1")
    files = (
        f"cafile {authority.certificate}",
        f"certfile {pair.certificate}",
        f"keyfile {pair.key}",
        "require_certificate true",
    )
    with started(mosquitto(tmp_path, *TUNED, *files)) as plain:
        pair = authority.signed("collector")
        tls = TlsFiles(authority.certificate, pair.certificate, pair.key)
        address = BrokerAddress(LOOPBACK, plain.port, "mqtts", tls=tls)
        handler = Handler()
        with feeding(address, handler) as feed:
            peer = Peer(address, "b")
            sent = [b"%d" % number + b"x" * (number * 131 % 40_000) for number in range(500)]
            for payload in sent:
                peer.session.publish("a/1", payload)
            assert wait_until(lambda: len(handler.messages) == 500)
            assert handler.payloads() == sent
            assert {(message.topic, message.qos) for message in handler.messages} == {("a/1", 1)}
            feed.publish_all([("b", b"y" * 1_000_000)])
            assert wait_until(
                lambda: [len(message.payload) for message in peer.messages] == [1_000_000]
            )
            peer.close()


def came(reader, stream, *sizes, draw=random):
    """Return the messages and other packets of a stream that is read in pieces.

    The pieces have these sizes; the most that the reader held meanwhile is returned too.
    """
    read, position, most_bytes = [], 0, 0
    while position < len(stream):
        size = draw.choice(sizes)
        for part in reader.read(stream[position : position + size]):
            read += part if isinstance(part, list) else [part]
        position += size
        most_bytes = max(most_bytes, len(reader._buffer))
    return read, most_bytes


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_packets_are_the_same_however_the_stream_is_cut(version):
    """No packet is lost, doubled, changed or reordered.

    The stream is cut anywhere, even within the length, and has packets of other kinds between.
    """
    draw = random.Random(7)  # noqa: S311
    properties = [b"", b"\x02\x00\x00\x00\x07", b"\x26\x00\x01a\x00" + bytes([200]) + b"v" * 200]
    other_packets = [
        b"\x20\x03\x00\x87\x00",
        b"\x90\x06\x00\x01\x00\x01\x87\x80",
        b"\xe0\x01\x8e",
        b"\xe0\x00",
        b"\xd0\x00",
    ]
    expected, stream = [], b""
    for number in range(1, 60):
        payload = draw.randbytes(draw.choice([0, 1, 113, 127, 128, 16_384, 70_000]))
        mid = number if number % 3 else 0
        stream += publish_packet(
            f"a/{number}", payload, mid=mid, version=version, properties=draw.choice(properties)
        )
        expected.append(Message(f"a/{number}", payload, mid, 1 if mid else 0, 4, 7.5))
        if number % 4:
            expected.append(other_packets[number % len(other_packets)])
            stream += expected[-1]
    for sizes in ([2, 3], [7, 4096], [100_000], [len(stream)]):
        read, _ = came(PacketReader(version, 4, clock=lambda: 7.5), stream, *sizes, draw=draw)
        assert read == expected
    read, _ = came(PacketReader(version, 4, clock=lambda: 7.5), stream[:30_000], 1)
    assert read == expected[: len(read)] != []


def test_a_message_beyond_the_limit_is_cut_and_the_next_one_is_whole():
    """A 3.1.1 broker heeds no limit of ours: the memory stays bounded and the stream in step."""
    sizes = {"a/1": 3, "a/large": LARGEST_MESSAGE_BYTES + 5000, "a/2": 4}
    stream = b"".join(
        publish_packet(topic, b"x" * size, mid=size % 9, version="3.1.1")
        for topic, size in sizes.items()
    )
    read, most_bytes = came(PacketReader("3.1.1", 1), stream, 65_536)
    assert [(message.topic, message.mid) for message in read] == [
        (topic, size % 9) for topic, size in sizes.items()
    ]
    lengths = [len(message.payload) for message in read]
    assert (lengths[0], lengths[2]) == (3, 4)
    assert 64_000 < lengths[1] < 200_000
    assert most_bytes < 500_000


def test_what_is_not_mqtt_ends_the_connection_and_nothing_else():
    """A length beyond its packet, or of five bytes, requires a new connection."""
    for garbage in (
        b"\x30\x01\x00",
        b"\x32\x02\x00\x09",
        b"\x20\xff\xff\xff\xff\x7f",
        b"\x32\x04\x00\x01a\x00",
    ):
        with table_row(garbage), pytest.raises(TransientError, match="is not MQTT"):
            came(PacketReader("5", 1), garbage, 100)

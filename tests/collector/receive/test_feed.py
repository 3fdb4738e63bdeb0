import signal
import socket
import socketserver
import threading
from contextlib import contextmanager

import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import TAKEN_OVER
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.collector.receive import feed as receive_feed
from edgemeter.collector.receive.feed import Feed
from tests.fixtures.certificates import Authority
from tests.fixtures.collecting import TUNED
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import started
from tests.fixtures.servers import LOOPBACK, address_of, mosquitto


class Handler:
    """Keeps what a feed reports; `full` stops it."""

    def __init__(self):
        self.messages = []
        self.reasons = []
        self.refusals = []
        self.full = False
        self.has_refused = threading.Event()

    def is_full(self):
        """Say whether nothing more is taken."""
        if self.full:
            self.has_refused.set()
        return self.full

    def received(self, messages):
        """Keep messages."""
        self.messages += messages

    def disconnected(self, reason):
        """Keep why."""
        self.reasons.append(reason)

    def refused(self, reason):
        """Keep what was refused."""
        self.refusals.append(reason)


@contextmanager
def feeding(address, handler, topics=("a/+",), client_id="feed", **how):
    """Keep a feed up for the block."""
    feed = Feed(address, client_id, topics, handler, **how)
    feed.connect()
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


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_replies_go_out_while_the_thread_is_busy(tuned):
    """A receipt does not wait until the thread that reads has the interpreter; what comes later keeps its order."""
    address = address_of(tuned)
    handler, is_busy, is_done = Handler(), threading.Event(), threading.Event()
    handler.received = lambda _: is_busy.set() or is_done.wait(120)
    with feeding(address, handler) as feed:
        peer = Peer(address, "b")
        peer.session.publish("a/1", b"x")
        assert is_busy.wait(60)
        feed.publish([("b", b"%d" % number) for number in range(100)])
        feed.publish([("b", b"last")])
        assert wait_until(lambda: len(peer.messages) == 101)
        assert [message.payload for message in peer.messages] == [*(b"%d" % number for number in range(100)), b"last"]
        assert not is_done.is_set()
        is_done.set()
        peer.close()


@pytest.mark.mosquitto
def test_what_was_not_acknowledged_comes_again_after_the_connection(tuned):
    """A collector that died before its commit gets at once what it had not committed, and nothing else."""
    handler, resumed = Handler(), Handler()
    with feeding(address_of(tuned), handler) as feed:
        peer = Peer(address_of(tuned))
        for number in range(10):
            peer.session.publish("a/1", b"%d" % number)
        assert wait_until(lambda: len(handler.messages) == 10)
        feed.acknowledge(handler.messages[:4])
    with feeding(address_of(tuned), resumed):
        peer.session.publish("a/1", b"last")
        assert wait_until(lambda: resumed.messages and resumed.messages[-1].payload == b"last")
    assert [message.payload for message in resumed.messages] == [*(b"%d" % number for number in range(4, 10)), b"last"]
    peer.close()


@pytest.mark.mosquitto
def test_a_kept_session_brings_what_came_meanwhile_and_a_clean_one_does_not(tuned):
    """One collector wants what it missed; in a group the others had it."""
    address = address_of(tuned)
    for lasting, expected in (("persistent", [b"missed"]), ("clean", [])):
        with feeding(address, Handler(), client_id=lasting, lasting=lasting):
            pass
        peer = Peer(address)
        peer.session.publish("a/1", b"missed")
        peer.session.flush(5)
        handler = Handler()
        with feeding(address, handler, client_id=lasting, lasting=lasting):
            peer.session.publish("a/1", b"now")
            assert wait_until(lambda handler=handler: b"now" in [message.payload for message in handler.messages])
        assert [message.payload for message in handler.messages] == [*expected, b"now"]
        peer.close()


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_a_full_handler_is_sent_nothing_and_loses_nothing(tuned):
    """Backpressure: the socket is not read, pings and answers go on, and everything is there when there is room."""
    address = address_of(tuned)
    handler = Handler()
    with feeding(address, handler) as feed:
        peer = Peer(address, "b")
        handler.full = True
        feed.wake()
        assert handler.has_refused.wait(60)
        for _ in range(300):
            peer.session.publish("a/1", b"x" * 100_000)
        feed.publish([("b", b"still here")])
        assert wait_until(lambda: peer.messages)
        assert handler.messages == []
        handler.full = False
        feed.wake()
        assert wait_until(lambda: len(handler.messages) == 300)
        peer.close()


@pytest.mark.mosquitto
def test_a_broker_that_dies_is_found_again_and_old_acknowledgements_are_dropped(tuned):
    """An acknowledgement of the old connection would make the new one forget another message."""
    address = address_of(tuned)
    handler = Handler()
    with feeding(address, handler) as feed:
        peer = Peer(address)
        peer.session.publish("a/1", b"old")
        assert wait_until(lambda: handler.messages)
        tuned.kill()
        assert wait_until(lambda: handler.reasons)
        assert not feed.is_connected()
        tuned.start()
        assert wait_until(feed.is_connected)
        assert wait_until(peer.session.is_connected)
        peer.session.publish("a/1", b"new")
        assert wait_until(lambda: handler.messages[-1].payload == b"new")
        assert handler.messages[-1].generation == handler.messages[0].generation + 1
        feed.acknowledge(handler.messages[:1])
        assert feed._outgoing == b""
        peer.close()


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_another_client_of_our_name_ends_it_or_is_named(tuned):
    """Two collectors with copies of one ledger."""
    handler, other = Handler(), Handler()
    with feeding(address_of(tuned), handler), feeding(address_of(tuned), other):
        assert wait_until(lambda: handler.reasons)
        # mosquitto 2.0 says why or hangs up without a word, by version.
        assert handler.reasons[0] in {TAKEN_OVER, "the broker closed the connection"}
        if TAKEN_OVER not in handler.reasons:
            # Then nobody can know: each comes back, and says what it may be.
            assert wait_until(lambda: any("work with a copy of this ledger?" in reason for reason in handler.reasons), 30)


class Refusing(socketserver.BaseRequestHandler):
    """A broker of MQTT 5 that lets everybody in and nobody subscribe (mosquitto 2.0 grants what it then never delivers)."""

    def handle(self):
        """Answer CONNECT with success, a SUBSCRIBE of three topics with Not authorized."""
        while received := self.request.recv(4096):
            if received[0] == 0x10:
                self.request.sendall(b"\x20\x03\x00\x00\x00")
            elif received[0] == 0x82:
                self.request.sendall(b"\x90\x06\x00\x01\x00\x87\x87\x87")


@pytest.mark.services
def test_a_refused_subscription_is_reported_and_a_silent_server_given_up():
    """Connected is not enough: who may not read receives nothing; who accepts the connection and sends nothing is no broker."""
    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Refusing) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        handler = Handler()
        with feeding(BrokerAddress(LOOPBACK, server.server_address[1]), handler, topics=("a", "b", "c")):
            assert wait_until(lambda: handler.refusals)
        assert handler.refusals == [dict.fromkeys(("a", "b", "c"), "reason 0x87")]
        server.shutdown()
    with socket.create_server((LOOPBACK, 0)) as silent, pytest.raises(UnavailableError):
        Feed(BrokerAddress(LOOPBACK, silent.getsockname()[1]), "f", ["a"], Handler()).connect(0.3)


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_a_broker_that_stops_replying_is_given_up(tuned, monkeypatch):
    """SIGSTOP: the connection is up and nothing comes; after a while it is made anew."""
    monkeypatch.setattr(receive_feed, "KEEP_ALIVE_S", 2)
    handler = Handler()
    with feeding(address_of(tuned), handler) as feed:
        tuned.process.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: handler.reasons)
        assert "nothing received" in handler.reasons[0]
        tuned.process.send_signal(signal.SIGCONT)
        assert wait_until(feed.is_connected)


@pytest.mark.needs("openssl")
@pytest.mark.mosquitto
def test_many_messages_come_whole_through_mtls_and_a_stranger_does_not(tmp_path):
    """What TLS has decrypted and no `select` sees is read too; without a certificate of ours it says what is wanted."""
    authority = Authority(tmp_path / "ca")
    pair = authority.signed("broker", "IP:127.0.0.1")
    files = (f"cafile {authority.certificate}", f"certfile {pair.certificate}", f"keyfile {pair.key}", "require_certificate true")
    server = mosquitto(tmp_path, *TUNED, *files)
    server.start()
    pair_of_collector = authority.signed("collector")
    tls = TlsFiles(authority.certificate, pair_of_collector.certificate, pair_of_collector.key)
    address = BrokerAddress(LOOPBACK, server.port, "mqtts", tls=tls)
    handler = Handler()
    with feeding(address, handler) as feed:
        peer = Peer(address, "b")
        sent = [b"%d" % number + b"x" * (number * 131 % 40_000) for number in range(500)]
        for payload in sent:
            peer.session.publish("a/1", payload)
        assert wait_until(lambda: len(handler.messages) == 500)
        assert [message.payload for message in handler.messages] == sent
        assert {(message.topic, message.qos) for message in handler.messages} == {("a/1", 1)}
        feed.publish([("b", b"y" * 1_000_000)])
        assert wait_until(lambda: [len(message.payload) for message in peer.messages] == [1_000_000])
        peer.close()
    with pytest.raises(ConfigError, match="requires a client certificate"):
        Feed(BrokerAddress(LOOPBACK, server.port, "mqtts", tls=TlsFiles(authority.certificate)), "f", ["a"], Handler()).connect()
    server.kill()

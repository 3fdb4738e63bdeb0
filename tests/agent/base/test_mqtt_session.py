"""Facts about one client's session, beside those that the publisher's tests show.

They concern what is on its way, why a session ended, and when it comes back.
"""

import socketserver
import threading

import pytest

from edgemeter.agent.base import mqtt_session
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.mqtt_session import (
    MqttSession,
    OutstandingPublishes,
    SessionEvents,
    SessionProfile,
)
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import LOOPBACK, address_of, mosquitto


class Mute(socketserver.StreamRequestHandler):
    """A broker of MQTT 5 that lets everybody in and answers no publish.

    It remembers the topics of each connection.
    """

    def handle(self):
        """Read packets until the test closes the connection."""
        topics = []
        self.server.connections.append((self.connection, topics))
        while head := self.rfile.read(2):
            body = self.rfile.read(head[1])
            if head[0] == 0x10:
                self.wfile.write(b"\x20\x03\x00\x00\x00")
            elif head[0] & 0xF0 == 0x30:
                topics.append(body[2 : 2 + body[1]].decode())


class Events(SessionEvents):
    """A listener that publishes one message whenever a connection is up."""

    def __init__(self):
        self.times = 0
        self.session = None

    def connected(self):
        self.times += 1
        self.session.publish(f"greeting/{self.times}", b"x")


@pytest.fixture
def mute():
    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Mute) as server:
        server.daemon_threads = True
        server.connections = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.services
def test_an_unacknowledged_publish_goes_with_the_connection_and_does_not_pile_up(mute, monkeypatch):
    """Whoever published a message publishes it again, and so the client must not.

    Otherwise each break of the line would add another copy of every message.
    """
    monkeypatch.setattr("edgemeter.agent.base.mqtt_session.backoff_s", lambda _failures: 0.05)
    events = Events()
    session = events.session = MqttSession(
        BrokerAddress(LOOPBACK, mute.server_address[1]), SessionProfile("c"), events
    )
    session.connect()
    room = session.room()
    numbers = [session.publish("a/result", b"x" * 50) for _ in range(20)]
    assert all(session.is_on_its_way(number) for number in numbers)
    # The first connection asked for the version.
    assert wait_until(lambda: len(mute.connections) == 2 and len(mute.connections[1][1]) == 21)
    mute.connections[1][0].shutdown(2)
    assert wait_until(lambda: len(mute.connections) == 3 and mute.connections[2][1])
    session.publish("a/end", b"x")
    assert wait_until(lambda: "a/end" in mute.connections[2][1])
    assert mute.connections[2][1] == ["greeting/2", "a/end"]
    assert session.room() == room - 1
    session.close()


@pytest.mark.services
def test_the_pause_grows_while_connections_end_with_an_unanswered_message(mute, monkeypatch):
    """A connect alone is no success, because what was published may have ended the connections.

    Only an answer that matters to the owner is. Our own goodbye is no lost connection: whoever
    takes over the device's name closes its old session, and must not report a fault.
    """
    pauses = []
    monkeypatch.setattr(
        "edgemeter.agent.base.mqtt_session.backoff_s",
        lambda failures: pauses.append(failures) or 0.05,
    )
    events, reasons = Events(), []
    events.disconnected = reasons.append
    session = events.session = MqttSession(
        BrokerAddress(LOOPBACK, mute.server_address[1]), SessionProfile("c"), events
    )
    session.connect()
    for connection in range(1, 6):
        assert wait_until(
            lambda connection=connection: (
                len(mute.connections) > connection and mute.connections[connection][1]
            )
        )
        if connection == 4:
            session.progressed()
        mute.connections[connection][0].shutdown(2)
    assert wait_until(lambda: len(pauses) == 5)
    assert pauses == [0, 1, 2, 0, 1]
    assert wait_until(lambda: events.times == 6)
    session.close()
    assert len(reasons) == 5


def test_an_acknowledgement_removes_a_publish_whichever_comes_first():
    """The client may report an acknowledgement from its own thread before `publish` returns."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    assert len(outstanding) == 1
    assert 1 in outstanding
    assert outstanding.reported(1)
    assert 1 not in outstanding
    assert outstanding.reported(2)
    outstanding.published(2, qos=1)
    assert len(outstanding) == 0
    # A message of QoS 0 never counts: its report is no answer of the broker.
    outstanding.published(1, qos=1)
    outstanding.published(2, qos=0)
    assert not outstanding.reported(2)
    outstanding.reported(3)
    outstanding.published(3, qos=0)
    assert len(outstanding) == 1


def test_what_went_with_a_connection_is_not_waited_for():
    """The id of a message that was lost with its connection may be used again."""
    for qos in (0, 1):
        outstanding = OutstandingPublishes()
        outstanding.published(1, qos=qos)
        outstanding.reconnected()
        assert len(outstanding) == 0
        outstanding.published(1, qos=1)
        assert outstanding.reported(1)
        assert len(outstanding) == 0


class Slow(SessionEvents):
    """A listener that takes messages and acknowledges none by itself."""

    def __init__(self):
        self.session = None
        self.messages = []
        self.reasons = []

    def connected(self):
        self.session.subscribe(["a/#"])

    def disconnected(self, reason):
        self.reasons.append(reason)

    def received(self, message):
        self.messages.append(message)


@pytest.mark.mosquitto
def test_who_acknowledges_later_holds_the_broker_back_and_keeps_the_connection(
    tmp_path, monkeypatch
):
    """A client that acknowledges late must stay connected for longer than its keep-alive.

    A service behind 10,000 boards was cut off each time, and was given everything again.
    """
    monkeypatch.setattr(mqtt_session, "KEEP_ALIVE_S", 1)
    monkeypatch.setattr(mqtt_session, "RECEIVE_MAXIMUM", 5)
    server = mosquitto(tmp_path)
    server.start()
    events = Slow()
    session = events.session = MqttSession(
        address_of(server), SessionProfile("slow", "persistent", acknowledges="later"), events
    )
    session.connect()
    sender = Peer(address_of(server), client_id="sender")
    for number in range(12):
        sender.session.publish(f"a/{number}", b"x")
    assert wait_until(lambda: len(events.messages) == 5)
    assert not wait_until(
        lambda: len(events.messages) > 5 or bool(events.reasons), 3.0, patience=1.0
    )
    while len(events.messages) < 12:
        count = len(events.messages)
        session.acknowledge(events.messages[count - 5])
        assert wait_until(lambda count=count: len(events.messages) > count)
    assert [message.topic for message in events.messages] == [f"a/{number}" for number in range(12)]
    server.kill()
    assert wait_until(lambda: len(events.reasons) == 1)
    session.acknowledge(events.messages[-1])
    sender.close()
    session.close()

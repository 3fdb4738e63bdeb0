"""Facts about one client's session, beside what the publisher's tests show of it."""

import socketserver
import threading

import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.mqtt_session import MqttSession, OutstandingPublishes, SessionProfile
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import LOOPBACK


class Mute(socketserver.StreamRequestHandler):
    """A broker of MQTT 5 that lets everybody in and answers no publish; it remembers the topics of each connection."""

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


class Events:
    """Publishes one message whenever a connection is up."""

    def __init__(self):
        self.times = 0
        self.session = None

    def connected(self):
        """Say which connection this is."""
        self.times += 1
        self.session.publish(f"greeting/{self.times}", b"x")

    def disconnected(self, reason):
        """Take no note."""

    def received(self, message):
        """Take no note."""

    def answered(self, refusal):
        """Take no note."""


@pytest.fixture
def mute():
    """Return a running mute broker."""
    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Mute) as server:
        server.daemon_threads = True
        server.connections = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_an_unacknowledged_publish_goes_with_the_connection_and_does_not_pile_up(mute, monkeypatch):
    """Whoever published it does so again; sent by the client as well, each break of a line would add another copy of everything."""
    monkeypatch.setattr("edgemeter.agent.base.mqtt_session.backoff_s", lambda _failures: 0.05)
    events = Events()
    session = events.session = MqttSession(BrokerAddress(LOOPBACK, mute.server_address[1]), SessionProfile("c"), events)
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


def test_our_own_goodbye_is_no_lost_connection(mute):
    """Whoever takes over the device's name closes its old session, and must not report a fault."""
    events, reasons = Events(), []
    events.disconnected = reasons.append
    session = events.session = MqttSession(BrokerAddress(LOOPBACK, mute.server_address[1]), SessionProfile("pi-1"), events)
    session.connect()
    session.close()
    assert (events.times, reasons) == (1, [])


def test_an_acknowledgement_removes_a_publish_whichever_comes_first():
    """paho-mqtt may report from its own thread before `publish` has returned."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    assert len(outstanding) == 1
    assert 1 in outstanding
    assert outstanding.reported(1)
    assert 1 not in outstanding
    assert outstanding.reported(2)
    outstanding.published(2, qos=1)
    assert len(outstanding) == 0


def test_a_message_of_qos_0_never_counts():
    """Its report is no answer of the broker."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    outstanding.published(2, qos=0)
    assert not outstanding.reported(2)
    outstanding.reported(3)
    outstanding.published(3, qos=0)
    assert len(outstanding) == 1


def test_qos_0_that_went_with_a_connection_is_not_waited_for():
    """Its id may be used again for QoS 1."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=0)
    outstanding.reconnected()
    outstanding.published(1, qos=1)
    assert outstanding.reported(1)
    assert len(outstanding) == 0


def test_an_unacknowledged_publish_goes_with_the_connection():
    """Its id may be used again, and no acknowledgement for it comes any more."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    outstanding.reconnected()
    assert len(outstanding) == 0

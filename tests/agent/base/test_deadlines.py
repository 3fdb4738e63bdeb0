"""Deadlines against a peer that takes everything and answers nothing."""

import socket
import threading
import time

import pytest

from edgemeter.agent.base import deadlines
from edgemeter.agent.base.deadlines import SocketDeadline
from tests.fixtures.mqtt_peer import wait_until


@pytest.fixture
def pair():
    """Return two sockets that are connected; nobody reads from the second."""
    socket_of_ours, socket_of_peer = socket.socketpair()
    with socket_of_ours, socket_of_peer:
        yield socket_of_ours, socket_of_peer


def test_who_waits_for_a_silent_peer_is_released_at_the_deadline(pair):
    """The connection is shut down, which ends the wait of whoever reads it."""
    socket_of_ours, _ = pair
    socket_of_ours.settimeout(60)
    deadline = SocketDeadline(socket_of_ours.fileno())
    deadline.begin(0.2)
    begin_s = time.monotonic()
    assert socket_of_ours.recv(1) == b""
    assert time.monotonic() - begin_s >= 0.2
    assert deadline.is_expired
    deadline.close()


def test_an_answer_in_time_leaves_the_connection_as_it_is(pair):
    """Nor is one shut down that expects nothing, however long it stays."""
    socket_of_ours, socket_of_peer = pair
    deadline = SocketDeadline(socket_of_ours.fileno())
    deadline.begin(0.7)
    socket_of_peer.send(b"1")
    assert socket_of_ours.recv(1) == b"1"
    deadline.end()
    time.sleep(1.5)
    socket_of_peer.send(b"2")
    assert socket_of_ours.recv(1) == b"2"
    assert not deadline.is_expired
    deadline.close()
    deadline.close()


def test_a_deadline_that_begins_after_a_long_pause_holds_too(pair, monkeypatch):
    """The thread that watched the one before has ended."""
    monkeypatch.setattr(deadlines, "_STEP_S", 0.01)
    socket_of_ours, _ = pair
    deadline = SocketDeadline(socket_of_ours.fileno())
    deadline.begin(0.1)
    deadline.end()
    deadline.close()
    assert wait_until(lambda: all(thread.name != "edgemeter-deadlines" for thread in threading.enumerate()))
    deadline = SocketDeadline(socket_of_ours.fileno())
    deadline.begin(0.1)
    assert socket_of_ours.recv(1) == b""
    deadline.close()

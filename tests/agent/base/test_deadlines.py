"""Deadlines against a peer that takes everything and answers nothing."""

import socket
import threading

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


def test_the_connection_of_a_silent_peer_is_shut_down_at_the_deadline(pair):
    """The shutdown, which ends the reader's wait, does not come before the deadline."""
    socket_of_ours, _ = pair
    watched = []
    deadline = SocketDeadline(socket_of_ours.fileno(), watched.append, lambda: 100.0)
    deadline.begin(5.0)
    assert watched == [deadline]
    assert (deadline.check(104.9), deadline.is_expired) == (True, False)
    assert (deadline.check(105.0), deadline.is_expired) == (False, True)
    assert socket_of_ours.recv(1) == b""
    deadline.close()


def test_an_answer_in_time_leaves_the_connection_as_it_is(pair):
    """A connection that expects no answer is never shut down, however long it stays open."""
    socket_of_ours, socket_of_peer = pair
    deadline = SocketDeadline(socket_of_ours.fileno(), lambda _: None, lambda: 100.0)
    deadline.begin(0.7)
    deadline.end()
    assert not deadline.check(1000.0)
    socket_of_peer.send(b"2")
    assert socket_of_ours.recv(1) == b"2"
    assert not deadline.is_expired
    deadline.close()
    deadline.close()


@pytest.mark.services
def test_a_thread_watches_deadlines_and_another_those_that_begin_after_a_long_pause(
    pair, monkeypatch
):
    """The watching thread ends when no answer is expected, and a new one starts when needed."""
    monkeypatch.setattr(deadlines, "_STEP_S", 0.01)
    socket_of_ours, _ = pair
    deadline = SocketDeadline(socket_of_ours.fileno())
    deadline.begin(0.1)
    deadline.end()
    deadline.close()
    assert wait_until(
        lambda: all(thread.name != "edgemeter-deadlines" for thread in threading.enumerate())
    )
    deadline = SocketDeadline(socket_of_ours.fileno())
    deadline.begin(0.1)
    assert socket_of_ours.recv(1) == b""
    deadline.close()

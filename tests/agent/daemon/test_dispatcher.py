"""Facts about handlers.

Each hears its own topics in one thread and looks when it is due, and none keeps the others from
their work.
"""

import logging
import socket
import threading

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.service_manager import notify_service_manager
from edgemeter.agent.daemon import handler
from edgemeter.agent.daemon.daemon import (
    KEPT_LINES,
    LARGEST_MESSAGE_BYTES,
    LONGEST_LINE,
    WAITING_BYTES,
    Dispatcher,
    RecentLog,
)


class Listening:
    """A handler that keeps what it is told; `wrong` is raised by every method."""

    def __init__(self, *topics, pause_s=60.0, wrong=None):
        self.topics = topics
        self.heard = []
        self.looks = 0
        self._pause_s = pause_s
        self._wrong = wrong

    def connected(self):
        self._keep("connected")

    def received(self, message):
        self._keep(message.payload)

    def poll(self):
        self.looks += 1
        if self._wrong:
            raise self._wrong
        return self._pause_s

    def close(self):
        self._keep("closed")

    def _keep(self, event):
        self.heard.append((event, threading.current_thread().name))
        if self._wrong:
            raise self._wrong


def serve(dispatcher, times):
    for _ in range(times):
        dispatcher.serve(0.0)


def test_each_hears_its_topics_and_the_connection_in_the_thread_that_serves():
    """Messages may come from any thread."""
    dispatcher = Dispatcher()
    first, two = Listening("a", "b"), Listening("b")
    dispatcher.handlers = {"one": first, "two": two}
    assert dispatcher.topics == ["a", "b"]

    def bring():
        dispatcher.connected()
        for topic in ("a", "b", "c"):
            dispatcher.received(Message(topic, topic.encode()))

    network = threading.Thread(target=bring, name="network")
    network.start()
    network.join()
    serve(dispatcher, 4)
    me = threading.current_thread().name
    assert first.heard == [("connected", me), (b"a", me), (b"b", me)]
    assert two.heard == [("connected", me), (b"b", me)]


def test_one_that_fails_does_not_keep_the_others_from_their_work(caplog):
    """The failure is reported, and the handler is asked again."""
    dispatcher = Dispatcher()
    wrong, right = Listening("a", wrong=ConfigError("is wrong")), Listening("a")
    dispatcher.handlers = {"wrong": wrong, "right": right}
    dispatcher.received(Message("a", b"x"))
    serve(dispatcher, 1)
    dispatcher.close()
    assert [event for event, _ in right.heard] == [b"x", "closed"]
    assert right.looks == wrong.looks == 1
    assert "wrong: is wrong" in caplog.text


def test_a_handler_is_polled_when_due_and_when_woken():
    """A handler is not polled with every turn of the loop."""
    dispatcher = Dispatcher()
    seldom, often = Listening(pause_s=60.0), Listening(pause_s=0.0)
    dispatcher.handlers = {"seldom": seldom, "often": often}
    serve(dispatcher, 5)
    assert (seldom.looks, often.looks) == (1, 5)
    dispatcher.wake()
    serve(dispatcher, 1)
    assert seldom.looks == 2


def test_what_is_too_large_or_too_much_never_gets_into_memory():
    """The other messages are taken, and room comes back as they are handled."""
    dispatcher = Dispatcher()
    listening = Listening("a")
    dispatcher.handlers = {"one": listening}
    dispatcher.received(Message("a", b"x" * (LARGEST_MESSAGE_BYTES + 1)))
    for _ in range(100):
        dispatcher.received(Message("a", b"x" * LARGEST_MESSAGE_BYTES))
    serve(dispatcher, 200)
    assert len(listening.heard) == WAITING_BYTES // LARGEST_MESSAGE_BYTES
    dispatcher.received(Message("a", b"y"))
    serve(dispatcher, 1)
    assert listening.heard[-1][0] == b"y"


def damaged(_context):
    message = "its journal is damaged"
    raise ConfigError(message)


def test_one_that_cannot_be_made_is_left_out(caplog):
    """A broken handler does not keep results from going out."""
    assert handler.make_handlers(None, {"broken": f"{__name__}:damaged"}) == {}
    assert "broken: its journal is damaged" in caplog.text


@pytest.mark.services
def test_the_service_manager_is_notified_at_its_socket(tmp_path):
    """The socket lies in the file system or is an abstract one."""
    for name in (f"@edgemeter-{tmp_path.name}-{id(tmp_path)}", str(tmp_path / "notify")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind("\0" + name[1:] if name.startswith("@") else name)
            assert notify_service_manager("READY=1", {"NOTIFY_SOCKET": name})
            assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_is_notified(tmp_path):
    """The variable is absent, names a socket that has gone, or is no socket's name."""
    for environment in (
        {},
        {"NOTIFY_SOCKET": str(tmp_path / "gone")},
        {"NOTIFY_SOCKET": "relative"},
    ):
        assert not notify_service_manager("READY=1", environment)


def test_the_last_lines_of_the_log_are_kept_and_no_more():
    """Each line has its time and is cut to a length."""
    recent_log = RecentLog()
    logger = logging.getLogger("edgemeter-test-last-words")
    logger.propagate = False
    logger.addHandler(recent_log)
    for number in range(KEPT_LINES + 10):
        logger.warning("line %d %s", number, "x" * 1000)
    lines = recent_log.lines()
    assert len(lines) == KEPT_LINES
    assert "warning line 10 " in lines[0]
    assert {len(line) for line in lines} == {LONGEST_LINE}

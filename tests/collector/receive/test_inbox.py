import threading

from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.collector.receive.inbox import Inbox


def message(size):
    """Return a message of that size."""
    return Message("t", b"x" * size, 1, 1, 1)


def test_what_gathered_is_taken_in_order_and_up_to_a_limit():
    """A group is whatever came while the last one was committed."""
    inbox = Inbox()
    for size in (1, 2, 3):
        inbox.put(message(size))
    assert [len(one.payload) for one in inbox.take(2, 0)] == [1, 2]
    assert [len(one.payload) for one in inbox.take(2, 0)] == [3]
    assert inbox.take(2, 0.01) == []


def test_it_is_idle_only_when_what_was_taken_is_done():
    """`settled` must not look away between take and commit."""
    inbox = Inbox()
    assert inbox.is_idle()
    inbox.put(message(1))
    assert not inbox.is_idle()
    inbox.take(1, 0)
    assert not inbox.is_idle()
    inbox.done()
    assert inbox.is_idle()


def test_a_full_inbox_holds_the_network_thread_until_there_is_room():
    """Backpressure, not loss; one message larger than the limit still passes."""
    inbox = Inbox(limit_bytes=10)
    inbox.put(message(100))
    second = threading.Thread(target=inbox.put, args=(message(1),))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    assert len(inbox.take(10, 0)) == 1
    second.join(5)
    assert not second.is_alive()
    assert len(inbox.take(10, 1)) == 1


def test_a_closed_inbox_lets_everybody_go():
    """Stopping hangs neither the network thread nor the writer."""
    inbox = Inbox(limit_bytes=1)
    inbox.put(message(5))
    waiting = threading.Thread(target=inbox.put, args=(message(1),))
    waiting.start()
    inbox.close()
    waiting.join(5)
    assert not waiting.is_alive()
    assert len(inbox.take(10, 0)) == 1
    assert inbox.take(10, 60) == []

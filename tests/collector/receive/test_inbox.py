import threading

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.collector.receive.receiver import Inbox

ANY = 1 << 30


def message(size):
    """Return a message of that size."""
    return Message("t", b"x" * size, 1, 1, 1)


def sizes(taken):
    """Return how long the payloads are."""
    return [len(one.payload) for one in taken]


def test_what_gathered_is_taken_in_order_and_up_to_a_limit():
    """A group is whatever came while the last one was committed, but neither too many messages nor too many bytes."""
    inbox = Inbox()
    inbox.put([message(1), message(2)])
    inbox.put([message(3), message(4), message(5)])
    assert sizes(inbox.take(2, ANY, 0)) == [1, 2]
    assert sizes(inbox.take(9, 4, 0)) == [3, 4]
    assert sizes(inbox.take(9, ANY, 0)) == [5]
    assert inbox.take(2, ANY, 0.01) == []


def test_it_is_idle_only_when_what_was_taken_is_done():
    """`settled` must not look away between take and commit."""
    inbox = Inbox()
    assert inbox.is_idle()
    inbox.put([message(1)])
    assert not inbox.is_idle()
    inbox.take(1, ANY, 0)
    assert not inbox.is_idle()
    inbox.done()
    assert inbox.is_idle()


def test_a_full_inbox_says_so_and_says_when_there_is_room_again():
    """Backpressure, not loss: the feed reads no more until it is called; one message larger than the limit still passes."""
    calls = []
    inbox = Inbox(limit_bytes=10, has_room=lambda: calls.append(len(inbox)))
    assert not inbox.is_full()
    inbox.put([message(100), message(9), message(3)])
    assert inbox.is_full()
    inbox.take(1, ANY, 0)
    assert (inbox.is_full(), calls) == (True, [])
    inbox.take(1, ANY, 0)
    assert (inbox.is_full(), calls) == (False, [1])
    inbox.take(1, ANY, 0)
    assert calls == [1]


def test_a_closed_inbox_lets_everybody_go_and_takes_nothing_more():
    """Stopping does not hang the writer, and what is there is still committed."""
    inbox = Inbox()
    waiting = threading.Thread(target=inbox.take, args=(1, ANY, 60))
    waiting.start()
    inbox.close()
    waiting.join(25)
    assert not waiting.is_alive()
    inbox = Inbox()
    inbox.put([message(5)])
    inbox.close()
    inbox.put([message(6)])
    assert sizes(inbox.take(10, ANY, 60)) == [5]
    assert inbox.take(10, ANY, 60) == []

"""The inbox in order and within its bounds; the share of a device."""

import threading

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.collector.receive.inbox import MOST_REPORTS, MOST_RESULTS, Inbox


def message(size, device="pi-1", kind="result"):
    return Message(f"edgemeter/v1/lab/{device}/{kind}", b"x" * size, 1, 1, 1)


def sizes(batch):
    return [len(message.payload) for message in batch]


def test_what_gathered_is_taken_in_order():
    """A group has the messages that came while the last one was committed."""
    inbox = Inbox()
    inbox.put([message(1), message(2)])
    inbox.put([message(3), message(4), message(5)])
    assert sizes(inbox.take(0)) == [1, 2, 3, 4, 5]
    assert inbox.take(0) == []


def test_it_is_idle_only_when_what_was_taken_is_done():
    """`settled` must not look away between take and commit."""
    inbox = Inbox()
    assert inbox.is_idle()
    inbox.put([message(1)])
    batch = inbox.take(0)
    assert not inbox.is_idle()
    inbox.done(batch)
    assert inbox.is_idle()


def test_a_full_inbox_has_room_again_once_enough_is_done():
    """A full inbox stops the feed and loses nothing.

    One message larger than the limit still passes.
    """
    inbox = Inbox(limit_bytes=10)
    assert inbox.has_room()
    assert inbox.put([message(100, "pi-1"), message(9, "pi-2"), message(3, "pi-3")]) == []
    first, *further = inbox.take(0)
    assert not inbox.has_room()
    inbox.done([first])
    assert not inbox.has_room()
    waiting = threading.Thread(target=inbox.has_room, args=(60,))
    waiting.start()
    inbox.done(further)
    waiting.join(30)
    assert not waiting.is_alive()
    assert inbox.has_room()


def test_a_closed_inbox_lets_everybody_go_and_takes_nothing_more():
    """Stopping does not hang the writer, and waiting messages are still committed."""
    inbox = Inbox()
    waiting = threading.Thread(target=inbox.take, args=(60,))
    waiting.start()
    inbox.close()
    waiting.join(150)
    assert not waiting.is_alive()
    inbox = Inbox(limit_bytes=5)
    inbox.put([message(5)])
    assert not inbox.has_room()
    inbox.close()
    assert inbox.has_room()
    inbox.put([message(6)])
    assert sizes(inbox.take(60)) == [5]
    assert inbox.take(60) == []


def devices(batch):
    return [message.topic.split("/")[3] for message in batch]


def test_what_exceeds_the_share_of_a_device_is_handed_back_and_what_others_send_is_not():
    """A device's share is a third of the waiting bytes, while half is full.

    It counts for results and for other messages; messages taken from the inbox leave the share.
    """
    inbox = Inbox(limit_bytes=900)
    assert sizes(inbox.put([message(size, "bad") for size in (100, 180, 170, 1)])) == [1]
    assert (
        inbox.put([message(300, "pi-1"), message(100, "bad", "state"), message(900, "pi-2")]) == []
    )
    assert sizes(
        inbox.put([message(1, "bad"), message(201, "bad", "health"), message(200, "bad", "birth")])
    ) == [1, 201]
    batch = inbox.take(0)
    assert devices(batch) == ["bad", "bad", "bad", "pi-1", "bad", "pi-2", "bad"]
    assert inbox.put([message(300, "bad")]) == []
    assert not inbox.has_room()
    assert sizes(inbox.put([message(1, "bad")])) == [1]
    inbox.done(batch)
    assert inbox.has_room()
    assert inbox.put([message(1, "bad")]) == []


def test_a_device_floods_in_vain_with_messages_of_any_kind_and_size():
    """Another device's next message waits for one share at most, and the feed reads on."""
    for size, kind, most_waiting in (
        (1, "state", MOST_REPORTS),
        (1, "result", MOST_RESULTS),
        (1 << 20, "health", 12),
        (1 << 20, "result", 12),
    ):
        inbox = Inbox()
        shed = inbox.put([message(size, "bad", kind)] * 10_000)
        assert 10_000 - len(shed) == most_waiting
        assert inbox.put([message(1, "pi-1")]) == []
        assert inbox.has_room()
        assert devices(inbox.take(0)) == ["bad"] * most_waiting + ["pi-1"]

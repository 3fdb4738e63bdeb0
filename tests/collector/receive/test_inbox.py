import threading

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.collector.receive.inbox import USELESS_AT_ONCE, Inbox, UselessMessages

ANY = 1 << 30


def message(size, device="pi-1", kind="result"):
    """Return a message of that size."""
    return Message(f"edgemeter/v1/lab/{device}/{kind}", b"x" * size, 1, 1, 1)


def sizes(batch):
    """Return how long the payloads are."""
    return [len(message.payload) for message in batch]


def test_what_gathered_is_taken_in_order_and_up_to_a_limit():
    """A group is whatever came while the last one was committed, but neither too many messages nor too many bytes."""
    inbox = Inbox()
    inbox.put([message(1), message(2)])
    inbox.put([message(3), message(4), message(5)])
    assert sizes(inbox.take(2, ANY, 0)) == [1, 2]
    assert sizes(inbox.take(9, 4, 0)) == [3, 4]
    assert sizes(inbox.take(9, ANY, 0)) == [5]
    assert inbox.take(2, ANY, 0) == []


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


def test_a_full_inbox_has_room_again_once_enough_was_taken():
    """Backpressure, not loss: the feed reads no more until then; one message larger than the limit still passes."""
    inbox = Inbox(limit_bytes=10)
    assert inbox.has_room()
    inbox.put([message(100, "pi-1"), message(9, "pi-2"), message(3, "pi-3")])
    assert not inbox.has_room()
    inbox.take(1, ANY, 0)
    assert not inbox.has_room()
    waiting = threading.Thread(target=inbox.has_room, args=(60,))
    waiting.start()
    inbox.take(1, ANY, 0)
    waiting.join(30)
    assert not waiting.is_alive()
    assert inbox.has_room()


def test_a_closed_inbox_lets_everybody_go_and_takes_nothing_more():
    """Stopping does not hang the writer, and what is there is still committed."""
    inbox = Inbox()
    waiting = threading.Thread(target=inbox.take, args=(1, ANY, 60))
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
    assert sizes(inbox.take(10, ANY, 60)) == [5]
    assert inbox.take(10, ANY, 60) == []


def devices(batch):
    """Return whose messages these are, in order."""
    return [message.topic.split("/")[3] for message in batch]


def test_a_device_that_floods_does_not_starve_the_others():
    """Whoever comes after a thousand messages of another has its own in the next group, in their order."""
    inbox = Inbox()
    shed = inbox.put([message(24 << 10, "bad")] * 1000)
    inbox.put([message(size, device) for size in (1, 2, 3) for device in ("pi-1", "pi-2")])
    batch = inbox.take(2000, 8 << 20, 0)
    assert devices(batch).count("bad") < len(batch) < 1006
    for device in ("pi-1", "pi-2"):
        assert sizes(message for message in batch if device in message.topic) == [1, 2, 3]
    assert len(inbox) == 1006 - len(shed) - len(batch)


def test_a_device_with_large_messages_waits_its_turn_and_gets_it():
    """Turns are counted in bytes: 16 MiB at once pay for many small ones, and nothing is left for ever."""
    inbox = Inbox(limit_bytes=1 << 30)
    inbox.put([message(16 << 20, "large"), message(16 << 20, "large")])
    inbox.put([message(64 << 10, "pi-1")] * 600)
    order = []
    while len(inbox):
        order += devices(inbox.take(10, ANY, 0))
    places = [index for index, device in enumerate(order) if device == "large"]
    assert len(order) == 602
    assert 200 < places[0] < 300
    assert 450 < places[1] < 600


def test_what_one_device_has_too_much_is_handed_back_and_what_others_send_is_not():
    """Only results, which a device sends again, and only while the inbox is half full; no byte is counted that is not there."""
    inbox = Inbox(limit_bytes=1000)
    assert inbox.put([message(100, "bad") for _ in range(5)]) == []
    assert sizes(inbox.put([message(100, "bad"), message(100, "pi-1"), message(10, "bad", "state")])) == [100]
    assert devices(inbox.put([message(90, "bad"), message(200, "pi-1")])) == ["bad", "pi-1"]
    assert inbox.has_room()
    assert len(inbox.take(100, ANY, 0)) == 7
    assert inbox.put([message(100, "bad"), message(200, "pi-1")]) == []


def test_a_device_floods_with_other_messages_than_results_in_vain():
    """Small ones without end, and few that are large: nobody sends those again, but a board has only few on their way."""
    for size, kind in ((1, "state"), (1, "result"), (1 << 20, "health")):
        inbox = Inbox()
        shed = inbox.put([message(size, "bad", kind)] * 10_000)
        assert len(inbox) <= 4000
        assert len(inbox) + len(shed) == 10_000
        assert inbox.has_room()
        inbox.put([message(1, "pi-1")])
        assert "pi-1" in devices(inbox.take(500, ANY, 0))
        while inbox.take(2000, ANY, 0):
            pass
        assert inbox.put([message(size, "bad", kind)]) == []


FLOODED = "edgemeter/v1/lab/pi-1/result"


def test_a_flooder_is_named_once():
    """A board that sends its whole window again is none."""
    useless = UselessMessages(lambda: 0.0)
    for _ in range(1000):
        useless.count(FLOODED, 4096)
    assert useless.flooders() == []
    for _ in range(int(USELESS_AT_ONCE)):
        useless.count(FLOODED, 4096)
    assert (useless.flooders(), useless.flooders()) == (["pi-1"], [])

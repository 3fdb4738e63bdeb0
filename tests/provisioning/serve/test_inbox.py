"""The inbox of the service: shares, turns and who floods."""

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.provisioning.serve import inbox as inboxes
from edgemeter.provisioning.serve.inbox import ServiceInbox, sender_of
from tests.fixtures.rows import table_row


def still():
    """Return the time of a clock that stands."""
    return 0.0


def message(device, number=0, kind="job", size_bytes=1):
    return Message(f"edgemeter/v1/lab/{device}/{kind}", b"%d" % number + b" " * size_bytes)


def drain(inbox):
    messages = []
    while len(inbox):
        entry = inbox.take(0)
        messages.append((entry.topic.split("/")[3], int(entry.payload)))
    return messages


def test_devices_take_turns_and_each_keeps_its_order():
    """A device behind a hundred messages of another waits for only one of them."""
    inbox = ServiceInbox(still)
    for number in range(100):
        inbox.put(message("bad", number))
    for number in range(2):
        inbox.put(message("good", number))
    order = drain(inbox)
    assert order[:4] == [("bad", 0), ("good", 0), ("bad", 1), ("good", 1)]
    assert [number for device, number in order if device == "bad"] == list(range(100))


def test_a_device_fills_no_more_than_its_share_and_its_newest_messages_stay():
    """A device's messages are bounded in number and bytes, and the newest stay."""
    inbox = ServiceInbox(still)
    for number in range(1000):
        inbox.put(message("bad", number))
    assert drain(inbox) == [("bad", number) for number in range(1000 - inboxes.MOST_OF_ONE, 1000)]
    for number in range(6):
        inbox.put(message("large", number, size_bytes=1 << 20))
    assert [number for _, number in drain(inbox)] == [3, 4, 5]


def test_a_flooder_is_named_once_and_what_a_banned_one_sends_is_dropped():
    """A flooder is named once and its messages are dropped during its ban.

    A burst is no flood, nor is traffic of the server's own parts.
    """
    inbox = ServiceInbox(still)
    for number in range(1000):
        inbox.put(message("busy", number))
    assert inbox.flooders() == []
    for number in range(2100):
        inbox.put(message("bad", number))
        inbox.put(Message("$SYS/broker/log/N", b"x"))
    assert inbox.flooders() == ["bad"]
    assert inbox.flooders() == []
    count_before = len(inbox)
    inbox.ban({"bad"})
    inbox.put(message("bad"))
    assert len(inbox) == count_before
    assert inbox.dropped_count > 100


def test_a_message_is_its_senders():
    """A message belongs to a device, or to a part of the server, which nobody bans."""
    for topic, expected in (
        ("edgemeter/v1/lab/pi-1/job", "pi-1"),
        ("edgemeter/v1/lab/edgemeter-operator/state", "edgemeter/v1/lab/edgemeter-operator/state"),
        ("$SYS/broker/log/N", "$SYS/broker/log/N"),
        ("edgemeter/collector/1/state", "edgemeter/collector/1/state"),
    ):
        with table_row(topic):
            assert sender_of(topic) == expected


def test_what_nobody_will_take_is_given_back(monkeypatch):
    """The inbox returns the messages that it drops, so that they can be acknowledged.

    The broker sends no more messages of QoS 1 than are acknowledged; those of QoS 0 have no bound
    there, so what exceeds ours is dropped.
    """
    monkeypatch.setattr(inboxes, "MOST_WAITING", 10)
    inbox = ServiceInbox(still)
    assert [inbox.put(message(f"pi-{number}")) for number in range(10)] == [[]] * 10
    assert inbox.put(message("pi-10")) == [message("pi-10")]
    assert inbox.put(message("pi-10")._replace(qos=1)) == []
    lasting = [message("busy", number)._replace(qos=1) for number in range(inboxes.MOST_OF_ONE + 3)]
    assert [dropped for each in lasting for dropped in inbox.put(each)] == lasting[:3]
    inbox.ban({"bad"})
    assert inbox.put(message("bad")) == [message("bad")]

"""Facts about what goes out over a connection, and in how many messages."""

import zlib

from edgemeter.agent.contract import messages, record
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.sender import BATCH_BYTES, BATCH_RECORDS, SMALLEST_SHARE, Sender
from tests.fixtures.record_factory import make_environment, make_record


class Line:
    """A connection that remembers; `slots` is how many messages the broker takes before it answers."""

    def __init__(self, slots=1000):
        self.slots = slots
        self.sent = []

    def room(self):
        """Return how many more it takes."""
        return self.slots - len(self.sent)

    def largest_bytes(self):
        """Return the largest payload."""
        return 1 << 24

    def is_on_its_way(self, number):  # noqa: ARG002
        """Return whether a message is not answered: all are."""
        return False

    def publish(self, topic, payload):
        """Take a message."""
        assert self.room() > 0
        text = zlib.decompress(payload) if payload[:1] == b"x" else payload
        self.sent.append((topic, [record.decode(raw).seq for raw in messages.split_records(text)]))
        return len(self.sent)

    def seqs(self):
        """Return the numbers in the order in which they went."""
        return [seq for _, several in self.sent for seq in several]


def put(outbox, count, **changes):
    """Put so many records."""
    for _ in range(count):
        outbox.put(make_record(**changes))


def make_sender(outbox, window=1000):
    """Return a sender of this outbox."""
    return Sender(outbox, "pi-1", "lab", window, 60.0)


def test_a_device_that_is_behind_catches_up_in_few_messages(outbox):
    """250 records in 3 messages of at most 100, each record once, in order."""
    put(outbox, 250)
    line = Line()
    make_sender(outbox).send(line)
    assert line.seqs() == list(range(1, 251))
    assert [len(several) for _, several in line.sent] == [BATCH_RECORDS, BATCH_RECORDS, 50]


def test_what_has_gone_does_not_go_again_and_what_comes_alone_goes_alone(outbox):
    """A record that is put while nothing waits is one message of its own."""
    line, sender = Line(), make_sender(outbox)
    for _ in range(3):
        put(outbox, 1)
        sender.send(line)
    assert [several for _, several in line.sent] == [[1], [2], [3]]


def test_the_brokers_window_is_kept_and_nothing_is_passed_over(outbox):
    """Records of many fleets need a message each; those that find no room go later."""
    for number in range(10):
        put(outbox, 1, fleet=f"fleet-{number % 2}")
    line, sender = Line(slots=4), make_sender(outbox)
    sender.send(line)
    assert line.seqs() == [1, 2, 3, 4]
    line.slots = 100
    sender.send(line)
    assert line.seqs() == list(range(1, 11))
    assert {topic for topic, _ in line.sent} == {"edgemeter/v1/fleet-0/pi-1/result", "edgemeter/v1/fleet-1/pi-1/result"}


def test_no_more_than_the_window_is_unreceipted(outbox):
    """A receipt opens it again."""
    put(outbox, 30)
    line, sender = Line(), make_sender(outbox, window=10)
    sender.send(line)
    assert line.seqs() == list(range(1, 11))
    sender.receipted(Receipt(session=outbox.session, held=((1, 5),)))
    sender.send(line)
    assert line.seqs() == list(range(1, 16))


def test_a_line_that_breaks_before_a_message_is_through_gets_smaller_ones_until_a_receipt_comes(outbox):
    """Otherwise the same large message would begin again for ever."""
    put(outbox, 64)
    size_bytes = len(outbox.pending(1, 1)[0].payload)
    sender, longest = make_sender(outbox), []
    for _ in range(12):
        line = Line()
        sender.restart()
        sender.send(line)
        assert line.seqs() == list(range(1, 65))
        longest.append(max(len(several) for _, several in line.sent))
    assert longest == sorted(longest, reverse=True)
    assert longest[0] == 64
    assert longest[-1] == max(1, int(BATCH_BYTES * SMALLEST_SHARE) // size_bytes)
    for _ in range(7):
        sender.receipted(Receipt(session=1, held=((1, 1),)))
    line = Line()
    sender.restart()
    sender.send(line)
    assert [len(several) for _, several in line.sent] == [64]


def test_a_record_that_was_held_back_goes_when_it_may_and_no_other_goes_twice(outbox):
    """Those behind it were sent meanwhile, some have their receipt: only it and what is new goes out."""
    unsynchronised = {"clock_synchronised": False, "environment": make_environment(boot_id="b")}
    put(outbox, 2)
    put(outbox, 1, **unsynchronised)
    put(outbox, 150)
    line, sender = Line(), make_sender(outbox)
    sender.send(line)
    assert line.seqs() == [1, 2, *range(4, 154)]
    receipt = Receipt(session=outbox.session, held=((1, 2), (10, 20)))
    sender.receipted(receipt)
    outbox.forget(receipt)
    held = outbox.first_unstamped()
    outbox.leave_unstamped()
    sender.look_back(held)
    put(outbox, 1)
    line = Line()
    sender.send(line)
    assert line.seqs() == [3, 154]

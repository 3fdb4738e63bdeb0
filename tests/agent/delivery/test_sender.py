"""Facts about what goes out over a connection, in which messages, and what waits for a receipt."""

import os
import zlib

from edgemeter.agent.base.mqtt_session import CUT
from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.message_limit import MessageLimit
from edgemeter.agent.delivery.outbox import Pending
from edgemeter.agent.delivery.send_window import WINDOW_BYTES, SendWindow
from edgemeter.agent.delivery.sender import (
    BATCH_RECORDS,
    COMPRESS_ABOVE_BYTES,
    Sender,
    batches,
    packed,
)
from edgemeter.collector.receive.admission import split_records
from tests.fixtures.record_factory import make_environment, make_record


class Line:
    """A connection that remembers what was sent.

    `slots` is how many messages the broker takes before it answers, which it does unless it
    `is_mute`.
    """

    version = "5"

    def __init__(self, slots=1000):
        self.slots = slots
        self.is_mute = False
        self.sent = []
        self.progress = 0

    def room(self):
        return self.slots - len(self.sent)

    def largest_bytes(self):
        return 1 << 24

    def is_on_its_way(self, number):  # noqa: ARG002
        return self.is_mute

    def refusal(self, number):  # noqa: ARG002
        return None

    def progressed(self):
        self.progress += 1

    def publish(self, topic, payload, **_how):
        assert self.room() > 0
        text = zlib.decompress(payload) if payload[:1] == b"x" else payload
        self.sent.append((topic, [record.decode(raw).seq for raw in split_records(text)]))
        return len(self.sent)

    def seqs(self):
        return [seq for _, several in self.sent for seq in several]


def put(outbox, count, **changes):
    for _ in range(count):
        outbox.put(make_record(**changes))


def make_sender(outbox, window=1000):
    return Sender(
        outbox,
        "pi-1",
        "lab",
        MessageLimit(outbox, "broker:1883"),
        SendWindow(window, WINDOW_BYTES, 60.0),
    )


def test_a_device_that_is_behind_catches_up_in_few_messages(outbox):
    """250 records go in 3 messages of at most 100, each record once and in order.

    A message has fewer records where their bytes fill it.
    """
    put(outbox, 250)
    line = Line()
    make_sender(outbox).send(line, 0.0)
    assert line.seqs() == list(range(1, 251))
    assert len(line.sent) == 3
    assert max(len(several) for _, several in line.sent) <= BATCH_RECORDS


def test_the_brokers_window_is_kept_and_nothing_is_passed_over(outbox):
    """Records of several fleets need separate messages, and those without room go later."""
    for number in range(10):
        put(outbox, 1, fleet=f"fleet-{number % 2}")
    line, sender = Line(slots=4), make_sender(outbox)
    sender.send(line, 0.0)
    assert line.seqs() == [1, 2, 3, 4]
    line.slots = 100
    sender.send(line, 0.0)
    assert line.seqs() == list(range(1, 11))
    assert {topic for topic, _ in line.sent} == {
        "edgemeter/v1/fleet-0/pi-1/result",
        "edgemeter/v1/fleet-1/pi-1/result",
    }


def test_no_more_than_the_window_is_unreceipted(outbox):
    """A receipt opens the window again."""
    put(outbox, 30)
    line, sender = Line(), make_sender(outbox, window=10)
    sender.send(line, 0.0)
    assert line.seqs() == list(range(1, 11))
    sender.receipted(Receipt(session=outbox.session, held=((1, 5),)), 1.0)
    sender.send(line, 0.0)
    assert line.seqs() == list(range(1, 16))


def test_a_line_that_breaks_before_a_message_is_through_gets_smaller_ones_until_some_are_answered(
    outbox,
):
    """Otherwise the same large message would begin again for ever.

    Each time half the records are sent, down to one.
    """
    for _ in range(64):
        # Records alike in all but their ids would compress so well that half of them is more than
        # three quarters of all.
        put(outbox, 1, case=os.urandom(500).hex())
    sender, longest = make_sender(outbox), []
    for number in range(9):
        line = Line()
        line.is_mute = True
        sender.send(line, 0.0)
        sender.send(line, 0.0)
        # After a loss one message at a time.
        assert number == 0 or len(line.sent) == 1
        longest.append(max(len(several) for _, several in line.sent))
        sender.limit.lost(line, CUT)
        sender.learn(line)
        sender.restart()
    assert longest == sorted(longest, reverse=True)
    assert (longest[:3], longest[-1]) == ([64, 32, 16], 1)
    line = Line()
    for _ in range(20):
        sender.learn(line)
        sender.send(line, 0.0)
    assert sorted(line.seqs()) == list(range(1, 65))
    assert len(line.sent) < 10
    assert line.progress == len(line.sent)


def test_a_record_that_was_held_back_goes_when_it_may_and_no_other_goes_twice(outbox):
    """Only the record that was held back and new ones go out then.

    Those behind it were sent meanwhile, and some have their receipt.
    """
    unsynchronised = {"clock_synchronised": False, "environment": make_environment(boot_id="b")}
    put(outbox, 2)
    put(outbox, 1, **unsynchronised)
    put(outbox, 150)
    line, sender = Line(), make_sender(outbox)
    sender.send(line, 0.0)
    assert line.seqs() == [1, 2, *range(4, 154)]
    receipt = Receipt(session=outbox.session, held=((1, 2), (10, 20)))
    sender.receipted(receipt, 1.0)
    outbox.forget(receipt)
    first_row = outbox.first_unstamped()
    outbox.leave_unstamped()
    sender.look_back(first_row)
    put(outbox, 1)
    line = Line()
    sender.send(line, 0.0)
    assert line.seqs() == [3, 154]


def text_of(number, size_bytes=100):
    """Return what passes for a record's JSON and cannot be compressed to less than half."""
    return b'{"schema":1,"id":"%d","x":"%s"}' % (number, os.urandom(size_bytes // 2).hex().encode())


def opened(payload):
    """Return the records in a payload, told by its first byte as a collector tells."""
    return split_records(zlib.decompress(payload) if payload[:1] == b"\x78" else payload)


def test_the_first_byte_shows_the_form_and_every_record_comes_out_as_it_went_in():
    """A payload is one record, a list, or a compressed list."""
    for count, first in [(1, b"{"), (3, b"["), (BATCH_RECORDS, b"\x78")]:
        encoded = [text_of(number) for number in range(count)]
        payload = packed(encoded)
        assert payload[:1] == first, f"{count!r}"
        assert opened(payload) == encoded, f"{count!r}"
    small, large = (
        b'{"schema":1,"id":"a","x":"%s"}' % (b"x" * size)
        for size in (COMPRESS_ABOVE_BYTES - 200, COMPRESS_ABOVE_BYTES)
    )
    assert packed([small]) == small
    assert len(packed([large])) < 100
    assert opened(packed([large])) == [large]


def test_no_batch_is_larger_than_the_broker_takes_unless_a_single_record_is():
    """A batch that does not fit is halved until it does, and a record too large is reported."""
    sizes = [2000, 2000, 50_000, 2000, 2000]
    waiting = [
        Pending(row, "pi-1", "lab", 1, row, text_of(row, size)) for row, size in enumerate(sizes, 1)
    ]
    batched = list(batches(waiting, 5000, 5000))
    assert [pending_record for batch in batched for pending_record in batch.records] == waiting
    assert [batch.fits for batch in batched].count(False) == 1
    assert all(len(batch.payload) <= 5000 for batch in batched if batch.fits)
    assert [
        pending_record.row
        for batch in batched
        if not batch.fits
        for pending_record in batch.records
    ] == [3]
    assert [raw for batch in batched for raw in opened(batch.payload)] == [
        pending_record.payload for pending_record in waiting
    ]
    pair, alone = waiting[:2], len(packed([waiting[0].payload]))
    together = len(packed([pending_record.payload for pending_record in pair]))
    for limits, count, fits in (((alone, alone), 1, True), ((alone - 1, alone), 1, False)):
        assert [(len(batch.records), batch.fits) for batch in batches(pair[:1], *limits)] == [
            (count, fits)
        ]
    assert len(list(batches(pair, together, together))) == 1
    assert len(list(batches(pair, together, together - 1))) == 2

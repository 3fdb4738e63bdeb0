"""Facts about what goes out over a connection, in which messages, and what waits for a receipt."""

import os
import zlib

from edgemeter.agent.base.mqtt_session import CUT
from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.message_limit import MessageLimit
from edgemeter.agent.delivery.outbox import Pending
from edgemeter.agent.delivery.sender import (
    BATCH_RECORDS,
    COMPRESS_ABOVE_BYTES,
    WINDOW_BYTES,
    Sender,
    SendWindow,
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


def pending(*seqs):
    """Return records of session 1 whose row is their number, 10 bytes each."""
    return [Pending(seq, "pi", "lab", 1, seq, b"x" * 10) for seq in seqs]


def receipt(*ranges):
    return Receipt(session=1, held=ranges)


def make_window(records=4, size=1000):
    """Return a window without randomness, first timeout 5 s."""
    return SendWindow(records, size, 5.0, lambda: 1.0)


def test_the_window_is_bounded_in_records_and_bytes_and_opens_with_receipts():
    """Backpressure from the collector reaches the device."""
    window = make_window()
    window.sent(pending(1, 2, 3, 4), 0.0)
    window.receipted(Receipt(session=2, held=((0, 2**53 - 1),)), 0.5)
    assert window.room(0.5) == 0
    window.receipted(receipt((1, 2)), 1.0)
    assert window.room(1.0) == 2
    assert window.after_row == 4
    window = make_window(records=100, size=30)
    window.sent(pending(1, 2), 0.0)
    assert (window.room(0.0), window.room_bytes()) == (98, 10)
    window.sent(pending(3), 0.0)
    assert window.room(0.0) == 0
    window.receipted(receipt((1, 1)), 1.0)
    assert (window.room(1.0), window.room_bytes()) == (98, 10)
    # A record that was held back goes after later ones.
    window.sent(pending(1), 1.0)
    assert window.after_row == 3


def test_silence_starts_again_at_the_oldest_record_and_waits_longer_each_time():
    """Without any receipt nobody is there, so that the whole outbox waits."""
    window = make_window()
    now, pauses = 0.0, []
    for _ in range(6):
        window.sent(pending(1, 2), now)
        now += 5.0
        window.expire(now)
        assert window.after_row == 0
        assert window.room(now) == 0
        pauses.append(window.wait_s(now))
        now += pauses[-1]
        assert window.room(now) == 4
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert window.resent == 12


def test_a_receipt_that_came_before_a_record_was_sent_is_no_sign_of_a_collector():
    """Only a receipt that came after the record was sent shows that a collector lives."""
    for receipt_s, after_row in ((0.0, 0), (0.1, 1)):
        window = make_window()
        window.sent(pending(1), 0.0)
        window.receipted(Receipt(session=2, held=()), receipt_s)
        window.expire(5.0)
        assert window.after_row == after_row


def test_a_receipt_or_a_new_connection_ends_the_silence_at_once():
    """The collector or the line is back then, and no old pause is waited out."""
    window = make_window()
    window.sent(pending(1), 0.0)
    window.expire(5.0)
    assert window.room(5.0) == 0
    window.receipted(receipt((1, 1)), 6.0)
    assert window.room(6.0) == 4
    window.sent(pending(2), 7.0)
    window.expire(12.0)
    assert window.room(12.0) == 0
    window.restart()
    assert window.room(12.0) == 4


def test_a_rejected_record_is_sent_again_alone_and_does_not_hold_up_the_others():
    """The collector lives and does not confirm record 2, and the window goes on without it."""
    window = make_window(records=2)
    window.sent(pending(1, 2), 0.0)
    window.receipted(receipt((1, 1)), 1.0)
    window.expire(5.0)
    assert (window.room(5.0), window.room_bytes()) == (2, 1000)
    assert window.after_row == 2
    assert window.due(9.9) == []
    assert window.due(10.0) == [2]
    assert window.due(19.9) == []
    assert window.due(20.0) == [2]
    assert window.resent == 2
    window.receipted(receipt((2, 2)), 21.0)
    assert window.due(1000.0) == []


def test_a_slow_collector_is_given_longer():
    """Receipts that take 8 s do not make every record come twice."""
    window = make_window()
    window.sent(pending(1, 2), 0.0)
    window.receipted(receipt((1, 1)), 8.0)
    assert window.timeout_s() == 32.0
    window.expire(31.0)
    assert window.due(1000.0) == []


def test_a_record_that_another_process_delivered_is_off_the_way():
    """An overdue record that is no longer in the outbox is not looked for again."""
    window = make_window()
    window.sent(pending(1, 2), 0.0)
    window.receipted(receipt((2, 2)), 1.0)
    window.expire(6.0)
    assert window.due(60.0) == [1]
    window.gone(1)
    assert window.due(10_000.0) == []
    assert window.wait_s(10_000.0) == 60.0


def test_what_the_broker_has_not_acknowledged_is_not_overdue():
    """A slow line takes minutes, and sending again would only make it longer.

    The time runs from the acknowledgement.
    """
    window, unanswered = make_window(), {7, 8}
    window.sent(pending(1, 2), 0.0, 7)
    window.sent(pending(3), 0.0, 8)
    for now in (6.0, 60.0, 600.0):
        window.expire(now, unanswered.__contains__)
        assert (window.resent, window.room(now)) == (0, 1)
    unanswered.remove(7)
    window.receipted(receipt((1, 1)), 601.0)
    window.expire(604.9, unanswered.__contains__)
    assert window.due(10_000.0) == []
    window.expire(605.1, unanswered.__contains__)
    assert window.due(10_000.0) == [2]


def test_a_single_record_is_not_sent_again_while_it_is_on_its_way_again():
    """The pause before the next repeat counts from the broker's acknowledgement."""
    window, unanswered = make_window(), set()
    window.sent(pending(1, 2), 0.0, 7)
    window.receipted(receipt((1, 1)), 1.0)
    window.expire(5.0)
    assert window.due(10.0) == [2]
    window.sent_again(pending(2), 9)
    unanswered.add(9)
    window.expire(500.0, unanswered.__contains__)
    assert window.due(500.0 - 0.1) == []
    unanswered.clear()
    assert window.due(10_000.0) == [2]

"""Facts about the window of sent records: its bounds, its silences, and what is sent again."""

from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Pending
from edgemeter.agent.delivery.send_window import SendWindow


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

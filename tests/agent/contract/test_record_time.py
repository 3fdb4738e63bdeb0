"""Facts about how a wrong wall clock is recognised."""

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record_time import AHEAD_NS, EARLIEST_NS, off_by_ns, placed
from tests.fixtures.record_factory import make_record

NOW_NS = EARLIEST_NS + 400 * NS_PER_DAY


def test_only_what_cannot_be_true_is_called_wrong():
    """A time a year ahead and the date of the firmware are called wrong.

    The time of a board in local time, or of one that was away for a year, is not.
    """
    for stated_ns, off_ns in [
        (NOW_NS, None),
        (NOW_NS + AHEAD_NS, None),
        (NOW_NS + AHEAD_NS + 1, AHEAD_NS + 1),
        (NOW_NS + 3650 * NS_PER_DAY, 3650 * NS_PER_DAY),
        (NOW_NS - 399 * NS_PER_DAY, None),
        (EARLIEST_NS - 1, -400 * NS_PER_DAY - 1),
        (0, -NOW_NS),
    ]:
        assert off_by_ns(stated_ns, NOW_NS) == off_ns, f"{stated_ns!r}"
    assert off_by_ns(NOW_NS, 7) is None


def test_a_run_is_placed_at_its_receipt_and_marked():
    """A record whose time can be true is returned as it is."""
    right = make_record(started_at_ns=NOW_NS)
    assert placed(right, NOW_NS) is right
    wrong = make_record(started_at_ns=NOW_NS + 10 * 366 * NS_PER_DAY, clock_synchronised=True)
    record = placed(wrong, NOW_NS)
    assert (record.started_at_ns, record.stamped_by, record.id) == (NOW_NS, "collector", wrong.id)
    assert wrong.stamped_by == "device"

"""Facts about records that were measured while the wall clock was wrong."""

import time
from dataclasses import dataclass

import msgspec
import pytest

from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.stamps import PATIENCE_AFTER_BOOT_S, PATIENCE_ONLINE_S, Stamping
from tests.fixtures.publishing import waiting_records
from tests.fixtures.record_factory import make_environment, make_record

LOTS = 10**9
NS = 10**9
BOOT, OTHER_BOOT = "aaaa", "bbbb"
BOOTED_AT_NS = 1_790_000_000 * NS
LONG_AGO_NS = 3600 * NS


@dataclass
class World:
    """A board whose wall clock starts in 1970 until `is_synchronised`."""

    since_boot_s: float = 30.0
    is_synchronised: bool | None = False

    def wall_ns(self):
        return (BOOTED_AT_NS if self.is_synchronised else 0) + self.boot_clock_ns()

    def boot_clock_ns(self):
        return int(self.since_boot_s * NS)


@pytest.fixture
def world():
    return World()


def stamping_of(outbox, world):
    return Stamping(
        outbox, lambda: world.is_synchronised, lambda: BOOT, world.wall_ns, world.boot_clock_ns
    )


def measured(began_s, boot_id=BOOT, **changes):
    """Return a record of a run that began so long after boot, by a clock that was wrong."""
    suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(
        time.CLOCK_MONOTONIC
    )
    environment = make_environment(boot_id=boot_id)
    changes = {
        "clock_synchronised": False,
        "started_at_ns": LONG_AGO_NS,
        "environment": environment,
    } | changes
    return make_record(monotonic_ns=int(began_s * NS) - suspended_ns, **changes)


def test_a_record_waits_for_the_clock_and_is_stamped_when_that_is_right(outbox, world):
    """The stamp is the begin of the run by the right clock, to a millisecond.

    Nothing else in the record changes.
    """
    stamping = stamping_of(outbox, world)
    numbered = outbox.put(measured(began_s=12.5))
    assert stamping.settle() is not None
    assert waiting_records(outbox) == []
    world.since_boot_s, world.is_synchronised = 50.0, True
    assert stamping.settle() is None
    (record,) = waiting_records(outbox)
    assert record.started_at_ns == pytest.approx(BOOTED_AT_NS + 12.5 * NS, abs=1e6)
    assert record.stamped_by == "device-later"
    assert (
        msgspec.structs.replace(record, started_at_ns=numbered.started_at_ns, stamped_by="device")
        == numbered
    )


def test_without_a_right_clock_it_goes_out_as_it_is_and_is_never_changed_after(outbox, world):
    """After the wait every copy that is sent is the same, whatever the clock does."""
    stamping = stamping_of(outbox, world)
    numbered = outbox.put(measured(began_s=12.5))
    world.since_boot_s = PATIENCE_AFTER_BOOT_S + 1
    assert stamping.settle() is None
    assert waiting_records(outbox) == [numbered]
    world.is_synchronised = True
    stamping.settle()
    assert waiting_records(outbox) == [numbered]
    assert (numbered.stamped_by, numbered.clock_synchronised) == ("device", False)


def test_when_the_network_comes_back_the_clock_is_waited_for_again(outbox, world):
    """The board measured for a day without a network, which may now set the clock."""
    world.since_boot_s = 86_400.0
    stamping = stamping_of(outbox, world)
    outbox.put(measured(began_s=100.0))
    stamping.is_online()
    assert stamping.settle() is not None
    assert waiting_records(outbox) == []
    world.since_boot_s += PATIENCE_ONLINE_S - 1
    world.is_synchronised = True
    stamping.settle()
    assert waiting_records(outbox)[0].started_at_ns == pytest.approx(
        BOOTED_AT_NS + 100 * NS, abs=1e6
    )


def test_time_that_the_board_slept_counts(outbox, monkeypatch):
    """The monotonic clock stands still while the board is suspended, the boot time goes on."""
    clocks_ns = {time.CLOCK_BOOTTIME: 500 * NS, time.CLOCK_MONOTONIC: 400 * NS}
    monkeypatch.setattr(time, "clock_gettime_ns", clocks_ns.__getitem__)
    environment = make_environment(boot_id=BOOT)
    outbox.put(
        make_record(
            monotonic_ns=10 * NS,
            clock_synchronised=False,
            started_at_ns=LONG_AGO_NS,
            environment=environment,
        )
    )
    outbox.stamp(BOOT, BOOTED_AT_NS)
    assert waiting_records(outbox)[0].started_at_ns == BOOTED_AT_NS + 110 * NS


def test_a_shaky_link_without_a_time_server_delivers_after_a_minute(outbox, world):
    """There is one deadline a boot, and not one for each connection or process.

    The network comes back every ten seconds and sets no clock.
    """
    world.since_boot_s = 3600.0
    numbered = outbox.put(measured(began_s=100.0))
    waited_s = 0.0
    while not waiting_records(outbox):
        stamping = stamping_of(outbox, world)
        stamping.is_online()
        stamping.settle()
        world.since_boot_s += 10.0
        waited_s += 10.0
        assert waited_s <= PATIENCE_ONLINE_S + 20
    assert waiting_records(outbox) == [numbered]


def test_an_unstamped_record_holds_back_itself_alone(outbox, world):
    """Records that were measured by a right clock, before it or after, go out meanwhile.

    It follows when its time has come.
    """
    stamping = stamping_of(outbox, world)
    outbox.put(measured(began_s=1.0, clock_synchronised=True))
    outbox.put(measured(began_s=2.0))
    outbox.put(measured(began_s=3.0, clock_synchronised=True))
    assert stamping.settle() is not None
    assert [record.seq for record in waiting_records(outbox)] == [1, 3]
    world.since_boot_s = PATIENCE_AFTER_BOOT_S + 1
    stamping.settle()
    assert [record.seq for record in waiting_records(outbox)] == [1, 2, 3]


def test_a_record_of_an_earlier_boot_goes_out_as_it_is(outbox, world):
    """The monotonic clock of that boot is gone, and the record holds up no other."""
    outbox.put(measured(began_s=5.0, boot_id=OTHER_BOOT))
    outbox.put(measured(began_s=6.0))
    stamping = stamping_of(outbox, world)
    stamping.settle()
    assert [record.seq for record in waiting_records(outbox)] == [1]
    world.is_synchronised = True
    stamping.settle()
    assert [record.stamped_by for record in waiting_records(outbox)] == ["device", "device-later"]


def test_what_needs_no_stamp_or_can_have_none_is_not_held_back(outbox):
    """The clock is right or unknown, or the machine does not name its boot."""
    for count, says in enumerate(
        ({"clock_synchronised": True}, {"clock_synchronised": None}, {"boot_id": None}), 1
    ):
        outbox.put(measured(began_s=5.0, **says))
        assert not outbox.has_unstamped()
        assert len(waiting_records(outbox)) == count


def test_a_receipt_or_a_restart_leaves_no_half_state(outbox, world):
    """The mark of a held record lies in the file, and is deleted with the record."""
    outbox.put(measured(began_s=5.0))
    with Outbox(outbox.path) as reopened:
        assert reopened.has_unstamped()
        assert waiting_records(reopened) == []
        reopened.forget(Receipt(session=outbox.session, held=((1, 1),)))
        assert not reopened.has_unstamped()
    assert stamping_of(outbox, world).settle() is None

"""Of several services on one registry one is active, whatever their clocks say, and no other writes."""

from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import LEASE_S, Registry, ServiceLease


@pytest.fixture
def services(registry_place):
    """Return the leases of two services whose clocks are years apart, and the clock of the second."""
    second_clock = SimpleNamespace(now_s=1e9)
    leases = [
        ServiceLease(Registry(registry_place), "a", lambda: 0.0),
        ServiceLease(Registry(registry_place), "b", lambda: second_clock.now_s),
    ]
    yield *leases, second_clock
    for lease in leases:
        lease.close()


def test_another_takes_over_when_the_active_one_is_silent(services):
    """Not before it was seen to be silent for the whole time; the first one then finds the other's name."""
    first, second, clock = services
    assert first.take()
    assert not second.take()
    clock.now_s += LEASE_S - 1
    assert not second.take()
    assert second.holder == "a"
    assert first.take()
    clock.now_s += LEASE_S - 1
    assert not second.take()
    clock.now_s += LEASE_S
    assert second.take()
    second.close()
    assert not first.take()


def test_one_that_ends_in_order_is_followed_at_once(services):
    """Nobody waits for a service that was stopped."""
    first, second, *_ = services
    assert first.take()
    assert not second.take()
    first.close()
    assert second.take()


def test_one_that_was_killed_need_not_wait_for_itself(services, registry_place):
    """It has the same name when it is started again."""
    first, *_ = services
    assert first.take()
    restarted = ServiceLease(Registry(registry_place), "a")
    assert restarted.take()
    restarted.close()


def test_of_two_that_take_over_at_the_same_moment_one_gets_it(services, registry_place):
    """Both saw the same silence."""
    first, second, clock = services
    third = ServiceLease(Registry(registry_place), "c", lambda: clock.now_s)
    first.take()
    assert not second.take()
    assert not third.take()
    clock.now_s += LEASE_S
    assert [second.take(), third.take()] == [True, False]
    third.close()


def test_a_service_that_lost_the_lease_writes_nothing_more(services, registry_place):
    """Frozen, and going on after another took over: its transactions are refused, those of commands are not."""
    first, second, clock = services
    first.take()
    device = Device("pi-1", "lab", None, None, (), "accepted", None, None, None, 1)
    with Registry(registry_place, owner="a") as frozen, Registry(registry_place) as command:
        with frozen.transaction() as statements:
            devices.put(statements, device)
        second.take()
        clock.now_s += LEASE_S
        assert second.take()
        with pytest.raises(UnavailableError, match=r"another service serves this fleet now \(b\)"), frozen.transaction() as statements:
            statements.execute("DELETE FROM devices")
        with command.transaction() as statements:
            devices.put(statements, device)
        assert devices.read(command) == [device]

"""The service without a broker: which topics go to which handler, and who is banned."""

import contextlib
import re

import pytest

from edgemeter.agent.base.mqtt_session import TAKEN_OVER, Message
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.registry import certificates
from edgemeter.provisioning.registry.certificates import active_bans
from edgemeter.provisioning.serve.handler import subscription
from edgemeter.provisioning.serve.service import FleetService
from tests.fixtures.rows import table_row


def test_a_handler_receives_what_fits_its_subscription():
    """A subscription's wildcards match the same topics as at the broker."""
    for pattern, topic, expected in (
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/pi/job", True),
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/pi/state", False),
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/job", False),
        ("$SYS/broker/log/E", "$SYS/broker/log/E", True),
        ("edgemeter/collector/+/state", "edgemeter/collector/a.b/state", True),
    ):
        with table_row(pattern, topic):
            assert (subscription(pattern).fullmatch(topic) is not None) is expected


@pytest.fixture
def service(lab):
    with contextlib.closing(lab.registry):
        service = FleetService(lab.folder, fleet_file.fleet_broker_address(lab.folder), lambda: 1.0)
        yield service
        service.stop()


def test_a_board_that_floods_is_banned(service, lab, caplog):
    """A device that exceeds its rate is banned, and one that keeps to it is not."""
    for _ in range(1000):
        service.received(Message("edgemeter/v1/lab/pi-3/health", b"{"))
    for _ in range(2001):
        service.received(Message("edgemeter/v1/lab/pi-1/health", b"{"))
    service.work()
    assert active_bans(lab.registry, 0).keys() == {"pi-1"}
    assert certificates.pending_disconnects(lab.registry) == ["pi-1"]
    assert len([line for line in caplog.messages if "pi-1 is banned" in line]) == 1


def test_another_service_of_the_fleet_ends_this_one(service, caplog):
    """A second service of the fleet, from a copy of the folder, ends this one without a fight.

    Devices cannot do that, as they do not know the service's client id.
    """
    assert re.fullmatch("edgemeter-fleet-[0-9a-f]{16}", service.session.profile.client_id)
    service.disconnected("gone")
    assert "another service" not in caplog.text
    service.disconnected(TAKEN_OVER)
    assert "another service of this fleet has connected" in caplog.text

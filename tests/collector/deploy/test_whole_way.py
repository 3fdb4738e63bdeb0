"""The product's own agent and collector at the real mosquitto with the configuration that ships, each with its certificate."""

import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import DEPLOY_FILES
from tests.collector.deploy.mqtt_fleet import shipped_broker
from tests.fixtures.certificates import Authority
from tests.fixtures.collecting import at_end, collecting, publishing
from tests.fixtures.publishing import started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import LOOPBACK

__all__ = ["at_end"]

pytestmark = [pytest.mark.mosquitto, pytest.mark.needs("openssl")]


@pytest.fixture
def address_as(tmp_path, at_end):
    """Return a function: the broker's address for whoever has a certificate of that name."""
    authority = Authority(tmp_path / "certificates")
    broker = shipped_broker(tmp_path, DEPLOY_FILES, authority)
    at_end.enter_context(started(broker))

    def address(common_name):
        pair = authority.signed(common_name)
        return BrokerAddress(LOOPBACK, broker.port, "mqtts", tls=TlsFiles(authority.certificate, pair.certificate, pair.key))

    return address


def test_records_and_presence_go_the_whole_way(address_as, at_end, tmp_path):
    collector = at_end.enter_context(collecting(address_as("edgemeter-collector"), tmp_path / "ledger", group="collectors"))
    outbox = at_end.enter_context(Outbox(tmp_path / "outbox"))
    device = at_end.enter_context(publishing(address_as("pi-1"), outbox))
    for _ in range(50):
        outbox.put(make_record())
    device.wake()
    assert device.drain(120) == 0
    assert collector.settled(60)
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert ledger.ranges("pi-1", outbox.session) == [(1, 50)]
        assert [(device.device, device.state) for device in ledger.devices()] == [("pi-1", "online")]


@pytest.mark.nightly
def test_an_agent_with_another_devices_certificate_is_refused_aloud(address_as, at_end, tmp_path):
    outbox = at_end.enter_context(Outbox(tmp_path / "outbox"))
    device = at_end.enter_context(publishing(address_as("pi-2"), outbox))
    outbox.put(make_record())
    device.wake()
    with pytest.raises(UnavailableError, match=r"refuses device 'pi-1' .*ot authorized"):
        device.drain(20)
    assert outbox.count() == 1

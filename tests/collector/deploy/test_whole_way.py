"""The product's own agent and collector at the real mosquitto with the configuration that ships, each with its certificate."""

from contextlib import ExitStack

import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.contract.messages import Birth
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import DEPLOY_FILES
from edgemeter.collector.load import load
from edgemeter.collector.load.tally import LoadPlan, RecordTemplate
from edgemeter.collector.receive.service import Collector
from tests.collector.deploy.mqtt_fleet import Authority, shipped_broker
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import LOOPBACK

pytestmark = [pytest.mark.mosquitto, pytest.mark.needs("openssl")]


@pytest.fixture
def at_end():
    """Return a stack of what ends with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def address_as(tmp_path, at_end):
    """Return a function: the broker's address for whoever has a certificate of that name."""
    authority = Authority(tmp_path / "certificates")
    broker = shipped_broker(tmp_path, DEPLOY_FILES, authority)
    broker.start()
    at_end.callback(broker.kill)

    def address(common_name):
        certificate, key = authority.issue(common_name, f"of-{common_name}")
        return BrokerAddress(LOOPBACK, broker.port, "mqtts", tls=TlsFiles(authority.certificate, certificate, key))

    return address


def publisher(at_end, folder, address, device="pi-1"):
    """Return outbox and publisher of a device, connected."""
    outbox = Outbox(folder / f"outbox-{device}")
    birth = Birth(device=device, fleet="lab", session=outbox.session, agent="0", board=None, os=None, arch="x", runtimes={})
    made = Publisher(address, outbox, birth, receipt_timeout_s=0.5)
    at_end.callback(outbox.close)
    at_end.callback(made.close)
    made.connect()
    return outbox, made


@pytest.mark.parametrize("group", [None, "collectors"])
def test_records_and_presence_go_the_whole_way(group, address_as, at_end, tmp_path):
    """The access list allows what the product does, alone and in a group."""
    collector = Collector(address_as("edgemeter-collector"), tmp_path / "ledger", group=group)
    collector.start()
    at_end.callback(collector.stop)
    outbox, device = publisher(at_end, tmp_path, address_as("pi-1"))
    for _ in range(50):
        outbox.put(make_record())
    device.wake()
    assert device.drain(120) == 0
    assert collector.settled(60)
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert ledger.ranges("pi-1", outbox.session) == [(1, 50)]
        assert [(one.device, one.state) for one in ledger.devices()] == [("pi-1", "online")]


def test_an_agent_with_another_devices_certificate_is_refused_aloud(address_as, at_end, tmp_path):
    """It keeps its records, and reports the broker's reason."""
    outbox, device = publisher(at_end, tmp_path, address_as("pi-2"))
    outbox.put(make_record())
    device.wake()
    with pytest.raises(UnavailableError, match=r"refuses device 'pi-1' .*ot authorized"):
        device.drain(20)
    assert outbox.count() == 1


def test_a_load_of_many_devices_over_one_certificate_is_refused_in_one_line(address_as):
    """It does not look as if the server lost anything."""
    plan = LoadPlan(devices=3, rate_per_s=100, records=3, patience_s=10)
    with pytest.raises(UnavailableError, match="lets each device write below its own name only"):
        load.run_load(address_as("load"), plan, "crowd", RecordTemplate(make_record()))

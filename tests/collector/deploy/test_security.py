"""Test who may do what at the real mosquitto with the shipped configuration.

The product's agent and collector get through.
"""

import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli import collector
from tests.collector.deploy.mqtt_fleet import Client, shipped_broker
from tests.fixtures.certificates import Authority
from tests.fixtures.collecting import collecting, publishing
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import LOOPBACK

pytestmark = [pytest.mark.mosquitto, pytest.mark.needs("openssl")]

DEPLOY = collector.DEPLOY_FILES
OWN, OTHER = "edgemeter/v1/lab/pi-1", "edgemeter/v1/lab/pi-2"
REFUSED = "Not authorized"


class Fleet:
    """The broker, its authority, and clients by their certificates' common names."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.authority = Authority(folder / "certificates")
        self.broker = shipped_broker(folder, DEPLOY, self.authority)
        self._stack = stack
        self._issued = 0
        self.broker.start()
        stack.callback(self.broker.kill)

    def client(self, common_name: str) -> Client:
        self._issued += 1
        client = Client(
            self.broker.port,
            self.authority,
            self.authority.signed(common_name),
            f"client-{self._issued}",
        )
        self._stack.callback(client.close)
        return client

    def address(self, common_name: str) -> BrokerAddress:
        """Return the broker's address for who has a certificate of that name."""
        pair = self.authority.signed(common_name)
        return BrokerAddress(
            LOOPBACK,
            self.broker.port,
            "mqtts",
            tls=TlsFiles(self.authority.certificate, pair.certificate, pair.key),
        )


@pytest.fixture
def fleet(tmp_path):
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack)


@pytest.fixture
def operator(fleet):
    watching = fleet.client("edgemeter-operator")
    watching.subscribe("edgemeter/v1/#")
    return watching


def test_a_device_publishes_what_is_its_own_and_receives_what_is_for_it(fleet, operator):
    """A device may use the topics below its own name, in any fleet, that the product needs."""
    device, collector = fleet.client("pi-1"), fleet.client("edgemeter-collector")
    collector.subscribe("$share/collectors/edgemeter/v1/+/+/result")
    collector.subscribe("edgemeter/v1/+/+/activity")
    collector.subscribe("edgemeter/job/+/state")
    for kind in ("receipt", "command", "state"):
        device.subscribe(f"{OWN}/{kind}")
    for kind in ("birth", "state", "result", "activity", "progress"):
        assert device.publish(f"{OWN}/{kind}") in {"Success", "No matching subscribers"}, kind
        assert operator.has(f"{OWN}/{kind}"), kind
    assert collector.has(f"{OWN}/result")
    assert collector.has(f"{OWN}/activity")
    assert fleet.client("edgemeter-fleet").publish("edgemeter/job/autumn/state") == "Success"
    assert collector.has("edgemeter/job/autumn/state")
    assert device.publish("edgemeter/job/autumn/state") == REFUSED
    collector.publish(f"{OWN}/receipt")
    operator.publish(f"{OWN}/command")
    for kind in ("receipt", "command", "state"):
        assert device.has(f"{OWN}/{kind}"), kind


def test_a_device_writes_nothing_of_another_and_forges_no_receipt_or_command_even_to_itself(
    fleet, operator
):
    """Receipts are the collector's, commands the operator's, retained or not.

    A compromised collector hands out no more.
    """
    device, collector = fleet.client("pi-1"), fleet.client("edgemeter-collector")
    for kind in ("birth", "state", "result", "activity", "progress", "receipt", "command"):
        for retain in (False, True):
            assert device.publish(f"{OTHER}/{kind}", retain=retain) == REFUSED, (kind, retain)
    for kind in ("receipt", "command"):
        assert device.publish(f"{OWN}/{kind}") == REFUSED, kind
    for kind in ("birth", "state", "result", "activity", "progress", "command"):
        assert collector.publish(f"{OWN}/{kind}") == REFUSED, kind
    device.publish(f"{OWN}/progress", b"after")
    assert operator.has(f"{OWN}/progress")
    assert {topic for topic, _ in operator.received} == {f"{OWN}/progress"}


def test_a_device_cannot_read_what_is_not_its_own(fleet, operator):
    """It receives nothing of others whatever it subscribes to, retained messages included."""
    owner = fleet.client("pi-2")
    owner.publish(f"{OTHER}/birth", b"secret", retain=True)
    patterns = ("#", "edgemeter/#", "edgemeter/v1/+/+/+", f"{OTHER}/receipt", f"{OTHER}/state")
    # One connection for each pattern, so that a leak names the pattern.
    thieves = {
        pattern: fleet.client("pi-1")
        for pattern in (*patterns, "$share/collectors/edgemeter/v1/+/+/result", "$SYS/#")
    }
    for pattern, thief in thieves.items():
        thief.subscribe(pattern)
        thief.subscribe(f"{OWN}/command")
    for kind in ("state", "result", "activity", "progress"):
        owner.publish(f"{OTHER}/{kind}", b"secret")
    operator.publish(f"{OTHER}/command", b"secret")
    operator.publish(f"{OWN}/command", b"for the thief itself")
    for pattern, thief in thieves.items():
        assert thief.has(f"{OWN}/command"), pattern
        assert [topic for topic, _ in thief.received if not topic.startswith(f"{OWN}/")] == [], (
            pattern
        )


@pytest.mark.nightly
def test_a_certificate_whose_name_is_a_pattern_opens_nothing(fleet, operator):
    """A separator or a wildcard in the name must not widen the patterns of the ACL.

    The name goes into these patterns.
    """
    devices = {name: fleet.client(name) for name in ("+", "#", "lab/pi-2", "pi-2/result", "+/#")}
    for name, device in devices.items():
        if device.refusal is None:
            assert device.publish(f"{OTHER}/result") == REFUSED, name
            device.subscribe("edgemeter/v1/#")
            device.subscribe(f"{OTHER}/command")
    operator.publish(f"{OTHER}/command")
    assert operator.has(f"{OTHER}/command")
    assert {name: device.received for name, device in devices.items() if device.received} == {}
    assert f"{OTHER}/result" not in [topic for topic, _ in operator.received]


def test_without_a_certificate_of_our_authority_nobody_comes_in(fleet, tmp_path):
    """A client without a certificate is refused, and one signed by another authority too.

    The latter is for a known name.
    """
    foreign = Authority(tmp_path / "foreign", "other ca").signed("edgemeter-operator")
    for pair in (None, foreign):
        try:
            client = Client(fleet.broker.port, fleet.authority, pair, "stranger")
        except (ssl.SSLError, OSError):
            continue
        assert client.refusal is not None
        client.close()


def test_records_and_presence_go_the_whole_way(fleet, tmp_path):
    """The access list allows what the product does, also in a group."""
    with (
        collecting(
            fleet.address("edgemeter-collector"), tmp_path / "ledger", group="collectors"
        ) as receiver,
        Outbox(tmp_path / "outbox") as outbox,
        publishing(fleet.address("pi-1"), outbox) as device,
    ):
        for _ in range(50):
            outbox.put(make_record())
        device.wake()
        assert device.drain(120) == 0
        assert receiver.settled(60)
        with SqliteLedger(tmp_path / "ledger", "read") as ledger:
            assert ledger.ranges("pi-1", outbox.session) == [(1, 50)]
            assert [(device.device, device.state) for device in ledger.devices()] == [
                ("pi-1", "online")
            ]


@pytest.mark.nightly
def test_an_agent_with_another_devices_certificate_is_refused_aloud(fleet, tmp_path):
    """The agent keeps its records, and reports the broker's reason."""
    with Outbox(tmp_path / "outbox") as outbox, publishing(fleet.address("pi-2"), outbox) as device:
        outbox.put(make_record())
        device.wake()
        with pytest.raises(UnavailableError, match=r"refuses device 'pi-1' .*ot authorized"):
            device.drain(20)
        assert outbox.count() == 1

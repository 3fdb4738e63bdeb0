"""The doctor before real brokers."""

import pytest

from edgemeter.agent.doctor import check_delivery
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from tests.fixtures import servers


def _look(home, address):
    return {finding.name: finding for finding in check_delivery.check(home, str(address))}["broker"]


@pytest.mark.mosquitto
def test_mosquitto_speaks_mqtt_5(tmp_path):
    """It accepts whoever comes, and is fine."""
    broker = servers.mosquitto(tmp_path)
    broker.start()
    try:
        found = _look(tmp_path, servers.address_of(broker))
    finally:
        broker.kill()
    assert (found.state, found.remedy) == ("ok", None)
    assert found.what.endswith("accepts this device, MQTT 5")


@pytest.mark.mosquitto
def test_mosquitto_that_wants_a_password_refuses_us(tmp_path):
    """The remedy names where the password goes."""
    broker = servers.mosquitto(tmp_path, "allow_anonymous false")
    broker.start()
    try:
        found = _look(tmp_path, servers.address_of(broker))
    finally:
        broker.kill()
    assert found.state == "bad"
    assert "EDGEMETER_MQTT_PASSWORD" in found.what


def test_the_embedded_broker_is_warned_of(tmp_path):
    """It speaks only MQTT 3.1.1."""
    broker = EmbeddedBroker()
    address = broker.start()
    try:
        found = _look(tmp_path, address)
    finally:
        broker.stop()
    assert found.state == "warn"
    assert "only MQTT 3.1.1" in found.what

import pytest

from edgemeter.agent.doctor import check_delivery
from tests.fixtures.collecting import embedded_broker
from tests.fixtures.publishing import started
from tests.fixtures.servers import mosquitto


def _look(home, address):
    return {finding.name: finding for finding in check_delivery.check(home, str(address))}["broker"]


@pytest.mark.mosquitto
def test_a_mosquitto_that_takes_us_is_fine_and_one_that_does_not_is_not(tmp_path):
    """A mosquitto that accepts us is fine; for another the remedy says where the password goes.

    The embedded broker, which speaks only MQTT 3.1.1, gives a warning.
    """
    with started(mosquitto(tmp_path)) as address:
        finding = _look(tmp_path, address)
    assert (finding.state, finding.remedy) == ("ok", None)
    with started(mosquitto(tmp_path, "allow_anonymous false")) as address:
        finding = _look(tmp_path, address)
    assert finding.state == "bad"
    assert "EDGEMETER_MQTT_PASSWORD" in finding.remedy
    with embedded_broker() as address:
        finding = _look(tmp_path, address)
    assert finding.state == "warn"
    assert "only MQTT 3.1.1" in finding.what

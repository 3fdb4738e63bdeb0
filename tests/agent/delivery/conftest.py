"""What the tests of the publisher share: a running broker of each kind, and an outbox."""

import pytest

from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from tests.fixtures.publishing import TUNED, started
from tests.fixtures.servers import mosquitto


@pytest.fixture(scope="module", params=[pytest.param("mosquitto", marks=pytest.mark.mosquitto), "embedded"])
def address(request, tmp_path_factory):
    """Return the address of a running broker: a real mosquitto (MQTT 5) and the embedded one (3.1.1)."""
    if request.param == "mosquitto":
        with started(mosquitto(tmp_path_factory.mktemp("mosquitto"), *TUNED)) as where:
            yield where
    else:
        broker = EmbeddedBroker()
        yield broker.start()
        broker.stop()


@pytest.fixture
def outbox(tmp_path):
    """Return an empty outbox."""
    with Outbox(tmp_path / "outbox.sqlite") as new_outbox:
        yield new_outbox

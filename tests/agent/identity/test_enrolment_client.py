"""Facts about `edgemeter.agent.identity.enrolment_client`."""

import threading
import time

import pytest

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from tests.fixtures.servers import mosquitto


@pytest.mark.mosquitto
@pytest.mark.slow
def test_a_broker_that_accepts_when_the_time_is_up_is_connected_again(tmp_path):
    """On a slow board the acceptance comes while the session is being given up: that session is closed, so it is no connection."""
    broker = mosquitto(tmp_path)
    broker.start()
    client = EnrolmentClient(broker_address.parse_address(f"127.0.0.1:{broker.port}", environ={}), "one", "request", "answer")
    is_held = threading.Event()

    def hold_up():
        with client._changed:
            is_held.set()
            time.sleep(CONNECT_TIMEOUT_S + 1)

    holder = threading.Thread(target=hold_up)
    holder.start()
    is_held.wait()
    try:
        with client:
            client._connect(time.monotonic() + 60)
            assert client._session.is_connected()
    finally:
        holder.join()
        broker.kill()

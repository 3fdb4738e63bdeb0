"""Facts about `edgemeter.agent.identity.enrolment_client`."""

import threading
import time

import pytest

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S
from edgemeter.agent.contract.identity import JoinFile, join_file_text
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from edgemeter.agent.identity.identity import IdentityFiles
from edgemeter.agent.identity.joining import JoinPaths, join_fleet
from edgemeter.agent.identity.service_signature import ServiceSignature
from tests.fixtures.certificates import Authority
from tests.fixtures.servers import LOOPBACK, free_port, mosquitto


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_broker_that_accepts_when_the_time_is_up_is_connected_again(tmp_path):
    """On a slow board the acceptance comes while the session is being given up: that session is closed, so it is no connection."""
    broker = mosquitto(tmp_path)
    broker.start()
    address = broker_address.parse_address(f"127.0.0.1:{broker.port}", environ={})
    client = EnrolmentClient(address, "one", ("request", "answer"), ServiceSignature(IdentityFiles(tmp_path)))
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


@pytest.mark.needs("openssl")
def test_without_a_broker_the_advice_is_for_a_board_that_joins(tmp_path):
    """It cannot start the fleet's broker, and has no option to leave out."""
    ca = Authority(tmp_path / "ca").certificate.read_text()
    url = f"mqtts://{LOOPBACK}:{free_port()}"
    (tmp_path / "join.toml").write_text(join_file_text(JoinFile(fleet="lab", device="pi-1", broker=url, enrol=url, ca=ca, token="t" * 32)))
    with pytest.raises(TransientError, match=r"no MQTT broker answers .*check that the fleet's broker runs there") as raised:
        join_fleet(tmp_path / "join.toml", JoinPaths(tmp_path / "home", tmp_path / "config.toml"), timeout_s=0.1)
    assert "--broker" not in str(raised.value)

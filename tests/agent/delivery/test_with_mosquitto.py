"""Facts about the publisher that a real broker has to show.

They concern passwords, refusals by its rules, its limits, and a name that is taken over.
"""

import os
import subprocess
from contextlib import contextmanager
from unittest.mock import Mock

import pytest

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.delivery import broker_name
from edgemeter.agent.delivery.publisher import Publisher
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import TUNED, always, last_state, make_birth, peer, put, started
from tests.fixtures.servers import mosquitto

pytestmark = pytest.mark.mosquitto


@contextmanager
def connected(address, outbox, device="pi-1", **options):
    publisher = Publisher(
        address, outbox, make_birth(outbox, device), receipt_timeout_s=0.25, **options
    )
    publisher.connect()
    try:
        yield publisher
    finally:
        publisher.close()


def test_a_broker_with_passwords_lets_in_who_has_one_and_refuses_what_its_rules_forbid(
    tmp_path, outbox, monkeypatch
):
    """The user is in the address, and the password in the environment.

    MQTT 5's PUBACK says not authorised, so drain does not wait.
    """
    acl = tmp_path / "acl"
    acl.write_text("topic read edgemeter/v1/#\n")
    put(outbox, 1)
    passwords = tmp_path / "passwords"
    passwords.touch()
    subprocess.run(["mosquitto_passwd", "-b", str(passwords), "pi", "secret"], check=True)
    passwords.chmod(0o644)
    with started(
        mosquitto(
            tmp_path, "allow_anonymous false", f"password_file {passwords}", f"acl_file {acl}"
        )
    ) as address:
        with pytest.raises(ConfigError, match="mqtt://USER@HOST"), connected(address, outbox):
            pass
        monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "wrong")
        with (
            pytest.raises(ConfigError, match="'pi'"),
            connected(parse_address(f"mqtt://pi@127.0.0.1:{address.port}"), outbox),
        ):
            pass
        monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "secret")
        allowed = parse_address(f"mqtt://pi@127.0.0.1:{address.port}")
        with (
            connected(allowed, outbox) as publisher,
            pytest.raises(UnavailableError, match="'pi-1'"),
        ):
            publisher.drain(60)
    assert outbox.count() == 1


def test_a_record_larger_than_the_broker_takes_stays_and_does_not_break_the_connection(
    tmp_path, outbox
):
    """With MQTT 5 the limit is known; a larger record would be cut off again and again."""
    put(outbox, 1, case=os.urandom(10_000).hex())
    put(outbox, 1)
    with (
        started(mosquitto(tmp_path, *TUNED, "max_packet_size 9000")) as address,
        peer(address, messages.topics_of("result"), confirm=always),
        connected(address, outbox) as publisher,
    ):
        assert wait_until(lambda: outbox.count() == 1 and outbox.too_large("pi-1"))
        assert publisher.is_connected()


def test_a_board_that_met_a_namesake_takes_its_name_again(tmp_path, outbox, monkeypatch):
    """While the board is displaced it delivers all the same.

    Version 2.0 of mosquitto gives no reason when it throws the board out.
    """
    monkeypatch.setattr(broker_name, "FIRST_DISPLACED_S", 3.0)
    with (
        started(mosquitto(tmp_path, *TUNED)) as address,
        peer(address, f"{messages.TOPIC_ROOT}/#", confirm=always) as collector,
    ):
        with connected(address, outbox, lasting="persistent") as publisher:
            assert wait_until(lambda: last_state(collector) == "online")
            events = Mock()
            namesake = MqttSession(address, SessionProfile("pi-1"), events)
            state = messages.encode_message(messages.DeviceState(state="online", session=99))
            events.connected.side_effect = lambda: namesake.publish(
                str(Topic("lab", "pi-1", "state")), state, lasting="retained"
            )
            namesake.connect()
            assert wait_until(
                lambda: publisher._session.profile.client_id != "pi-1" and publisher.is_connected()
            )
            put(outbox, 2)
            publisher.wake()
            assert publisher.drain(60) == 0
            namesake.close()
            assert wait_until(
                lambda: publisher._session.profile.client_id == "pi-1" and publisher.is_connected()
            )
            assert publisher._session.profile.will is not None
        assert wait_until(lambda: last_state(collector) == "offline")

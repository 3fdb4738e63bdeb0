"""Facts about the publisher that a real broker has to show: receipts, refusals by its rules, its limits, the Will, a name taken over."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.delivery import broker_name
from edgemeter.agent.delivery.publisher import Publisher
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import TUNED, always, last_state, make_birth, peer, put, started
from tests.fixtures.servers import mosquitto

pytestmark = pytest.mark.mosquitto

ROOT = Path(__file__).parents[3]


@contextmanager
def connected(address, outbox, device="pi-1", **options):
    """Keep a connected publisher for the block."""
    publisher = Publisher(address, outbox, make_birth(outbox, device), receipt_timeout_s=0.25, **options)
    publisher.connect()
    try:
        yield publisher
    finally:
        publisher.close()


def test_records_go_out_and_are_forgotten_on_receipt(tmp_path, outbox):
    """What was there before, what comes later, and what has no receipt at first."""
    put(outbox, 3)
    with (
        started(mosquitto(tmp_path, *TUNED)) as address,
        peer(address, messages.EVERY_RESULT, confirm=lambda _, times: times > 1) as collector,
        connected(address, outbox) as publisher,
    ):
        assert publisher.drain(60) == 0
        put(outbox, 2)
        publisher.wake()
        assert publisher.drain(60) == 0
    assert sorted(seq for _, seq in collector.times) == [1, 2, 3, 4, 5]


def test_a_refused_publish_ends_in_one_clear_line(tmp_path, outbox):
    """MQTT 5's PUBACK says not authorised; waiting would not help, so drain does not wait."""
    acl = tmp_path / "acl"
    acl.write_text("topic read edgemeter/v1/#\n")
    put(outbox, 1)
    with (
        started(mosquitto(tmp_path, f"acl_file {acl}")) as address,
        connected(address, outbox) as publisher,
        pytest.raises(UnavailableError, match="'pi-1'"),
    ):
        publisher.drain(60)
    assert outbox.count() == 1


def test_a_broker_with_passwords_lets_in_who_has_one(tmp_path, outbox, monkeypatch):
    """User in the address, password from the environment."""
    passwords = tmp_path / "passwords"
    passwords.touch()
    subprocess.run(["mosquitto_passwd", "-b", str(passwords), "pi", "secret"], check=True)
    passwords.chmod(0o644)
    with started(mosquitto(tmp_path, "allow_anonymous false", f"password_file {passwords}")) as address:
        with pytest.raises(ConfigError, match="mqtt://USER@HOST"), connected(address, outbox):
            pass
        monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "wrong")
        with pytest.raises(ConfigError, match="'pi'"), connected(parse_address(f"mqtt://pi@127.0.0.1:{address.port}"), outbox):
            pass
        monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "secret")
        with connected(parse_address(f"mqtt://pi@127.0.0.1:{address.port}"), outbox) as publisher:
            assert publisher.is_connected()


def test_a_record_larger_than_the_broker_takes_stays_and_does_not_break_the_connection(tmp_path, outbox):
    """MQTT 5 says the limit; sending more would be cut off again and again."""
    put(outbox, 1, case=os.urandom(10_000).hex())
    put(outbox, 1)
    with (
        started(mosquitto(tmp_path, *TUNED, "max_packet_size 9000")) as address,
        peer(address, messages.EVERY_RESULT, confirm=always),
        connected(address, outbox) as publisher,
    ):
        assert wait_until(lambda: outbox.count() == 1 and outbox.too_large("pi-1"))
        assert publisher.is_connected()


KILLED = """
    import sys, time
    from pathlib import Path
    from edgemeter.agent.base import broker_address
    from edgemeter.agent.delivery.outbox import Outbox
    from edgemeter.agent.delivery.publisher import Publisher
    from tests.fixtures.publishing import make_birth
    outbox = Outbox(Path(sys.argv[2]))
    publisher = Publisher(broker_address.parse_address(sys.argv[1]), outbox, make_birth(outbox, "pi-9"))
    publisher.connect()
    print(outbox.session, flush=True)
    time.sleep(600)
"""


def test_a_killed_agent_is_lost_with_its_session_number(tmp_path):
    """The Will speaks for who cannot."""
    with started(mosquitto(tmp_path, *TUNED)) as address, peer(address, messages.EVERY_STATE) as listener:
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(address), str(tmp_path / "box")]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        session = int(agent.stdout.readline())
        assert wait_until(lambda: last_state(listener) == "online")
        os.kill(agent.pid, signal.SIGKILL)
        agent.communicate()
        assert wait_until(lambda: last_state(listener) == "lost")
    assert messages.decode_state(listener.messages[-1].payload).session == session


class Namesake:
    """Another board of that name, which says with every connection that it is online."""

    def __init__(self, address):
        self.session = MqttSession(address, SessionProfile("pi-1"), self)
        self.session.connect()

    def connected(self):
        """Say so."""
        state = messages.DeviceState(state="online", session=99)
        self.session.publish(f"{messages.TOPIC_ROOT}/lab/pi-1/state", messages.encode_message(state), lasting="retained")

    def disconnected(self, _reason):
        """Ignore it."""

    def received(self, _message):
        """Ignore it."""

    def answered(self, _refusal):
        """Ignore it."""


def test_a_board_that_met_a_namesake_takes_its_name_again(tmp_path, outbox, monkeypatch):
    """Version 2.0 of mosquitto gives no reason when it throws the board out; while that is displaced it delivers all the same."""
    monkeypatch.setattr(broker_name, "FIRST_DISPLACED_S", 3.0)
    with started(mosquitto(tmp_path, *TUNED)) as address, peer(address, f"{messages.TOPIC_ROOT}/#", confirm=always) as collector:
        with connected(address, outbox, lasting="persistent") as publisher:
            assert wait_until(lambda: last_state(collector) == "online")
            namesake = Namesake(address)
            assert wait_until(lambda: publisher._session.profile.client_id != "pi-1" and publisher.is_connected())
            put(outbox, 2)
            publisher.wake()
            assert publisher.drain(60) == 0
            namesake.session.close()
            assert wait_until(lambda: publisher._session.profile.client_id == "pi-1" and publisher.is_connected())
            assert publisher._session.profile.will is not None
        assert wait_until(lambda: last_state(collector) == "offline")

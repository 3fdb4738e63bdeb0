"""Why a connection ended, in words: at a real broker, and by the codes of MQTT 5."""

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edgemeter.agent.base import mqtt_session
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import address_of, mosquitto


@pytest.mark.mosquitto
def test_a_broker_that_is_gone_is_not_an_unspecified_error(tmp_path):
    """Killed: a sentence that says what may be the matter."""
    server = mosquitto(tmp_path)
    server.start()
    peer = Peer(address_of(server))
    server.kill()
    assert wait_until(lambda: bool(peer.reasons), 20)
    peer.close()
    assert "the line or the broker failed" in peer.reasons[0]
    assert "Unspecified" not in peer.reasons[0]


def test_every_reason_that_is_put_in_words_is_one_of_paho():
    """A misspelt one would never be seen."""
    for name in [*mqtt_session._MEANINGS, mqtt_session.TAKEN_OVER, mqtt_session._UNSPECIFIED]:
        assert str(ReasonCode(PacketTypes.DISCONNECT, name)) == name


def test_a_reason_that_a_program_reads_stays_as_it_is():
    """And one that nobody has words for."""
    for was_up in [True, False]:
        with table_row(was_up):
            assert mqtt_session.disconnect_reason(mqtt_session.TAKEN_OVER, was_up=was_up) == mqtt_session.TAKEN_OVER
            assert mqtt_session.disconnect_reason("Server moved", was_up=was_up) == "Server moved"
            assert "Unspecified" not in mqtt_session.disconnect_reason("Unspecified error", was_up=was_up)

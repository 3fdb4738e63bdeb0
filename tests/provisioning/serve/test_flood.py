"""One board stops nobody: real floods by a client with a real certificate, at a real broker, service and command."""

import json
import time

import pytest

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.identity import read_join_file, request_topic, token_id
from edgemeter.provisioning.identity.broker_access import BrokerAccess
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.registry.certificates import active_bans
from tests.fixtures.flooder import hello, open_line, start_flood
from tests.fixtures.honest_board import HonestBoard, flood_of, job_delay_s
from tests.fixtures.mqtt_peer import Peer, wait_until


def listed(lab, device):
    """Return a device as `fleet list --json` shows it."""
    return next(line for line in json.loads(lab.run("list", "--json"))["devices"] if line["device"] == device)


def may_publish(board, name):
    """Return whether the broker takes a message of the board."""
    try:
        peer = Peer(board.address(), client_id=name)
    except EdgemeterError:
        return False
    try:
        peer.session.publish(f"edgemeter/v1/lab/{name}/progress", b"{}")
        assert wait_until(lambda: len(peer.answers) > 1 or bool(peer.reasons))
        return not peer.reasons and peer.answers[1] is None
    finally:
        peer.close()


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_flooder_is_banned_for_a_time_and_others_have_their_jobs(lab):
    """Cut, refused, named in the list with the end of its ban; `clear` ends it, and the second ban is longer."""
    lab.start()
    honest, attacker = HonestBoard(lab.joined("honest", "1"), "honest"), lab.joined("attacker", "2")
    for minutes in (1, 4):
        attack = start_flood(flood_of(attacker, "job", 6.0))
        assert wait_until(lambda: bool(active_bans(lab.registry, time.time_ns())), 30)
        job_delay_s(lab, honest)
        ban = active_bans(lab.registry, time.time_ns())["attacker"]
        assert ban.until_ns - ban.since_ns == minutes * 60_000_000_000
        line = listed(lab, "attacker")
        assert line["presence"] == "banned"
        assert "sent more messages than any board needs" in line["concerns"][0]["text"]
        assert json.loads(attack.communicate()[0])["connects"] > 1
        assert not may_publish(attacker, "attacker")
        with lab.registry.transaction() as connection:
            # The ban is over.
            connection.execute("UPDATE bans SET until_ns = ?", (time.time_ns(),))
        assert wait_until(lambda: may_publish(attacker, "attacker"))
    assert listed(lab, "honest")["presence"] == "online"


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_command_ends_a_ban(lab):
    """It names the device as banned, and the board is let in again; what was before is forgotten."""
    lab.start()
    attacker = lab.joined("attacker", "2")
    start_flood(flood_of(attacker, "health", 2.0)).communicate()
    assert wait_until(lambda: listed(lab, "attacker")["presence"] == "banned")
    assert "its ban is ended" in lab.run("clear", "attacker")
    assert active_bans(lab.registry, time.time_ns()) == {}
    assert wait_until(lambda: may_publish(attacker, "attacker"))


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_board_that_connects_all_the_time_is_banned(lab):
    """Hundreds of sessions of one certificate, each with another client id."""
    lab.start()
    settings = flood_of(lab.joined("attacker", "2"), "job", 1.0)
    for number in range(300):
        with open_line(settings) as line:
            line.sendall(hello(f"attacker~{number}"))
            line.recv(4)
    assert wait_until(lambda: "attacker" in active_bans(lab.registry, time.time_ns()))
    with BrokerAccess(fleet_file.fleet_broker_address(lab.folder, client="operator")):
        assert listed(lab, "attacker")["concerns"][0]["kind"] == "banned"


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_token_that_floods_ends(lab):
    """Requests for certificates without end: the broker cuts the client and knows its token no more; its device may have another."""
    lab.start()
    join_file = lab.token("pi-1")
    flooder = lab.with_token(join_file)
    topic = request_topic(token_id(read_join_file(join_file).token))
    for _ in range(300):
        flooder.session.publish(topic, b"{}")
    assert wait_until(lambda: bool(flooder.reasons))
    flooder.close()
    with pytest.raises(EdgemeterError):
        lab.with_token(join_file)
    assert lab.joined("pi-1").files.certificate.exists()


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_thief_of_a_client_id_is_banned_and_its_victim_comes_back(lab):
    """Each of the two would end the other's session again and again."""
    lab.start()
    victim_board, thief_board = lab.joined("pi-1", "1"), lab.joined("pi-2", "2")
    victim, thief = victim_board.client("pi-1"), thief_board.client("pi-1")
    assert wait_until(lambda: "pi-2" in active_bans(lab.registry, time.time_ns()))
    assert wait_until(lambda: bool(thief.reasons) and victim.session.is_connected())
    thief.close()
    assert "client id of 'pi-1'" in listed(lab, "pi-2")["concerns"][0]["text"]
    assert "pi-1" not in active_bans(lab.registry, time.time_ns())

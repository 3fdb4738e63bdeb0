"""Tests of joining and revocation at the real mosquitto, with the configuration of `fleet init`.

The rules are tested in test_enrolment.py.
"""

import json
import shutil
import socket
import ssl
import stat

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.base.tls import tls_context
from edgemeter.agent.contract import identity as contract_identity
from edgemeter.provisioning.identity.enforcement import ELSEWHERE, broker_process, resumption_issues
from edgemeter.provisioning.inventory.fleet_file import fleet_broker_address
from edgemeter.provisioning.registry import certificates, devices
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, mosquitto_binary
from tests.provisioning.identity.lab import open_tokens

pytestmark = pytest.mark.mosquitto

OWN, OTHER = "edgemeter/v1/lab/pi-1", "edgemeter/v1/lab/pi-2"


@pytest.fixture
def lab(running_lab):
    return running_lab


def is_refused(client, topic):
    before = len(client.answers)
    client.session.publish(topic, b"x")
    assert wait_until(lambda: len(client.answers) > before)
    return client.answers[-1] == "Not authorized"


def states(operator, device):
    topic = f"edgemeter/v1/lab/{device}/state"
    return [
        json.loads(message.payload)["state"]
        for message in operator.messages
        if message.topic == topic
    ]


def is_out(address):
    try:
        Peer(address, client_id="who-knows").close()
    except EdgemeterError as error:
        return "refuses our certificate" in str(error)
    return False


def test_a_board_joins_once_and_its_token_is_gone(lab, caplog, tmp_path):
    """A joined board's token is in no file and no log, and only its owner may read its key."""
    path = lab.token("pi-1")
    copy = tmp_path / "copy.toml"
    shutil.copy(path, copy)
    secret = contract_identity.read_join_file(path).token
    board = lab.board("pi-1", "100000001")
    joined = board.join(path)
    assert (joined.device, joined.fleet, joined.board.serial) == ("pi-1", "lab", "100000001")
    assert stat.S_IMODE(board.files.key.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    assert not [
        file
        for file in lab.folder.path.rglob("*")
        if file.is_file() and secret.encode() in file.read_bytes()
    ]
    assert secret not in caplog.text
    device = devices.find(lab.registry, "pi-1")
    assert (device.trust, device.serial, device.board) == ("accepted", "100000001", "A Board")
    assert board.client("pi-1").session.is_connected()
    with pytest.raises(ConfigError, match="used, has expired"):
        lab.board("thief", "666").join(copy)


def test_killed_in_mid_enrolment_the_service_serves_when_it_is_back(broker_lab, monkeypatch):
    """A service killed after it issued a certificate gives it to the board that asks again."""
    lab = broker_lab
    server = lab.serve_boards()
    board, path = lab.board("pi-1", "100000001"), lab.token("pi-1")
    answer = server.answer

    def end(*arguments):
        answer(*arguments)
        # The answer goes nowhere.
        raise ConnectionResetError

    monkeypatch.setattr(server, "answer", end)
    with pytest.raises(TransientError):
        board.join(path, 2.0)
    (issued,) = certificates.of_device(lab.registry, "pi-1")
    server.stop()
    lab.serve_boards()
    assert board.join(path).number == issued.number
    assert len(certificates.of_device(lab.registry, "pi-1")) == 1
    assert open_tokens(lab.registry) == {}


def test_a_device_publishes_its_own_in_its_own_fleet_alone(lab):
    """A device publishes and hears nothing of another device, of the service or of another fleet.

    A fleet that was renamed keeps both names.
    """
    board = lab.joined()
    device = board.client("pi-1", "edgemeter/v1/+/pi-1/command")
    operator = lab.service_client("operator")
    for kind in ("birth", "state", "result", "activity", "progress", "job", "health"):
        for topic in (
            f"{OTHER}/{kind}",
            f"edgemeter/v1/other/pi-1/{kind}",
            f"edgemeter/v1/lab2/pi-1/{kind}",
        ):
            assert is_refused(device, topic), topic
    for topic in (f"{OWN}/command", f"{OTHER}/command", "$CONTROL/dynamic-security/v1"):
        assert is_refused(device, topic), topic
    assert not is_refused(device, f"{OWN}/birth")
    operator.session.publish("edgemeter/v1/other/pi-1/command", b"not for it")
    operator.session.publish(f"{OWN}/command", b"for it")
    assert wait_until(lambda: [message.payload for message in device.messages] == [b"for it"])
    lab.folder.fleet_file.write_text(
        lab.folder.fleet_file.read_text().replace('fleet = "lab"', 'fleet = "our lab"')
    )
    lab.run("init")
    other = lab.joined("pi-2", "100000002")
    lab.restart_broker()
    assert not is_refused(other.client("pi-2"), "edgemeter/v1/our lab/pi-2/birth")
    device = board.client("pi-1")
    assert not is_refused(device, f"{OWN}/birth")
    assert is_refused(device, "edgemeter/v1/other/pi-1/birth")


def test_a_revoked_device_is_out_and_stays_out(lab):
    """A revoked device's sessions end and cannot be opened again, also one of another client id.

    Another device that is revoked in the same second is out as well; a third one stays.
    """
    board, other, third = (lab.joined(f"pi-{number}", f"10000000{number}") for number in (1, 2, 3))
    device, second, neighbour = (
        board.client("pi-1"),
        board.client("pi-1~2", f"{OWN}/command"),
        other.client("pi-2", f"{OTHER}/command"),
    )
    operator, fleet_client = lab.service_client("operator"), lab.service_client("fleet")
    assert wait_until(lambda: "pi-1~2" in certificates.client_ids(lab.registry, "pi-1"))
    lab.run("revoke", "pi-1", "--reason", "stolen")
    lab.run("revoke", "pi-3")
    assert wait_until(lambda: bool(device.reasons) and bool(second.reasons))
    assert wait_until(lambda: is_out(board.address()) and is_out(third.address()))
    assert "revoked, or another client uses this name" in device.reasons[0]
    assert wait_until(
        lambda: any("refuses our certificate (revoked" in reason for reason in device.reasons)
    )
    assert wait_until(lambda: states(operator, "pi-1")[-1:] == ["revoked"])
    heard = len(operator.messages)
    for name in ("pi-1", "pi-2"):
        fleet_client.session.publish(f"edgemeter/v1/lab/{name}/command", b"x")
    assert wait_until(lambda: len(neighbour.messages) == 1)
    assert second.messages == []
    assert not [
        message for message in operator.messages[heard:] if message.topic.endswith("/result")
    ]
    assert not device.session.is_connected()
    assert neighbour.reasons == []


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_tls_session_from_before_lets_no_revoked_device_in(lab, version):
    """A revoked device cannot come back by an earlier TLS session, as the broker gives no tickets.

    A client that resumes a session is not asked for its certificate.
    """
    board = lab.joined()
    context = tls_context(board.files.tls)
    context.maximum_version = ssl.TLSVersion[version]
    answer, session = said_hello(lab, context)
    # It accepts no new session with TLS 1.2 either: those can be resumed without a ticket.
    assert (answer == ACCEPTED) == (version == "TLSv1_3")
    lab.run("revoke", "pi-1")
    assert wait_until(lambda: is_out(board.address()))
    assert said_hello(lab, context, session)[0] != ACCEPTED


def test_a_broker_that_resumes_sessions_is_named(broker_lab):
    """A broker that resumes TLS sessions is named.

    That is one without either setting of `fleet init`, each for one version of TLS, or without the
    file. A broker with both is not named, nor is one that does not run.
    """
    lab = broker_lab
    address = fleet_broker_address(lab.folder)
    assert resumption_issues(lab.folder, address) == []
    lab.start_broker()
    assert resumption_issues(lab.folder, address) == []
    assert broker_process(lab.folder) == lab.broker.process.pid
    settings = lab.folder.broker / "openssl.cnf"
    text = settings.read_text()
    for setting in ("MinProtocol = TLSv1.3\n", "NumTickets = 0\n", text):
        settings.write_text(text.replace(setting, ""))
        lab.restart_broker()
        with table_row(setting):
            (issue,) = resumption_issues(lab.folder, address)
            assert f"OPENSSL_CONF={settings}" in issue


ACCEPTED = b"\x20\x02\x00\x00"


def said_hello(lab, context, session=None):
    """Return what the broker answers to an MQTT client, and its TLS session."""
    hello = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04pi-1"
    try:
        with (
            socket.create_connection((LOOPBACK, lab.port), 10) as plain,
            context.wrap_socket(plain, server_hostname=LOOPBACK, session=session) as line,
        ):
            line.sendall(hello)
            return line.recv(4), line.session
    except OSError:
        return b"", None


def test_changes_made_without_a_broker_hold_when_it_starts_and_after_a_restart(broker_lab):
    """A broker reads the list at its start, so that changes made without a broker hold.

    A board that was admitted again joins with a new token.
    """
    lab = broker_lab
    lab.serve_boards()
    board, other = lab.joined(), lab.joined("pi-2", "100000002")
    lab.run("revoke", "pi-1")
    lab.start_broker()
    assert is_out(board.address())
    assert other.client("pi-2").session.is_connected()
    lab.run("revoke", "pi-2")
    lab.restart_broker()
    assert is_out(board.address())
    assert is_out(other.address())
    lab.run("accept", "pi-1")
    assert board.join(lab.token("pi-1")).device == "pi-1"
    assert not is_out(board.address())


def test_a_broker_without_the_list_lets_a_revoked_device_in_and_the_service_ends_each_session(
    broker_lab, tmp_path
):
    """The service ends each session that a broker without the list gives to a revoked device.

    The broker runs from a copy of the folder, as on another machine; with the copied list it
    refuses the device.
    """
    lab, copy = broker_lab, tmp_path / "copy"
    shutil.copytree(lab.folder.path, copy)
    settings = copy / "broker/mosquitto.conf"
    settings.write_text(settings.read_text().replace(str(lab.folder.path), str(copy)))
    lab.broker.command = [
        "env",
        f"OPENSSL_CONF={copy}/broker/openssl.cnf",
        mosquitto_binary(),
        "-c",
        str(settings),
    ]
    lab.start()
    board = lab.joined()
    device = board.client("pi-1")
    assert ELSEWHERE in run_fleet(lab.folder.path, "revoke", "pi-1").stderr
    # It reconnects by itself: the session that the command ended, and one that the service saw.
    assert wait_until(lambda: len(device.reasons) > 1)
    shutil.copytree(lab.folder.revoked_lists, copy / "broker/revoked", dirs_exist_ok=True)
    assert wait_until(lambda: is_out(board.address()) and not device.session.is_connected())


def test_who_takes_the_session_of_another_board_receives_nothing_of_it(lab):
    """A thief of another board's session receives neither its waiting messages nor new ones.

    Topics are bound to the certificate, whatever the client id is.
    """
    heard = {"pi-1": [], "pi-2": []}

    def session(name):
        class Events:
            connected = disconnected = answered = staticmethod(lambda *_: None)
            received = staticmethod(heard[name].append)

        opened = MqttSession(boards[name].address(), SessionProfile("pi-1", "persistent"), Events)
        opened.connect()
        return opened

    boards = {"pi-1": lab.joined(), "pi-2": lab.joined("pi-2", "100000002")}
    victim = session("pi-1")
    victim.subscribe([f"{OWN}/command"])
    victim.publish(f"{OWN}/progress", b"x")
    victim.flush(5)
    victim.close()
    service = lab.service_client("fleet")
    service.session.publish(f"{OWN}/command", b"waiting")
    service.session.flush(5)
    thief = session("pi-2")
    service.session.publish(f"{OWN}/command", b"live")
    service.session.flush(5)
    # A message for us would arrive before the broker's answer to this.
    thief.publish(f"{OTHER}/progress", b"x")
    thief.flush(5)
    thief.close()
    victim = session("pi-1")
    service.session.publish(f"{OWN}/command", b"back")
    assert wait_until(lambda: [message.payload for message in heard["pi-1"]][-1:] == [b"back"])
    assert heard["pi-2"] == []
    victim.close()

"""Joining, renewing and being put out, at the real mosquitto with the configuration that `fleet init` writes."""

import json
import os
import re
import shutil
import ssl
import stat
import subprocess

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.base.mqtt_session import TAKEN_OVER, MqttSession, SessionProfile
from edgemeter.agent.contract import identity as contract_identity
from edgemeter.agent.contract import messages as delivered
from edgemeter.agent.contract.identity import CertificateRequest
from edgemeter.agent.identity import identity, renewal
from edgemeter.collector.cli import ledger
from edgemeter.collector.receive.service import Collector
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.identity import authority, broker_files
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.serve.inbox import LARGEST_OF_ONE_BYTES
from tests.fixtures.fleet_key import signed_in
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK

pytestmark = [pytest.mark.mosquitto, pytest.mark.services]

OWN, OTHER = "edgemeter/v1/lab/pi-1", "edgemeter/v1/lab/pi-2"


@pytest.fixture
def lab(lab):
    """Return a running fleet."""
    return lab.start()


def is_refused(client, topic):
    """Return whether the broker refuses what `client` says on `topic`."""
    before = len(client.answers)
    client.session.publish(topic, b"x")
    assert wait_until(lambda: len(client.answers) > before)
    return client.answers[-1] == "Not authorized"


def answers(peer):
    """Return what the handler answered."""
    return [contract_identity.decode_answer(signed_in(message.payload)) for message in peer.messages]


def test_a_board_joins_and_is_known(lab):
    """It has a key that only its owner reads, a certificate of its name that is valid from 2020, a configuration; the token is gone."""
    path = lab.token("pi-1")
    secret = contract_identity.read_join_file(path).token
    board = lab.board("pi-1", "100000001")
    identity = board.join(path)
    assert (identity.device, identity.fleet, identity.serial) == ("pi-1", "lab", "100000001")
    assert stat.S_IMODE(board.files.key.stat().st_mode) == 0o600
    text = subprocess.run(
        ["openssl", "x509", "-in", board.files.certificate, "-noout", "-subject", "-startdate"], capture_output=True, text=True, check=True
    ).stdout
    assert "CN = pi-1" in text
    assert "Jan  1 00:00:00 2020 GMT" in text
    assert secret not in path.read_text()
    assert board.files.joined.exists()
    device = devices.find(lab.registry, "pi-1")
    assert (device.trust, device.serial, device.board) == ("accepted", "100000001", "A Board")
    assert board.client("pi-1").session.is_connected()


def test_the_server_keeps_no_token_and_logs_none(lab, caplog):
    """Neither in the registry's bytes, nor in any other file of the folder, nor in a log."""
    path = lab.token("pi-1")
    secret = contract_identity.read_join_file(path).token.encode()
    lab.board("pi-1", "100000001").join(path)
    for file in lab.folder.path.rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes(), file
    assert secret.decode() not in caplog.text


def test_a_token_works_once(lab, tmp_path):
    """When the device has its certificate, the broker does not know the token any more."""
    path = lab.token("pi-1")
    copy = tmp_path / "copy.toml"
    shutil.copy(path, copy)
    lab.board("pi-1", "100000001").join(path)
    claim = contract_identity.token_id(contract_identity.read_join_file(copy).token)
    assert wait_until(lambda: claim not in lab.folder.broker_access.read_text())
    with pytest.raises(ConfigError, match="used, has expired"):
        lab.board("thief", "666").join(copy)
    assert [certificate.serial for certificate in certificates.of_device(lab.registry, "pi-1")] == ["100000001"]


def test_a_token_in_use_serves_no_second_key(lab):
    """Two boards with one token at the same time: the second is refused by the handler, though the broker still lets it in."""
    path = lab.token("pi-1")
    claim = contract_identity.token_id(contract_identity.read_join_file(path).token)
    for serial, expected in (("1001", "accepted"), ("1002", "refused")):
        key = lab.path / f"{serial}.key"
        identity.make_key(key)
        # The broker holds one session a claim: the second takes the first one's place.
        peer = lab.with_token(path)
        ask = CertificateRequest(csr=identity.certificate_request(key, "pi-1"), serial=serial, serial_source="device-tree")
        peer.session.publish(contract_identity.request_topic(claim), contract_identity.encode_identity(ask))
        assert wait_until(lambda peer=peer: bool(answers(peer)))
        assert (answers(peer)[0].request, answers(peer)[0].state) == (contract_identity.request_id(ask.csr), expected)
        peer.close()


def test_a_token_expires_by_the_servers_clock(lab):
    """After its time neither the broker nor the handler take it."""
    path = lab.token("pi-1", 0.01)
    claim = contract_identity.token_id(contract_identity.read_join_file(path).token)
    with lab.registry.transaction() as connection:
        connection.execute("UPDATE claims SET expires_ns = 1 WHERE claim = ?", (claim,))
    assert wait_until(lambda: claim not in lab.folder.broker_access.read_text())
    with pytest.raises(ConfigError, match="has expired"):
        lab.board("pi-1", "100000001").join(path)


def test_a_new_token_ends_the_one_before(lab, tmp_path):
    """A lost card is replaced by making another."""
    old = tmp_path / "old.toml"
    shutil.copy(lab.token("pi-1"), old)
    lab.token("pi-1")
    with pytest.raises(ConfigError, match="another fleet's"):
        lab.board("pi-1", "100000001").join(old)


def test_a_token_opens_its_own_request_and_nothing_else(lab):
    """Not a device's topics, not another claim's, not even its own answer."""
    path = lab.token("pi-1")
    claim = contract_identity.token_id(contract_identity.read_join_file(path).token)
    peer = lab.with_token(path, "#", "edgemeter/#", "edgemeter/enrol/+/answer", "edgemeter/enrol/+/request", "$SYS/#")
    for topic in (
        f"{OWN}/result",
        f"{OWN}/birth",
        f"{OWN}/command",
        "edgemeter/enrol/" + "0" * 32 + "/request",
        f"edgemeter/enrol/{claim}/answer",
        "$SYS/x",
        "x",
    ):
        assert is_refused(peer, topic), topic


def test_a_token_hears_nothing_of_the_fleet(lab):
    """Whatever it subscribes to; what is retained neither."""
    board = lab.joined()
    device = board.client("pi-1")
    device.session.publish(f"{OWN}/birth", b"secret", lasting="retained")
    device.session.flush(5)
    thief = lab.with_token(lab.token("pi-3"), "#", "edgemeter/#", f"{OWN}/birth", "edgemeter/enrol/+/answer", "edgemeter/enrol/+/request")
    lab.joined("pi-2", "100000002")
    device.session.publish(f"{OWN}/result", b"secret")
    device.session.flush(5)
    assert thief.messages == []


def test_a_token_takes_nobodys_session(lab):
    """Its client id decides, whatever it publishes: a device stays connected."""
    board = lab.joined()
    device = board.client("anything")
    lab.with_token(lab.token("pi-2"))
    assert not wait_until(lambda: bool(device.reasons), 1.0, patience=1.0)


def test_a_device_takes_nobodys_name_job_or_certificate(lab):
    """What it publishes on another's topics is refused by the broker, what it asks for in another's name by the handler."""
    board = lab.joined()
    lab.joined("pi-2", "100000002")
    device = board.client("pi-1", f"{OWN}/certificate", f"{OTHER}/certificate", f"{OTHER}/command", f"{OTHER}/state")
    operator = lab.service_client("operator")
    for kind in ("job", "want", "renew", "birth", "health", "certificate", "command"):
        assert is_refused(device, f"{OTHER}/{kind}"), kind
    for kind in ("certificate", "command", "content"):
        assert is_refused(device, f"{OWN}/{kind}"), kind
    assert is_refused(device, "edgemeter/enrol/pi-2/request")
    assert is_refused(device, "$CONTROL/dynamic-security/v1")
    identity.make_key(lab.path / "x.key")
    for wished in ("pi-2", "edgemeter-operator", None):
        ask = CertificateRequest(
            csr=identity.certificate_request(lab.path / "x.key", wished), serial="100000001", serial_source="device-tree"
        )
        device.session.publish(f"{OWN}/renew", contract_identity.encode_identity(ask))
        assert wait_until(lambda ask=ask: any(answer.request == contract_identity.request_id(ask.csr) for answer in answers(device)))
        assert answers(device)[-1].state == "refused"
    assert not [message for message in operator.messages if message.topic.startswith(OTHER) and message.topic.endswith("/job")]
    assert len(certificates.of_device(lab.registry, "pi-2")) == 1


def test_a_device_publishes_in_its_own_fleet_alone(lab):
    """Under another fleet's name it publishes nothing, and receives nothing that is published there.

    A fleet that was renamed keeps both names, after a restart of the broker.
    """
    board = lab.joined()
    device = board.client("pi-1", "edgemeter/v1/+/pi-1/command")
    operator = lab.service_client("operator")
    for kind in broker_files.DEVICE_WRITES:
        for name in ("other", "la", "lab2"):
            assert is_refused(device, f"edgemeter/v1/{name}/pi-1/{kind}"), (name, kind)
    assert not is_refused(device, f"{OWN}/birth")
    operator.session.publish("edgemeter/v1/other/pi-1/command", b"not for it")
    operator.session.publish(f"{OWN}/command", b"for it")
    assert wait_until(lambda: len(device.messages) == 1)
    assert device.messages[0].payload == b"for it"
    lab.folder.fleet_file.write_text(lab.folder.fleet_file.read_text().replace('fleet = "lab"', 'fleet = "our lab"'))
    other = lab.joined("pi-2", "100000002")
    lab.restart_broker()
    assert not is_refused(other.client("pi-2"), "edgemeter/v1/our lab/pi-2/birth")
    device = board.client("pi-1")
    assert not is_refused(device, f"{OWN}/birth")
    assert is_refused(device, "edgemeter/v1/other/pi-1/birth")


def test_garbage_is_one_line_and_the_service_lives(lab, caplog):
    """Bytes that mean nothing, on both ways to the handler; of 10 MB nothing is said but a ban. Afterwards a board joins."""
    path = lab.token("pi-9")
    claim = contract_identity.token_id(contract_identity.read_join_file(path).token)
    peer, device = lab.with_token(path), lab.joined().client("pi-1")
    for number, size_bytes in enumerate((0, 1, 17 << 10, 10 << 20), 2):
        with table_row(size_bytes):
            caplog.clear()
            peer.session.publish(contract_identity.request_topic(claim), os.urandom(size_bytes))
            device.session.publish(f"{OWN}/renew", b"{" * size_bytes)
            device.session.flush(20)
            assert size_bytes > LARGEST_OF_ONE_BYTES or wait_until(lambda: caplog.text.count("rejected request from") == 2, 60)
            assert all(len(line) < 400 for line in caplog.messages)
            assert lab.joined(f"pi-{number}", f"10000000{number}").files.joined.exists()


def test_a_board_that_asks_again_gets_the_same_certificate(lab):
    """A lost answer costs a question, not a second certificate."""
    path = lab.token("pi-1")
    claim = contract_identity.token_id(contract_identity.read_join_file(path).token)
    peer = lab.with_token(path)
    identity.make_key(lab.path / "a.key")
    ask = CertificateRequest(csr=identity.certificate_request(lab.path / "a.key", "pi-1"), serial="1", serial_source="device-tree")
    for _ in range(3):
        peer.session.publish(contract_identity.request_topic(claim), contract_identity.encode_identity(ask))
    assert wait_until(lambda: len(peer.messages) == 3)
    assert len({answer.number for answer in answers(peer)}) == 1
    assert len(certificates.of_device(lab.registry, "pi-1")) == 1


def test_a_board_that_was_flashed_anew_keeps_its_name(lab):
    """The same serial, a new key: the old certificate is out, and the old key with it."""
    board = lab.joined()
    first = identity.read_identity(board.home)
    old_address = board.address()
    shutil.copytree(board.files.folder, lab.path / "old")
    shutil.rmtree(board.home)
    second = board.join(lab.token("pi-1"))
    assert (second.device, second.number != first.number) == ("pi-1", True)
    assert certificates.revoked(lab.registry) == {first.number}
    assert board.client("pi-1").session.is_connected()
    old = type(old_address)(
        old_address.host,
        old_address.port,
        "mqtts",
        tls=type(old_address.tls)(*(lab.path / "old" / name for name in ("ca.crt", "device.crt", "device.key"))),
    )
    assert wait_until(lambda: is_out(old))


def is_out(address):
    """Return whether the broker refuses a client by its certificate."""
    try:
        Peer(address, client_id="who-knows").close()
    except EdgemeterError as error:
        return "rejects our certificate" in str(error)
    return False


def test_a_name_of_another_board_waits_for_a_person(lab):
    """Another serial asks for a known name: nothing is given until somebody approves; then the old board is out."""
    first = lab.joined()
    connected = first.client("pi-1")
    board = lab.board("new", "100000002")
    path = lab.token("pi-1")
    with pytest.raises(TransientError, match="has not approved this board"):
        board.join(path, 2.0)
    waiting = certificates.undecided_requests(lab.registry)
    assert [(enrolment_request.device, enrolment_request.serial) for enrolment_request in waiting] == [("pi-1", "100000002")]
    assert "100000001" in json.loads(lab.run("requests", "--json"))[0]["why"]
    lab.run("requests", "accept", "pi-1")
    assert board.join(path).serial == "100000002"
    assert wait_until(lambda: is_out(first.address()))
    assert wait_until(lambda: bool(connected.reasons))


def test_copies_of_one_system_are_reported_with_what_they_share(lab):
    """Two machines without a serial number, made from one image: the second learns how it becomes one of its own."""
    first, second = lab.board("first", "1"), lab.board("second", "1")
    for board in (first, second):
        serial_file = board.machine.root / "proc/device-tree/serial-number"
        serial_file.unlink()
        (board.machine.root / "etc").mkdir()
        (board.machine.root / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
    first.join(lab.token("vm-1"))
    path = lab.token("vm-2")
    with pytest.raises(ConfigError, match=r"is device 'vm-1'.*systemd-machine-id-setup"):
        second.join(path)
    (second.machine.root / "etc/machine-id").write_text("967e07210bd36b5b85811acadcb73313\n")
    assert second.join(path).device == "vm-2"


def test_a_rejected_board_is_refused(lab):
    """It hears it once; its token ends."""
    lab.joined()
    board = lab.board("new", "100000002")
    path = lab.token("pi-1")
    with pytest.raises(TransientError):
        board.join(path, 2.0)
    lab.run("requests", "reject", "pi-1")
    with pytest.raises(ConfigError):
        board.join(path, 5.0)
    assert devices.find(lab.registry, "pi-1").serial == "100000001"


def test_a_copied_card_asks_for_a_name_of_its_own(lab):
    """The copy makes a new key, waits, is accepted under another name; the first board stays connected and keeps its certificate."""
    board = lab.joined()
    device = board.client("pi-1")
    copy = lab.board("copy", "100000002")
    shutil.copytree(board.home, copy.home, dirs_exist_ok=True)
    shutil.copy(board.config, copy.config)
    with pytest.raises(TransientError):
        renewal.settle_moved_card(copy.home, copy.machine, timeout_s=2.0)
    assert "copied card" in certificates.undecided_requests(lab.registry)[0].why
    with pytest.raises(ConfigError, match="--as NAME"):
        lab.run("requests", "accept", "pi-1")
    lab.run("requests", "accept", "pi-1", "--as", "pi-2")
    assert renewal.settle_moved_card(copy.home, copy.machine, timeout_s=120.0)
    assert identity.read_identity(copy.home).device == "pi-2"
    assert copy.files.key.read_bytes() != board.files.key.read_bytes()
    assert not renewal.settle_moved_card(copy.home, copy.machine, timeout_s=1.0)
    assert (device.reasons, certificates.revoked(lab.registry)) == ([], set())
    copied = copy.client("pi-2")
    assert is_refused(copied, f"{OWN}/birth")
    assert not is_refused(copied, f"{OTHER}/birth")


def test_a_board_whose_card_brought_anothers_key_makes_its_own(lab):
    """It has a token of its own: as the key is another's, it joins with a new one, and the other is left alone."""
    first = lab.joined()
    board = lab.board("pi-2", "100000002")
    board.files.folder.mkdir(parents=True)
    shutil.copy(first.files.key, board.files.next_key)
    assert board.join(lab.token("pi-2")).device == "pi-2"
    assert board.files.key.read_bytes() != first.files.key.read_bytes()
    assert certificates.revoked(lab.registry) == set()


def test_a_revoked_device_is_out_within_seconds_and_stays_out(lab):
    """Its session ends, it cannot come back, a second session of it sends and receives nothing; the others stay connected."""
    board, other = lab.joined(), lab.joined("pi-2", "100000002")
    device, second, neighbour = board.client("pi-1"), board.client("pi-1~2", f"{OWN}/command"), other.client("pi-2", f"{OTHER}/command")
    operator, fleet_client = lab.service_client("operator"), lab.service_client("fleet")
    lab.token("pi-1")
    assert "revoked, with 1 certificate" in lab.run("revoke", "pi-1", "--reason", "stolen")
    assert wait_until(lambda: bool(device.reasons), 5)
    assert wait_until(lambda: is_out(board.address()), 5)
    assert device.reasons[0] == "somebody ended it at the broker: was this client revoked?"
    assert wait_until(lambda: bool(second.reasons), 5)
    assert wait_until(lambda: any("refuses our certificate (revoked" in reason for reason in device.reasons), 20)
    heard = len(operator.messages)
    for name in ("pi-1", "pi-2"):
        fleet_client.session.publish(f"edgemeter/v1/lab/{name}/command", b"x")
    assert wait_until(lambda: len(neighbour.messages) == 1)
    assert second.messages == []
    assert not [message for message in operator.messages[heard:] if message.topic.endswith("/result")]
    assert not device.session.is_connected()
    assert neighbour.reasons == []
    assert certificates.open_tokens(lab.registry, 0) == []
    with pytest.raises(ConfigError, match="was revoked"):
        lab.token("pi-1")


def test_a_revoked_device_is_shown_as_revoked_in_every_view(lab):
    """Its birth and `online` stay retained at the broker, its Will is held back: the fleet reports for it that it was revoked.

    At a collector that was there, at one that comes later, in the list and on its sheet; re-admitted and joined again, it is online.
    """
    board = lab.joined()
    device = board.client("pi-1")
    device.session.publish(f"{OWN}/state", online(7), lasting="retained")
    collected = Collected(lab, "there")
    assert wait_until(lambda: collected.state() == "online", 10)
    lab.run("revoke", "pi-1")
    assert wait_until(lambda: collected.state() == "revoked", 10)
    later = Collected(lab, "later")
    assert wait_until(lambda: later.state() == "revoked", 10)
    assert wait_until(lambda: presence_of(lab) == "offline", 10)
    (listed,) = json.loads(lab.run("list", "--json"))["devices"]
    assert (listed["presence"], listed["standing"]) == ("revoked", "revoked")
    assert "1 device: 1 revoked" in lab.run("list")
    assert not re.search("online|offline|lost", lab.run("show", "pi-1"))
    lab.run("requests", "accept", "pi-1")
    shutil.rmtree(board.home)
    board.join(lab.token("pi-1"))
    board.client("pi-1").session.publish(f"{OWN}/state", online(8), lasting="retained")
    assert wait_until(lambda: collected.state() == "online", 10)
    assert wait_until(lambda: presence_of(lab) == "online", 10)


def online(session):
    """Return what a device says that is there."""
    return delivered.encode_message(delivered.DeviceState(state="online", session=session))


class Collected:
    """A collector with a ledger of its own."""

    def __init__(self, lab, name):
        self.ledger = lab.path / f"{name}.sqlite"
        collector = Collector(fleet_file.fleet_broker_address(lab.folder, client="collector"), self.ledger)
        collector.start()
        lab.stack.callback(collector.stop)

    def state(self):
        """Return the state of the one device as `edgemeter collector devices` has it."""
        text = CliRunner().invoke(ledger.devices, ["--ledger", str(self.ledger), "--json"], catch_exceptions=False).stdout
        listed = json.loads(text)["devices"]
        return listed[0]["state"] if listed else None


def presence_of(lab):
    """Return whether pi-1 is there, by the registry."""
    presence = devices.find_presence(lab.registry, "pi-1")
    return presence and presence.state


def test_two_revocations_in_one_second_both_hold(lab):
    """OpenSSL takes the newer list by its date, in seconds: each list is newer than the last."""
    boards = [lab.joined(f"pi-{number}", f"10000000{number}") for number in range(1, 4)]
    for number in (1, 2):
        lab.run("revoke", f"pi-{number}")
    assert wait_until(lambda: is_out(boards[0].address()) and is_out(boards[1].address()), 5)
    assert boards[2].client("pi-3").session.is_connected()


def test_without_a_certificate_nobody_comes_in_by_the_devices_port(lab):
    """A token there is worth nothing."""
    path = lab.token("pi-1")
    peer_address = lab.with_token(path).session.address
    wrong = type(peer_address)(peer_address.host, lab.port, "mqtts", peer_address.user, peer_address.password, peer_address.tls)
    with pytest.raises((EdgemeterError, ssl.SSLError)):
        Peer(wrong, client_id="x")


def test_who_takes_the_session_of_another_board_receives_nothing_of_it(lab):
    """Neither what waited for it nor what comes meanwhile: topics are bound to the certificate, whatever the client id is."""
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
    # What the broker would deliver comes before its answer to this.
    thief.publish(f"{OTHER}/progress", b"x")
    thief.flush(5)
    thief.close()
    victim = session("pi-1")
    service.session.publish(f"{OWN}/command", b"back")
    assert wait_until(lambda: [message.payload for message in heard["pi-1"]][-1:] == [b"back"])
    assert heard["pi-2"] == []
    victim.close()


def test_a_device_cannot_end_the_services_session(lab, caplog):
    """Whoever comes to a broker with another's client id takes its session; a device does not know the service's."""
    caplog.set_level("INFO")
    board = lab.joined()
    for name in ("edgemeter-fleet", "fleet", "pi-1"):
        board.client(name)
    assert lab.joined("pi-2", "100000002").client("pi-2").session.is_connected()
    assert "lost" not in caplog.text


def test_a_service_that_was_displaced_ends_and_reports_why(lab, caplog):
    """A copy of the folder on another machine: nobody fights. Not every broker reports it."""
    service = lab.serve()
    service.disconnected(TAKEN_OVER)
    assert wait_until(lambda: not service.is_alive())
    assert "another service of this fleet has connected" in caplog.text


def test_a_device_that_nobody_knows_is_given_nothing(lab):
    """A certificate of ours whose device was taken out of the registry renews nothing."""
    board = lab.joined()
    device = board.client("pi-1", f"{OWN}/certificate")
    with lab.registry.transaction() as connection:
        connection.execute("DELETE FROM devices")
    ask = CertificateRequest(csr=identity.certificate_request(board.files.key, "pi-1"), serial="100000001", serial_source="device-tree")
    device.session.publish(f"{OWN}/renew", contract_identity.encode_identity(ask))
    assert wait_until(lambda: bool(answers(device)))
    assert answers(device)[0].state == "refused"


def test_acceptance_by_hand_is_a_line_of_the_inventory(lab):
    """`accept = "hand"`: a good token is not enough."""
    text = lab.folder.fleet_file.read_text()
    lab.folder.fleet_file.write_text(text.replace("[server]\n", '[server]\naccept = "hand"\n'))
    board = lab.board("pi-1", "100000001")
    path = lab.token("pi-1")
    with pytest.raises(TransientError):
        board.join(path, 2.0)
    lab.run("requests", "accept", "pi-1")
    assert board.join(path).device == "pi-1"


def test_a_renewed_broker_certificate_is_in_use_after_a_restart(lab):
    """A further name: `init` asks for the restart; nobody who was enrolled is lost by it."""
    board = lab.joined()
    result = CliRunner().invoke(fleet, ["--folder", str(lab.folder.path), "init", "--broker-name", "other.example"], catch_exceptions=False)
    assert "restart the broker" in result.stderr
    lab.restart_broker()
    assert "other.example" in authority.names_of(ssl.get_server_certificate((LOOPBACK, lab.enrol_port)).encode())
    assert board.client("pi-1~2").session.is_connected()

"""Changes of access at the running mosquitto, without a reload: who attacks it, what comes before it, what it forgot."""

import json
import random
import socket
import ssl
import subprocess
import threading
from datetime import datetime, timezone

import pytest
from click.testing import CliRunner
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract import identity
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.identity import authority, broker_files
from edgemeter.provisioning.identity.authority import Authority
from edgemeter.provisioning.identity.broker_access import BrokerAccess
from edgemeter.provisioning.inventory import fleet_file
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK

ACCESS_CHANGES = 200


@pytest.mark.needs("openssl")
def test_openssl_finds_the_lists_of_an_authority_by_its_name():
    """The hash is the one that openssl prints."""
    for name in ("edgemeter fleet lab", " Our  Fleet ", "x" * 64, "Flotte ÄÖ é", "ISTANBUL İ"):
        with table_row(name):
            pair = authority.make_authority(name, datetime.now(timezone.utc))
            printed = subprocess.run(["openssl", "x509", "-hash", "-noout"], input=pair.certificate, capture_output=True, check=True).stdout
            assert Authority(pair).name_hash() == printed.decode().strip()


def members(lab):
    """Return the names that the running broker's plug-in holds."""
    with BrokerAccess(fleet_file.fleet_broker_address(lab.folder, client="operator")) as access:
        return set(access._send([{"command": "listClients"}])[0]["data"]["clients"])


def may_connect(board, client_id="x"):
    """Return whether the broker lets the board in by its certificate."""
    try:
        Peer(board.address(), client_id=client_id).close()
    except EdgemeterError:
        return False
    return True


class Attacker:
    """An enrolled key in the wrong hands: MQTT 5 sessions that expire after some seconds and wait for a client that comes again.

    With a reload (SIGHUP) every two seconds beside three of these, mosquitto 2.0.11 died after the eighth, in 16 s.
    """

    def __init__(self, board, seed):
        files = board.files
        self._context = ssl.create_default_context(cafile=str(files.ca))
        self._context.check_hostname = False
        self._context.load_cert_chain(str(files.certificate), str(files.key))
        self._port, self._seed = board.lab.port, seed
        self._draw = random.Random(seed)  # noqa: S311 - the same every time
        self._ended = threading.Event()
        self.connects = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self):
        """End it."""
        self._ended.set()
        self._thread.join()

    def _run(self):
        while not self._ended.is_set():
            name = f"attack-{self._seed}-{self._draw.randrange(10)}"
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
            client.tls_set_context(self._context)
            accepted = threading.Event()
            client.on_connect = lambda *_, accepted=accepted: accepted.set()
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = self._draw.randint(2, 4)
            try:
                client.connect(LOOPBACK, self._port, clean_start=self._draw.random() < 0.1, properties=properties)
                for _ in range(50):
                    client.loop(0.02)
                    if accepted.is_set():
                        break
                self.connects += accepted.is_set()
                if self._draw.random() < 0.5:
                    client.disconnect()
                    client.loop(0.02)
            except (OSError, ValueError):
                self._ended.wait(0.05)
            finally:
                if client.socket() is not None:
                    client.socket().close()


@pytest.mark.mosquitto
@pytest.mark.nightly
def test_the_broker_lives_through_expiring_sessions_and_200_access_changes(lab):
    """Attackers with an enrolled key connect all the time; every token, revocation and re-admission takes effect meanwhile."""
    lab.start()
    board, first = lab.joined("attacker", "666"), lab.broker.process.pid
    attackers = [Attacker(board, seed) for seed in range(3)]
    try:
        changes, victim = 0, 0
        while changes < ACCESS_CHANGES:
            victim += 1
            name = f"pi-{victim}"
            victim_board = lab.joined(name, f"1000{victim}")
            device = victim_board.client(name)
            lab.run("revoke", name)
            assert wait_until(lambda device=device: bool(device.reasons), 10), name
            assert not may_connect(victim_board), name
            lab.run("requests", "accept", name)
            join_file = lab.token(name)
            lab.with_token(join_file)
            lab.run("revoke", name)
            with pytest.raises(EdgemeterError):
                lab.with_token(join_file)
            changes += 5
    finally:
        for attacker in attackers:
            attacker.stop()
    assert (lab.broker.process.poll(), lab.broker.process.pid) == (None, first)
    assert sum(attacker.connects for attacker in attackers) > ACCESS_CHANGES
    # The attacker connects more often than any board, and is banned for it.
    assert members(lab) == {"edgemeter-operator", "attacker", *(f"pi-{number}" for number in range(1, victim + 1))}


@pytest.mark.mosquitto
@pytest.mark.services
def test_tokens_and_revocations_made_without_a_broker_hold_when_it_starts(lab):
    """What was changed while it was off it knows when it starts, and forgets when it ends."""
    path, other = lab.token("pi-1"), lab.token("pi-2")
    lab.run("revoke", "pi-2")
    lab.start()
    assert lab.board("pi-1", "1").join(path).device == "pi-1"
    with pytest.raises(ConfigError):
        lab.with_token(other)
    assert wait_until(lambda: members(lab) == {"edgemeter-operator", "pi-2"})


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_revoked_device_stays_out_after_a_restart(lab):
    """By the list of revoked certificates, which the broker reads when it starts, and by the plug-in's file."""
    lab.start()
    boards = [lab.joined(f"pi-{number}", f"1{number}") for number in range(3)]
    for number in range(2):
        lab.run("revoke", f"pi-{number}")
    lab.restart_broker()
    assert [may_connect(board) for board in boards] == [False, False, True]
    lab.run("revoke", "pi-2")
    assert not may_connect(boards[2])


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_tls_session_from_before_gives_a_revoked_device_nothing(lab):
    """A resumed session skips the check of the certificate: the plug-in still denies the name everything."""
    lab.start()
    board = lab.joined("pi-1", "1")
    context = ssl.create_default_context(cafile=str(board.files.ca))
    context.load_cert_chain(str(board.files.certificate), str(board.files.key))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    hello, publish = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04pi-1", b"\x30\x20\x00\x1bedgemeter/v1/lab/pi-1/birthxyz"
    with socket.create_connection((LOOPBACK, lab.port), 10) as plain, context.wrap_socket(plain, server_hostname=LOOPBACK) as line:
        line.sendall(hello)
        assert line.recv(4) == b"\x20\x02\x00\x00"
        session = line.session
    heard = lab.service_client("operator")
    lab.run("revoke", "pi-1")
    with (
        socket.create_connection((LOOPBACK, lab.port), 10) as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK, session=session) as line,
    ):
        line.sendall(hello)
        line.recv(4)
        line.sendall(publish)
    assert not wait_until(lambda: any(message.payload == b"xyz" for message in heard.messages), 1.0, patience=1.0)


def test_a_version_that_dies_of_reloads_is_named_where_a_reload_remains(lab, monkeypatch):
    """`broker_reload` in fleet.toml is such a place; Debian 12's mosquitto such a version."""
    monkeypatch.setattr(broker_files, "installed_version", lambda: "2.0.11")
    arguments = ["--folder", str(lab.folder.path), "init"]
    assert "may die of a reload" not in CliRunner().invoke(fleet, arguments, catch_exceptions=False).stderr
    with lab.folder.fleet_file.open("a") as file:
        file.write('broker_reload = ["true"]\n')
    assert "mosquitto 2.0.11 may die of a reload" in CliRunner().invoke(fleet, arguments, catch_exceptions=False).stderr


def test_the_file_of_access_is_json_with_no_token_in_it(lab):
    """It holds hashes alone, of the two clients there are."""
    token = identity.read_join_file(lab.token("pi-1")).token
    text = lab.folder.broker_access.read_text()
    assert token not in text
    assert len(json.loads(text)["clients"]) == 2

"""A real agent obeys only the fleet's service when an attacker has the broker and its key.

The attacker's broker does not enforce the true broker's rules.
"""

import json
import os
import pwd
import subprocess
import sys
import time
from contextlib import ExitStack

import msgspec
import pytest

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.contract.orders import Logs
from edgemeter.agent.identity.identity import BoardSerial, read_identity
from edgemeter.agent.identity.service_signature import read_refused_orders
from edgemeter.agent.jobs.journal import JOURNAL_FILE, Journal
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.jobs import NewJob, Target
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import LOOPBACK, Server, free_port, mosquitto_binary
from tests.provisioning.identity.lab import FLEET, Lab
from tools.peers import order_forger

pytestmark = [pytest.mark.mosquitto, pytest.mark.nightly]

LONG_S = 60.0
COMMAND = f"edgemeter/v1/{FLEET}/pi-1/command"


class World:
    """A fleet with two boards, and the daemon of the first.

    `seize` puts the attacker's broker in the place of the fleet's.
    """

    def __init__(self, path, stack):
        self.stack = stack
        self.lab = Lab(path, stack).start()
        self.board, self.other = (
            self.lab.joined("pi-1", "100000001"),
            self.lab.joined("pi-2", "100000002"),
        )
        # The process reads this machine's serial number.
        mine = msgspec.structs.replace(
            read_identity(self.board.home), board=BoardSerial("100000001", "device-tree", None)
        )
        durable_file.write(self.board.files.identity, msgspec.json.encode(mine))
        self.log = path / "agent.log"
        self.agent = None
        self.start_agent()

    def start_agent(self):
        command = [
            sys.executable,
            "-m",
            "edgemeter.agent.cli.main",
            "agent",
            "up",
            "--config",
            str(self.board.config),
        ]
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                command,
                env={**os.environ, "EDGEMETER_HOME": str(self.board.home)},
                stderr=log,
                stdout=log,
            )
        self.stack.callback(self.agent.wait)
        self.stack.callback(self.agent.kill)

    def seize(self):
        """Replace the broker by the attacker's, and return the attacker's client.

        That broker has the true one's key and checks no rights.
        """
        self.lab.broker.kill()
        folder, port = self.lab.folder.broker, free_port()
        settings = self.lab.path / "rogue.conf"
        settings.write_text(
            f"user {pwd.getpwuid(os.getuid()).pw_name}\nper_listener_settings true\n"
            f"listener {self.lab.port}\ncafile {self.lab.folder.ca_certificate}\n"
            f"certfile {folder / 'broker.crt'}\nkeyfile {folder / 'broker.key'}\n"
            "require_certificate true\nuse_identity_as_username true\n"
            f"listener {port} {LOOPBACK}\nallow_anonymous true\n"
        )
        rogue = Server([mosquitto_binary(), "-c", str(settings)], self.lab.port, port)
        rogue.start()
        self.stack.callback(rogue.kill)
        peer = Peer(
            parse_address(f"mqtt://{LOOPBACK}:{port}", environ={}),
            "edgemeter/#",
            client_id="attacker",
        )
        self.stack.callback(peer.close)
        return rogue, peer

    def order(self):
        """Order log lines as a command does, and return the finished job's name and state."""
        with self.lab.registry.transaction() as connection:
            job = jobs.add(
                connection,
                NewJob(works=(Logs(),), title="logs", timeout_s=300.0),
                [Target("pi-1", FLEET)],
                time.time_ns(),
            )
        wait_until(lambda: jobs.find_execution(self.lab.registry, job, "pi-1").is_final, LONG_S)
        return job, jobs.find_execution(self.lab.registry, job, "pi-1").state

    def journal(self):
        book = Journal(self.board.home / JOURNAL_FILE, "read")
        try:
            return {entry.order.job for entry in book.latest(100)}, book.repeating()
        finally:
            book.close()

    def refused(self):
        noted = read_refused_orders(self.board.home)
        return noted.count if noted else 0


@pytest.fixture
def world(tmp_path):
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def forged(world, challenge):
    """Return forged orders of every kind, unsigned and signed by every available key.

    These are the keys that somebody with the broker may have.
    """
    folder, other = world.lab.folder.broker, world.other.files
    own_key, own_certificate = order_forger.own_authority(world.lab.path, "edgemeter-fleet")
    keys = {
        "broker": (folder / "broker.key", folder / "broker.crt"),
        "board": (other.key, other.certificate),
        "own": (own_key, own_certificate),
        # The service's certificate travels with each order.
        "stolen": (own_key, world.lab.folder.certificate("fleet")),
    }
    for kind in order_forger.WORKS:
        order = order_forger.order(kind, f"evil-{kind}")
        yield json.dumps(order).encode()
        for key, certificate in keys.values():
            yield order_forger.sealed(
                order_forger.addressed(order, challenge, "pi-1", FLEET), key, certificate
            )


def test_a_board_obeys_the_service_and_not_the_broker(world):
    """Forged, altered and recorded orders change nothing.

    True orders are carried out before, during and after the attack.
    """
    true_jobs = [world.order()]
    rogue, attacker = world.seize()
    # The service and the board come to the attacker's broker: nothing distinguishes it.
    true_jobs.append(world.order())
    (challenge,) = {
        word
        for m in attacker.messages
        if m.topic.endswith("pi-1/state") and (word := json.loads(m.payload).get("challenge"))
    }
    payloads = list(forged(world, challenge))
    recorded = [message.payload for message in attacker.messages if message.topic == COMMAND]
    payloads += [
        order_forger.altered(payload, b'"attempt":1', b'"attempt":9') for payload in recorded
    ]
    payloads += [
        order_forger.altered(payload, b'"device":"pi-1"', b'"device":"pi-2"')
        for payload in recorded
    ]
    for payload in payloads:
        attacker.session.publish(COMMAND, payload)
    answer = {
        "request": "00",
        "state": "accepted",
        "now_ns": 1,
        "device": "pi-9",
        "fleet": FLEET,
        "number": "1",
        "certificate": "x",
    }
    attacker.session.publish(COMMAND.replace("command", "certificate"), json.dumps(answer).encode())
    assert wait_until(lambda: world.refused() == len(payloads), LONG_S), (
        world.refused(),
        len(payloads),
        world.log.read_text()[-3000:],
    )
    true_jobs.append(world.order())
    # A recorded command is refused whenever it comes again; after a restart of the agent it answers
    # an earlier challenge.
    for payload in recorded:
        attacker.session.publish(COMMAND, payload)
    world.agent.kill()
    world.agent.wait()
    world.start_agent()
    true_jobs.append(world.order())
    for payload in recorded:
        attacker.session.publish(COMMAND, payload)
    assert wait_until(
        lambda: world.log.read_text().count("answers an earlier challenge") >= len(recorded), LONG_S
    )
    rogue.kill()
    world.lab.broker.start()
    true_jobs.append(world.order())
    assert [state for _, state in true_jobs] == ["done"] * 5
    assert world.journal() == ({job for job, _ in true_jobs}, [])
    assert "Traceback" not in world.log.read_text()

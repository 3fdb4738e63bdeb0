"""Tests that one board stops nobody.

A client with a real certificate floods a real broker, service and command.
"""

import json
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.orders import Doctor, ExecutionReport, Order
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.certificates import active_bans
from edgemeter.provisioning.registry.jobs import NewJob, Target
from tests.fixtures.fleet_key import command_in, online
from tests.fixtures.mqtt_packets import connect_packet, publish_packet
from tests.fixtures.mqtt_peer import Peer, wait_until

pytestmark = pytest.mark.mosquitto

REPORT = b'{"job":"nobody-%d","attempt":1,"expected_version":1,"state":"running","session":1}'
FLOOD_S = 6.0


def flood(board, name):
    """Flood a topic over raw TLS connections with the board's certificate.

    A connection that is cut is opened anew. Returns: how often it tried to connect.
    """
    topic = f"edgemeter/v1/lab/{name}/job"
    block = b"".join(
        publish_packet(topic, REPORT % number, version="3.1.1") for number in range(2000)
    )
    context = ssl.create_default_context(cafile=str(board.files.ca))
    context.load_cert_chain(board.files.certificate, board.files.key)
    tries, end_s = 0, time.monotonic() + FLOOD_S
    while time.monotonic() < end_s:
        tries += 1
        try:
            connection = socket.create_connection(("127.0.0.1", board.lab.port), 10)
            with context.wrap_socket(connection, server_hostname="127.0.0.1") as line:
                line.sendall(connect_packet(name))
                line.recv(4)
                while time.monotonic() < end_s:
                    line.sendall(block)
        except OSError:
            time.sleep(0.05)
    return tries


class HonestBoard:
    """A board that does every order at once, and reports until that is acknowledged."""

    def __init__(self, board, name):
        self.name = name
        self._reports = {}
        self._session = MqttSession(board.address(), SessionProfile(name), self)
        self._session.connect()
        board.lab.stack.callback(self._session.close)

    def connected(self):
        self._session.subscribe([self._topic("command")])
        self._session.publish(self._topic("state"), online(1), lasting="retained")

    def disconnected(self, reason):
        """Come back."""

    def answered(self, refusal):
        """Go on."""

    def received(self, message: Message):
        order = orders.decode_command(command_in(message.payload))
        if isinstance(order, Order):
            report = ExecutionReport(
                job=order.job,
                attempt=order.attempt,
                expected_version=order.version,
                state="done",
                session=1,
            )
            self._reports[order.job] = orders.encode_order(report)
            self._session.publish(self._topic("job"), self._reports[order.job])
        else:
            self._reports.pop(order.noted, None)

    def does(self, lab):
        """Order a job, and return whether it is done in the end."""
        with lab.registry.transaction() as connection:
            job = jobs.add(
                connection,
                NewJob(works=(Doctor(),), title="t", timeout_s=600.0),
                [Target(self.name, "lab")],
                time.time_ns(),
            )

        def is_done():
            execution = jobs.find_execution(lab.registry, job, self.name)
            return execution is not None and execution.state == "done"

        for _ in range(10):
            if wait_until(is_done, 1.0):
                return True
            for report in list(self._reports.values()):
                self._session.publish(self._topic("job"), report)
        return False

    def _topic(self, kind):
        return f"edgemeter/v1/lab/{self.name}/{kind}"


def listed(lab, device):
    return next(
        line
        for line in json.loads(lab.run("list", "--format", "json"))["devices"]
        if line["device"] == device
    )


def may_publish(board, name):
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


def test_a_flooder_is_banned_for_a_time_and_others_have_their_jobs(running_lab):
    """A flooder is cut, refused and named in the list, and other devices have their jobs.

    `accept` ends the ban; where it ends by itself, the next one is longer.
    """
    lab = running_lab
    honest, attacker = HonestBoard(lab.joined("honest", "1"), "honest"), lab.joined("attacker", "2")
    pool = lab.stack.enter_context(ThreadPoolExecutor())
    for minutes in (1, 4):
        attack = pool.submit(flood, attacker, "attacker")
        assert wait_until(lambda: bool(active_bans(lab.registry, time.time_ns())))
        assert honest.does(lab)
        ban = active_bans(lab.registry, time.time_ns())["attacker"]
        assert ban.until_ns - ban.since_ns == minutes * 60_000_000_000
        line = listed(lab, "attacker")
        assert (line["presence"], line["issues"][0]["kind"]) == ("banned", "banned")
        assert attack.result() > 1
        assert not may_publish(attacker, "attacker")
        if minutes == 1:
            with lab.registry.transaction() as connection:
                # The ban is over.
                connection.execute("UPDATE bans SET until_ns = ?", (time.time_ns(),))
        else:
            lab.run("accept", "attacker")
        assert wait_until(lambda: may_publish(attacker, "attacker"))
    assert active_bans(lab.registry, time.time_ns()) == {}
    assert listed(lab, "honest")["presence"] == "online"


def test_a_thief_of_a_client_id_is_banned_and_its_victim_comes_back(running_lab):
    """A thief of a client id is banned, and its victim comes back.

    Each of the two would end the other's session again and again; the service reads of it in
    mosquitto's log.
    """
    lab = running_lab
    victim_board, thief_board = lab.joined("pi-1", "1"), lab.joined("pi-2", "2")
    victim, thief = victim_board.client("pi-1"), thief_board.client("pi-1")
    assert wait_until(lambda: "pi-2" in active_bans(lab.registry, time.time_ns()))
    assert wait_until(lambda: bool(thief.reasons) and victim.session.is_connected())
    thief.close()
    assert "client id of 'pi-1'" in listed(lab, "pi-2")["issues"][0]["text"]
    assert "pi-1" not in active_bans(lab.registry, time.time_ns())

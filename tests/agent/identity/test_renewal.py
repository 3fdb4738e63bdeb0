"""Renewal over the live session, and what the daemon makes of a copied card: processes, the real mosquitto, the real desk."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

import msgspec
import pytest

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.config import Config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import identity as contract_identity
from edgemeter.agent.contract.identity import CertificateHeld, EnrolmentAnswer
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.identity import identity
from edgemeter.agent.identity.renewal import POLL_S, RETRY_S, RenewalHandler
from edgemeter.provisioning.identity.authority import ServiceKey
from edgemeter.provisioning.registry import certificates
from tests.fixtures.fleet_key import signed_in
from tests.fixtures.mqtt_peer import wait_until
from tests.provisioning.identity.lab import Lab

pytestmark = [pytest.mark.mosquitto, pytest.mark.services]

LONG_S = 30.0
YEARS_NS = 2000 * 86_400 * 1_000_000_000


@pytest.fixture
def lab(tmp_path):
    """Return a running fleet."""
    with ExitStack() as stack:
        yield Lab(tmp_path, stack).start()


@pytest.fixture
def board(lab):
    """Return a board that has joined."""
    joined_board = lab.board("pi-1", "100000001")
    joined_board.join(lab.token("pi-1"))
    return joined_board


def change_identity(board, **changes):
    """Change what the board stores of itself."""
    changed = msgspec.structs.replace(identity.read_identity(board.home), **changes)
    durable_file.write(board.files.identity, msgspec.json.encode(changed))


def age(lab, board):
    """Let most of the certificate's life have passed."""
    stored = identity.read_identity(board.home)
    change_identity(board, issued_ns=stored.issued_ns - YEARS_NS)
    with lab.registry.transaction() as connection:
        connection.execute("UPDATE certificates SET issued_ns = issued_ns - ?", (YEARS_NS,))
    return stored


def up(lab, board):
    """Return the daemon, as a process, ended with the test."""
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "agent", "up", "--config", str(board.config)]
    process = subprocess.Popen(command, env={**os.environ, "EDGEMETER_HOME": str(board.home)}, stderr=subprocess.PIPE, text=True)
    lab.stack.callback(process.communicate)
    lab.stack.callback(process.kill)
    return process


def states(operator):
    """Return what the device said of itself."""
    return [json.loads(message.payload)["state"] for message in operator.messages if message.topic == "edgemeter/v1/lab/pi-1/state"]


def this_board(board):
    """Make the identity this machine's: the process reads the real one's serial number."""
    change_identity(board, serial_path=None)


def test_a_certificate_is_renewed_over_the_live_session(lab, board):
    """At two thirds of its life: another number, the same key, the session stays, the old one is not revoked."""
    before = age(lab, board)
    this_board(board)
    key = board.files.key.read_bytes()
    operator = lab.service_client("operator")
    up(lab, board)
    assert wait_until(lambda: identity.read_identity(board.home).number != before.number, LONG_S)
    assert identity.belong_together(board.files.certificate, board.files.key)
    assert board.files.key.read_bytes() == key
    assert len(certificates.of_device(lab.registry, "pi-1")) == 2
    assert certificates.revoked(lab.registry) == set()
    assert states(operator) == ["online"]
    assert not identity.read_identity(board.home).is_due(identity.read_identity(board.home).seen_ns)


def test_a_young_certificate_is_left_alone_and_a_lost_reply_costs_none(lab, board):
    """Not due: no question. Asked three times: one new certificate."""
    context = a_context(board)
    assert RenewalHandler(context).poll() == POLL_S
    age(lab, board)
    for _ in range(3):
        assert RenewalHandler(context).poll() == RETRY_S
    assert wait_until(lambda: len(context.publish.peer.messages) == 3)
    numbers = {contract_identity.decode_answer(signed_in(message.payload)).number for message in context.publish.peer.messages}
    assert len(numbers) == 1
    assert len(certificates.of_device(lab.registry, "pi-1")) == 2


def test_a_revoked_device_is_not_renewed(lab, board):
    """Over a session that was not ended yet."""
    context = a_context(board)
    age(lab, board)
    with lab.registry.transaction() as connection:
        connection.execute("UPDATE devices SET standing = 'pending'")
    renewal = RenewalHandler(context)
    renewal.poll()
    assert wait_until(lambda: bool(context.publish.peer.messages))
    with pytest.raises(ConfigError, match="not an accepted device"):
        renewal.received(context.publish.peer.messages[0])
    assert len(certificates.of_device(lab.registry, "pi-1")) == 1


def test_replies_to_nobodys_question_change_nothing(lab, board):
    """Forged, garbled, to another's question, for another key."""
    context = a_context(board)
    age(lab, board)
    renewal = RenewalHandler(context)
    before = {path: path.read_bytes() for path in board.files.folder.iterdir()}
    renewal._request = "00"
    for payload in (b"", b"{", b"\xff" * 100, b"[]"):
        with pytest.raises(ConfigError):
            renewal.received(Message(context.topic("certificate"), payload))
    answer = EnrolmentAnswer(
        request="00", state="accepted", now_ns=1, device="pi-2", fleet="lab", number="1", certificate="x", not_after_ns=2
    )
    key = ServiceKey(lab.folder)
    with pytest.raises(ConfigError, match="signed"):
        renewal.received(Message(context.topic("certificate"), contract_identity.encode_identity(answer)))
    renewal.received(
        Message(context.topic("certificate"), key.seal(contract_identity.encode_identity(msgspec.structs.replace(answer, request="11"))))
    )
    renewal.poll()
    for certificate in (None, "x"):
        renewal._request = "00"
        with pytest.raises(ConfigError):
            renewal.received(
                Message(
                    context.topic("certificate"),
                    key.seal(contract_identity.encode_identity(msgspec.structs.replace(answer, certificate=certificate))),
                )
            )
    assert identity.belong_together(board.files.certificate, board.files.key)
    assert {path: path.read_bytes() for path in before} == before


def test_a_device_that_has_joined_no_fleet_renews_nothing(tmp_path):
    """It hears nothing and asks nothing."""
    context = a_context(None, tmp_path / "empty")
    renewal = RenewalHandler(context)
    assert (tuple(renewal.topics), renewal.poll()) == ((), POLL_S)


def test_a_copied_card_publishes_nothing_in_the_first_boards_name(lab, board):
    """The daemon waits, as pi-1 is another board, and goes on as pi-2 when it may; the first one's session is never touched."""
    copy = lab.board("copy", "100000002")
    shutil.copytree(board.home, copy.home, dirs_exist_ok=True)
    shutil.copy(board.config, copy.config)
    copy.config.write_text(copy.config.read_text().replace(str(board.home), str(copy.home)))
    path = lab.path / "serial"
    path.write_text("another board's")
    # What this machine has at that place is not what the card remembers.
    change_identity(copy, serial_path=str(path).lstrip("/"))
    operator = lab.service_client("operator")
    first = board.client("pi-1")
    process = up(lab, copy)
    assert wait_until(lambda: "pi-1" in lab.run("requests", "--json"), LONG_S)
    assert states(operator) == []
    assert process.poll() is None
    lab.run("requests", "accept", "pi-1", "--as", "pi-2")
    assert wait_until(lambda: any(message.topic == "edgemeter/v1/lab/pi-2/state" for message in operator.messages), LONG_S)
    assert states(operator) == []
    assert first.reasons == []


class _Way:
    """A context's way to the broker: a client with the board's certificate."""

    def __init__(self, peer):
        self.peer = peer

    def __call__(self, topic, payload, *, qos=1, lasting="passing"):
        """Hand over one message."""
        self.peer.session.publish(topic, payload, qos=qos, lasting=lasting)
        return True


def a_context(board, home=None):
    """Return what a handler is given."""
    way = _Way(board.client("pi-1", "edgemeter/v1/lab/pi-1/certificate") if board else None)
    return HandlerContext(
        device="pi-1",
        fleet="lab",
        session=1,
        settings=Config(),
        home=home or board.home,
        config=None,
        publish=way,
        report_challenge=lambda _challenge: None,
        is_connected=lambda: True,
        wake=lambda: None,
        restart=lambda: None,
        log=list,
    )


def test_a_renewal_ends_the_earlier_certificate_once_the_new_one_was_used(lab, board):
    """Not when it is issued, but a week after the device first connects with it; nobody else can end it; a revocation ends both at once."""
    before = age(lab, board)
    this_board(board)
    process = up(lab, board)
    assert wait_until(lambda: identity.read_identity(board.home).number != before.number, LONG_S)
    renewed = identity.read_identity(board.home).number
    # A number that is none of the device's ends nothing.
    stranger = a_context(board)
    stranger.publish(stranger.topic("renew"), contract_identity.encode_identity(CertificateHeld(held="0a")))
    process.terminate()
    process.wait()
    assert all(certificate.revoked_ns is None for certificate in certificates.of_device(lab.registry, "pi-1"))
    up(lab, board)
    ends = {}

    def is_ended():
        ends.update({certificate.number: certificate.revoked_ns for certificate in certificates.of_device(lab.registry, "pi-1")})
        return ends[before.number] is not None

    assert wait_until(is_ended, LONG_S)
    assert ends[renewed] is None
    week_ns = 7 * 86_400 * 10**9
    assert abs(ends[before.number] - time.time_ns() - week_ns) < week_ns / 7
    assert certificates.revoked(lab.registry) == set()
    assert certificates.revoked(lab.registry, ends[before.number]) == {before.number}
    lab.run("revoke", "pi-1")
    assert certificates.revoked(lab.registry) == {before.number, renewed}

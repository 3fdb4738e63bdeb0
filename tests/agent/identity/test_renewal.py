"""Certificates are renewed in time, and a copied card is recognised by the daemon.

The tests use the real mosquitto and the real service where these matter.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace

import msgspec
import pytest

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.contract.identity import EnrolmentAnswer
from edgemeter.agent.identity import identity, renewal
from edgemeter.agent.identity.identity import BoardSerial, Identity, IdentityFiles
from edgemeter.agent.identity.renewal import POLL_S, RETRY_S, RenewalHandler
from edgemeter.provisioning.registry import certificates
from tests.fixtures.mqtt_peer import wait_until
from tests.provisioning.identity.lab import Lab

LONG_S = 30.0
YEAR_NS = 365 * 86_400 * 1_000_000_000
YEARS_NS = 2000 * 86_400 * 1_000_000_000


@pytest.fixture
def lab(tmp_path):
    with ExitStack() as stack:
        yield Lab(tmp_path, stack).start()


@pytest.fixture
def board(lab):
    joined_board = lab.board("pi-1", "100000001")
    joined_board.join(lab.token("pi-1"))
    return joined_board


def change_identity(board, /, **changes):
    changed = msgspec.structs.replace(identity.read_identity(board.home), **changes)
    durable_file.write(board.files.identity, msgspec.json.encode(changed))


def age(lab, board):
    stored = identity.read_identity(board.home)
    change_identity(board, issued_ns=stored.issued_ns - YEARS_NS)
    with lab.registry.transaction() as connection:
        connection.execute("UPDATE certificates SET issued_ns = issued_ns - ?", (YEARS_NS,))
    return stored


def up(lab, board):
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "agent",
        "up",
        "--config",
        str(board.config),
    ]
    process = subprocess.Popen(
        command,
        env={**os.environ, "EDGEMETER_HOME": str(board.home)},
        stderr=subprocess.PIPE,
        text=True,
    )
    lab.stack.callback(process.communicate)
    lab.stack.callback(process.kill)
    return process


def states(operator):
    return [
        json.loads(message.payload)["state"]
        for message in operator.messages
        if message.topic == "edgemeter/v1/lab/pi-1/state"
    ]


class Renewing:
    """The handler of a board whose identity, clock, thread and service are the test's."""

    def __init__(self, home, monkeypatch):
        self.home = home
        self.files = IdentityFiles(home)
        self.files.folder.mkdir(parents=True)
        self.now_s = 1000.0
        self.work = []
        self.asked = []
        end_ns = time.time_ns() + YEAR_NS
        fields = {"device": "pi-1", "fleet": "lab", "number": "2", "certificate": "PEM"}
        self.answer = EnrolmentAnswer(
            state="accepted", now_ns=end_ns - 2 * YEAR_NS, not_after_ns=end_ns, **fields
        )
        monkeypatch.setattr(
            renewal, "certificate_request", lambda key, device: f"{key.name} of {device}"
        )
        monkeypatch.setattr(
            renewal.joining,
            "belong_together",
            lambda certificate, key: (certificate.name, key.name) == PAIR,
        )

    def start(self, not_after_ns):
        """Start the handler of a board whose certificate ends then; it began as long ago."""
        self.files.identity.write_bytes(msgspec.json.encode(identity_until(not_after_ns)))
        self.handler = RenewalHandler(
            self.context(), lambda: self.now_s, self.work.append, lambda *_: self
        )
        return self.handler

    def context(self):
        return SimpleNamespace(device="pi-1", home=self.home)

    def does(self):
        self.work.pop()()

    def ask(self, path, question):
        self.asked.append((path, question.csr))
        if self.answer is None:
            raise TransientError("it is away")
        return self.answer

    def confirm(self):
        self.asked.append(("/confirm", None))
        return self.answer is not None


def identity_until(not_after_ns, number="1"):
    """Return an identity whose certificate has the second half of its life before it."""
    fields = {
        "device": "pi-1",
        "fleet": "lab",
        "board": BoardSerial("1", "emmc", "x"),
        "broker": "mqtts://b:8883",
    }
    times = {"issued_ns": not_after_ns - 2 * YEAR_NS, "not_after_ns": not_after_ns}
    return Identity(**fields, **times, service="https://b:8443", number=number, claim="c1")


@pytest.fixture
def renewing(tmp_path, monkeypatch):
    return Renewing(tmp_path / "home", monkeypatch)


PAIR = ("next.crt", "device.key")
ASKED, CONFIRMED = ("/renew", "device.key of pi-1"), ("/confirm", None)


def test_a_certificate_that_is_not_due_is_confirmed_once(renewing):
    """The request is repeated every five minutes, one at a time, until the service has it."""
    handler = renewing.start(time.time_ns() + YEAR_NS)
    renewing.answer, answer = None, renewing.answer
    for _ in range(2):
        assert handler.poll() == RETRY_S
        renewing.now_s += RETRY_S
    renewing.does()
    assert (renewing.work, renewing.asked) == ([], [CONFIRMED])
    renewing.answer = answer
    renewing.now_s += 1.0
    assert handler.poll() == RETRY_S
    renewing.now_s += RETRY_S - 1.0
    assert handler.poll() == 1.0
    renewing.does()
    assert renewing.asked == [CONFIRMED, CONFIRMED]
    assert handler.poll() == POLL_S


def test_a_certificate_is_renewed_when_it_is_due_and_again_when_no_answer_comes(renewing, caplog):
    """Renewal starts at two thirds of the certificate's life.

    A refusal is reported, and the new certificate is confirmed at once.
    """
    handler = renewing.start(time.time_ns() - YEAR_NS)
    renewing.answer, answer = None, renewing.answer
    for state in (None, "refused", "accepted"):
        renewing.answer = state and msgspec.structs.replace(answer, state=state, reason="unknown")
        assert handler.poll() == RETRY_S
        renewing.does()
        renewing.now_s += RETRY_S
    assert renewing.asked == [ASKED, ASKED, ASKED, CONFIRMED]
    assert [record.getMessage() for record in caplog.records] == [
        "the certificate is not renewed: it is away",
        "the certificate is not renewed: the fleet does not accept this board (refused): unknown",
    ]
    assert handler.poll() == POLL_S
    renewed = identity.read_identity(renewing.home)
    assert (renewed.number, renewed.board, renewed.claim) == (
        "2",
        BoardSerial("1", "emmc", "x"),
        "c1",
    )
    assert (renewed.broker, renewed.service) == ("mqtts://b:8883", "https://b:8443")
    assert renewing.files.certificate.read_bytes() == b"PEM"


def test_a_device_that_has_joined_no_fleet_renews_nothing(renewing):
    """The device sends no request."""
    assert RenewalHandler(renewing.context()).poll() == POLL_S


@pytest.mark.mosquitto
def test_a_copied_card_publishes_nothing_in_the_first_boards_name(lab, board):
    """The daemon waits, as pi-1 is another board, and goes on as pi-2 once it is approved.

    The first board's session is never touched.
    """
    copy = lab.board("copy", "100000002")
    shutil.copytree(board.home, copy.home, dirs_exist_ok=True)
    shutil.copy(board.config, copy.config)
    copy.config.write_text(copy.config.read_text().replace(str(board.home), str(copy.home)))
    path = lab.path / "serial"
    path.write_text("another board's")
    # This machine's serial number is not the one on the card.
    change_identity(copy, board=BoardSerial("100000001", "device-tree", str(path).lstrip("/")))
    operator = lab.service_client("operator")
    first = board.client("pi-1")
    process = up(lab, copy)
    assert wait_until(lambda: "pi-1" in lab.run("requests", "--format", "json"), LONG_S)
    assert states(operator) == []
    assert process.poll() is None
    lab.run("accept", "pi-1", "--as", "pi-2")
    assert wait_until(
        lambda: any(
            message.topic == "edgemeter/v1/lab/pi-2/state" for message in operator.messages
        ),
        LONG_S,
    )
    assert states(operator) == []
    assert first.reasons == []


@pytest.mark.mosquitto
def test_a_renewal_ends_the_earlier_certificate_once_the_new_one_was_used(lab, board):
    """The old certificate ends a week after the device first uses the new one.

    The session goes on meanwhile, with the same key.
    """
    before, key = age(lab, board), board.files.key.read_bytes()
    # The process reads the real serial number.
    change_identity(board, board=BoardSerial("100000001", "device-tree", None))
    operator = lab.service_client("operator")
    up(lab, board)
    assert wait_until(lambda: identity.read_identity(board.home).number != before.number, LONG_S)
    renewed = identity.read_identity(board.home).number
    assert identity.belong_together(board.files.certificate, board.files.key)
    assert board.files.key.read_bytes() == key
    # The renewal may be over before the broker has passed on the state.
    assert wait_until(lambda: states(operator), LONG_S)
    ends = {}

    def is_ended():
        ends.update(
            {
                certificate.number: certificate.revoked_ns
                for certificate in certificates.of_device(lab.registry, "pi-1")
            }
        )
        return ends[before.number] is not None

    assert wait_until(is_ended, LONG_S)
    assert states(operator) == ["online"]
    assert ends[renewed] is None
    assert certificates.refused(lab.registry, time.time_ns()) == set()
    assert certificates.refused(lab.registry, ends[before.number]) == {before.number}
    lab.run("revoke", "pi-1")
    assert certificates.refused(lab.registry, time.time_ns()) == {before.number, renewed}

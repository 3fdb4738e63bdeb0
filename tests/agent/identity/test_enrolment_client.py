"""Facts about `edgemeter.agent.identity.enrolment_client`, at a service that is an object."""

import ssl
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.contract.identity import CertificateRequest, EnrolmentAnswer, encode_identity
from edgemeter.agent.identity import enrolment_client, joining
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from edgemeter.agent.identity.identity import IdentityFiles
from tests.fixtures.rows import table_row

QUESTION = CertificateRequest(csr="CSR", serial="1", serial_source="made")
ACCEPTED = EnrolmentAnswer(state="accepted", now_ns=1, device="pi-1", fleet="lab")


class Service:
    """The service at the other end, which gives its `replies` in turn.

    Time passes as the client sleeps.
    """

    def __init__(self, monkeypatch):
        self.now_s, self.replies, self.asked, self.alive = 0.0, [], [], 0
        monkeypatch.setattr(enrolment_client, "open_url", self._open)
        monkeypatch.setattr(enrolment_client, "tls_context", lambda _files: None)
        monkeypatch.setattr(enrolment_client, "time", self)
        monkeypatch.setattr(enrolment_client, "interrupts", self)

    def client(self):
        return EnrolmentClient("https://fleet.example:8443/", TlsFiles(), self._count)

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    def _count(self):
        self.alive += 1

    def _open(self, url, _may_follow, _timeout_s, content, context):
        assert context is None
        self.asked.append((self.now_s, url, content))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class Reply:
    """An answer of HTTP."""

    def __init__(self, body, status=200):
        self.body, self.status = body, status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Nothing to close."""

    def read(self, _limit):
        return self.body if isinstance(self.body, bytes) else encode_identity(self.body)


@pytest.fixture
def service(monkeypatch):
    return Service(monkeypatch)


def pending(reason="needs approval"):
    return Reply(EnrolmentAnswer(state="pending", now_ns=1, reason=reason))


def test_a_board_that_waits_for_approval_asks_less_and_less_often(service, caplog):
    """The pauses grow from five seconds to a minute at most.

    The watchdog is notified each second, and the log has one line.
    """
    caplog.set_level("INFO")
    service.replies = [*(pending() for _ in range(6)), Reply(ACCEPTED)]
    assert service.client().request("/enrol", QUESTION, 600.0) == ACCEPTED
    assert [round(asked_s) for asked_s, _, _ in service.asked] == [0, 5, 15, 35, 75, 135, 195]
    assert {request[1:] for request in service.asked} == {
        ("https://fleet.example:8443/enrol", encode_identity(QUESTION))
    }
    assert service.alive >= 195
    assert caplog.text.count("waiting for approval") == 1


def test_a_service_that_is_away_is_asked_again_until_the_time_is_over(service, caplog):
    """A failed connection, a busy server and a malformed reply are all tried again.

    The last reason is reported.
    """
    service.replies = [
        ConnectionRefusedError("refused"),
        ssl.SSLEOFError("cut"),
        Reply(b"x", 503),
        Reply(ACCEPTED),
    ]
    assert service.client().request("/enrol", QUESTION, 600.0) == ACCEPTED
    service.replies = [ConnectionRefusedError("refused") for _ in range(100)]
    with pytest.raises(TransientError, match=r"within 60 s .*refused.*try again later"):
        service.client().request("/enrol", QUESTION, 60.0)
    assert caplog.text.count("WARNING") == 4


def test_what_time_does_not_change_is_an_error_at_once(service):
    """A refused request and a certificate that either side rejects are not tried again."""
    untrusted = ssl.SSLCertVerificationError("x")
    untrusted.verify_message = "self-signed"
    for reply, kind, words in (
        (Reply(b"give the certificate", 403), ConfigError, "responds 403: give the certificate"),
        (Reply(b"", 404), ConfigError, "responds 404"),
        (untrusted, UnavailableError, "self-signed"),
        (
            ssl.SSLError(1, "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
            ConfigError,
            "rejects this board's certificate",
        ),
    ):
        service.replies = [reply]
        with table_row(words), pytest.raises(kind, match=words):
            service.client().ask("/renew", QUESTION)
    service.replies = [ConnectionResetError("reset")]
    assert not service.client().confirm()


def test_a_key_that_came_with_a_copied_card_is_made_anew(tmp_path, monkeypatch):
    """A new key is made as often as the service replies `again`, at most three times."""
    files = IdentityFiles(tmp_path)
    files.folder.mkdir()
    keys = iter("abcd")
    monkeypatch.setattr(joining, "make_key", lambda path: path.write_text(next(keys)))
    monkeypatch.setattr(
        joining, "certificate_request", lambda path, name: f"{path.read_text()} {name}"
    )
    for states, requests in (
        (("accepted",), ["a pi-1"]),
        (("again", "again", "again"), ["a pi-1", "b pi-1", "c pi-1"]),
    ):
        requests_made, answers = [], iter(states)

        def request(_path, question, _timeout_s, requests_made=requests_made, answers=answers):
            requests_made.append(question.csr)
            return EnrolmentAnswer(state=next(answers), now_ns=1)

        client = SimpleNamespace(request=request)
        assert (
            joining.ask_certificate(client, "/enrol", files, QUESTION, "pi-1", 1.0).state
            == states[-1]
        )
        assert requests_made == requests

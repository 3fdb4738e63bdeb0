"""The fleet's HTTPS server: certificates and content for boards, whatever strangers send it."""

import functools
import http.client
import socket
import ssl
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.http_server import HttpServer
from edgemeter.agent.base.log_limit import LogLimit
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.identity import CertificateRequest
from edgemeter.agent.jobs import content as jobs_content
from edgemeter.agent.jobs import fetch
from edgemeter.provisioning.identity.fleet_server import FleetServer, RequestRefusedError
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates
from edgemeter.provisioning.serve.content_store import ContentStore
from tests.fixtures.certificates import Authority
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK

S = 1_000_000_000


class Judged:
    """A server that is not started, its registry, and what it answers; the test moves its clock."""

    def __init__(self, lab, monkeypatch):
        monkeypatch.setattr(HttpServer, "__init__", lambda *_: None)
        monkeypatch.setattr(HttpServer, "stop", lambda *_: None)
        self.lab, self.now_ns = lab, time.time_ns()
        self.server = FleetServer(
            lab.folder, ServerEntry(broker="broker.example"), lambda: self.now_ns, lambda: 0.0
        )
        lab.stack.callback(self.server.stop)

    def posts(self, path, document=b"", certificate=None, address="192.0.2.1"):
        body = document if isinstance(document, bytes) else identity.encode_identity(document)
        return self.server.answer(path, body, certificate or {}, address)

    def joins(self, device, key, serial):
        token = identity.read_join_file(self.lab.token(device)).token
        answer = identity.decode_answer(self.posts("/enrol", asking(key, serial, token)))
        assert (answer.state, answer.device) == ("accepted", device)
        return peer(device, answer.number.upper())


@pytest.fixture
def judged(lab, monkeypatch):
    return Judged(lab, monkeypatch)


@functools.cache
def private_key(name):
    del name
    return ec.generate_private_key(ec.SECP256R1())


def asking(key, serial, token=None):
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(private_key(key), hashes.SHA256())
    )
    csr = signed.public_bytes(serialization.Encoding.PEM).decode()
    return CertificateRequest(csr=csr, serial=serial, serial_source="emmc", token=token)


def named(request, name):
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(private_key("key 1"), hashes.SHA256())
    )
    return msgspec.structs.replace(
        request, csr=signed.public_bytes(serialization.Encoding.PEM).decode()
    )


def peer(name, number):
    return {
        "subject": ((("organizationName", "x"),), (("commonName", name),)),
        "serialNumber": number,
    }


def refusal(judged, path, document=b"", certificate=None):
    with pytest.raises(RequestRefusedError) as error:
        judged.posts(path, document, certificate)
    return error.value.status


def test_accepted_devices_are_admitted_by_their_certificates(judged):
    """Only an accepted device is admitted, by a certificate with its one name.

    A certificate is refused if it is revoked, has two names or none, or belongs to a device that is
    not accepted or is banned. A ban ends by itself.
    """
    certificate = judged.joins("pi-1", "key 1", "1")
    judged.lab.token("pi-2")
    assert judged.server.admitted(certificate)[0] == "pi-1"
    two_names = {
        "subject": ((("commonName", "pi-1"),), (("commonName", "pi-2"),)),
        "serialNumber": "1",
    }
    for other in (peer("pi-2", "1"), peer("pi-9", "1"), two_names, {"serialNumber": "1"}, {}):
        with table_row(other):
            assert refusal(judged, "/renew", certificate=other) == 403
    with judged.lab.registry.transaction() as statements:
        certificates.ban_device(statements, judged.lab.registry, "pi-1", "it floods", judged.now_ns)
    assert refusal(judged, "/confirm", certificate=certificate) == 403
    judged.now_ns += 61 * S
    assert judged.posts("/confirm", certificate=certificate) == b""
    judged.lab.run("revoke", "pi-1")
    assert refusal(judged, "/renew", certificate=certificate) == 403


def test_a_token_ends_when_the_certificate_is_used_and_a_lost_answer_is_given_again(judged):
    """A board that was cut off before it had the answer may ask again with its token.

    The first use of the certificate ends the token.
    """
    token = identity.read_join_file(judged.lab.token("pi-1")).token
    first, repeated = (
        identity.decode_answer(judged.posts("/enrol", asking("key 1", "1", token)))
        for _ in range(2)
    )
    assert (first.state, first.number) == ("accepted", repeated.number)
    certificate = peer("pi-1", first.number)
    for _ in range(2):
        assert judged.posts("/confirm", certificate=certificate) == b""
    assert (
        identity.decode_answer(judged.posts("/enrol", asking("key 1", "1", token))).state
        == "refused"
    )
    renewed = identity.decode_answer(
        judged.posts("/renew", named(asking("key 1", "1"), "pi-1"), certificate)
    )
    assert (renewed.state, renewed.number) == ("accepted", first.number)


def test_a_board_that_asks_again_and_again_is_one_line_of_the_log(judged, caplog):
    """A board that asks again and again causes one line of the log, so it cannot fill the disk.

    Another certificate is another line.
    """
    caplog.set_level("INFO")
    limit = LogLimit(lambda: 0.0)
    certificates_of = [
        judged.joins(f"pi-{number}", f"key {number}", str(number)) for number in (1, 2)
    ]
    for _ in range(5):
        judged.posts("/renew", named(asking("key 1", "1"), "pi-1"), certificates_of[0])
    lines = [record.getMessage() for record in caplog.records if limit.filter(record)]
    assert sum("has certificate" in line for line in lines) == 2


def test_an_accepted_board_has_its_certificate_when_it_asks_again(judged):
    """A waiting board has its certificate once a person has accepted it by a command."""
    file = judged.lab.folder.fleet_file
    file.write_text(file.read_text().replace("[server]\n", '[server]\naccept = "hand"\n'))
    request = asking("key 1", "1", identity.read_join_file(judged.lab.token("pi-1")).token)
    states = [identity.decode_answer(judged.posts("/enrol", request)).state]
    judged.lab.run("accept", "pi-1")
    states += [identity.decode_answer(judged.posts("/enrol", request)).state for _ in range(2)]
    assert states == ["pending", "accepted", "accepted"]


def test_what_is_no_request_is_refused_in_one_line(judged):
    """A malformed request is refused in one line.

    It is bytes without a meaning, a signature by another key, or another address. A broken
    fleet.toml is not reported as the board's fault.
    """
    token = identity.read_join_file(judged.lab.token("pi-1")).token
    request, other = asking("key 1", "1", token), asking("key 2", "1", token)
    lines, other_lines = request.csr.splitlines(), other.csr.splitlines()
    forged = msgspec.structs.replace(
        request, csr="\n".join([*lines[:-2], other_lines[-2], lines[-1], ""])
    )
    for body in (
        b"",
        b"\x80",
        b"{" * (17 << 10),
        b"[]",
        b"x" * (1 << 20),
        identity.encode_identity(forged),
    ):
        with table_row(body[:10]), pytest.raises(ConfigError) as error:
            judged.posts("/enrol", body)
        assert len(str(error.value)) < 400
        assert "\n" not in str(error.value)
        assert token not in str(error.value)
    assert refusal(judged, "/other", request) == 404
    judged.lab.folder.fleet_file.write_text("x")
    with pytest.raises(UnavailableError):
        judged.posts("/enrol", request)


def test_guesses_at_tokens_are_limited_by_address(judged):
    """After some hundreds of wrong tokens an address is ignored for a while; others are served.

    All wrong tokens are refused in the same words.
    """
    for number in range(500):
        answer = identity.decode_answer(judged.posts("/enrol", asking_cheaply(f"guess {number}")))
        assert (answer.state, "expired" in answer.reason) == ("refused", True)
    right = identity.read_join_file(judged.lab.token("pi-1")).token
    assert refusal(judged, "/enrol", asking("key 1", "1", right)) == 429
    elsewhere = judged.posts("/enrol", asking("key 1", "1", right), address="192.0.2.2")
    assert identity.decode_answer(elsewhere).state == "accepted"


def asking_cheaply(token):
    """Return a request whose CSR nobody reads, as its token is wrong."""
    return CertificateRequest(csr="none", serial="1", serial_source="emmc", token=token)


def test_without_certificates_there_is_no_server(tmp_path):
    """There is no server without certificates, nor with files that contain none."""
    folder = FleetFolder(tmp_path / "fleet")
    folder.path.mkdir()
    for content in (None, "none"):
        if content is not None:
            folder.ca_certificate.write_text(content)
        with pytest.raises(ConfigError, match="cannot be used"):
            FleetServer(folder, ServerEntry(broker="localhost"))


@pytest.fixture
def served(broker_lab):
    """Return a fleet whose server listens, with the accepted device pi-1."""
    broker_lab.serve_boards()
    board = broker_lab.joined("pi-1", "1")
    return broker_lab, TlsFiles(board.files.ca, board.files.certificate, board.files.key)


@contextmanager
def connect(lab, files):
    context = tls_context(files)
    with closing(
        http.client.HTTPSConnection(LOOPBACK, lab.https_port, context=context, timeout=100)
    ) as connection:
        yield connection


def ask(connection, path, method="GET", **headers):
    connection.request(
        method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


@pytest.mark.needs("openssl")
@pytest.mark.services
def test_a_device_gets_content_and_parts_of_it(served):
    """A device gets a content as a whole, from an offset on, or only its head.

    No other address and no other method gives anything.
    """
    lab, files = served
    content = bytes(range(256)) * 40
    put = ContentStore(lab.folder.content).put_bytes(content, "model")
    path = f"/content/{put.sha256}"
    with connect(lab, files) as connection:
        assert ask(connection, path)[::2] == (200, content)
        status, headers, body = ask(connection, path, Range="bytes=1000-")
        assert (status, body, headers["Content-Range"]) == (
            206,
            content[1000:],
            "bytes 1000-10239/10240",
        )
        for other in ("bytes=5-7", "bytes=-5", "bytes=0-1,3-4", "items=5-"):
            assert ask(connection, path, Range=other)[::2] == (200, content), other
        status, headers, _ = ask(connection, path, Range="bytes=10240-")
        assert (status, headers["Content-Range"]) == (416, "bytes */10240")
        status, headers, body = ask(connection, path, "HEAD")
        assert (status, headers["Content-Length"], body) == (200, "10240", b"")
        for other in (
            "/",
            "/content/",
            "/content/../ca.key",
            "/content/%2e%2e/ca.key",
            f"{path}/",
            f"{path}?x",
            f"{path}%00",
        ):
            with connect(lab, files) as connected:
                assert ask(connected, other)[::2] == (404, b""), other
        with connect(lab, files) as connected:
            assert ask(connected, path, "PUT")[0] == 501
        lab.run("revoke", "pi-1")
        assert ask(connection, path)[0] == 403


@pytest.mark.needs("openssl")
@pytest.mark.services
def test_who_has_no_certificate_of_the_fleet_has_no_content(served, tmp_path):
    """Content is only served to certificates of the fleet.

    A client without a certificate is refused; with a stranger's or an expired one the TLS handshake
    fails; plain HTTP gets nothing.
    """
    lab, files = served
    put = ContentStore(lab.folder.content).put_bytes(b"abc", "model")
    path = f"/content/{put.sha256}"
    with connect(lab, TlsFiles(files.ca)) as nobody:
        assert ask(nobody, path)[0] == 403
    stranger = Authority(tmp_path / "stranger").signed("pi-1")
    refusals = pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected))
    with connect(lab, TlsFiles(files.ca, stranger.certificate, stranger.key)) as strange, refusals:
        ask(strange, path)
    plain = http.client.HTTPConnection(LOOPBACK, lab.https_port, timeout=100)
    with closing(plain), pytest.raises((OSError, http.client.HTTPException)):
        ask(plain, path)
    with connect(lab, files) as connection:
        assert ask(connection, path)[2] == b"abc"


@pytest.mark.services
def test_a_body_that_is_too_large_or_does_not_come_is_ended(served, monkeypatch):
    """A body that is too large is refused at once, and one that does not arrive times out."""
    lab, files = served
    monkeypatch.setattr(HttpServer, "head_s", 1.0)
    for head in (
        "Content-Length: 16385",
        f"Content-Length: {'9' * 5000}",
        "Transfer-Encoding: chunked",
    ):
        assert raw(lab, files, f"POST /enrol HTTP/1.1\r\n{head}\r\n\r\n").startswith(
            b"HTTP/1.1 413"
        )
    assert b" 200 " not in raw(lab, files, "POST /enrol HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")


def raw(lab, files, text):
    """Return what the server answers to these bytes, until it ends the connection."""
    context, received = tls_context(TlsFiles(files.ca)), b""
    with (
        socket.create_connection((LOOPBACK, lab.https_port), 60) as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK) as line,
        suppress(OSError),
    ):
        line.sendall(text.encode())
        while data := line.recv(4096):
            received += data
    return received


@pytest.mark.needs("openssl")
@pytest.mark.services
def test_an_agent_fetches_and_goes_on_where_it_was(served, tmp_path):
    """An agent continues a partial download, and fetches it anew if that part was wrong."""
    lab, files = served
    content = bytes(range(256)) * 8192
    put = ContentStore(lab.folder.content).put_bytes(content, "model")
    part, final = tmp_path / "part", tmp_path / "final"
    tls = (str(files.ca), str(files.certificate), str(files.key))
    url = f"https://{LOOPBACK}:{lab.https_port}/content/{put.sha256}"
    task = jobs_content.FetchTask(content=put, part=str(part), final=str(final), url=url, tls=tls)
    for arrived in (content[:1_000_000], b"x" * 1_000_000):
        part.write_bytes(arrived)
        fetch.fetch(task)
        assert final.read_bytes() == content


# Strangers in a process of their own: `select`, which clients wait with, knows 1,024 files.
SILENT = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
address, count = ("127.0.0.1", int(sys.argv[1])), int(sys.argv[2])
connections = [socket.create_connection(address, 60) for _ in range(count)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.needs("openssl")
@pytest.mark.services
@pytest.mark.parametrize("count", [250, 1100])
def test_silent_connections_close_the_enrolment_to_nobody(broker_lab, count):
    """A board joins although strangers hold up to four times as many connections as allowed."""
    broker_lab.serve_boards()
    command = [sys.executable, "-c", SILENT, str(broker_lab.https_port), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as strangers:
        assert strangers.stdout.readline() == b"ready\n"
        assert broker_lab.board("pi-1", "1").join(broker_lab.token("pi-1"), 20.0).device == "pi-1"
        strangers.stdin.close()

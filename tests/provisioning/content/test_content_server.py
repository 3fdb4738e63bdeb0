"""Content over real HTTPS with certificates: resumed, in thousands, and for nobody else."""

import http.client
import shutil
import ssl
import subprocess
from contextlib import closing, contextmanager

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.jobs import content as jobs_content
from edgemeter.agent.jobs import fetch
from edgemeter.provisioning.content.content_server import ContentServer
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import Certificate
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.certificates import EXPIRED, Authority
from tests.fixtures.rows import table_row
from tests.fixtures.servers import free_port

pytestmark = pytest.mark.needs("openssl")

SMALL = 2000


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return the fleet's authority."""
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture(scope="module")
def pair(authority):
    """Return the certificate of the device pi-1."""
    return authority.signed("pi-1")


@pytest.fixture
def folder(tmp_path, authority):
    """Return a fleet's folder with certificates and the accepted device pi-1."""
    fleet = FleetFolder(tmp_path / "fleet")
    fleet.broker.mkdir(parents=True)
    shutil.copy(authority.certificate, fleet.ca_certificate)
    server_pair = authority.signed("localhost", "DNS:localhost,IP:127.0.0.1")
    shutil.copy(server_pair.certificate, fleet.broker / "broker.crt")
    shutil.copy(server_pair.key, fleet.broker / "broker.key")
    stand(fleet, "pi-1", "accepted")
    return fleet


@pytest.fixture
def server(folder):
    """Return a server of that folder's content."""
    content_server = ContentServer(folder, f"https://localhost:{free_port()}/content")
    content_server.start()
    yield content_server
    content_server.stop()


def stand(folder, name, standing):
    """Let the registry say that of a device."""
    registry = Registry(folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, Device(name, "lab", None, None, (), standing, None, 0))
    registry.close()


@contextmanager
def connect(server, authority, pair=None):
    """Yield a connection, with the certificate."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    with closing(http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=100)) as connection:
        yield connection


@pytest.fixture
def connection(server, authority, pair):
    """Return a connection of the device pi-1."""
    with connect(server, authority, pair) as connected:
        yield connected


def ask(connection, path, method="GET", **headers):
    """Return status, headers and body of the answer."""
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def test_a_device_gets_content_and_parts_of_it(folder, connection):
    """Whole, from an offset on, its end, its head only, and not again what it has."""
    content = bytes(range(256)) * 40
    put = ContentStore(folder.content).put_bytes(content, "model")
    path = f"/content/{put.sha256}"
    status, headers, body = ask(connection, path)
    assert (status, body) == (200, content)
    assert headers["ETag"] == f'"{put.sha256}"'
    assert headers["Accept-Ranges"] == "bytes"
    status, headers, body = ask(connection, path, Range="bytes=1000-")
    assert (status, body, headers["Content-Range"]) == (206, content[1000:], "bytes 1000-10239/10240")
    assert ask(connection, path, Range="bytes=-3")[2] == content[-3:]
    assert ask(connection, path, Range="bytes=5-", If_Range='"another"')[::2] == (200, content)
    status, headers, _ = ask(connection, path, Range="bytes=10240-")
    assert (status, headers["Content-Range"]) == (416, "bytes */10240")
    assert ask(connection, path, If_None_Match=f'"{put.sha256}"')[::2] == (304, b"")
    status, headers, body = ask(connection, path, "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "10240", b"")


def test_no_other_address_has_anything(folder, server, authority, pair):
    """A content's own address with anything added to it neither."""
    put = ContentStore(folder.content).put_bytes(b"abc", "model")
    (folder.content / "README").write_text("x")
    for path in (
        "/",
        "/content/",
        "/content/" + "0" * 64,
        "/content/../registry.sqlite",
        "/content/%2e%2e/ca.key",
        "/content//etc/passwd",
        "/content/..%2f..%2fca.key",
        "/../ca.key",
        "http://127.0.0.1/ca.key",
        "/content/{sha256}/",
        "/content/{sha256}?x",
        "/content/{sha256}%00",
        "/content/{upper}",
    ):
        with connect(server, authority, pair) as connection:
            assert ask(connection, path.format(sha256=put.sha256, upper=put.sha256.upper()))[::2] == (404, b""), path


def test_nothing_can_be_done_but_reading(server, authority, pair):
    """Every other method is refused."""
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "CONNECT"):
        with connect(server, authority, pair) as connection:
            assert ask(connection, "/content/" + "0" * 64, method)[0] == 501, method


def test_who_has_no_certificate_of_the_fleet_gets_no_reply(folder, server, authority, connection, tmp_path):
    """None at all, a stranger's, one that has run out; plain HTTP neither."""
    put = ContentStore(folder.content).put_bytes(b"abc", "model")
    stranger = Authority(tmp_path / "stranger").signed("pi-1")
    for presented in (None, stranger, authority.signed("pi-1", when=EXPIRED)):
        refusals = pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected))
        with connect(server, authority, presented) as strange, refusals:
            ask(strange, f"/content/{put.sha256}")
    plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    with closing(plain), pytest.raises((OSError, http.client.HTTPException)):
        ask(plain, f"/content/{put.sha256}")
    assert ask(connection, f"/content/{put.sha256}")[2] == b"abc"


def test_a_device_that_is_not_accepted_or_whose_certificate_was_revoked_is_out(folder, server, authority, pair, connection):
    """At once, on a connection that is up too; another certificate of the same device is good."""
    put = ContentStore(folder.content).put_bytes(b"abc", "model")
    path = f"/content/{put.sha256}"
    with connect(server, authority, authority.signed("pi-9")) as unknown:
        assert ask(unknown, path)[0] == 403
    assert ask(connection, path)[0] == 200
    completed = subprocess.run(
        ["openssl", "x509", "-in", pair.certificate, "-noout", "-serial"], capture_output=True, text=True, check=True
    )
    number = f"{int(completed.stdout.strip().partition('=')[2], 16):x}"
    registry = Registry(folder.registry)
    with registry.transaction() as transaction:
        certificates.put(transaction, Certificate(number, "pi-1", "s", "k", "", 0, 0, 1, "lost"))
    registry.close()
    assert ask(connection, path)[0] == 403
    with connect(server, authority, authority.signed("pi-1")) as second:
        assert ask(second, path)[0] == 200
        stand(folder, "pi-1", "revoked")
        assert ask(second, path)[0] == 403


def test_an_agent_fetches_and_goes_on_where_it_was(folder, server, authority, pair, tmp_path):
    """By its own way of fetching: half of it is there already; a part that was wrong is found out."""
    content = bytes(range(256)) * 8192
    put = ContentStore(folder.content).put_bytes(content, "model")
    part, final = tmp_path / "part", tmp_path / "final"
    tls = (str(authority.certificate), str(pair.certificate), str(pair.key))
    task = jobs_content.FetchTask(content=put, part=str(part), final=str(final), url=server.url, tls=tls)
    part.write_bytes(b"x" * 1_000_000)
    assert fetch.bring(task) == jobs_content.WRONG_HASH
    part.write_bytes(content[:1_000_000])
    assert fetch.bring(task) == jobs_content.HERE
    assert final.read_bytes() == content


def test_without_certificates_it_is_for_this_machine_only(tmp_path):
    """Plain HTTP on the loopback, refused elsewhere; a taken port and a certificate that is none are reported in one line."""
    folder = FleetFolder(tmp_path / "fleet")
    put = ContentStore(folder.content).put_bytes(b"abc", "model")
    with pytest.raises(ConfigError, match="fleet init"):
        ContentServer(folder, "http://fleet.example:8885/content")
    port = free_port()
    url = f"http://127.0.0.1:{port}/content"
    server = ContentServer(folder, url)
    server.start()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=100)) as connection:
        assert ask(connection, f"/content/{put.sha256}")[2] == b"abc"
    with pytest.raises(UnavailableError, match="content_url"):
        ContentServer(folder, url)
    server.stop()
    folder.ca_certificate.write_text("none")
    with pytest.raises(ConfigError, match="cannot be used"):
        ContentServer(folder, url)


def test_a_url_at_which_it_would_not_be_found_is_refused(folder):
    """Another scheme than the certificates give, another path, no host: one line with what it has to be."""
    for url in (
        "http://localhost:8885/content",
        "https://localhost:8885",
        "https://localhost:8885/other",
        "https:///content",
        "https://[x/content",
    ):
        with table_row(url), pytest.raises(ConfigError, match="has to be https://HOST:PORT/content"):
            ContentServer(folder, url)

"""Content over real HTTPS with certificates: resumed, in thousands, and for nobody else."""

import http.client
import shutil
import ssl
from contextlib import closing, contextmanager

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.jobs import content as jobs_content
from edgemeter.agent.jobs import fetch
from edgemeter.provisioning.content import content_server
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


def peer(name, number):
    """Return a certificate as `getpeercert` has it."""
    return {"subject": ((("organizationName", "x"),), (("commonName", name),)), "serialNumber": number}


def test_accepted_devices_are_admitted_by_their_certificates(tmp_path):
    """Not one that is revoked, of a device that is not accepted, or of two names, or none."""
    with Registry(tmp_path / "registry.sqlite") as registry:
        with registry.transaction() as statements:
            for name, standing in (("pi-1", "accepted"), ("pi-2", "pending"), ("pi-3", "revoked")):
                devices.put(statements, Device(name, "lab", None, None, (), standing, None, 0))
            certificates.put(statements, Certificate("a1", "pi-1", "s", "k", "", 0, 0, 1, "lost"))
        assert content_server.admits(registry, peer("pi-1", "0A2"))
        for certificate in (peer("pi-1", "0A1"), peer("pi-2", "1"), peer("pi-3", "1"), peer("pi-9", "1"), {"serialNumber": "1"}, {}):
            with table_row(certificate):
                assert not content_server.admits(registry, certificate)
        two_names = {"subject": ((("commonName", "pi-1"),), (("commonName", "pi-2"),)), "serialNumber": "1"}
        assert not content_server.admits(registry, two_names)


def test_a_range_is_of_the_bytes_that_there_are():
    """From an offset, to its end, the last ones; several, or another unit, are the whole."""
    for header, expected in (
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=4-", (4, 10)),
        ("bytes=4-99", (4, 10)),
        ("bytes=9-9", (9, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
    ):
        with table_row(header):
            assert content_server.parse_range(header, 10) == expected
    for header in ("bytes=10-", "bytes=-0"):
        with table_row(header), pytest.raises(content_server.UnsatisfiableRangeError):
            content_server.parse_range(header, 10)


def test_a_url_at_which_it_would_not_be_found_is_refused(tmp_path):
    """Another place than this machine without certificates, another scheme, another path, no host; nor certificates that are none."""
    folder = FleetFolder(tmp_path / "fleet")
    for url in ("http://fleet.example:8885/content", "https://localhost:8885/content", "http://localhost:8885", "http://localhost/other"):
        with table_row(url), pytest.raises(ConfigError, match="content_url"):
            ContentServer(folder, url)
    folder.path.mkdir()
    folder.ca_certificate.write_text("none")
    with pytest.raises(ConfigError, match="cannot be used"):
        ContentServer(folder, "https://localhost:8885/content")


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
    https_server = ContentServer(folder, f"https://localhost:{free_port()}/content")
    https_server.start()
    yield https_server
    https_server.stop()


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


@pytest.mark.needs("openssl")
def test_a_device_gets_content_and_parts_of_it(folder, connection, server, authority, pair):
    """Whole, from an offset on, its head only, and not again what it has; no other address has anything, and no other method."""
    content = bytes(range(256)) * 40
    put = ContentStore(folder.content).put_bytes(content, "model")
    path = f"/content/{put.sha256}"
    status, headers, body = ask(connection, path)
    assert (status, headers["ETag"], body) == (200, f'"{put.sha256}"', content)
    status, headers, body = ask(connection, path, Range="bytes=1000-")
    assert (status, body, headers["Content-Range"]) == (206, content[1000:], "bytes 1000-10239/10240")
    assert ask(connection, path, Range="bytes=5-", If_Range='"another"')[::2] == (200, content)
    status, headers, _ = ask(connection, path, Range="bytes=10240-")
    assert (status, headers["Content-Range"]) == (416, "bytes */10240")
    assert ask(connection, path, If_None_Match=f'"{put.sha256}"')[::2] == (304, b"")
    status, headers, body = ask(connection, path, "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "10240", b"")
    for other in ("/", "/content/", "/content/../ca.key", "/content/%2e%2e/ca.key", f"{path}/", f"{path}?x", f"{path}%00"):
        with connect(server, authority, pair) as connected:
            assert ask(connected, other)[::2] == (404, b""), other
    with connect(server, authority, pair) as connected:
        assert ask(connected, path, "PUT")[0] == 501
    stand(folder, "pi-1", "revoked")
    assert ask(connection, path)[0] == 403


@pytest.mark.needs("openssl")
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


@pytest.mark.needs("openssl")
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

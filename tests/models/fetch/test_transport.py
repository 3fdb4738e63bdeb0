"""Proxies, redirects and certificates, with real servers."""

import datetime as dt
import ipaddress

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.models.fetch.download import Transport, shown
from tests.fixtures.file_server import FileServer
from tests.fixtures.rows import table_row


def body(transport, address):
    """Return what lies at the address."""
    with transport.open(address, {}) as answer:
        return answer.read()


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """Return a certificate with its key for 127.0.0.1, which this process trusts."""
    pytest.importorskip("cryptography")
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


@pytest.fixture
def secure(certificate):
    """Return a running https server."""
    running = FileServer(certificate)
    yield running
    running.close()


def test_a_redirect_is_followed(server):
    """As release pages of code hosts do."""
    server.put("/first", b"", location="/second")
    server.put("/second", b"the file")
    assert body(Transport(), server.address + "/first") == b"the file"


def test_a_redirect_to_other_than_http_is_not_followed(server):
    """No server makes us read our own files."""
    for target in ("file:///etc/hostname", "ftp://127.0.0.1/m", "data:text/plain,x"):
        with table_row(target):
            server.put("/first", b"", location=target)
            with pytest.raises(UnavailableError, match="/first"):
                body(Transport(), server.address + "/first")


def test_https_does_not_fall_back_to_http(secure, server):
    """From https to https, never down."""
    server.put("/m", b"plain")
    secure.put("/down", b"", location=server.address + "/m")
    secure.put("/across", b"", location="/m")
    secure.put("/m", b"secret")
    assert body(Transport(), secure.address + "/across") == b"secret"
    with pytest.raises(UnavailableError, match="not followed"):
        body(Transport(), secure.address + "/down")
    assert server.requests == []


def test_http_may_go_up_to_https(secure, server):
    """A redirect from http to https is followed."""
    secure.put("/m", b"secret")
    server.put("/up", b"", location=secure.address + "/m")
    assert body(Transport(), server.address + "/up") == b"secret"


def test_an_untrusted_certificate_is_refused_by_name(secure, monkeypatch, tmp_path):
    """Not tried again: another try would not help."""
    (tmp_path / "none.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    secure.put("/m", b"secret")
    with pytest.raises(UnavailableError, match="certificate is not trusted"):
        body(Transport(), secure.address + "/m")


@pytest.mark.parametrize("place", ["option", "environment"])
def test_a_proxy_is_asked_for_the_whole_address(server, monkeypatch, place):
    """The host of the address need not even have a name here."""
    server.put("/m", b"by proxy")
    monkeypatch.setenv("http_proxy", server.address if place == "environment" else "http://127.0.0.1:1")
    proxy = server.address if place == "option" else None
    assert body(Transport(proxy=proxy), "http://models.invalid/m") == b"by proxy"
    assert server.requests[0][0] == "http://models.invalid/m"


def test_a_proxys_password_is_sent_to_it(server):
    """In the proxy's address, as everywhere."""
    server.put("/m", b"by proxy")
    assert body(Transport(proxy=server.address.replace("//", "//user:word@")), "http://models.invalid/m") == b"by proxy"
    assert server.requests[0][1]["Proxy-Authorization"] == "Basic dXNlcjp3b3Jk"


def test_no_proxy_is_heeded(server, monkeypatch):
    """An address of one's own network is asked directly."""
    server.put("/m", b"direct")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert body(Transport(), server.address + "/m") == b"direct"


def test_a_proxy_that_is_none_is_reported():
    """The message says how a proxy is written."""
    for proxy in ("", "localhost:3128", "socks5://127.0.0.1:1", "http://"):
        with table_row(proxy), pytest.raises(ConfigError, match="http://HOST:PORT"):
            body(Transport(proxy=proxy), "http://models.invalid/m")


def test_messages_show_no_secrets():
    """User, password and query stay out."""
    for address, text in (
        ("https://user:word@host.example:8443/a/b?key=1#x", "https://host.example:8443/a/b"),
        ("http://[::1]:80/m", "http://[::1]:80/m"),
        ("http://host:port/m", "an address that cannot be read"),
    ):
        assert shown(address) == text, f"{address!r}"

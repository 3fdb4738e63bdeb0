"""Downloads: whole, continued, cut, refused, too large; redirects and certificates."""

from contextlib import closing

import pytest

from edgemeter.agent.base.download import download, redacted
from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.progress import no_progress
from tests.fixtures.catalogue_factory import content
from tests.fixtures.certificates import Authority
from tests.fixtures.file_server import ListeningFileServer, connected
from tests.fixtures.rows import table_row

BODY = content(300_000)


@pytest.fixture
def server(monkeypatch):
    return connected(monkeypatch)


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Return a part of which nothing has arrived yet.

    No proxy of this machine stands between test and server.
    """
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".m.onnx.part"


def get(address, part, size_bytes=None, limit_bytes=10_000_000, tell=no_progress):
    download(address, part, size_bytes, limit_bytes, tell, timeout_s=5.0)
    return part.read_bytes()


def test_a_file_arrives_whole(server, part):
    """One request brings every byte, and the server need not announce the length.

    Progress is reported up to the end.
    """
    reports = []
    assert (
        get(server.put("/m", BODY), part, len(BODY), tell=lambda *report: reports.append(report))
        == BODY
    )
    assert reports[-1] == ("m", len(BODY), len(BODY))
    assert [headers["Accept-Encoding"] for headers in server.asked("/m")] == ["identity"]
    part.unlink()
    assert get(server.put("/n", BODY, has_length=False), part) == BODY


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_cut_download_is_continued_by_the_next(server, part, has_ranges):
    """The next download continues where the last one broke, or starts over without ranges."""
    address = server.put("/m", BODY, cuts=[100_000], has_ranges=has_ranges)
    with pytest.raises(TransientError, match="100000 of 300000"):
        get(address, part)
    assert get(address, part) == BODY
    assert server.asked("/m")[-1]["Range"] == "bytes=100000-"
    assert get(address, part) == BODY


def test_a_server_that_gives_nothing_is_reported(server, part):
    """A busy, silent or absent server is a transient error, and a refusal is a permanent one."""
    server.put("/busy", BODY, statuses=[503])
    for path, trouble, kind, message in (
        ("/busy", None, TransientError, "503"),
        ("/absent", None, UnavailableError, "404"),
        ("/busy", ConnectionRefusedError("refused"), TransientError, "refused"),
        ("/busy", TimeoutError(), TransientError, "no answer in time"),
    ):
        server.trouble = trouble
        with table_row(message), pytest.raises(kind, match=message):
            get(server.address + path, part)


def test_another_size_is_refused_before_the_body(server, part):
    """A size that differs from the catalogue's, or exceeds the limit, is refused at once."""
    address = server.put("/m", BODY)
    with pytest.raises(UnavailableError, match=r"300000 bytes.* 7"):
        get(address, part, size_bytes=7)
    with pytest.raises(UnavailableError, match="more than the 1000"):
        get(address, part, limit_bytes=1000)
    assert not part.exists()
    # A server that announces no length might send without end.
    with pytest.raises(UnavailableError, match="100000"):
        get(server.put("/n", BODY, has_length=False), part, limit_bytes=100_000)
    assert part.stat().st_size == 0


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """Return a running https server whose certificate this process trusts."""
    authority = Authority(tmp_path / "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    running = ListeningFileServer(authority.signed("127.0.0.1", "IP:127.0.0.1"))
    yield running
    running.close()


def test_a_redirect_is_followed_but_not_to_other_than_http(server, part):
    """Release pages redirect, but no server may make us read our own files or leave https."""
    server.put("/second", b"the file")
    server.put("/first", b"", location="/second")
    assert get(server.address + "/first", part) == b"the file"
    part.unlink()
    for target in ("file:///etc/hostname", "ftp://127.0.0.1/m", "data:text/plain,x"):
        with table_row(target):
            server.put("/first", b"", location=target)
            with pytest.raises(UnavailableError, match="/first"):
                get(server.address + "/first", part)
    server.put("/first", b"", location="http://files.example/second")
    with pytest.raises(UnavailableError, match="not followed"):
        get("https://files.example/first", part)


@pytest.mark.needs("openssl")
def test_https_does_not_fall_back_to_http(secure, monkeypatch, tmp_path, part):
    """Redirects lead from http to https or stay on https, and never lead back to http.

    A certificate that is not trusted is refused with that reason.
    """
    with closing(ListeningFileServer()) as listening:
        listening.put("/m", b"plain")
        listening.put("/up", b"", location=secure.address + "/m")
        secure.put("/down", b"", location=listening.address + "/m")
        secure.put("/m", b"secret")
        assert get(listening.address + "/up", part) == b"secret"
        part.unlink()
        with pytest.raises(UnavailableError, match="not followed"):
            get(secure.address + "/down", part)
    (tmp_path / "none.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(UnavailableError, match="certificate is not trusted"):
        get(secure.address + "/m", part)


def test_messages_show_no_secrets():
    """User, password and query are left out of every message."""
    for address, text in (
        ("https://user:word@host.example:8443/a/b?key=1#x", "https://host.example:8443/a/b"),
        ("http://[::1]:80/m", "http://[::1]:80/m"),
        ("http://host:port/m", "an address that cannot be read"),
    ):
        assert redacted(address) == text, f"{address!r}"

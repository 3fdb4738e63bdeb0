"""Downloads over a real server: whole, resumed, cut, changed, refused, with no room for them; proxies, redirects and certificates."""

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.progress import no_progress
from edgemeter.models.fetch import pace
from edgemeter.models.fetch.download import TRIES, ExpectedFile, Origin, PartFile, Transport, download, redacted
from tests.fixtures.catalogue_factory import content
from tests.fixtures.certificates import Authority
from tests.fixtures.file_server import FileServer
from tests.fixtures.rows import table_row

BODY = content(300_000)


@pytest.fixture
def part(tmp_path):
    """Return a part of which nothing has arrived."""
    return PartFile(tmp_path / "m.onnx")


def get(address, part, size_bytes=None, limit_bytes=10_000_000, tell=no_progress, **settings):
    """Download without pauses and return what was paused."""
    paused = []
    transport = Transport(**{"timeout_s": 5.0, "pause": paused.append} | settings)
    download(address, part, ExpectedFile(size_bytes, limit_bytes), transport, tell)
    return paused


@contextlib.contextmanager
def endless(head, chunk, pause_s=0.0):
    """Run a server that answers every request with `head`, then `chunk` again and again, while the block lasts; yield its address."""
    over, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def answer(connection):
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(head)
            while not over.wait(pause_s):
                connection.sendall(chunk)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/m"
    over.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_file_arrives_whole(server, part):
    """Every byte, one request, and progress to the end."""
    reports = []
    assert get(server.put("/m", BODY), part, len(BODY), tell=lambda *report: reports.append(report)) == []
    assert part.path.read_bytes() == BODY
    assert reports[-1] == ("m.onnx", len(BODY), len(BODY))
    assert len(server.requests) == 1
    assert server.asked("/m")[0]["Accept-Encoding"] == "identity"


def test_a_cut_connection_is_taken_up_where_it_broke(server, part):
    """Two cuts, and no byte is sent twice."""
    assert len(get(server.put("/m", BODY, cuts=[100_000, 50_000]), part)) == 2
    assert part.path.read_bytes() == BODY
    assert [headers.get("Range") for headers in server.asked("/m")] == [None, "bytes=100000-", "bytes=150000-"]
    assert all(headers["If-Range"] == server.resources["/m"].tag for headers in server.asked("/m")[1:])


def test_many_cuts_are_no_failure_while_bytes_come(server, part):
    """More cuts than tries, each after some gain."""
    get(server.put("/m", BODY, cuts=[30_000] * (TRIES + 3)), part)
    assert part.path.read_bytes() == BODY


def test_a_server_that_gives_nothing_is_given_up(server, part):
    """So many tries with growing pauses; the count and the address are reported."""
    with pytest.raises(TransientError, match=rf"127\.0\.0\.1:\d+/m: the connection was cut after 0 of 300000 bytes, {TRIES} times"):
        get(server.put("/m", BODY, cuts=[0] * 20), part)
    assert len(server.requests) == TRIES


def test_a_later_run_goes_on(server, part):
    """What a run that ended left is not fetched again."""
    address = server.put("/m", BODY, cuts=[120_000] + [0] * TRIES)
    with pytest.raises(TransientError, match="120000 bytes are kept"):
        get(address, part)
    server.resources["/m"].cuts.clear()
    server.requests.clear()
    get(address, part)
    assert part.path.read_bytes() == BODY
    assert server.asked("/m")[0]["Range"] == "bytes=120000-"


def test_a_file_that_changed_meanwhile_is_fetched_anew(server, part):
    """If-Range: never the head of one file before the tail of another."""
    address = server.put("/m", BODY, cuts=[100_000] + [0] * TRIES)
    with pytest.raises(TransientError):
        get(address, part)
    other = content(300_000, seed=1)
    server.put("/m", other)
    get(address, part)
    assert part.path.read_bytes() == other


@pytest.mark.parametrize("how", [{"has_ranges": False}, {"etag": None}, {"etag": 'W/"weak"'}])
def test_a_server_that_cannot_resume_sends_all_again(server, part, how):
    """It ignores ranges, or gives nothing that tells one file from another."""
    get(server.put("/m", BODY, cuts=[100_000], **how), part)
    assert part.path.read_bytes() == BODY
    assert len(server.requests) == 2


def test_the_date_distinguishes_files_where_no_tag_does(server, part):
    """Without an ETag, the rest is asked for by If-Range with the date of Last-Modified."""
    get(server.put("/m", BODY, cuts=[100_000], etag=None, last_modified=True), part)
    assert part.path.read_bytes() == BODY
    assert server.asked("/m")[1]["If-Range"].endswith("GMT")


def test_a_part_of_another_address_is_not_continued(server, part):
    """Mirrors may hold different files."""
    part.begin(Origin(address="http://elsewhere.example/m", validator=server.put("/m", BODY) and '"x"', size_bytes=len(BODY)))
    part.path.write_bytes(b"of another file")
    get(server.address + "/m", part)
    assert part.path.read_bytes() == BODY


def test_a_garbled_note_starts_over(server, part):
    """Nobody knows what the bytes are."""
    for note in (b"", b"{", b"[]", b'{"address": 5}', b"\xff\xfe"):
        with table_row(note):
            part.path.write_bytes(b"whatever")
            part.note.write_bytes(note)
            get(server.put("/m", BODY), part)
            assert part.path.read_bytes() == BODY


def test_a_part_longer_than_the_file_is_dropped(server, part):
    """The server answers 416; the next try begins at nothing."""
    address = server.put("/m", BODY)
    part.begin(Origin(address=address, validator=server.resources["/m"].tag))
    part.path.write_bytes(BODY + b"more")
    get(address, part)
    assert part.path.read_bytes() == BODY


def test_a_finished_part_is_not_asked_for(server, part):
    """Ended between the last byte and the rename."""
    address = server.put("/m", BODY)
    get(address, part)
    server.requests.clear()
    get(address, part)
    assert server.requests == []


def test_a_busy_server_is_asked_again(server, part):
    """503 and 429 pass; the pauses grow."""
    assert get(server.put("/m", BODY, statuses=[503, 429]), part) == [0.5, 1.0]
    assert part.path.read_bytes() == BODY


def test_a_refusal_is_reported_at_once(server, part):
    """Another try would not help."""
    for status in (401, 403, 404, 410):
        server.requests.clear()
        with table_row(status):
            with pytest.raises(UnavailableError, match=f"/m: the server responds {status}"):
                get(server.put("/m", BODY, statuses=[status] * 9), part)
            assert len(server.requests) == 1


def test_a_silent_server_is_not_waited_for_for_ever(server, part):
    """The time-out ends each try."""
    with pytest.raises(TransientError, match="no answer in time"):
        get(server.put("/m", BODY, wait_s=1.0), part, timeout_s=0.05)


LENGTH = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 9000000\r\n\r\n'
OPEN = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "chunk"),
    [(LENGTH, b"x"), (OPEN, b"x"), (b"HTTP/1.1 200 OK\r\nX: ", b"x"), (OPEN[:-2] + b"Transfer-Encoding: chunked\r\n\r\n", b"0")],
    ids=["body", "body without a length", "header", "size of a chunk"],
)
def test_a_server_that_sends_a_little_for_ever_is_given_up(part, head, chunk):
    """A byte each 20 ms: no timeout ends it, in whatever part of the answer; what has arrived is kept."""
    with endless(head, chunk, pause_s=0.02) as address, pytest.raises(TransientError, match=r"\d+ bytes in \d s.*bytes are kept"):
        get(address, part, slow_s=0.5)


def test_what_came_slowly_is_resumed(server, part, monkeypatch):
    """The bytes of a try that was given up count for the next."""
    monkeypatch.setattr(pace, "SLOWEST_BYTES_S", 10_000_000)
    address = server.put("/m", BODY, drip_s=0.3)
    with pytest.raises(TransientError, match="bytes are kept, fetch again to resume"):
        get(address, part, slow_s=1.0)
    monkeypatch.undo()
    arrived = part.size_bytes
    assert 0 < arrived < len(BODY)
    server.resources["/m"].drip_s = 0.0
    get(address, part)
    assert part.path.read_bytes() == BODY
    assert server.asked("/m")[-1]["Range"] == f"bytes={arrived}-"


def test_bytes_that_are_cut_off_one_by_one_are_too_slow(server, part):
    """Each try gains one, so that tries alone would never be enough."""
    address = server.put("/m", BODY, cuts=[1] * 1_000_000)
    with pytest.raises(TransientError, match="and fewer than 1000 a second"):
        get(address, part, slow_s=0.5)


def test_a_server_that_sends_without_end_is_refused(part):
    """By the size in the catalogue where there is one, however much the cache may hold; a redirect's body is not read."""
    with endless(OPEN, b"x" * 65_536) as address, pytest.raises(UnavailableError, match="more than the 100000 bytes"):
        get(address, part, 100_000, limit_bytes=10_000_000_000)
    with endless(OPEN, b"x" * 65_536) as address, pytest.raises(UnavailableError, match="more than the 10000000 bytes"):
        get(address, part)
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/m\r\n\r\n"
    with endless(moved, b"x" * 65_536) as address, pytest.raises(TransientError, match="refused"):
        get(address, part)
    assert part.size_bytes == 0


def test_nobody_at_the_address(part):
    """Connection refused, named with the address, without a query's secrets."""
    with pytest.raises(TransientError, match=r"http://127\.0\.0\.1:1/m: .*refused") as raised:
        get("http://127.0.0.1:1/m?token=hidden", part)
    assert "hidden" not in str(raised.value)


def test_another_size_than_the_catalogues_is_refused_before_the_body(server, part):
    """A wrong file is known by its length."""
    with pytest.raises(UnavailableError, match="300000 bytes, the catalogue says 299999"):
        get(server.put("/m", BODY), part, 299_999)
    assert part.size_bytes == 0


def test_more_than_the_cache_may_hold_is_refused(server, part):
    """By the announced length, and without one by what comes."""
    with pytest.raises(UnavailableError, match="more than the cache may hold"):
        get(server.put("/m", BODY), part, limit_bytes=200_000)
    with pytest.raises(UnavailableError, match="more than the 200000 bytes"):
        get(server.put("/n", BODY, has_length=False), part, limit_bytes=200_000)
    assert part.size_bytes == 0


def test_a_file_of_unannounced_length_arrives(server, part):
    """The end of the connection is the end of the file; its hash has to tell whether that was all."""
    get(server.put("/m", BODY, has_length=False), part)
    assert part.path.read_bytes() == BODY


def test_a_compressed_reply_is_refused(server, part):
    """Its bytes are not the file's."""
    with pytest.raises(UnavailableError, match="gzip"):
        get(server.put("/m", BODY, encoding="gzip"), part)


def test_a_disk_without_room_is_reported_before_the_body(server, part, monkeypatch):
    """How much is missing, and the remedy."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(TransientError, match=r"no space left .* 300000 bytes are needed, 1000 are free; make room"):
        get(server.put("/m", BODY), part)


def body(transport, address):
    """Return what lies at the address."""
    with transport.open(address, {}, pace.Pace(60.0)) as answer:
        return answer.read()


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """Return a running https server whose certificate this process trusts."""
    authority = Authority(tmp_path / "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    running = FileServer(authority.signed("127.0.0.1", "IP:127.0.0.1"))
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


@pytest.mark.needs("openssl")
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


@pytest.mark.needs("openssl")
def test_http_may_go_up_to_https(secure, server):
    """A redirect from http to https is followed."""
    secure.put("/m", b"secret")
    server.put("/up", b"", location=secure.address + "/m")
    assert body(Transport(), server.address + "/up") == b"secret"


@pytest.mark.needs("openssl")
def test_an_untrusted_certificate_is_refused_by_name(secure, monkeypatch, tmp_path):
    """Not tried again: another try would not help."""
    (tmp_path / "none.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    secure.put("/m", b"secret")
    with pytest.raises(UnavailableError, match="certificate is not trusted"):
        body(Transport(), secure.address + "/m")


@pytest.mark.parametrize("origin", ["option", "environment"])
def test_a_proxy_is_asked_for_the_whole_address(server, monkeypatch, origin):
    """The host of the address need not even have a name here."""
    server.put("/m", b"by proxy")
    monkeypatch.setenv("http_proxy", server.address if origin == "environment" else "http://127.0.0.1:1")
    proxy = server.address if origin == "option" else None
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
        assert redacted(address) == text, f"{address!r}"

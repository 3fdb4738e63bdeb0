"""Facts about bringing a content to its end: gone on with, and never put in place with a wrong hash."""

import hashlib
import http.server
import threading

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import Content
from edgemeter.agent.jobs import fetch
from edgemeter.agent.jobs.content import HERE, INCOMPLETE, WRONG_HASH, FetchTask

DATA = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `data`; `has_ranges` whether it heeds Range, `cut_after` how much it sends before it hangs up."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.has_ranges, self.cut_after, self.asked = DATA, True, None, []


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self):
        """Answer it."""
        byte_range = self.headers["Range"]
        self.server.asked.append((self.path, byte_range))
        data = self.server.data
        if self.path != f"/content/{SHA256}":
            self.send_error(404)
            return
        begin = int(byte_range.removeprefix("bytes=").removesuffix("-")) if byte_range and self.server.has_ranges else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        self.wfile.write(data[begin:][: self.server.cut_after])

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    """Return a running server."""
    http_server = Server()
    thread = threading.Thread(target=http_server.serve_forever)
    thread.start()
    yield http_server
    http_server.shutdown()
    thread.join()
    http_server.server_close()


@pytest.fixture
def task(tmp_path):
    """Return the task of bringing the data to its end, nothing of it here yet, and no server."""
    (tmp_path / "x.part").touch()
    content = Content(sha256=SHA256, size_bytes=len(DATA), name="m.tflite")
    return FetchTask(content=content, part=str(tmp_path / "x.part"), final=str(tmp_path / SHA256))


@pytest.mark.services
def test_it_comes_over_http_from_where_it_was_and_from_servers_without_ranges(task, tmp_path, server):
    """A download that breaks leaves what came; another size is not read; another content is not kept."""
    part = tmp_path / "x.part"
    served = msgspec.structs.replace(task, url=f"http://127.0.0.1:{server.server_port}/content/")
    server.cut_after = 5000
    assert fetch.bring(served) == INCOMPLETE
    assert part.read_bytes() == DATA[:5000]
    server.cut_after, server.data = None, DATA + b"more"
    assert fetch.bring(served) == INCOMPLETE
    server.data = DATA
    assert fetch.bring(served) == HERE
    assert (tmp_path / SHA256).read_bytes() == DATA
    assert not part.exists()
    assert [byte_range for _, byte_range in server.asked] == [None, "bytes=5000-", "bytes=5000-"]
    server.has_ranges = False
    part.write_bytes(b"?" * 1000)
    assert fetch.bring(served) == HERE
    server.data = b"?" * len(DATA)
    part.touch()
    assert fetch.bring(served) == WRONG_HASH
    assert not part.exists()
    part.touch()
    for url in ("http://127.0.0.1:1/content", served.url.replace("content", "elsewhere")):
        assert fetch.bring(msgspec.structs.replace(task, url=url)) == INCOMPLETE


@pytest.mark.parametrize(
    ("data", "status"), [(DATA, HERE), (DATA[:-1], INCOMPLETE), (DATA + b"x", WRONG_HASH), (b"?" * len(DATA), WRONG_HASH)]
)
def test_only_the_right_content_stands_under_its_name(task, tmp_path, data, status):
    """What came another way is checked; what is too long or wrong is removed, what is short stays."""
    (tmp_path / "x.part").write_bytes(data)
    assert fetch.bring(task) == status
    assert (tmp_path / SHA256).exists() == (status == HERE)
    assert (tmp_path / "x.part").exists() == (status == INCOMPLETE)


def test_a_content_is_on_the_disk_before_it_has_its_name(task, tmp_path, monkeypatch):
    """A power cut leaves no file of the right name and size that is not whole."""
    (tmp_path / "x.part").write_bytes(DATA)
    synced = []
    monkeypatch.setattr(fetch.durable_file, "sync", lambda path: synced.append((path.name, (tmp_path / SHA256).exists())))
    assert fetch.bring(task) == HERE
    assert synced == [("x.part", False), (tmp_path.name, True)]


def test_an_address_that_is_none_is_reported(task):
    """A file on this device is no server."""
    with pytest.raises(ConfigError, match="file:///etc"):
        fetch.bring(msgspec.structs.replace(task, url="file:///etc"))

"""Facts about bringing a content to its end: over real HTTP, gone on with, and never put in place with a wrong hash."""

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
def task(tmp_path, server):
    """Return the task of fetching the data from that server, nothing of it here yet."""
    (tmp_path / "x.part").touch()
    return FetchTask(
        content=Content(sha256=SHA256, size_bytes=len(DATA), name="m.tflite"),
        part=str(tmp_path / "x.part"),
        final=str(tmp_path / SHA256),
        url=f"http://127.0.0.1:{server.server_port}/content/",
    )


def test_it_comes_whole_and_stands_under_its_name(task, tmp_path):
    """Nothing is left of the part."""
    assert fetch.bring(task) == HERE
    assert (tmp_path / SHA256).read_bytes() == DATA
    assert not (tmp_path / "x.part").exists()


def test_what_is_here_already_is_not_fetched_again(task, tmp_path, server):
    """The server is asked for the rest only."""
    (tmp_path / "x.part").write_bytes(DATA[:1000])
    assert fetch.bring(task) == HERE
    assert server.asked == [(f"/content/{SHA256}", "bytes=1000-")]


def test_a_server_without_ranges_sends_all_of_it(task, tmp_path, server):
    """And the part is written anew."""
    server.has_ranges = False
    (tmp_path / "x.part").write_bytes(b"?" * 1000)
    assert fetch.bring(task) == HERE


def test_a_download_that_breaks_leaves_what_came(task, tmp_path, server):
    """The next try goes on there, and so can MQTT."""
    server.cut_after = 5000
    assert fetch.bring(task) == INCOMPLETE
    assert (tmp_path / "x.part").read_bytes() == DATA[:5000]
    server.cut_after = None
    assert fetch.bring(task) == HERE


@pytest.mark.parametrize("data", [b"?" * len(DATA), DATA + b"more, without end" * 1000])
def test_another_content_is_not_kept(task, tmp_path, server, data):
    """Of the right size, or endless: at most the ordered size is read."""
    server.data = data
    status = fetch.bring(task)
    assert status == (HERE if data.startswith(DATA) else WRONG_HASH)
    assert not (tmp_path / "x.part").exists()


def test_a_part_that_is_too_long_is_removed(task, tmp_path):
    """It is another content."""
    (tmp_path / "x.part").write_bytes(DATA + b"x")
    assert fetch.bring(task) == WRONG_HASH
    assert not (tmp_path / "x.part").exists()


def test_without_a_server_the_rest_comes_another_way(task):
    """Nobody there, nothing there, no address."""
    for url in ("http://127.0.0.1:1/content", task.url.replace("content", "elsewhere"), None):
        assert fetch.bring(msgspec.structs.replace(task, url=url)) == INCOMPLETE


def test_an_address_that_is_none_is_reported(task):
    """A file on this device is no server."""
    with pytest.raises(ConfigError, match="content_url"):
        fetch.bring(msgspec.structs.replace(task, url="file:///etc"))

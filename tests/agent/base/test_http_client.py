"""HTTP: what is written, every form of answer that a server may send, and why there is none."""

import socket
import ssl
import time
from contextlib import closing, contextmanager
from itertools import takewhile
from unittest import mock

import pytest

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.base.http_client import open_url
from edgemeter.agent.base.model_server import ModelServer
from edgemeter.agent.base.server_address import ServerAddress
from tests.fixtures.rows import table_row
from tests.fixtures.socket_pairs import PairSocket, serving


@contextmanager
def answering(*answers):
    """Yield a connection to a server that sends these bytes after each request.

    It does so on each connection, and then ends it.
    """

    def serve(connection):
        with connection, connection.makefile("rb") as reader:
            for answer in answers:
                head = b"".join(takewhile(lambda line: line != b"\r\n", reader)).lower()
                if not head:
                    return
                reader.read(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
                connection.sendall(answer)

    with serving(serve), closing(ModelServer(ServerAddress(url="http://server"))) as connection:
        yield connection


OK = b"HTTP/1.1 200 OK\r\n"
BODY = b"CONTENT-LENGTH:4\r\n\r\nbody"
ANSWERS = {
    "length": OK + BODY,
    "chunked": OK
    + b"Transfer-Encoding: Chunked\r\n\r\n2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\nTrailer: 1\r\n\r\n",
    "until its end": OK + b"\r\nbody",
    "of HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + BODY,
    "after others": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    + OK
    + BODY,
    "bare line ends": (OK + BODY).replace(b"\r\n", b"\n"),
}


def test_an_answer_is_read_in_every_form():
    """An answer may have a length or none, come in chunks, or follow informational answers."""
    for form, answer in ANSWERS.items():
        with table_row(form), answering(answer) as connection:
            assert connection.exchange("/", b"x", {}).content == b"body"


def test_a_connection_serves_until_the_server_ends_it():
    """The second request opens no connection; the third does, as the server announced the end."""
    with answering(OK + BODY, OK + b"Connection: Close\r\n" + BODY) as connection:
        connection.exchange("/", b"x", {})
        opened = connection.sock
        connection.exchange("/", b"x", {})
        assert connection.sock is None
        connection.exchange("/", b"x", {})
        assert connection.sock not in (None, opened)


def test_a_document_that_is_not_streamed_is_one_line():
    """JSON that the server formatted over several lines comes as a single line."""
    document = b'{\n  "a":\n  1\n}\n'
    answer = (
        OK
        + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(document)
        + document
    )
    with answering(answer) as connection:
        assert list(connection.stream("/", b"x")) == [b'{"a":1}']


def test_a_connection_that_was_idle_is_tried_before_a_query(monkeypatch):
    """Servers close connections that were idle for some seconds, but not one just used."""
    now_ns = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    answers = [OK + BODY.replace(b"body", b"bod%d" % number) for number in range(4)]
    with answering(*answers) as connection:
        connection.make_ready("/")
        connection.make_ready("/")
        assert connection.exchange("/", b"x", {}).content == b"bod1"
        now_ns[0] += 2_000_000_000
        connection.make_ready("/")
        assert connection.exchange("/", b"x", {}).content == b"bod3"


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CUT = {
    "between two chunks": CHUNKED + b"5\r\nbody\n\r\n",
    "in a chunk": CHUNKED + b"9\r\nbody\n",
    "before its length": OK + b"Content-Length: 9\r\n\r\nbody\n",
}


def test_a_stream_that_ends_early_has_failed():
    """Wherever a stream is cut, its beginning is not taken for the whole."""
    for where, answer in CUT.items():
        lines = []
        with (
            table_row(where),
            answering(answer) as connection,
            pytest.raises(AnswerError) as failure,
        ):
            lines.extend(connection.stream("/", b"x"))
        assert failure.value.kind == "broke off"


def test_lines_come_as_they_arrive_whatever_the_chunks():
    """Lines may be split or joined by chunks, and the last one may lack its end."""
    pieces = (b"one\ntw", b"o\r\n\nthree\nfo", b"ur")
    answer = (
        CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in pieces) + b"0\r\n\r\n"
    )
    with answering(answer, OK + BODY) as connection:
        assert list(connection.stream("/", b"x")) == [b"one", b"two", b"three", b"four"]
        assert connection.ask("/", {}).content == b"body"


WRONG = [
    b"",
    b"SSH-2.0-OpenSSH\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    OK + b"a: b\r\n" * 101,
    OK + b"a" * (1 << 17),
    OK + b"Content-Length: 9\r\n\r\nbody",
]


def test_what_is_no_answer_is_one_line():
    """Nothing, another protocol, unfinished headers and a body that ends early are errors."""
    for answer in WRONG:
        with (
            table_row(answer[:40]),
            answering(answer) as connection,
            pytest.raises(AnswerError) as failure,
        ):
            connection.exchange("/", b"x", {})
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize(("size", "writes"), [(10, 1), (1 << 20, 2)])
def test_a_small_request_is_one_write(monkeypatch, size, writes):
    """A large body is written apart so that it need not be copied."""
    parts, sendall = [], PairSocket.sendall
    monkeypatch.setattr(
        PairSocket,
        "sendall",
        lambda self, data: (parts.append(bytes(data)), sendall(self, data))[1],
    )
    with answering(OK + BODY) as connection:
        connection.exchange("/", b"x" * size, {})
    # The last is the answer.
    assert len(parts) == writes + 1
    head, _, body = b"".join(parts[:-1]).partition(b"\r\n\r\n")
    assert head.startswith(b"POST / HTTP/1.1\r\nHost: server\r\n")
    assert body == b"x" * size


def test_an_answer_that_was_not_read_is_not_taken_for_the_next():
    """The connection with the unread answer is given up."""
    with answering(OK + BODY, OK + BODY.replace(b"body", b"next")) as connection:
        connection.request("POST", "/", b"x")
        assert connection.request("POST", "/", b"x").read() == b"body"


def test_a_connection_that_the_server_ended_is_opened_again_for_a_request_that_may_be_repeated():
    """It is opened again once, whereas a timed query fails."""
    with answering(OK + BODY) as connection:
        for _ in range(3):
            assert connection.ask("/", {}).content == b"body"
        with pytest.raises(AnswerError) as failure:
            connection.exchange("/", b"x", {})
        assert failure.value.kind == "broke off"


def test_why_nothing_answers_is_named(monkeypatch):
    """Each kind of failure comes with its remedy."""
    for trouble, kind, remedy in (
        (ConnectionRefusedError(111, "Connection refused"), "no connection", "start the server"),
        (
            socket.gaierror(-2, "Name or service not known"),
            "no connection",
            "correct the name in its url",
        ),
        (TimeoutError("timed out"), "timeout", r"timeout_s = 2: raise that"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "no connection", "does not speak TLS"),
        (OSError(101, "Network is unreachable"), "broke off", "check its memory and the network"),
    ):
        monkeypatch.setattr(socket, "create_connection", mock.Mock(side_effect=trouble))
        connection = ModelServer(ServerAddress(url="http://server", timeout_s=2.0))
        for call, arguments in (
            (connection.ask, ("/",)),
            (connection.exchange, ("/", b"", {})),
            (lambda path, body, link=connection: list(link.stream(path, body)), ("/", b"{}")),
        ):
            with table_row(trouble), pytest.raises(AnswerError, match=remedy) as failure:
                call(*arguments)
            assert failure.value.kind == kind


def test_a_single_request_goes_through_the_proxy_that_the_environment_names(monkeypatch):
    """The proxy may be the only way to the server."""
    heads = []

    def proxy(connection):
        with connection.makefile("rb") as reader:
            heads.append(list(takewhile(lambda line: line != b"\r\n", reader)))
        connection.sendall(OK + BODY)

    monkeypatch.setenv("http_proxy", "http://user:word@proxy.example:3128")
    with serving(proxy), open_url("http://models.example/m", lambda *_: False, 60.0) as answer:
        assert (answer.status, answer.read()) == (200, b"body")
    assert heads[0][0] == b"GET http://models.example/m HTTP/1.1\r\n"
    assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n" in [
        line.replace(b"Proxy-authorization", b"Proxy-Authorization") for line in heads[0]
    ]

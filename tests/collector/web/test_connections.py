"""Test clients that send half a request, or do not read their answer.

The page answers the others.
"""

import contextlib
import socket
import threading
import time

import pytest

from edgemeter.collector.web.connections import RequestLimits
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import served

pytestmark = pytest.mark.services

RUNS = (make_run(), make_reference())
OTHER_ADDRESS = "127.0.0.2"
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
# Its answer has no body.
WHOLE = b"HEAD /page.js" + HOST + b"\r\n"
SCRIPT = b"GET /page.js" + HOST
LENGTH = b"Content-Length: 100000\r\n\r\n"
NEVER_S = 1000.0
# Longer than any test takes on a busy machine: whoever waits for it has failed.
PATIENCE_S = 50.0


class Clients:
    """The open connections of a test to one page."""

    def __init__(self, port):
        self._port, self.sockets = port, []

    def open(self, sent, address="127.0.0.1"):
        """Return a new connection from an address, on which some bytes were sent."""
        client = socket.create_connection(
            ("127.0.0.1", self._port), PATIENCE_S, source_address=(address, 0)
        )
        self.sockets.append(client)
        client.sendall(sent)
        return client

    def status(self, address="127.0.0.1"):
        """Return the first line of the answer to a whole request.

        The request has a connection of its own; the line is empty if that was closed.
        """
        return status(self.open(WHOLE, address))


@contextlib.contextmanager
def clients_of(page):
    clients = Clients(page.port)
    try:
        yield clients
    finally:
        for client in clients.sockets:
            client.close()


def status(client):
    """Return the status of the next answer; empty if the connection was closed."""
    with contextlib.suppress(ConnectionError):
        return client.recv(65536)[:12]
    return b""


def is_closed(client):
    """Wait until the server closes a connection."""
    with contextlib.suppress(ConnectionError):
        while client.recv(65536):
            pass
    return True


def is_open(client):
    """Return whether the connection is open, and nothing has come."""
    client.setblocking(False)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        client.settimeout(PATIENCE_S)
    return False


def test_a_page_answers_while_hundreds_of_requests_are_half_sent():
    """The page answers the same address and another one before any deadline.

    It does on a new connection and on one that was there before.
    """
    with served(RUNS, limits=RequestLimits(head_s=NEVER_S)) as page, clients_of(page) as clients:
        before = clients.open(WHOLE)
        assert status(before) == b"HTTP/1.1 200"
        half = []
        for number in range(256):
            half.append(clients.open(b"GET / HT"))
            if number % 32 == 0:
                # Otherwise uvicorn closes it after five seconds.
                before.sendall(WHOLE)
                assert status(before) == b"HTTP/1.1 200"
        assert clients.status() == b"HTTP/1.1 200"
        assert clients.status(OTHER_ADDRESS) == b"HTTP/1.1 200"
        # The newest sixteen of one address wait, one of which made room for the request above; each
        # can still send the rest.
        assert all(map(is_closed, half[:241]))
        assert all(map(is_open, half[241:]))
        half[-1].sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
        assert status(half[-1]) == b"HTTP/1.1 200"


def test_many_addresses_close_no_page():
    """Sixteen connections of each address would fill it, so the longest waiting one makes room."""
    with served(RUNS, limits=RequestLimits(head_s=NEVER_S)) as page, clients_of(page) as clients:
        for last in range(2, 22):
            for _ in range(16):
                clients.open(b"GET / HT", f"127.0.0.{last}")
        assert [clients.status(), clients.status(OTHER_ADDRESS)] == [b"HTTP/1.1 200"] * 2


def test_clients_behind_one_address_that_send_whole_requests_have_no_such_limit():
    """60 connections, as behind a reverse proxy, are kept open and answer again."""
    with served(RUNS, limits=RequestLimits(head_s=NEVER_S)) as page, clients_of(page) as clients:
        connections = []
        for _ in range(60):
            connections.append(clients.open(WHOLE))
            assert status(connections[-1]) == b"HTTP/1.1 200"
        answered = 0
        for client in connections:
            # Without a next request, uvicorn closes a connection after five seconds.
            with contextlib.suppress(ConnectionError):
                client.sendall(WHOLE)
            answered += b"HTTP/1.1 200" in status(client)
        assert answered > 16


def test_a_head_and_a_body_have_their_time_whatever_single_bytes_come():
    """A silent client, a slow head, a second head and a slow body are timed out.

    A whole request is answered before and after.
    """
    for limits, sent in (
        (RequestLimits(head_s=0.5, body_s=NEVER_S), [b"", b"GET / HT", SCRIPT, WHOLE + b"G"]),
        (
            RequestLimits(head_s=NEVER_S, body_s=0.5),
            [b"POST /" + HOST + LENGTH, b"POST /" + HOST + LENGTH + b"x", SCRIPT + LENGTH],
        ),
    ):
        with table_row(limits), served(RUNS, limits=limits) as page, clients_of(page) as clients:
            late = [clients.open(text) for text in sent]
            ended = threading.Event()
            dripping = threading.Thread(target=drip, args=(late, ended))
            dripping.start()
            try:
                assert all(map(is_closed, late))
            finally:
                ended.set()
                dripping.join()
            assert clients.status() == b"HTTP/1.1 200"


def drip(clients, ended):
    """Send a byte on each connection now and then."""
    while not ended.wait(0.1):
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(b"x")


def test_the_usual_limits_are_ten_and_thirty_seconds():
    """An address that has sent no request may have sixteen connections."""
    assert RequestLimits() == RequestLimits(
        head_s=10.0, body_s=30.0, most_newcomers=16, most_connections=256
    )


def test_a_client_that_does_not_read_its_answers_is_disconnected():
    """It sends requests and reads nothing; a client that reads slowly has all of its answer."""
    with (
        served(RUNS, limits=RequestLimits(head_s=NEVER_S, body_s=1.0)) as page,
        clients_of(page) as clients,
    ):
        deaf = clients.open(b"")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            while True:
                deaf.sendall((SCRIPT + b"\r\n") * 20)
        slow = clients.open(b"")
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(SCRIPT + b"Connection: close\r\n\r\n")
        text = b""
        while part := slow.recv(4096):
            text += part
            time.sleep(0.02)
        head, _, body = text.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head.lower()


def test_requests_in_one_packet_are_answered_in_turn():
    """The client sends three without waiting for the first answer."""
    with served(RUNS, limits=RequestLimits()) as page, clients_of(page) as clients:
        client = clients.open((SCRIPT + b"\r\n") * 2 + SCRIPT + b"Connection: close\r\n\r\n")
        text = b""
        while part := client.recv(65536):
            text += part
        assert text.count(b"HTTP/1.1 200") == 3

"""Our HTTP servers: a client that goes away is no error."""

import contextlib
import socket
import threading

import pytest

from edgemeter.agent.base.http_server import LOOPBACK, HttpHandler, HttpServer

pytestmark = pytest.mark.services


class Prompt(HttpHandler):
    """A handler that answers at once."""

    def answer(self) -> None:
        self.respond(200, b"ok")


class StrictServer(HttpServer):
    """A server that waits for a request for a short time only."""

    head_s = 0.5


class PatientServer(HttpServer):
    """A server that has room for four connections, and time for them."""

    most_connections = 4
    head_s = 1000.0


def status(port):
    """Return the beginning of the answer to a whole request.

    It is empty if the connection is closed without an answer.
    """
    with (
        socket.create_connection((LOOPBACK, port), 150) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return client.recv(12)
    return b""


@contextlib.contextmanager
def running(kind, handler=Prompt):
    """Yield a server of this kind, and a list of its clients, which are closed with it."""
    server, clients = kind(LOOPBACK, 0, handler, "--port"), []
    server.start()
    try:
        yield server, clients
    finally:
        for client in clients:
            client.close()
        server.stop()


def test_a_request_that_does_not_come_ends_the_connection():
    """A silent client is disconnected, and so is one that sends a byte now and then."""
    ended = threading.Event()
    with running(StrictServer) as (server, clients):
        clients += [socket.create_connection((LOOPBACK, server.port), 60) for _ in range(4)]

        def drip():
            while not ended.wait(0.1):
                with contextlib.suppress(OSError):
                    clients[0].sendall(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        clients[1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        try:
            for client in clients:
                with contextlib.suppress(ConnectionError):
                    assert client.recv(1) == b""
        finally:
            ended.set()
            dripping.join()


def test_a_whole_request_is_served_while_too_many_half_sent_ones_are_open():
    """The connection that has waited longest for its request makes room.

    All come from the same address, as behind a reverse proxy.
    """
    with running(PatientServer) as (server, clients):
        for _ in range(10):
            clients.append(socket.create_connection((LOOPBACK, server.port), 150))
            clients[-1].sendall(b"GET / HT")
        assert [status(server.port) for _ in range(3)] == [b"HTTP/1.1 200"] * 3
        # The first ones made room, the last ones can still send the rest.
        with contextlib.suppress(ConnectionError):
            assert clients[0].recv(1) == b""
        clients[-1].sendall(b"TP/1.1\r\nHost: x\r\n\r\n")
        assert clients[-1].recv(12) == b"HTTP/1.1 200"


def test_a_connection_that_is_being_served_makes_no_room():
    """Four answers under way are not ended for a fifth request, which is turned away."""
    may_answer, under_way = threading.Event(), threading.Semaphore(0)

    class Slow(HttpHandler):
        def answer(self) -> None:
            under_way.release()
            may_answer.wait(150)
            self.respond(200, b"ok")

    with running(PatientServer, Slow) as (server, clients):
        clients += [socket.create_connection((LOOPBACK, server.port), 150) for _ in range(4)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert under_way.acquire(timeout=150)
        assert status(server.port) == b""
        may_answer.set()
        assert [client.recv(12) for client in clients] == [b"HTTP/1.1 200"] * 4

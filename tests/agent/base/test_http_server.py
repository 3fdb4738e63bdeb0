"""Our HTTP servers: a client that goes away is no error."""

import contextlib
import socket
import struct
import threading
import time

from edgemeter.agent.base.http_server import LOOPBACK, HttpHandler, HttpServer


def test_a_client_that_goes_before_its_answer_leaves_no_traceback(capsys):
    """A scraper that gave up, as Prometheus does after its timeout."""
    may_answer, answered = threading.Event(), threading.Event()

    class Slow(HttpHandler):
        def answer(self) -> None:
            """Answer much, when the client has gone."""
            may_answer.wait(150)
            try:
                for _ in range(50):
                    self.respond(200, b"x" * (1 << 20))
            finally:
                answered.set()

    server = HttpServer(LOOPBACK, 0, Slow, "--port")
    server.start()
    try:
        client = socket.create_connection((LOOPBACK, server.port))
        # It resets the connection instead of ending it.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        client.close()
        may_answer.set()
        assert answered.wait(150)
    finally:
        server.stop()
    # The thread that answered has ended when the server has been asked again, and only then has it said all.
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(150)
    assert "Traceback" not in capsys.readouterr().err


class Prompt(HttpHandler):
    """Answers at once."""

    def answer(self) -> None:
        """Answer a word."""
        self.respond(200, b"ok")


class StrictServer(HttpServer):
    """Has room for four, for a short time."""

    most_connections = 4
    head_s = 0.5


def test_a_request_that_does_not_come_ends_the_connection_and_makes_room():
    """A silent client, and one that sends a byte of its head now and then; a client beyond the limit is turned away at once."""
    server = StrictServer(LOOPBACK, 0, Prompt, "--port")
    server.start()
    clients = [socket.create_connection((LOOPBACK, server.port), 60) for _ in range(4)]
    ended = threading.Event()

    def drip():
        while not ended.wait(0.1):
            with contextlib.suppress(OSError):
                clients[0].sendall(b"G")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        clients[1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with socket.create_connection((LOOPBACK, server.port), 60) as fifth:
            assert fifth.recv(1) == b""
        for client in clients:
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
        # Room is there when a connection's thread ends, a moment after its client sees the end.
        deadline, answer = time.monotonic() + 60, b""
        while not answer and time.monotonic() < deadline:
            with socket.create_connection((LOOPBACK, server.port), 60) as honest, contextlib.suppress(ConnectionError):
                honest.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = honest.recv(12)
        assert answer == b"HTTP/1.1 200"
    finally:
        ended.set()
        dripping.join()
        for client in clients:
            client.close()
        server.stop()

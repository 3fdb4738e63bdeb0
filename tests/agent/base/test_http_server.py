"""Our HTTP servers: a client that goes away is no error."""

import socket
import struct
import threading

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

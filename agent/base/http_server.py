"""The base of our HTTP servers, with a thread per request, on IPv4 and IPv6.

Requests are logged at debug level only.
"""

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.waiting_requests import HEAD_S, WaitingRequests

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
ROOM_S = 1.0


class HttpHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD by `answer`, and refuses every other method."""

    protocol_version = "HTTP/1.1"
    server_version = "edgemeter"
    sys_version = ""
    server: "HttpServer"
    timeout = 30.0  # Seconds after which a client that reads nothing is disconnected.

    def handle_one_request(self) -> None:
        """Answer one request, whose head must arrive in time."""
        self.server.await_head(self.connection)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the head, and return whether it is valid."""
        try:
            return super().parse_request()
        finally:
            self.server.end_wait(self.connection)

    def answer(self) -> None:
        """Answer GET and HEAD, by `respond`, which omits the body for HEAD."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)

    def respond(
        self, status: int, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Send a whole response; its length is added to `headers`."""
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class HttpServer(ThreadingHTTPServer):
    """Listens at `host`:`port` (port 0: a free one, then in `port`).

    `options` names another address in errors.

    Raises:
        UnavailableError: the port is taken, or the host is not this machine's.
    """

    daemon_threads = True
    request_queue_size = 128
    most_connections = 256
    head_s = HEAD_S

    def __init__(self, host: str, port: int, handler: type[HttpHandler], options: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UnavailableError(
                f"cannot listen at {host!r}, port {port} ({reason}): name another "
                f"address with {options}"
            ) from error
        self.host = host
        self.port: int = self.server_address[1]
        self._room = threading.BoundedSemaphore(self.most_connections)
        self._waiting = WaitingRequests[socket.socket](_shut_down)
        self._thread = threading.Thread(
            target=self.serve_forever, name=f"edgemeter-http-{self.port}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client's early close at debug level.

        Anything else is our own error, whose traceback is printed.
        """
        if isinstance(sys.exc_info()[1], ConnectionError):
            logger.debug("%s has gone before its answer", client_address)
        else:
            super().handle_error(request, client_address)

    def await_head(self, connection: socket.socket) -> None:
        """Close the connection if its request's head does not arrive in time."""
        self._waiting.expect(connection, self.head_s)

    def end_wait(self, connection: socket.socket) -> None:
        """End the time limit of the connection."""
        self._waiting.end(connection)

    def service_actions(self) -> None:
        """Close connections whose request is late; the base class calls this twice a second."""
        self._waiting.close_late()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread.

        If there are too many, the connection that has waited longest for its request is closed.
        """
        # The thread of a closed connection has to notice.
        if not self._room.acquire(blocking=False) and not (
            self._waiting.close_longest() and self._room.acquire(timeout=ROOM_S)
        ):
            self.shutdown_request(request)
            return
        self.await_head(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # No thread could be started.
            self.end_wait(request)
            self._room.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.end_wait(request)
            self._room.release()

    def stop(self) -> None:
        """Stop answering, and close the port; may be called twice."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

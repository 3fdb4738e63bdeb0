"""Content over HTTPS: `GET /content/<sha256>` and nothing else, for devices with a certificate of the fleet; parts of a file too.

Without the fleet's certificates it speaks plain HTTP, and then to this machine only.
"""

import logging
import re
import socket
import ssl
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.provisioning.content import byte_range
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.identity import certificates
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
MOST_CONNECTIONS = 256
PIECE_BYTES = 256 << 10
_PATH = re.compile(r"/content/([0-9a-f]{64})")


class ContentServer:
    """Serves the fleet's content at `host`:`port` (0: a free one); `start` once, `stop` once or more.

    Raises:
        ConfigError: it can be reached from elsewhere and the fleet has no certificates, or they cannot be used.
        UnavailableError: the address cannot be listened at.
    """

    def __init__(self, folder: FleetFolder, host: str = "127.0.0.1", port: int = 0) -> None:
        self._tls = _tls(folder)
        if self._tls is None and not _is_loopback(host):
            message = f"{host!r} can be reached from elsewhere and the fleet has no certificates: run `edgemeter fleet init`"
            raise ConfigError(message)
        self._registry = Registry(folder.registry)
        self._store = ContentStore(folder.content)
        try:
            self._server = _Server((host, port), self)
        except OSError as error:
            self._registry.close()
            message = f"cannot listen at {host!r}, port {port}: {error.strerror}: name another with --content-port or --content-listen"
            raise UnavailableError(message) from error
        self.port: int = self._server.server_address[1]
        named = f"[{host}]" if ":" in host else host
        self.url = f"http{'s' if self._tls else ''}://{named}:{self.port}/content"
        self._thread = threading.Thread(target=self._server.serve_forever, name="edgemeter-content", daemon=True)

    def start(self) -> None:
        """Answer requests, each connection in a thread of its own, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End; downloads that go on are broken off, and can be resumed."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._registry.close()

    def secured(self, connection: socket.socket) -> socket.socket:
        """Return the connection with TLS over it, once the client has shown a certificate of the fleet's authority."""
        connection.settimeout(REQUEST_TIMEOUT_S)
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection

    def is_welcome(self, connection: socket.socket) -> bool:
        """Return whether an accepted device is at the other end, with a certificate that was not revoked."""
        if not isinstance(connection, ssl.SSLSocket):
            return True
        shown: Any = connection.getpeercert() or {}
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        number = f"{int(shown.get('serialNumber', '0'), 16):x}"
        if len(names) != 1 or number in certificates.revoked(self._registry):
            return False
        found = devices.find(self._registry, names[0])
        return found is not None and found.standing == "accepted"

    def path(self, address: str) -> Path | None:
        """Return the file at that address, None where there is none."""
        asked = _PATH.fullmatch(address)
        return self._store.path(asked[1]) if asked else None


class _Server(ThreadingHTTPServer):
    """Takes so many connections at a time and no more; a handshake keeps only its own thread waiting."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], content: ContentServer) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.content = content
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # No thread can be started.
            self._room.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            with self.content.secured(request) as connection:
                _Handler(connection, client_address, self)
        except OSError as error:
            logger.debug("connection of %s: %s", client_address[0], error)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused."""

    server: "_Server"
    protocol_version = "HTTP/1.1"
    server_version = "edgemeter"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S
    # A head and a small content are two writes: the second does not wait for the first's acknowledgement.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer with a content, or a part of it."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with the head alone."""
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Say it where the rest is said, and only when asked for."""
        logger.debug(format, *args)

    def _answer(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # What follows would be read as the next request.
            self.close_connection = True
        try:
            is_welcome = self.server.content.is_welcome(self.connection)
        except EdgemeterError as error:
            logger.warning("content: %s", error)
            self._short(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        path = self.server.content.path(self.path) if is_welcome else None
        if path is None:
            self._short(HTTPStatus.NOT_FOUND if is_welcome else HTTPStatus.FORBIDDEN)
            return
        try:
            with path.open("rb") as file:
                self._send(file, path)
        except FileNotFoundError:
            self._short(HTTPStatus.NOT_FOUND)

    def _send(self, file: Any, path: Path) -> None:
        size_bytes, tag = path.stat().st_size, f'"{path.name}"'
        if tag in self.headers.get("If-None-Match", ""):
            self._head(HTTPStatus.NOT_MODIFIED, tag)
            return
        try:
            # The name is the content: a part of another one cannot be meant, unless the client says so.
            wanted = self.headers.get("Range") if self.headers.get("If-Range", tag) == tag else None
            part = byte_range.parse(wanted, size_bytes)
        except byte_range.UnsatisfiableError:
            self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, tag, ("Content-Range", f"bytes */{size_bytes}"), ("Content-Length", "0"))
            return
        first, end = part or (0, size_bytes)
        extent = [("Content-Range", f"bytes {first}-{end - 1}/{size_bytes}")] if part else []
        status = HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK
        self._head(status, tag, ("Content-Type", "application/octet-stream"), ("Content-Length", str(end - first)), *extent)
        if self.command != "HEAD":
            file.seek(first)
            self._copy(file, end - first)

    def _copy(self, file: Any, left_bytes: int) -> None:
        while left_bytes > 0:
            piece = file.read(min(PIECE_BYTES, left_bytes))
            if not piece:
                # Fewer bytes than were promised: the client has to see that.
                self.close_connection = True
                return
            self.wfile.write(piece)
            left_bytes -= len(piece)

    def _head(self, status: HTTPStatus, tag: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("ETag", tag), ("Accept-Ranges", "bytes"), ("Cache-Control", "max-age=31536000, immutable"), *headers):
            self.send_header(name, value)
        self.end_headers()

    def _short(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _tls(folder: FleetFolder) -> ssl.SSLContext | None:
    certificate, key = folder.broker / "broker.crt", folder.broker / "broker.key"
    if not (folder.ca_certificate.exists() or certificate.exists()):
        return None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder.ca_certificate)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        message = f"the fleet's certificates in {str(folder.path)!r} cannot be used ({error}): run `edgemeter fleet init`"
        raise ConfigError(message) from error
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Content over HTTPS: `GET /content/<sha256>` and nothing else, for devices with a certificate of the fleet; byte ranges too.

Without the fleet's certificates it speaks plain HTTP, and then to this machine only.
"""

import logging
import re
import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.http_server import HttpHandler, HttpServer, is_loopback
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
PIECE_BYTES = 256 << 10
_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^/:@\[\]\s]+)(?::(\d{1,5}))?/content/?")
_PATH = re.compile(r"/content/([0-9a-f]{64})")
_ONE_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


class UnsatisfiableRangeError(ValueError):
    """The range is beyond the end."""


def parse_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last, None for the whole file; raises UnsatisfiableRangeError if beyond its end."""
    parts = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if parts is None or parts.groups() == ("", ""):
        # Several ranges, other units, invalid ones: a server may send the whole instead.
        return None
    first, last = parts.groups()
    if not first:
        if int(last) == 0 or size_bytes == 0:
            raise UnsatisfiableRangeError
        return max(0, size_bytes - int(last)), size_bytes
    if last and int(last) < int(first):
        return None
    if int(first) >= size_bytes:
        raise UnsatisfiableRangeError
    return int(first), min(size_bytes, int(last) + 1) if last else size_bytes


def admits(registry: Registry, certificate: Mapping[str, Any]) -> bool:
    """Return whether a certificate, as `getpeercert` has it, is that of an accepted device, and not revoked."""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    number = f"{int(certificate.get('serialNumber', '0'), 16):x}"
    if len(names) != 1 or number in certificates.revoked(registry):
        return False
    device = devices.find(registry, names[0])
    return device is not None and device.trust == "accepted"


class ContentServer:
    """Serves the fleet's content where devices look for it, at `url` (`content_url` of fleet.toml); `start` once, `stop` once or more.

    It listens at that port on all addresses, or on this machine's own only if the URL names that.

    Raises:
        ConfigError: this server cannot be reached by such a URL, or the fleet has no certificates, or they cannot be used.
        UnavailableError: the port cannot be listened at.
    """

    def __init__(self, folder: FleetFolder, url: str) -> None:
        self.tls = _tls(folder)
        host, port = _listening_place(url, "http" if self.tls is None else "https")
        self._registry = open_registry(folder)
        self._store = ContentStore(folder.content)
        try:
            self._server = _Server(host, port, self)
        except UnavailableError:
            self._registry.close()
            raise
        self.port, self.url = self._server.port, url

    def start(self) -> None:
        """Answer requests until `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop; downloads in progress are aborted, and can be resumed."""
        self._server.stop()
        self._registry.close()

    def is_accepted(self, connection: socket.socket) -> bool:
        """Return whether the client is an accepted device, with a certificate that is not revoked."""
        return not isinstance(connection, ssl.SSLSocket) or admits(self._registry, connection.getpeercert() or {})

    def path(self, address: str) -> Path | None:
        """Return the file at that URL path, None where there is none."""
        match = _PATH.fullmatch(address)
        return self._store.path(match[1]) if match else None


class _Server(HttpServer):
    """Speaks TLS; a handshake blocks only its own thread."""

    def __init__(self, host: str, port: int, content: ContentServer) -> None:
        self.content = content
        super().__init__(host, port, _Handler, "content_url in fleet.toml, or omit it: content goes over MQTT then")

    def finish_request(self, request: Any, client_address: Any) -> None:
        tls = self.content.tls
        try:
            request.settimeout(REQUEST_TIMEOUT_S)
            # TLS takes its descriptor away: the connection waits in its place.
            self.end_wait(request)
            # Over TLS, the client shows a certificate of the fleet's authority first.
            with tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) if tls else request as connection:
                self.await_head(connection)
                try:
                    if isinstance(connection, ssl.SSLSocket):
                        connection.do_handshake()
                    _Handler(connection, client_address, self)
                finally:
                    self.end_wait(connection)
        except OSError as error:
            logger.debug("connection of %s: %s", client_address[0], error)


class _Handler(HttpHandler):
    server: "_Server"
    timeout = REQUEST_TIMEOUT_S
    # A head and a small content are two writes: the second does not wait for the first's acknowledgement.
    disable_nagle_algorithm = True

    def answer(self) -> None:
        """Answer with a content, or a range of it."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # What follows would be read as the next request.
            self.close_connection = True
        try:
            is_accepted = self.server.content.is_accepted(self.connection)
        except EdgemeterError as error:
            logger.warning("content: %s", error)
            self.respond(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        path = self.server.content.path(self.path) if is_accepted else None
        if path is None:
            self.respond(HTTPStatus.NOT_FOUND if is_accepted else HTTPStatus.FORBIDDEN)
            return
        try:
            with path.open("rb") as file:
                self._send(file, path)
        except FileNotFoundError:
            self.respond(HTTPStatus.NOT_FOUND)

    def _send(self, file: Any, path: Path) -> None:
        size_bytes, tag = path.stat().st_size, f'"{path.name}"'
        if tag in self.headers.get("If-None-Match", ""):
            self._head(HTTPStatus.NOT_MODIFIED, tag)
            return
        try:
            # The name is the hash of the content, so a range is of this content unless the client asks otherwise.
            range_header = self.headers.get("Range") if self.headers.get("If-Range", tag) == tag else None
            part = parse_range(range_header, size_bytes)
        except UnsatisfiableRangeError:
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
            data = file.read(min(PIECE_BYTES, left_bytes))
            if not data:
                # Fewer bytes than announced: the client has to see that.
                self.close_connection = True
                return
            self.wfile.write(data)
            left_bytes -= len(data)

    def _head(self, status: HTTPStatus, tag: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("ETag", tag), ("Accept-Ranges", "bytes"), ("Cache-Control", "max-age=31536000, immutable"), *headers):
            self.send_header(name, value)
        self.end_headers()


def _listening_place(url: str, scheme: str) -> tuple[str, int]:
    """Return the address and the port to listen at, for devices that fetch from `url`."""
    match = _URL.fullmatch(url)
    host = match[2].strip("[]") if match else ""
    if scheme == "http" and not is_loopback(host):
        raise ConfigError(f"content_url {url!r} is reachable from elsewhere and the fleet has no certificates: run `edgemeter fleet init`")
    if match is None or match[1] != scheme:
        raise ConfigError(f"content_url {url!r} in fleet.toml has to be {scheme}://HOST:PORT/content")
    port = int(match[3] or (443 if scheme == "https" else 80))
    if is_loopback(host):
        return ("127.0.0.1" if host == "localhost" else host), port
    return ("::" if ":" in host else "0.0.0.0"), port  # noqa: S104 - it asks for a certificate of the fleet


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
        raise ConfigError(
            f"the fleet's certificates in {str(folder.path)!r} cannot be used ({error}): run `edgemeter fleet init`"
        ) from error
    return context

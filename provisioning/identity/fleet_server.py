"""The fleet's HTTPS server: certificates for boards, and content for boards that have one.

`POST /enrol` with a token, `POST /renew` and `POST /confirm` with the board's certificate, `GET
/content/<sha256>` too, all of it or the rest; nothing else. TLS admits a client without a
certificate, so each request is checked here, by the registry.
"""

import functools
import logging
import re
import shutil
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.http_server import HttpHandler, HttpServer, is_loopback
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.contract.identity import (
    LARGEST_BYTES,
    EnrolmentAnswer,
    decode_request,
    encode_identity,
)
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.identity.enrolment import Enrolment
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import FleetFile, ServerEntry, open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.serve.content_store import ContentStore

logger = logging.getLogger(__name__)

# Limits per address: guesses at tokens, and boards that join.
REQUESTS_PER_S, REQUESTS_AT_ONCE = 20.0, 500.0
# `int` refuses longer digits.
_LENGTH = re.compile(r"[0-9]{1,19}")
# A continued download asks for the rest; for any other range the whole is sent.
_REST = re.compile(r"bytes=([0-9]{1,19})-")


class RequestRefusedError(Exception):
    """A request gets this status, and the text."""

    def __init__(self, status: HTTPStatus, text: str = "") -> None:
        super().__init__(text)
        self.status = status


class FleetServer(HttpServer):
    """Serves boards at `entry.https_port`; `start` once, then `stop`.

    It listens on all addresses, or on the loopback only if fleet.toml has that as host.

    Raises:
        ConfigError: the fleet has no certificates, or they cannot be used.
        UnavailableError: it cannot listen on the port.
    """

    def __init__(
        self,
        folder: FleetFolder,
        entry: ServerEntry,
        clock_ns: Callable[[], int] = time.time_ns,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tls = _tls(folder)
        self.url = entry.service_url
        self._folder = folder
        self._clock_ns = clock_ns
        self._signing = broker_files.authority(folder)
        # One decision at a time.
        self._lock = threading.Lock()
        self._allowance = Allowance(REQUESTS_PER_S, REQUESTS_AT_ONCE, clock_s)
        self.store = ContentStore(folder.content)
        super().__init__(
            _listening_host(entry.service_host),
            entry.https_port,
            _Handler,
            "https_port in fleet.toml",
        )
        self._registry = open_registry(folder)

    def stop(self) -> None:
        """Stop; downloads in progress are aborted, and can be resumed."""
        super().stop()
        self._registry.close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Use TLS; a handshake blocks only its own thread."""
        try:
            request.settimeout(_Handler.timeout)
            # TLS takes over its descriptor: the TLS connection waits instead.
            self.end_wait(request)
            with self.tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ) as connection:
                self.await_head(connection)
                try:
                    connection.do_handshake()
                    _Handler(connection, client_address, self)
                finally:
                    self.end_wait(connection)
        except OSError as error:
            logger.debug("connection of %s: %s", client_address[0], error)

    def answer(self, path: str, body: bytes, certificate: dict[str, Any], address: str) -> bytes:
        """Return the body of the answer to a POST.

        Raises:
            RequestRefusedError: the request is refused.
            ConfigError: the request is invalid.
        """
        if not self._allowance.spend(address):
            raise RequestRefusedError(
                HTTPStatus.TOO_MANY_REQUESTS, "too many requests came from this address"
            )
        now_ns = self._clock_ns()
        if path == "/enrol":
            asking = decode_request(body)
            with self._lock:
                return self._encoded(address, self._enrolment().with_token(asking, now_ns))
        if path not in {"/renew", "/confirm"}:
            raise RequestRefusedError(HTTPStatus.NOT_FOUND)
        device, number = self.admitted(certificate)
        with self._lock:
            if path == "/renew":
                return self._encoded(
                    device, self._enrolment().with_certificate(device, decode_request(body), now_ns)
                )
            self._enrolment().confirmed(device, number, now_ns)
        return b""

    def admitted(self, certificate: dict[str, Any]) -> tuple[str, str]:
        """Return the device and the number of a certificate (from `getpeercert`).

        The device must be accepted and not banned.

        Raises:
            RequestRefusedError: it is not, or there is no certificate.
        """
        names = [
            value
            for part in certificate.get("subject", ())
            for key, value in part
            if key == "commonName"
        ]
        device = devices.find(self._registry, names[0]) if len(names) == 1 else None
        if device is None or device.trust != "accepted":
            raise RequestRefusedError(
                HTTPStatus.FORBIDDEN, "give the certificate of an accepted device of this fleet"
            )
        number = f"{int(certificate.get('serialNumber', '0'), 16):x}"
        if certificates.is_refused(self._registry, number, self._clock_ns()):
            raise RequestRefusedError(
                HTTPStatus.FORBIDDEN,
                f"this certificate of {device.device!r} is revoked, or the device is "
                "banned for now",
            )
        return device.device, number

    def _enrolment(self) -> Enrolment:
        path = self._folder.fleet_file
        try:
            # People edit the inventory while the service runs.
            status = path.stat()
            return Enrolment(
                self._registry, self._signing, _inventory(path, status.st_mtime_ns, status.st_size)
            )
        except (ConfigError, OSError) as error:
            # It is no fault of the board.
            raise UnavailableError(str(error)) from error

    def _encoded(self, asker: str, answer: EnrolmentAnswer) -> bytes:
        if answer.state == "accepted":
            logger.info(
                "device %r has certificate %s",
                answer.device,
                answer.number,
                extra=about(f"{answer.device} {answer.number}"),
            )
        else:
            logger.warning("%s: %s: %s", asker, answer.state, answer.reason, extra=about(asker))
        return encode_identity(answer)


class _Handler(HttpHandler):
    server: FleetServer
    # A head and a small content are two writes: the second does not wait for the first's
    # acknowledgement.
    disable_nagle_algorithm = True

    def answer(self) -> None:
        """Answer GET and HEAD with a content, or the rest of it."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # The rest of the body would be parsed as the next request.
            self.close_connection = True
        with self._refusals():
            self.server.admitted(self._certificate())
            where, _, sha256 = self.path.rpartition("/")
            path = self.server.store.path(sha256) if where == "/content" else None
            if path is None:
                raise RequestRefusedError(HTTPStatus.NOT_FOUND)
            with path.open("rb") as file:
                self._send(file, path.stat().st_size)

    def do_POST(self) -> None:  # noqa: N802 - the base class's name
        length = self.headers.get("Content-Length", "")
        with self._refusals():
            if _LENGTH.fullmatch(length) is None or int(length) > LARGEST_BYTES:
                self.close_connection = True
                raise RequestRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            # The body has a time limit like the head: a client that stalls makes room.
            self.server.await_head(self.connection)
            body = self.rfile.read(int(length))
            self.server.end_wait(self.connection)
            answer = self.server.answer(
                self.path, body, self._certificate(), self.client_address[0]
            )
            self.respond(HTTPStatus.OK, answer, [("Content-Type", "application/json")])

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Answer with the error that ends the block; nothing was answered before."""
        try:
            yield
        except RequestRefusedError as error:
            self._refuse(error.status, str(error))
        except ConfigError as error:
            logger.warning(
                "rejected request from %s: %s",
                self.client_address[0],
                error,
                extra=about(self.client_address[0]),
            )
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except EdgemeterError as error:
            logger.warning(
                "cannot answer %s: %s",
                self.client_address[0],
                error,
                extra=about(self.client_address[0]),
            )
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "try again later")

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.respond(status, text.encode(), [("Content-Type", "text/plain; charset=utf-8")])

    def _certificate(self) -> dict[str, Any]:
        connection: Any = self.connection
        return connection.getpeercert() or {}

    def _send(self, file: IO[bytes], size_bytes: int) -> None:
        part = _REST.fullmatch(self.headers.get("Range", ""))
        first = int(part[1]) if part else 0
        if part and first >= size_bytes:
            self.respond(
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                headers=[("Content-Range", f"bytes */{size_bytes}")],
            )
            return
        self.send_response(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK)
        if part:
            self.send_header("Content-Range", f"bytes {first}-{size_bytes - 1}/{size_bytes}")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size_bytes - first))
        self.end_headers()
        if self.command != "HEAD":
            file.seek(first)
            shutil.copyfileobj(file, self.wfile)


@functools.lru_cache(maxsize=1)
def _inventory(path: Path, _modified_ns: int, _size_bytes: int) -> FleetFile:
    """Return fleet.toml, which is read again only after a change.

    With thousands of devices reading it takes a second.
    """
    return fleet_file.read(path)


def _listening_host(service: str) -> str:
    if is_loopback(service):
        return "127.0.0.1" if service == "localhost" else service
    return "::" if ":" in service else "0.0.0.0"  # noqa: S104 - each request is judged


def _tls(folder: FleetFolder) -> ssl.SSLContext:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(folder.ca_certificate)
        context.load_cert_chain(folder.broker / "broker.crt", folder.broker / "broker.key")
    except OSError as error:
        raise ConfigError(
            f"the fleet's certificates in {str(folder.path)!r} cannot be used ({error}): run "
            "`edgemeter fleet init`"
        ) from error
    return context

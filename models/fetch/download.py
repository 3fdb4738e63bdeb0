"""One address into a part file: resumes where it stopped, and never joins pieces of different files.

HTTP and HTTPS only, never from HTTPS down to HTTP, through proxies, with a timeout and a least pace. On urllib, because the
house's HTTP client is for devices on the local network: it reads whole answers and knows neither proxies nor redirects.
"""

import errno
import http.client
import logging
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.progress import Tell
from edgemeter.models.catalogue.catalogue import is_address
from edgemeter.models.fetch.pace import SLOW_S, Pace, TooSlowError

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
TRIES = 5
_CHUNK_BYTES = 1 << 16
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Worth another try at the same address: the server is busy, restarting, or behind a gateway that is.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a part came from. `validator` is a strong ETag or a Last-Modified date; None if the server sent neither."""

    address: str
    validator: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartFile:
    """The unfinished download of `target`: `.FILE.part`, and beside it a note of its origin, so that the rest can follow later."""

    target: Path

    @property
    def path(self) -> Path:
        """The file with the bytes that have arrived."""
        return self.target.with_name(f".{self.target.name}.part")

    @property
    def note(self) -> Path:
        """The file with their origin."""
        return self.target.with_name(f".{self.target.name}.part.json")

    @property
    def size_bytes(self) -> int:
        """How much has arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    def origin(self) -> Origin | None:
        """Return where the bytes came from; None if there are none or the note cannot be read."""
        try:
            return decode_json(self.note.read_bytes(), Origin) if self.size_bytes else None
        except (OSError, msgspec.MsgspecError):
            return None

    def begin(self, origin: Origin) -> None:
        """Start over with a file of this origin."""
        self.drop()
        try:
            self.note.write_bytes(msgspec.json.encode(origin))
            self.path.touch()
        except OSError as error:
            raise self.unwritable(error) from error

    def drop(self) -> None:
        """Remove what has arrived."""
        # The note last: bytes without a note are started over, a note without bytes is nothing.
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def unwritable(self, error: OSError) -> TransientError:
        """Return our error for a file system that cannot be written."""
        where = str(self.target.parent)
        if error.errno in _FULL:
            return TransientError(
                f"no space left in {where!r} after {self.size_bytes} bytes of {self.target.name}: make room (`edgemeter models cache`, or "
                "another folder with --cache) and fetch again; what has arrived is kept"
            )
        return TransientError(f"cannot write to {where!r}: {error.strerror}; choose another folder with --cache")


@dataclass(frozen=True, slots=True)
class Transport:
    """How to reach servers. `proxy` replaces http_proxy and https_proxy of the environment; no_proxy always applies.

    `slow_s` is the period over which a server has to keep the least pace; `pause` waits that many seconds before another try.
    """

    proxy: str | None = None
    timeout_s: float = TIMEOUT_S
    slow_s: float = SLOW_S
    pause: Callable[[float], None] = time.sleep

    def open(self, address: str, headers: Mapping[str, str], pace: Pace) -> http.client.HTTPResponse:
        """Return the response to a GET: status 200, 206 or 416, its body unread, which comes at that pace at least.

        Raises:
            TransientError: no connection, a timeout, or a busy server.
            UnavailableError: the server refuses, or redirects to where we do not follow.
            TooSlowError: it sends too little.
        """
        request = urllib.request.Request(address, headers={"User-Agent": "edgemeter", "Accept-Encoding": "identity", **headers})  # noqa: S310 - checked by the opener
        try:
            response: http.client.HTTPResponse = self._opener(pace).open(request, timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in headers:
                return error  # type: ignore[return-value] # an HTTPError is also the response
            with error:
                message = f"{redacted(address)}: the server responds {error.code} {error.reason}"
                raise (TransientError(message) if error.code in _BUSY else UnavailableError(message)) from error
        except (OSError, http.client.HTTPException) as error:
            raise lost(address, error) from error
        return response

    def _opener(self, pace: Pace) -> urllib.request.OpenerDirector:
        # Not build_opener: it would also open file:, ftp: and data: addresses.
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(None if self.proxy is None else dict.fromkeys(("http", "https"), self._checked_proxy())),
            urllib.request.UnknownHandler(),
            *pace.handlers(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(),
        ):
            opener.add_handler(handler)
        return opener

    def _checked_proxy(self) -> str:
        # Unlike a model's address, a proxy's may hold user and password.
        host = urlsplit(self.proxy or "").netloc.rpartition("@")[2]
        if self.proxy is None or not is_address(f"{urlsplit(self.proxy).scheme}://{host}"):
            raise ConfigError(f"proxy {redacted(self.proxy or '')!r} is not an http or https address: give http://HOST:PORT")
        return self.proxy


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to http and https, and from https only to https."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        was, becomes = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if becomes not in ("http", "https") or (was == "https" and becomes == "http"):
            redirect = f"{redacted(req.full_url)} redirects to {redacted(newurl)}"
            raise UnavailableError(f"{redirect}: not followed; only https to https, and http to http or https, are")
        # The library would read its body to the end, of which there may be none.
        fp.close()
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def lost(address: str, error: Exception) -> TransientError | UnavailableError:
    """Return our error for a connection that could not be made or broke."""
    reason: Any = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"{redacted(address)}: its certificate is not trusted ({reason.verify_message}): check the clock and the proxy"
        )
    text = "no answer in time" if isinstance(reason, TimeoutError) else " ".join(str(reason).split()) or type(reason).__name__
    return TransientError(f"{redacted(address)}: {text}")


def redacted(address: str) -> str:
    """Return the address without user, password and query, for messages."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, host + port, parts.path, "", ""))


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """The file to download: its size if that is known, and the most that is accepted."""

    size_bytes: int | None
    limit_bytes: int


class _BrokenError(Exception):
    """The connection broke; what has arrived can be continued."""


def download(address: str, part: PartFile, expected: ExpectedFile, transport: Transport, report: Tell) -> None:
    """Complete `part` from `address`.

    A broken connection is resumed, up to `TRIES` times without a new byte. Resuming sends Range with If-Range; a server that ignores
    it, has another file by now, or sent no validator, sends everything again.

    Raises:
        TransientError: the connection broke too often or is too slow, or the disk is full; what has arrived is kept.
        UnavailableError: the server refuses, or has another file than expected.
    """
    failed, largest_bytes, pace = 0, part.size_bytes, Pace(transport.slow_s)
    while True:
        try:
            return _download_once(address, part, expected, transport, report, pace)
        except TooSlowError as error:
            advice = f"{part.size_bytes} bytes are kept, fetch again to resume, or name a --mirror"
            raise TransientError(f"{redacted(address)}: {error}; {advice}") from error
        except _BrokenError as error:
            failed = 1 if part.size_bytes > largest_bytes else failed + 1
            if failed > 1:
                # A try without a new byte is counted as one, not as slow.
                pace.restart()
            largest_bytes = max(largest_bytes, part.size_bytes)
            if failed >= TRIES:
                raise TransientError(f"{error}, {TRIES} times; {part.size_bytes} bytes are kept, fetch again to resume") from error
            logger.info("%s; trying again", error)
            transport.pause(0.5 * 2 ** (failed - 1))


def _download_once(address: str, part: PartFile, expected: ExpectedFile, transport: Transport, report: Tell, pace: Pace) -> None:
    """Request once what is missing, and append it."""
    origin = part.origin()
    have = part.size_bytes if origin and origin.address == address and origin.validator else 0
    if origin and have and have == origin.size_bytes:
        return
    headers = {"Range": f"bytes={have}-", "If-Range": origin.validator or ""} if origin and have else {}
    try:
        response = transport.open(address, headers, pace)
    except TransientError as error:
        raise _BrokenError(str(error)) from error
    with response:
        if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.drop()
            raise _BrokenError(f"{redacted(address)}: the file there is shorter than what has arrived")
        total = _begin(address, response, part, have, expected)
        _append(address, response, part, total, expected, report, pace)


def _begin(address: str, response: http.client.HTTPResponse, part: PartFile, have: int, expected: ExpectedFile) -> int | None:
    """Return the size of the whole file, None if unknown; `part` then holds what precedes this body."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise UnavailableError(f"{redacted(address)}: the server sends it as {encoding}, which was not requested")
    is_partial = response.status == HTTPStatus.PARTIAL_CONTENT
    total: int | None
    if is_partial:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        origin = part.origin()
        if not match or int(match[1]) != have or (origin and origin.size_bytes not in (None, int(match[2]))):
            part.drop()
            raise _BrokenError(f"{redacted(address)}: the server sends another range than was requested")
        total = int(match[2])
    else:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
    _check_size(address, total, expected)
    _check_room(part, total, have if is_partial else 0)
    if not is_partial:
        # If-Range takes a strong ETag, else the date of the last change.
        tag = response.headers.get("ETag")
        validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
        part.begin(Origin(address=address, validator=validator, size_bytes=total))
    return total


def _append(
    address: str, response: http.client.HTTPResponse, part: PartFile, total: int | None, expected: ExpectedFile, report: Tell, pace: Pace
) -> None:
    """Write the body to the end of the part, and sync it."""
    received_bytes, limit = part.size_bytes, total or expected.size_bytes or expected.limit_bytes
    try:
        with part.path.open("ab") as file:
            while chunk := _chunk(address, response):
                received_bytes += len(chunk)
                pace.count(len(chunk))
                if received_bytes > limit:
                    part.drop()
                    raise UnavailableError(f"{redacted(address)}: more than the {limit} bytes expected")
                file.write(chunk)
                report(part.target.name, received_bytes, total or 0)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise part.unwritable(error) from error
    if total is not None and received_bytes < total:
        raise _BrokenError(f"{redacted(address)}: the connection was cut after {received_bytes} of {total} bytes")


def _chunk(address: str, response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(str(lost(address, error))) from error


def _check_size(address: str, total: int | None, expected: ExpectedFile) -> None:
    if total is not None and expected.size_bytes is not None and total != expected.size_bytes:
        raise UnavailableError(f"{redacted(address)}: {total} bytes, the catalogue says {expected.size_bytes}: it is another file")
    if total is not None and total > expected.limit_bytes:
        raise UnavailableError(
            f"{redacted(address)}: {total} bytes are more than the cache may hold, {expected.limit_bytes}: raise --limit-mb"
        )


def _check_room(part: PartFile, total: int | None, have: int) -> None:
    """Refuse at once what the disk cannot hold, rather than after an hour."""
    free = shutil.disk_usage(part.target.parent).free
    # What is there already is either kept or freed before the body is written.
    missing = 0 if total is None else total - (have or part.size_bytes)
    if missing > free:
        raise TransientError(
            f"no space left in {str(part.target.parent)!r} for {part.target.name}: {missing} bytes are needed, {free} are free; make room "
            "(`edgemeter models cache`) or choose another folder with --cache"
        )

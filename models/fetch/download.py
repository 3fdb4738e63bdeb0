"""One address into a part file, over HTTP or HTTPS, never from HTTPS down to HTTP; what has arrived is continued by the next try.

Whether the pieces are of one file, the hash shows.
"""

import errno
import http.client
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit, urlunsplit

from edgemeter.agent.base.errors import TransientError, UnavailableError, one_line
from edgemeter.agent.base.http_client import FAILURES, open_url
from edgemeter.agent.base.progress import Tell

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 16
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# A later try may succeed: the server is busy, restarting, or behind a gateway that is.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """The file to download: its size if that is known, and the most that is accepted."""

    size_bytes: int | None
    limit_bytes: int


def part_of(target: Path) -> Path:
    """Return the file that holds what has arrived of `target`."""
    return target.with_name(f".{target.name}.part")


def download(address: str, part: Path, expected: ExpectedFile, report: Tell, timeout_s: float = TIMEOUT_S) -> None:
    """Complete `part` from an address, from where it ends.

    Raises:
        TransientError: the connection broke, the server is busy, or the disk is full; what has arrived is kept.
        UnavailableError: the server refuses, or has another file than expected.
    """
    arrived_bytes = part.stat().st_size if part.exists() else 0
    with _opened(address, arrived_bytes, timeout_s) as response:
        if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # It is whole already, or of another file, which its hash shows.
            return
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            arrived_bytes = 0
        length = response.headers.get("Content-Length", "")
        total = arrived_bytes + int(length) if length.isdecimal() else None
        _check_size(address, total, expected)
        try:
            with part.open("ab" if arrived_bytes else "wb") as file:
                _append(address, response, file, arrived_bytes, total or expected.size_bytes or expected.limit_bytes, report)
        except OSError as error:
            raise unwritable(part, error) from error
    if total is not None and part.stat().st_size < total:
        raise TransientError(f"{redacted(address)}: the connection was cut after {part.stat().st_size} of {total} bytes; fetch again")


def _append(address: str, response: http.client.HTTPResponse, file: IO[bytes], arrived_bytes: int, limit_bytes: int, report: Tell) -> None:
    while chunk := _chunk(address, response):
        arrived_bytes += len(chunk)
        if arrived_bytes > limit_bytes:
            file.truncate(0)
            raise UnavailableError(f"{redacted(address)}: more than the {limit_bytes} bytes expected")
        file.write(chunk)
        report(urlsplit(address).path.rpartition("/")[2], arrived_bytes, limit_bytes)


def _chunk(address: str, response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK_BYTES)
    except FAILURES as error:
        raise _lost(address, error) from error


def _opened(address: str, arrived_bytes: int, timeout_s: float) -> http.client.HTTPResponse:
    """Return the response to a GET, of status 200, or 206 or 416 to a request for the rest; its body is unread."""
    try:
        response = open_url(address, _may_follow, timeout_s, headers={"Range": f"bytes={arrived_bytes}-"} if arrived_bytes else {})
    except FAILURES as error:
        raise _lost(address, error) from error
    is_rest = response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and arrived_bytes
    if response.status < HTTPStatus.MULTIPLE_CHOICES or is_rest:
        return response
    with response:
        message = f"{redacted(address)}: the server responds {response.status} {response.reason}"
        raise (TransientError if response.status in _BUSY else UnavailableError)(message)


def _may_follow(_: int, before: str, after: str) -> bool:
    """Return True for a redirect to http and https, and from https only to https; raises UnavailableError for another."""
    was, becomes = urlsplit(before).scheme, urlsplit(after).scheme
    if becomes not in ("http", "https") or (was == "https" and becomes == "http"):
        redirect = f"{redacted(before)} redirects to {redacted(after)}"
        raise UnavailableError(f"{redirect}: not followed; only https to https, and http to http or https, are")
    return True


def _lost(address: str, error: Exception) -> TransientError | UnavailableError:
    """Return our error for a connection that could not be made or broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"{redacted(address)}: its certificate is not trusted ({error.verify_message}): check the clock and the proxy"
        )
    text = "no answer in time" if isinstance(error, TimeoutError) else one_line(error)
    return TransientError(f"{redacted(address)}: {text}; fetch again")


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


def _check_size(address: str, total: int | None, expected: ExpectedFile) -> None:
    if total is not None and expected.size_bytes is not None and total != expected.size_bytes:
        raise UnavailableError(f"{redacted(address)}: {total} bytes, the catalogue says {expected.size_bytes}: it is another file")
    if total is not None and total > expected.limit_bytes:
        raise UnavailableError(
            f"{redacted(address)}: {total} bytes are more than the cache may hold, {expected.limit_bytes}: raise --limit-mb"
        )


def unwritable(path: Path, error: OSError) -> TransientError:
    """Return our error for a file that cannot be written."""
    if error.errno in _FULL:
        advice = "make room (`edgemeter models cache`, or another folder with --cache) and fetch again; what has arrived is kept"
        return TransientError(f"no space left in {str(path.parent)!r} for {path.name}: {advice}")
    return TransientError(f"cannot write to {str(path.parent)!r}: {error.strerror}; choose another folder with --cache")

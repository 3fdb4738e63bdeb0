"""Downloads over HTTP or HTTPS into a part file, which a later try continues.

A download is never redirected from HTTPS to HTTP. The caller checks the hash.
"""

import http.client
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit, urlunsplit

from edgemeter.agent.base.errors import TransientError, UnavailableError, one_line
from edgemeter.agent.base.http_client import FAILURES, open_url
from edgemeter.agent.base.progress import Tell, no_progress

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 16
# Statuses after which a retry may succeed: the server or its gateway is busy or restarting.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


def download(
    address: str,
    part: Path,
    size_bytes: int | None,
    limit_bytes: int,
    report: Tell = no_progress,
    timeout_s: float = TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> None:
    """Complete the file `part` with the content at an address, from its current size.

    The content has `size_bytes` in all if that is known, and `limit_bytes` at most.

    Raises:
        TransientError: the connection broke, or the server is busy; the part is kept.
        UnavailableError: the server refuses, or has another file than expected.
        OSError: the part cannot be written.
    """
    arrived_bytes = part.stat().st_size if part.exists() else 0
    with _opened(address, arrived_bytes, timeout_s, context) as response:
        if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # The part is complete, or of another file, which its hash shows.
            return
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            arrived_bytes = 0
        length = response.headers.get("Content-Length", "")
        total = arrived_bytes + int(length) if length.isdecimal() else None
        if total is not None and size_bytes is not None and total != size_bytes:
            raise UnavailableError(
                f"{redacted(address)}: {total} bytes, {size_bytes} are expected: it is another file"
            )
        if total is not None and total > limit_bytes:
            raise UnavailableError(
                f"{redacted(address)}: {total} bytes, more than the {limit_bytes} that are accepted"
            )
        with part.open("ab" if arrived_bytes else "wb") as file:
            _append(
                address, response, file, arrived_bytes, total or size_bytes or limit_bytes, report
            )
    if total is not None and part.stat().st_size < total:
        raise TransientError(
            f"{redacted(address)}: the connection was cut after {part.stat().st_size} "
            f"of {total} bytes"
        )


def _append(
    address: str,
    response: http.client.HTTPResponse,
    file: IO[bytes],
    arrived_bytes: int,
    limit_bytes: int,
    report: Tell,
) -> None:
    while chunk := _chunk(address, response):
        arrived_bytes += len(chunk)
        if arrived_bytes > limit_bytes:
            file.truncate(0)
            raise UnavailableError(
                f"{redacted(address)}: more than the {limit_bytes} bytes expected"
            )
        file.write(chunk)
        report(urlsplit(address).path.rpartition("/")[2], arrived_bytes, limit_bytes)


def _chunk(address: str, response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK_BYTES)
    except FAILURES as error:
        raise _lost(address, error) from error


def _opened(
    address: str, arrived_bytes: int, timeout_s: float, context: ssl.SSLContext | None
) -> http.client.HTTPResponse:
    """Return the unread response to a GET: status 200, or 206 or 416 for the rest of a part."""
    headers = {"Range": f"bytes={arrived_bytes}-"} if arrived_bytes else {}
    try:
        response = open_url(address, _may_follow, timeout_s, headers=headers, context=context)
    except FAILURES as error:
        raise _lost(address, error) from error
    is_rest = response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and arrived_bytes
    if response.status < HTTPStatus.MULTIPLE_CHOICES or is_rest:
        return response
    with response:
        raise (TransientError if response.status in _BUSY else UnavailableError)(
            f"{redacted(address)}: the server responds {response.status} {response.reason}"
        )


def _may_follow(_: int, before: str, after: str) -> bool:
    """Return True for a redirect to http or https, and from https only to https.

    Raises:
        UnavailableError: it is any other redirect.
    """
    was, becomes = urlsplit(before).scheme, urlsplit(after).scheme
    if becomes not in ("http", "https") or (was == "https" and becomes == "http"):
        raise UnavailableError(
            f"{redacted(before)} redirects to {redacted(after)}: not followed; only https to "
            "https, and http to http or https, are"
        )
    return True


def _lost(address: str, error: Exception) -> TransientError | UnavailableError:
    """Return our error for a failed connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"{redacted(address)}: its certificate is not trusted ({error.verify_message}): "
            "check the clock and the proxy"
        )
    text = "no answer in time" if isinstance(error, TimeoutError) else one_line(error)
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

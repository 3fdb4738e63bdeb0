"""HTTP on Python's own library, with persistent connections and with single requests.

Single requests use proxies and follow redirects.

The library connects (names, TLS, TCP_NODELAY) and reads bodies; here a small request is one write,
and headers are simply split. A POST of 140 bytes on loopback takes 140 us more with http.client
alone, 310 with urllib3 and 750 with httpx (Python 3.11, x86-64), which would add to the measured
latency.
"""

import http.client
import math
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any, cast
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.tls import server_tls_context

# Raised where no answer arrives, or only a part of it.
FAILURES = (OSError, http.client.HTTPException)
_SCHEMES = ("http", "https")
_NO_HEADERS: Mapping[str, str] = {}
_WITHOUT_BODY = (http.client.NO_CONTENT, http.client.NOT_MODIFIED)
# Copying a larger body costs more than a second write.
_COPIED_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
_MOST_HEADERS, _LONGEST_HEADER_BYTES = 100, 1 << 16
# Source: RFC 9110, 5.5 and 5.6.2.
_HEADER = re.compile(r"[!#-'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\xa0-\xff]*")


class HttpAnswer(http.client.HTTPResponse):
    """A response with an unread body; `fields` are its headers by lower-case name."""

    fields: dict[str, str]

    def begin(self) -> None:
        """Read status and headers.

        `http.client` uses a parser of e-mail, which takes longer than a small body.
        """
        self.status = http.client.CONTINUE
        while self.status // 100 == 1:
            line = self._head_line()
            if not line:
                raise http.client.RemoteDisconnected("it closed the connection without an answer")
            version, _, outcome = line.strip().partition(" ")
            code, _, self.reason = outcome.partition(" ")
            if not re.fullmatch(r"HTTP/1\.\d", version) or not re.fullmatch(r"[1-9]\d\d", code):
                raise http.client.BadStatusLine(line)
            self.code = self.status = int(code)
            self.fields = dict(self._header_lines())
        connection, length = (
            self.fields.get("connection", "").lower(),
            self.fields.get("content-length", ""),
        )
        self.chunked = self.fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.length = (
            0
            if self.status in _WITHOUT_BODY
            else int(length)
            if length.isdecimal() and not self.chunked
            else None
        )
        has_end = self.chunked or self.length is not None
        self.will_close = (
            not has_end
            or "close" in connection
            or (version == "HTTP/1.0" and "keep-alive" not in connection)
        )

    def lines(self, longest_bytes: float = math.inf) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive, without line ends; longer ones come in parts.

        `readline` does not detect a response that ends between two chunks.
        """
        line = bytearray()
        while portion := self.read1(_PIECE_BYTES):
            line += portion
            if b"\n" in portion:
                *lines, line = line.split(b"\n")
                yield from map(bytes, lines)
            if len(line) >= longest_bytes:
                yield bytes(line)
                line = bytearray()
        if self.length:
            raise http.client.IncompleteRead(bytes(line), self.length)
        self.close()
        if line:
            yield bytes(line)

    def _header_lines(self) -> Iterator[tuple[str, str]]:
        for _ in range(_MOST_HEADERS):
            line = self._head_line()
            if not line.strip():
                return
            name, _, value = line.partition(":")
            yield name.lower(), value.strip()
        raise http.client.HTTPException(f"more than {_MOST_HEADERS} headers")

    def _head_line(self) -> str:
        line = self.fp.readline(_LONGEST_HEADER_BYTES)
        if len(line) == _LONGEST_HEADER_BYTES:
            raise http.client.LineTooLong("header line")
        return line.decode("iso-8859-1")


class HttpConnection:
    """A connection for requests to the server at `url` (http or https), below its path.

    It stays open as the server allows. It is for one thread. `headers` go with each request;
    `ca_file` is the authority of the server's certificate. `timeout_s` limits the time without
    data.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        headers: Mapping[str, str] = _NO_HEADERS,
        ca_file: str | None = None,
    ) -> None:
        try:
            parts = urlsplit(url)
            host, port, name = (
                parts.hostname,
                parts.port,
                parts.netloc.rpartition("@")[2].encode("idna").decode(),
            )
        except ValueError:
            host, port, name = None, None, ""
        if not host or parts.scheme not in _SCHEMES or not re.fullmatch("[!-~]*", parts.path):
            raise ConfigError(
                f"{url!r} is not the address of an HTTP server: give http://HOST:PORT or "
                "https://HOST"
            )
        for header, value in headers.items():
            if not _HEADER.fullmatch(f"{header}:{value}"):
                raise ConfigError(
                    f"header {header!r} for the server {url!r} cannot be sent: correct it, or "
                    "the key file"
                )
        self.url, self.timeout_s = url, timeout_s
        self._path, self._headers = (
            parts.path.rstrip("/"),
            {"Host": name, "Accept-Encoding": "identity", **headers},
        )
        self._unopened: Callable[[], http.client.HTTPConnection] = partial(
            http.client.HTTPConnection, host, port, timeout=timeout_s
        )
        if parts.scheme == "https":
            self._unopened = partial(
                http.client.HTTPSConnection,
                host,
                port,
                timeout=timeout_s,
                context=server_tls_context(ca_file),
            )
        self._connection = self._unopened()
        self._answer: HttpAnswer | None = None

    @property
    def sock(self) -> Any:
        """The open socket; None before the next request opens one."""
        return self._connection.sock

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()
        if self._answer is not None:
            self._answer.close()

    def request(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        again_within_s: float = math.inf,
    ) -> HttpAnswer:
        """Return the response to a request, its body unread; raises one of `FAILURES`.

        A server may close an idle connection at the moment of a request. If that shows within
        `again_within_s`, the request is sent once more, on a new connection.
        """
        if self._answer is not None and not self._answer.isclosed():
            # An unread rest would be parsed as the next response.
            self.close()
        began_s = time.monotonic()
        for is_last in (self.sock is None, True):
            try:
                return self._exchange(method, path, content, headers)
            except FAILURES as error:
                self.close()
                if (
                    is_last
                    or not isinstance(error, ConnectionError)
                    or time.monotonic() - began_s >= again_within_s
                ):
                    raise
        raise AssertionError

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> HttpAnswer:
        if self.sock is None:
            self._connection.connect()
        body = content or b""
        fields = (
            {**self._headers, **headers}
            if method == "GET"
            else {**self._headers, **headers, "Content-Length": len(body)}
        )
        lines = [
            f"{method} {self._path}{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
            "\r\n",
        ]
        head = "\r\n".join(lines).encode("iso-8859-1")
        for part in (head + body,) if len(body) <= _COPIED_BYTES else (head, body):
            self.sock.sendall(part)
        self._answer = answer = HttpAnswer(self.sock, method=method)
        answer.begin()
        if answer.will_close:
            self._connection.close()
        return answer


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect if `may_follow` allows it."""

    # Python 3.10 does not handle 308.
    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302

    def __init__(self, may_follow: Callable[[int, str, str], bool]) -> None:
        self._may_follow = may_follow

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        del fp, msg, headers
        if (
            not self._may_follow(code, req.full_url, newurl)
            or urlsplit(newurl).scheme not in _SCHEMES
        ):
            return None
        # The address is checked above.
        return urllib.request.Request(  # noqa: S310
            newurl,
            req.data,
            req.headers,
            method=req.get_method(),
        )


def open_url(
    url: str,
    may_follow: Callable[[int, str, str], bool],
    timeout_s: float,
    content: bytes | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    context: Any = None,
) -> http.client.HTTPResponse:
    """Return the response to one request, of any status, its body unread.

    `content` makes it a POST. It uses the proxy in the environment, and follows a redirect if
    `may_follow(status, before, after)`. Raises one of `FAILURES`.
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise ConfigError(f"{url!r} is not an http:// or https:// address: correct it")
    fields = {"User-Agent": "edgemeter", "Accept-Encoding": "identity", **headers}
    opener = urllib.request.build_opener(
        _Redirects(may_follow), urllib.request.HTTPSHandler(context=context)
    )
    try:
        request = urllib.request.Request(url, content, fields)  # noqa: S310 - checked above
        return cast("http.client.HTTPResponse", opener.open(request, timeout=timeout_s))
    except urllib.error.HTTPError as error:
        # An HTTPError is also the response.
        return cast("http.client.HTTPResponse", error)
    except urllib.error.URLError as error:
        raise (error.reason if isinstance(error.reason, OSError) else error) from None

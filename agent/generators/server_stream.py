"""One kept-open HTTP connection to a server of language models: JSON requests, and answers that stream line by line."""

import http.client
import json
import select
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, MeasurementError, TransientError, UnavailableError, one_line
from edgemeter.agent.generators.adapter import json_object

LONGEST_LINE_BYTES = 1 << 20
LONGEST_ANSWER_BYTES = 1 << 24
# Servers close connections that were idle for some seconds.
IDLE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a short request: `document` is its JSON object, empty if it has none."""

    status: int
    document: Mapping[str, Any]
    took_ms: float


class ServerConnection:
    """Requests to the server at `url` (http or https, with or without a path before /v1); the connection stays open as the server allows.

    Used from one thread. `key` is sent as bearer token. `timeout_s` is the longest silence.
    """

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self._url, self._key, self._timeout_s = url, key, timeout_s
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"{url!r} is not the address of a server: give http://HOST:PORT or https://HOST (without user and password)")
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(host, port, timeout=timeout_s)
        self._answered_ns = 0

    def ask(self, path: str, content: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to GET `path`, or to POST with `content`; a connection that the server closed meanwhile is opened again.

        Raises:
            TransientError: the server does not answer.
        """
        for is_last in (False, True):
            began_ns = time.monotonic_ns()
            try:
                response = self._send(path, content)
                body = response.read(LONGEST_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A kept-open connection may have ended since the last request: once, a new one is tried.
                if is_last or isinstance(error, ConnectionRefusedError | TimeoutError):
                    raise TransientError(f"no answer from {self._url} ({_reason(error)}): start the server, or correct its url") from error
                continue
            self._answered_ns = time.monotonic_ns()
            took_ms = (self._answered_ns - began_ns) / 1e6
            return Answer(response.status, json_object(body), took_ms)
        raise AssertionError

    def stream(self, path: str, content: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the lines of the answer to POST `path`, without line ends and empty lines, as they come.

        Raises:
            UnavailableError: the server has no such path, no such model, or refuses the request.
            MeasurementError: it failed, broke off, or sent what is no stream of lines.
        """
        response, is_whole = None, False
        try:
            response = self._send_anew(path, content)
            if response.status != http.client.OK:
                self._refuse(path, response.status, json_object(response.read(LONGEST_ANSWER_BYTES)))
            while line := response.readline(LONGEST_LINE_BYTES):
                if len(line) >= LONGEST_LINE_BYTES:
                    raise MeasurementError(
                        f"{self._url}{path} sends a line of {LONGEST_LINE_BYTES >> 20} MiB or more: check url and endpoint"
                    )
                if stripped := line.strip():
                    yield stripped
            is_whole, self._answered_ns = True, time.monotonic_ns()
        except (OSError, http.client.HTTPException) as error:
            raise MeasurementError(
                f"{self._url}{path} broke off ({_reason(error)}): read the server's log, and check its memory and the network"
            ) from error
        finally:
            # What is left of this answer would be taken for the next one.
            if not is_whole:
                self.close()
                if response is not None:
                    response.close()

    def make_ready(self, path: str) -> None:
        """Open the connection by a short request to `path` unless it is open, and was in use just now.

        Raises:
            TransientError: the server does not answer.
        """
        opened = self._connection.sock
        # What can be read of a connection on which nothing was asked is its end.
        is_over = opened is None or bool(select.select([opened], [], [], 0)[0])
        if is_over or time.monotonic_ns() - self._answered_ns > IDLE_NS:
            self.ask(path)

    def another(self) -> "ServerConnection":
        """Return another connection to the same server, not opened yet."""
        return ServerConnection(self._url, self._key, self._timeout_s)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()

    def _send_anew(self, path: str, content: Mapping[str, Any]) -> http.client.HTTPResponse:
        """Send; where a connection that was kept open had just been ended without an answer, once more on a new one."""
        was_open = self._connection.sock is not None
        try:
            return self._send(path, content)
        except ConnectionError:
            self.close()
            if not was_open:
                raise
            return self._send(path, content)

    def _send(self, path: str, content: Mapping[str, Any] | None) -> http.client.HTTPResponse:
        body = None if content is None else json.dumps(content).encode()
        self._connection.request("GET" if body is None else "POST", self._path + path, body, self._headers)
        return self._connection.getresponse()

    def _refuse(self, path: str, status: int, document: Mapping[str, Any]) -> None:
        reason = f": {message}" if (message := error_message(document)) else ""
        summary = f"{self._url}{path} answers {status}{reason}"
        if status == http.client.NOT_FOUND:
            raise UnavailableError(f"{summary}; check url, model and endpoint of the server's file")
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise UnavailableError(f"{summary}; give its key as api_key_file in the server's file")
        if status < http.client.INTERNAL_SERVER_ERROR:
            raise UnavailableError(f"{summary}; the server does not take this request: check model and endpoint of the server's file")
        raise MeasurementError(f"{summary}; read the server's log")


def error_message(document: Mapping[str, Any]) -> str:
    """Return the message of an error as servers write it, on one line; empty if there is none."""
    error = document.get("error", document.get("detail"))
    if isinstance(error, Mapping):
        error = error.get("message", error)
    return one_line(error) if error else ""


def _reason(error: BaseException) -> str:
    return one_line(error) if str(error) else type(error).__name__

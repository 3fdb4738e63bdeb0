"""One kept-open HTTP connection to a server of models: JSON requests, and answers that stream line by line."""

import copy
import http.client
import json
import re
import select
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, cast

from edgemeter.agent.base.errors import AnswerError, ConfigError, TransientError, one_line
from edgemeter.agent.base.http_client import password_from
from edgemeter.agent.base.quick_http import QuickConnection, QuickResponse, TlsConnection
from edgemeter.agent.base.server_address import ServerAddress, address_parts, has_tls
from edgemeter.agent.base.tls import OF_ANOTHER_NAME, OF_UNKNOWN_AUTHORITY, server_tls_context

DONE = b"[DONE]"
LONGEST_LINE_BYTES = 1 << 20
LONGEST_ANSWER_BYTES = 1 << 24
# Tensors of an answer, as JSON.
LARGEST_TENSORS_BYTES = 1 << 28
# An answer ends so soon after its `[DONE]`, or its connection is given up.
_ENDS_WITHIN_S = 0.05
# An end of the connection that comes later is one of a server that had begun to work.
_CLOSED_WITHIN_S = 0.05
# Servers close connections that were idle for some seconds.
IDLE_NS = 1_000_000_000
# Source: RFC 9110, 5.5 and 5.6.2.
_HEADER = re.compile(r"[!#-'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\xa0-\xff]*")
_BUSY = (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a short request: `document` is its JSON object, empty if it has none, `content` its bytes."""

    status: int
    document: Mapping[str, Any]
    took_ms: float
    content: bytes = b""
    location: str | None = None


class ServerConnection:
    """Requests to the server at `url` (http or https, with or without a path); the connection stays open as the server allows.

    Used from one thread. `key` is sent as bearer token, `headers` with each request. `ca_file` holds the authority of its certificate.
    `timeout_s` is the longest silence. `connect_ns` is how long the last request took to open the connection, None where it was open.
    `closes`: the server ended it behind the answer to a ping.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._url, self._timeout_s = url, timeout_s
        parts = address_parts(url)
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}) | dict(headers or {})
        for name, value in self._headers.items():
            if not _HEADER.fullmatch(f"{name}:{value}"):
                raise ConfigError(f"header {name!r} for the server {url!r} cannot be sent: correct headers or api_key_file of its file")
        self._answered_ns = 0
        self.connect_ns: int | None = None
        self.closes = False
        kind: Any = QuickConnection
        if has_tls(parts):
            kind = partial(TlsConnection, context=server_tls_context(ca_file))
        self._unopened = partial(kind, parts.hostname, parts.port, timeout=timeout_s)
        self._connection: QuickConnection = self._unopened()

    @classmethod
    def to(cls, address: ServerAddress, version: str = "") -> "ServerConnection":
        """Return a connection to a server as its file describes it, not opened yet; raises ConfigError as its constructor does.

        The address may end with the `version` of its protocol, which the paths of requests begin with.
        """
        address_parts(address.url)
        key_file = address.api_key_file
        key = password_from(key_file, f"the server {address.url!r}", "api_key_file") if key_file else None
        return cls(address.url.rstrip("/").removesuffix(version), key, address.timeout_s, address.headers, address.ca_file)

    def ask(self, path: str, content: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to GET `path`, or to POST with `content`; a connection that the server closed meanwhile is opened again.

        Raises:
            TransientError: the server does not answer.
        """
        for is_last in (False, True):
            began_ns = time.monotonic_ns()
            try:
                response = self._send(path, None if content is None else encoded(content))
                body = response.read(LONGEST_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A kept-open connection may have ended since the last request: once, a new one is tried.
                if is_last or isinstance(error, ConnectionRefusedError | TimeoutError | ssl.SSLError):
                    raise TransientError(f"no answer from {self._url} ({_reason(error)}): {_remedy(error)}") from error
                continue
            self._answered_ns = time.monotonic_ns()
            took_ms = (self._answered_ns - began_ns) / 1e6
            return Answer(response.status, json_object(body), took_ms, body, response.fields.get("location"))
        raise AssertionError

    def exchange(self, path: str, content: bytes, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the whole answer to POST `path` with `content`, and its headers by their names in lower case.

        Raises:
            AnswerError: the server does not answer, refuses the request, or answers more than `LARGEST_TENSORS_BYTES`.
        """
        try:
            # Never sent again: a server that drops what it took would seem to fail at nothing.
            response = self._send(path, content, headers)
            # Of a length that is stated, a read of as many bytes does not tell that some are missing.
            is_bounded = response.length is not None and response.length <= LARGEST_TENSORS_BYTES
            body = response.read() if is_bounded else response.read(LARGEST_TENSORS_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            is_late, is_unopened = isinstance(error, TimeoutError), isinstance(error, ConnectionRefusedError | ssl.SSLError)
            remedy = (
                f"it took longer than timeout_s = {self._timeout_s:g}: raise that, or read the server's log"
                if is_late
                else _remedy(error)
                if is_unopened
                else "read the server's log, and check its memory and the network"
            )
            raise AnswerError(
                f"no answer from {self._url}{path} ({_reason(error)}): {remedy}",
                kind="timeout" if is_late else "no connection" if is_unopened else "broke off",
                is_busy=isinstance(error, ConnectionRefusedError),
            ) from error
        self._answered_ns = time.monotonic_ns()
        if len(body) > LARGEST_TENSORS_BYTES:
            self.close()
            raise AnswerError(
                f"{self._url}{path} answers more than {LARGEST_TENSORS_BYTES >> 20} MiB: check url and model, or ask for fewer outputs",
                kind="no answer",
            )
        if response.status != http.client.OK:
            reason = error_message(json_object(body))
            raise AnswerError(
                f"{self._url}{path} answers {response.status}{f': {reason}' if reason else ''}; "
                f"{tensor_remedy(response.status, path, response.fields.get('location'))}",
                kind=f"http {response.status}",
                retry_after_s=_seconds(response.fields.get("retry-after")),
                is_busy=response.status in _BUSY,
            )
        return body, response.fields

    def stream(self, path: str, content: bytes) -> Iterator[bytes]:
        """Yield the lines of the answer to POST `path` with the JSON `content`, without line ends and empty ones; `[DONE]` is the last.

        A JSON document that is spread over several lines is one.

        Raises:
            AnswerError: the server refuses the request, failed, broke off, or sent what is no stream of lines.
        """
        response, is_whole = None, False
        try:
            response = self._send_anew(path, content)
            if response.status != http.client.OK:
                self._refuse(path, response, content)
            for line in self._lines(path, response):
                self._answered_ns = time.monotonic_ns()
                if line.startswith(b"data:") and line[5:].strip() == DONE:
                    is_whole = self._is_over(response)
                    yield line
                    return
                yield line
            is_whole = True
        except (OSError, http.client.HTTPException) as error:
            raise AnswerError(
                f"{self._url}{path} broke off ({_reason(error)}): read the server's log, and check its memory and the network",
                kind="timeout" if isinstance(error, TimeoutError) else "broke off",
                is_busy=isinstance(error, ConnectionRefusedError),
            ) from error
        finally:
            # What is left of this answer would be taken for the next one.
            if not is_whole:
                self.close()
                if response is not None:
                    response.close()

    def _lines(self, path: str, response: QuickResponse) -> Iterator[bytes]:
        """Yield the lines that are not empty; those of one JSON document, which an answer that is not streamed is, together."""
        is_json, document = "application/json" in response.fields.get("content-type", ""), b""
        while line := response.readline(LONGEST_LINE_BYTES):
            document += line.strip()
            if max(len(line), len(document)) >= LONGEST_LINE_BYTES:
                raise AnswerError(
                    f"{self._url}{path} sends a line of {LONGEST_LINE_BYTES >> 20} MiB or more: check url and endpoint", kind="no stream"
                )
            if document and (not is_json or document.startswith(b"data:") or json_object(document)):
                yield document
                document = b""
        if document:
            yield document

    def _is_over(self, response: QuickResponse) -> bool:
        """Return whether the answer has ended behind its last line; a server that goes on is not waited for."""
        sock = self._connection.sock
        if sock is None:
            return True
        sock.settimeout(_ENDS_WITHIN_S)
        try:
            return not response.read(LONGEST_LINE_BYTES).strip()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            sock.settimeout(self._timeout_s)

    def make_ready(self, path: str) -> None:
        """Open the connection by a short request to `path` unless it is open, and was in use just now.

        Raises:
            TransientError: the server does not answer.
        """
        opened = self._connection.sock
        # What can be read of a connection on which nothing was asked is its end.
        is_over = opened is None or bool(select.select([opened], [], [], 0)[0])
        if is_over and self.closes:
            self.close()
        elif is_over or time.monotonic_ns() - self._answered_ns > IDLE_NS:
            self.ask(path)
            # It is of no use then.
            self.closes = self._connection.sock is None

    def another(self) -> "ServerConnection":
        """Return another connection to the same server, not opened yet; authorities, which take long to read, are shared."""
        twin = copy.copy(self)
        twin._connection = self._unopened()  # noqa: SLF001 - of this class
        return twin

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()

    def _send_anew(self, path: str, content: bytes) -> QuickResponse:
        """Send; where a connection that was kept open had just been ended without an answer, once more on a new one.

        llama.cpp's server ends some behind a stream without a word, in the moment in which the next request is sent.
        """
        was_open, began_s = self._connection.sock is not None, time.monotonic()
        try:
            return self._send(path, content)
        except ConnectionError:
            self.close()
            if not was_open or time.monotonic() - began_s > _CLOSED_WITHIN_S:
                raise
            return self._send(path, content)

    def _send(self, path: str, content: bytes | None, headers: Mapping[str, str] | None = None) -> QuickResponse:
        headers = {**self._headers, **headers} if headers else self._headers
        self.connect_ns = None
        if self._connection.sock is None:
            began_ns = time.monotonic_ns()
            self._connection.connect()
            self.connect_ns = time.monotonic_ns() - began_ns
        self._connection.request("GET" if content is None else "POST", self._path + path, content, headers)
        return cast("QuickResponse", self._connection.getresponse())

    def _refuse(self, path: str, response: QuickResponse, content: bytes) -> None:
        status = response.status
        reason = error_message(json_object(response.read(LONGEST_ANSWER_BYTES)))
        summary = f"{self._url}{path} answers {status}{f': {reason}' if reason else ''}"
        raise AnswerError(
            f"{summary}; {_status_remedy(status, reason, path, response.fields.get('location'), json_object(content))}",
            kind=f"http {status}",
            retry_after_s=_seconds(response.fields.get("retry-after")),
            is_busy=status in _BUSY,
        )


def _status_remedy(status: int, reason: str, path: str, location: str | None, content: Mapping[str, Any]) -> str:
    """Return what to do about a refusal."""
    if location and status // 100 == 3:
        return _moved(path, location)
    if status in _REMEDIES:
        return _REMEDIES[status]
    if status < http.client.INTERNAL_SERVER_ERROR and "context" in reason.lower():
        return _REMEDIES[http.client.REQUEST_ENTITY_TOO_LARGE]
    field = next((name for name in content if name in reason and name not in ("model", "prompt", "messages")), None)
    if status < http.client.INTERNAL_SERVER_ERROR and field:
        return f"it does not take {field}: leave it out of extra, or choose another endpoint in the server's file"
    is_ours = status < http.client.INTERNAL_SERVER_ERROR
    return (
        "the server does not take this request: check model, endpoint and extra of the server's file"
        if is_ours
        else "read the server's log"
    )


_KEY = "give its key as api_key_file in the server's file, one that may use this model"
_REMEDIES = {
    401: _KEY,
    403: _KEY,
    404: "check url, model and endpoint of the server's file",
    413: "shorten prompt or output, or start the server with a longer context",
    429: "ask for less at once, or raise the server's limit",
    503: "wait until the server has loaded its model and has room",
}
# Of requests with tensors.
_TENSOR_REMEDIES = _REMEDIES | {
    400: "the server does not take these inputs: check model and transport of the server's file, and the model's card",
    404: "check url, model and version of the server's file",
    413: "choose a smaller batch, or raise the server's limit",
    422: "the server does not take this form: check transport of the server's file",
    501: "choose a model that gives each request one answer",
}


def tensor_remedy(status: int, path: str, location: str | None) -> str:
    """Return what to do where a server of tensors answers `path` with this status, and location."""
    if location and status // 100 == 3:
        return _moved(path, location)
    if status in _TENSOR_REMEDIES or status >= http.client.INTERNAL_SERVER_ERROR:
        return _TENSOR_REMEDIES.get(status, "read the server's log")
    return "the server does not take this request: check url, model and transport of the server's file"


def _moved(path: str, location: str) -> str:
    url = location.removesuffix(path)
    if url in ("", location):
        return f"it moved to {location!r}: correct url of the server's file"
    return f"it moved: set url of the server's file to {url!r}"


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds from now that a header Retry-After states, as a number or as a date; None of anything else."""
    if not retry_after:
        return None
    try:
        # Also of what is no number.
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except ValueError:
        return None


def _remedy(error: BaseException) -> str:
    """Return what to do about a connection that cannot be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "match" in error.verify_message.lower():
            return OF_ANOTHER_NAME
        return OF_UNKNOWN_AUTHORITY
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS: set url to http://"
    return "start the server, or correct its url"


def encoded(content: Mapping[str, Any]) -> bytes:
    """Return the body of a request."""
    return json.dumps(content).encode()


def json_object(text: bytes) -> Mapping[str, Any]:
    """Return a JSON object; empty where the text is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def error_message(document: Mapping[str, Any]) -> str:
    """Return the message of an error as servers write it, on one line; empty if there is none."""
    error = document.get("error", document.get("detail"))
    if isinstance(error, Mapping):
        error = error.get("message", error)
    return one_line(error) if error else ""


def _reason(error: BaseException) -> str:
    return one_line(error) if str(error) else type(error).__name__

"""A server of models: short JSON requests, requests whose tensors or streamed lines are timed, and what to do where it refuses."""

import http.client
import json
import select
import socket
import ssl
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from edgemeter.agent.base.errors import AnswerError, one_line
from edgemeter.agent.base.http_client import FAILURES, HttpAnswer, HttpConnection
from edgemeter.agent.base.server_address import ServerAddress, address_parts
from edgemeter.agent.base.tls import OF_ANOTHER_NAME, OF_UNKNOWN_AUTHORITY, password_from

DONE = b"[DONE]"
LONGEST_LINE_BYTES = 1 << 20
LONGEST_ANSWER_BYTES = 1 << 24
# Tensors of an answer, as JSON.
LARGEST_TENSORS_BYTES = 1 << 28
# An answer ends so soon after its `[DONE]`, or its connection is given up.
_ENDS_WITHIN_S = 0.05
# llama.cpp's server ends some connections behind a stream without a word. An end that comes later: the server had begun to work.
_CLOSED_WITHIN_S = 0.05
# Servers close connections that were idle for some seconds.
_IDLE_NS = 1_000_000_000
_KEY = "give its key as api_key_file in the server's file, one that may use this model"
_SMALLER = "shorten prompt or output, choose a smaller batch, or raise the server's limit"
_REMEDIES = {
    401: _KEY,
    403: _KEY,
    404: "check url, model, version and endpoint of the server's file",
    413: _SMALLER,
    429: "ask for less at once, or raise the server's limit",
    501: "choose a model that gives each request one answer",
    503: "wait until the server has loaded its model and has room",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a short request: `document` is its JSON object, empty if it has none, `content` its bytes."""

    status: int
    document: Mapping[str, Any]
    took_ms: float
    content: bytes
    location: str | None


class ModelServer(HttpConnection):
    """A connection to a server of models; `closes`: the server ended it behind the answer to a ping.

    What it raises is an AnswerError: the server does not answer, refuses, or answers something else.
    """

    def __init__(self, address: ServerAddress, version: str = "") -> None:
        """Describe the server of a file, whose address may end with the `version` of its protocol, which the paths of requests begin with.

        Raises:
            ConfigError: the file cannot be used.
        """
        address_parts(address.url)
        key_file = address.api_key_file
        key = password_from(key_file, f"the server {address.url!r}", "api_key_file") if key_file else None
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}) | address.headers
        super().__init__(address.url.rstrip("/").removesuffix(version), address.timeout_s, headers, address.ca_file)
        self._answered_ns = 0
        self.closes = False

    def ask(self, path: str, content: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to GET `path`, or to POST with `content`, whatever its status."""
        began_ns = time.monotonic_ns()
        try:
            encoded = None if content is None else json.dumps(content).encode()
            response = self.request("GET" if encoded is None else "POST", path, encoded)
            body = response.read(LONGEST_ANSWER_BYTES)
        except FAILURES as error:
            raise self._lost("", error, is_busy=True) from error
        self._answered_ns = time.monotonic_ns()
        took_ms = (self._answered_ns - began_ns) / 1e6
        return Answer(response.status, json_object(body), took_ms, body, response.fields.get("location"))

    def exchange(self, path: str, content: bytes, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the whole answer to POST `path` with `content`, and its headers by their names in lower case."""
        try:
            # Never sent again: a server that drops what it took would seem to fail at nothing.
            response = self.request("POST", path, content, headers, again_within_s=0.0)
            if response.status != http.client.OK:
                raise self._refusal(path, response)
            # Of a length that is stated, a read of as many bytes does not tell that some are missing.
            is_bounded = response.length is not None and response.length <= LARGEST_TENSORS_BYTES
            body = response.read() if is_bounded else response.read(LARGEST_TENSORS_BYTES + 1)
        except FAILURES as error:
            raise self._lost(path, error) from error
        self._answered_ns = time.monotonic_ns()
        if len(body) > LARGEST_TENSORS_BYTES:
            self.close()
            raise AnswerError(
                f"{self.url}{path} answers more than {LARGEST_TENSORS_BYTES >> 20} MiB: check url and model, or ask for fewer outputs",
                kind="no answer",
            )
        return body, response.fields

    def stream(self, path: str, content: bytes) -> Iterator[bytes]:
        """Yield the lines of the answer to POST `path` with the JSON `content`, without line ends and empty ones; `[DONE]` is the last.

        A JSON document that is spread over several lines is one.
        """
        is_whole = False
        try:
            response = self.request("POST", path, content, again_within_s=_CLOSED_WITHIN_S)
            if response.status != http.client.OK:
                raise self._refusal(path, response, json_object(content))
            for line in self._lines(path, response):
                self._answered_ns = time.monotonic_ns()
                if line.startswith(b"data:") and line[5:].strip() == DONE:
                    is_whole = self._is_over(response)
                    yield line
                    return
                yield line
            is_whole = True
        except FAILURES as error:
            raise self._lost(path, error) from error
        finally:
            if is_whole:
                response.close()
            else:
                self.close()

    def _lines(self, path: str, response: HttpAnswer) -> Iterator[bytes]:
        """Yield the lines that are not empty; those of one JSON document, which an answer that is not streamed is, together."""
        is_json, document = "application/json" in response.fields.get("content-type", ""), b""
        while line := response.readline(LONGEST_LINE_BYTES):
            document += line.strip()
            if max(len(line), len(document)) >= LONGEST_LINE_BYTES:
                raise AnswerError(
                    f"{self.url}{path} sends a line of {LONGEST_LINE_BYTES >> 20} MiB or more: check url and endpoint", kind="no stream"
                )
            if document and (not is_json or document.startswith(b"data:") or json_object(document)):
                yield document
                document = b""
        if document:
            yield document

    def _is_over(self, response: HttpAnswer) -> bool:
        """Return whether the answer has ended behind its last line; a server that goes on is not waited for."""
        sock = self.sock
        if sock is None:
            return True
        sock.settimeout(_ENDS_WITHIN_S)
        try:
            return not response.read(LONGEST_LINE_BYTES).strip()
        except FAILURES:
            return False
        finally:
            sock.settimeout(self.timeout_s)

    def make_ready(self, path: str) -> None:
        """Open the connection by a short request to `path` unless it is open, and was in use just now."""
        # What can be read of a connection on which nothing was asked is its end.
        is_over = self.sock is None or bool(select.select([self.sock], [], [], 0)[0])
        if is_over and self.closes:
            self.close()
        elif is_over or time.monotonic_ns() - self._answered_ns > _IDLE_NS:
            self.ask(path)
            # It is of no use then.
            self.closes = self.sock is None

    def _refusal(self, path: str, response: HttpAnswer, fields: Collection[str] = ()) -> AnswerError:
        """Return the error of an answer with another status, to a request with these fields."""
        reason = error_message(json_object(response.read(LONGEST_ANSWER_BYTES)))
        remedy = status_remedy(response.status, path, response.fields.get("location"), reason, fields)
        return AnswerError(
            f"{self.url}{path} answers {response.status}{f': {reason}' if reason else ''}; {remedy}",
            kind=f"http {response.status}",
            retry_after_s=_seconds(response.fields.get("retry-after")),
            is_busy=response.status in (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE),
        )

    def _lost(self, path: str, error: BaseException, *, is_busy: bool = False) -> AnswerError:
        """Return the error of an answer that did not come whole."""
        self.close()
        kind, remedy = "no connection", "start the server, or correct its url"
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = OF_ANOTHER_NAME if "match" in error.verify_message.lower() else OF_UNKNOWN_AUTHORITY
        elif isinstance(error, ssl.SSLError):
            remedy = "it does not speak TLS: set url to http://"
        elif isinstance(error, socket.gaierror):
            remedy = "correct the name in its url, or this device's DNS"
        elif isinstance(error, TimeoutError):
            kind, remedy = "timeout", f"it took longer than timeout_s = {self.timeout_s:g}: raise that, or read the server's log"
        elif not isinstance(error, ConnectionRefusedError):
            kind, remedy = "broke off", "read the server's log, and check its memory and the network"
        message = f"no answer from {self.url}{path} ({one_line(error)}): {remedy}"
        return AnswerError(message, kind=kind, is_busy=is_busy or isinstance(error, ConnectionRefusedError))


def status_remedy(status: int, path: str, location: str | None, reason: str = "", fields: Collection[str] = ()) -> str:
    """Return what to do where a server answers with this status, location and reason to a request with these fields."""
    if location and status // 100 == 3:
        url = location.removesuffix(path)
        where = (
            f"correct url of the server's file, to {location!r}" if url in ("", location) else f"set url of the server's file to {url!r}"
        )
        return f"it moved: {where}"
    if status in _REMEDIES:
        return _REMEDIES[status]
    if status >= http.client.INTERNAL_SERVER_ERROR:
        return "read the server's log"
    if "context" in reason.lower():
        return _SMALLER
    field = next((name for name in fields if name in reason and name not in ("model", "prompt", "messages")), None)
    if field:
        return f"it does not take {field}: leave it out of extra, or choose another endpoint in the server's file"
    return "the server does not take this request: check model, endpoint, transport and extra of the server's file"


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

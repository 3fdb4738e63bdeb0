"""A client of model servers, whose errors have a remedy.

It sends short JSON requests, and timed requests with tensors or streamed lines.
"""

import copy
import http.client
import json
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
# A limit for tensors in a response, as JSON.
LARGEST_TENSORS_BYTES = 1 << 28
# If the response does not end this soon after `[DONE]`, the connection is closed.
_ENDS_WITHIN_S = 0.05
# llama.cpp's server silently closes some connections after a stream. If the close comes later than
# this, the server had begun to work.
_CLOSED_WITHIN_S = 0.05
# Servers close connections that are idle for some seconds.
_IDLE_NS = 1_000_000_000
_KEY = "give its key as api_key_file in the server's file, one that may use this model"
_NEVER_EXTRA = ("model", "prompt", "messages", "inputs", "outputs")
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
    """A whole response; its `headers` by lower-case name."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def document(self) -> Mapping[str, Any]:
        """The JSON object in the body, empty if there is none."""
        return json_object(self.content)

    @property
    def reason(self) -> str:
        """The server's error message, on one line; empty if there is none."""
        document = self.document
        error = document.get("error", document.get("detail"))
        if isinstance(error, Mapping):
            error = error.get("message", error)
        return one_line(error) if error else ""


class ModelServer(HttpConnection):
    """A connection to a model server; `closes` is True once the server has closed it after a ping.

    It raises AnswerError if the server does not answer, refuses, or answers something else.
    """

    def __init__(self, address: ServerAddress, version: str = "") -> None:
        """Describe the server in a file.

        Its address may end with the `version` that begins the paths of its protocol.

        Raises:
            ConfigError: the file cannot be used.
        """
        address_parts(address.url)
        key_file = address.api_key_file
        key = (
            password_from(key_file, f"the server {address.url!r}", "api_key_file")
            if key_file
            else None
        )
        super().__init__(
            address.url.rstrip("/").removesuffix(version),
            address.timeout_s,
            {
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {key}"} if key else {}),
                **address.headers,
            },
            address.ca_file,
        )
        self._answered_ns = 0
        self.closes = False

    def another(self) -> "ModelServer":
        """Return another, unopened connection to the same server.

        It shares the certificate authorities, which take long to read.
        """
        twin = copy.copy(self)
        twin._connection, twin._answer = self._unopened(), None  # noqa: SLF001 - of this class
        return twin

    def ask(self, path: str, content: Mapping[str, Any] | None = None) -> Answer:
        """Return the response to GET `path`, or to POST with `content`, whatever its status."""
        try:
            encoded = None if content is None else json.dumps(content).encode()
            response = self.request("GET" if encoded is None else "POST", path, encoded)
            body = response.read(LONGEST_ANSWER_BYTES)
        except FAILURES as error:
            raise self._lost("", error, is_busy=True) from error
        self._answered_ns = time.monotonic_ns()
        return Answer(response.status, body, response.fields)

    def exchange(self, path: str, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Return the whole response to POST `path` with `content`."""
        try:
            # Never repeated: a server that drops requests would seem not to fail.
            response = self._post(path, content, headers, again_within_s=0.0)
            # With a stated length, a read of exactly that many bytes would not show that some are
            # missing.
            is_bounded = response.length is not None and response.length <= LARGEST_TENSORS_BYTES
            body = response.read() if is_bounded else response.read(LARGEST_TENSORS_BYTES + 1)
        except FAILURES as error:
            raise self._lost(path, error) from error
        self._answered_ns = time.monotonic_ns()
        if len(body) > LARGEST_TENSORS_BYTES:
            self.close()
            raise AnswerError(
                f"{self.url}{path} answers more than {LARGEST_TENSORS_BYTES >> 20} MiB: check "
                "url and model, or ask for fewer outputs",
                kind="no answer",
            )
        return Answer(response.status, body, response.fields)

    def stream(self, path: str, content: bytes) -> Iterator[bytes]:
        """Yield the lines of the response to POST `path` with the JSON `content`.

        They are without line ends and empty lines; `[DONE]` is the last. A JSON document of several
        lines is yielded as one.
        """
        is_whole = False
        try:
            response = self._post(path, content, {}, again_within_s=_CLOSED_WITHIN_S)
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

    def _post(
        self, path: str, content: bytes, headers: Mapping[str, str], again_within_s: float
    ) -> HttpAnswer:
        response = self.request("POST", path, content, headers, again_within_s)
        if response.status == http.client.OK:
            return response
        raise self.refusal(
            path,
            Answer(response.status, response.read(LONGEST_ANSWER_BYTES), response.fields),
            content,
        )

    def _lines(self, path: str, response: HttpAnswer) -> Iterator[bytes]:
        """Yield the lines that are not empty.

        The lines of one JSON document (a response that is not streamed) are joined.
        """
        is_json, document = "application/json" in response.fields.get("content-type", ""), b""
        for line in response.lines(LONGEST_LINE_BYTES):
            document += line.strip()
            if max(len(line), len(document)) >= LONGEST_LINE_BYTES:
                raise AnswerError(
                    f"{self.url}{path} sends a line of {LONGEST_LINE_BYTES >> 20} MiB or more: "
                    "check url and endpoint",
                    kind="no stream",
                )
            if document and (not is_json or document.startswith(b"data:") or json_object(document)):
                yield document
                document = b""
        if document:
            yield document

    def _is_over(self, response: HttpAnswer) -> bool:
        """Return whether the response ends after its last line.

        A server that continues is not waited for.
        """
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
        """Open the connection by a short request to `path`, unless it is open and was just used."""
        # On an idle connection, only its end can be readable.
        is_over = self.sock is None or bool(select.select([self.sock], [], [], 0)[0])
        if is_over and self.closes:
            self.close()
        elif is_over or time.monotonic_ns() - self._answered_ns > _IDLE_NS:
            self.ask(path)
            # The connection cannot be used then.
            self.closes = self.sock is None

    def refusal(self, path: str, answer: Answer, content: bytes = b"") -> AnswerError:
        """Return the error for a response that refuses a request with this content."""
        reason = f": {answer.reason}" if answer.reason else ""
        message = f"{self.url}{path} answers {answer.status}{reason}; {_remedy(answer, content)}"
        return AnswerError(
            message,
            kind=f"http {answer.status}",
            retry_after_s=_retry_after_s(answer),
            is_busy=answer.status
            in (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE),
        )

    def _lost(self, path: str, error: BaseException, *, is_busy: bool = False) -> AnswerError:
        """Return the error for an incomplete response."""
        self.close()
        kind, remedy = "no connection", "start the server, or correct its url"
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = (
                OF_ANOTHER_NAME if "match" in error.verify_message.lower() else OF_UNKNOWN_AUTHORITY
            )
        elif isinstance(error, ssl.SSLError):
            remedy = "it does not speak TLS: set url to http://"
        elif isinstance(error, socket.gaierror):
            remedy = "correct the name in its url, or this device's DNS"
        elif isinstance(error, TimeoutError):
            kind, remedy = (
                "timeout",
                (
                    f"it took longer than timeout_s = {self.timeout_s:g}: raise that, or read "
                    "the server's log"
                ),
            )
        elif not isinstance(error, ConnectionRefusedError):
            kind, remedy = (
                "broke off",
                "read the server's log, and check its memory and the network",
            )
        return AnswerError(
            f"no answer from {self.url}{path} ({one_line(error)}): {remedy}",
            kind=kind,
            is_busy=is_busy or isinstance(error, ConnectionRefusedError),
        )


def _remedy(answer: Answer, content: bytes) -> str:
    """Return the remedy for the refusal of a request with this content."""
    if answer.status // 100 == 3:
        return f"it moved to {answer.headers.get('location')!r}: correct url of the server's file"
    if answer.status in _REMEDIES:
        return _REMEDIES[answer.status]
    if answer.status >= http.client.INTERNAL_SERVER_ERROR:
        return "read the server's log"
    reason = answer.reason
    if "context" in reason.lower():
        return _SMALLER
    if field := next(
        (name for name in json_object(content) if name in reason and name not in _NEVER_EXTRA), None
    ):
        return (
            f"it does not accept {field}: leave it out of extra, or choose another endpoint in "
            "the server's file"
        )
    return (
        "the server does not accept this request: check model, endpoint, transport and extra of "
        "the server's file"
    )


def _retry_after_s(answer: Answer) -> float | None:
    """Return the seconds until the time in the header Retry-After, a number or a date.

    None for anything else.
    """
    text = answer.headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(text))
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def json_object(text: bytes) -> Mapping[str, Any]:
    """Return a JSON object; empty if the text is not one."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}

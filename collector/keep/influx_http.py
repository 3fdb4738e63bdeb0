"""One HTTP connection to an InfluxDB: what influxdb-client has no words for, `/query` and what only InfluxDB 1 has."""

import base64
import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from edgemeter.collector.keep.influx_answers import error_of, silent
from edgemeter.collector.keep.influx_config import InfluxConfig

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: `path` below the URL, with `parameters` and a body."""

    method: str
    path: str
    parameters: Mapping[str, str]
    body: bytes | None = None


class InfluxHttp:
    """A connection that is opened when needed, kept, and opened again when the server has closed it; used from one thread."""

    def __init__(self, config: InfluxConfig, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(config.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        self._prefix = parts.path
        self._config = config
        self._headers = {"Content-Type": "application/json" if config.database is None else "text/plain; charset=utf-8"}
        if config.token:
            self._headers["Authorization"] = _authorization(config)

    def ask(self, question: Question) -> bytes:
        """Return the body of the answer.

        Raises:
            ConfigError: the token, or what it asks for, is wrong.
            TransientError: no server answers, or not now.
            PointsRefusedError: the server does not take the body.
        """
        return b"".join(self.lines(question))

    def lines(self, question: Question) -> Iterator[bytes]:
        """Yield the body of the answer line by line, as it comes; raises as `ask` does."""
        is_read = False
        try:
            response = self._response(question)
            if not 200 <= response.status < 300:
                said = response.read()
                is_read = True
                raise error_of(self._config, response.status, said, response.reason)
            while line := response.readline():
                yield line
            if response.length:
                raise http.client.IncompleteRead(line, response.length)
            response.close()
            is_read = True
        except (OSError, http.client.HTTPException) as error:
            raise silent(self._config, error) from error
        finally:
            # An answer that nobody reads to its end stands in the way of the next.
            if not is_read:
                self._connection.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _response(self, question: Question) -> http.client.HTTPResponse:
        where = f"{self._prefix}{question.path}" + (f"?{urlencode(question.parameters)}" if question.parameters else "")
        had_one = self._connection.sock is not None
        try:
            self._connection.request(question.method, where, question.body, self._headers)
            return self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, http.client.CannotSendRequest):
            # A server closes what was idle for long; a question may come twice, what is asked here changes nothing the second time.
            self._connection.close()
            if not had_one:
                raise
        self._connection.request(question.method, where, question.body, self._headers)
        return self._connection.getresponse()


def _authorization(config: InfluxConfig) -> str:
    if config.database is not None or ":" in config.token:
        return f"Basic {base64.b64encode(config.token.encode()).decode()}"
    return f"Token {config.token}"

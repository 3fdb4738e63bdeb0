"""Additions to influxdb-client: InfluxQL over `/query` of any version, version 1's own requests, and errors in words.

Responses are read line by line, as they arrive. The meaning of errors was measured on 2.7.12 and 1.6.7.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.base.http_client import FAILURES, HttpConnection
from edgemeter.collector.influx.influx_config import TOKEN_VARIABLES, InfluxConfig

SHOWN_CHARACTERS = 300


class PointsRejectedError(EdgemeterError):
    """The server rejects something in the batch; `server_message` is its whole message."""

    def __init__(self, server_message: str) -> None:
        super().__init__(one_line(server_message))
        self.server_message = server_message

    @property
    def is_expired(self) -> bool:
        """Whether what it rejects is older than what the place retains."""
        # Versions 1 and 2.
        return any(text in self.server_message for text in ("beyond retention policy", "outside retention policy"))


class NotFoundError(ConfigError):
    """The organisation, the bucket, the database or the whole API does not exist."""

    @property
    def is_place(self) -> bool:
        """Whether it is the bucket or the database: then nothing that was written there exists any more."""
        return re.search(r"(bucket|database) .{0,200}?not found|database not found", str(self)) is not None


def influx_error(config: InfluxConfig, status: int | None, body: Any, reason: str = "") -> EdgemeterError:
    """Return the error of an unsuccessful response."""
    text = _message(body) or reason
    message, where = one_line(text), str(config)
    if status in {400, 413, 422}:
        return PointsRejectedError(text)
    if status in {401, 403}:
        remedy = f"give one with that permission ({TOKEN_VARIABLES[0]})"
        return ConfigError(f"InfluxDB at {where} does not accept the token ({message}): {remedy}")
    if status == 404:
        if config.database is not None:
            remedy = "name an existing one (?db=), or a user with permission to create it"
        elif "page not found" in text:
            remedy = "it has no API of version 2; for InfluxDB 1 append ?db=DATABASE to the URL"
        else:
            remedy = "name existing ones in the URL (?org=ORG&bucket=BUCKET), or a token with permission to create the bucket"
        return NotFoundError(f"InfluxDB at {where}: {message}: {remedy}")
    if "retention policy not found" in text:
        return ConfigError(f"InfluxDB at {where}: {message}: name an existing one (rp=), or create it (edgemeter collector init-influx)")
    return TransientError(f"InfluxDB at {where} responds {status} ({message}): retrying")


def unreachable(config: InfluxConfig, error: BaseException) -> TransientError:
    """Return the error of a missing response."""
    # A library names its own object before the system's reason.
    reason = re.sub(r"^.*\[Errno -?\d+\] ", "", one_line(str(error)))
    return TransientError(f"no InfluxDB responds at {config.url} ({reason}): start it; the ledger keeps everything meanwhile")


def _message(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        document = json.loads(text)
        text = str(document["message"] if "message" in document else document["error"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return text


def one_line(message: str) -> str:
    """Return a server's message as one line of readable length."""
    return " ".join(message.split())[:SHOWN_CHARACTERS]


CHUNK_ROWS = 500


class _InfluxqlSeries(msgspec.Struct):
    columns: list[str]
    values: list[list[Any]] = []
    tags: dict[str, str] = {}


class _InfluxqlResult(msgspec.Struct):
    series: list[_InfluxqlSeries] = []
    error: str | None = None


class _InfluxqlResponse(msgspec.Struct):
    results: list[_InfluxqlResult] = []
    error: str | None = None


_decode = msgspec.json.Decoder(_InfluxqlResponse).decode

INFLUX_TIMEOUT_S = 30.0


class InfluxHttp:
    """Requests to an InfluxDB, each of which may be repeated; used from one thread."""

    def __init__(self, config: InfluxConfig) -> None:
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        is_basic = config.database is not None or ":" in config.token
        if config.token:
            token = f"Basic {base64.b64encode(config.token.encode()).decode()}" if is_basic else f"Token {config.token}"
            headers["Authorization"] = token
        self._config, self._connection = config, HttpConnection(config.url, INFLUX_TIMEOUT_S, headers)

    def send(self, method: str, path: str, parameters: Mapping[str, str], body: bytes | None = None) -> bytes:
        """Return the body of the response to a request for `path` below the URL.

        Raises:
            ConfigError: the token or the request is wrong.
            TransientError: no server responds, or not now.
            PointsRejectedError: the server rejects the body.
        """
        return b"\n".join(self.lines(method, path, parameters, body))

    def lines(self, method: str, path: str, parameters: Mapping[str, str], body: bytes | None = None) -> Iterator[bytes]:
        """Yield the body of the response line by line, as it arrives; raises as `send` does."""
        try:
            response = self._connection.request(method, path + (f"?{urlencode(parameters)}" if parameters else ""), body)
            if not 200 <= response.status < 300:
                raise influx_error(self._config, response.status, response.read(), response.reason)
            yield from response.lines()
        except FAILURES as error:
            self.close()
            raise unreachable(self._config, error) from error

    def rows(self, query: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query, oldest first, as values by column, None where absent; times are in nanoseconds.

        Raises:
            ConfigError: the token, the bucket, the database or the query is wrong.
            TransientError: no server responds, or not now, or the response is cut off.
        """
        # Version 2 maps a bucket to a database, and to a policy too where a slash divides the name, as in 1.8.
        config = self._config
        database, _, policy = config.bucket.partition("/") if config.database is None else (config.database, "", config.policy)
        database_fields = {"db": database} | ({"rp": policy} if policy else {})
        parameters = {**database_fields, "q": query, "epoch": "ns", "chunked": "true", "chunk_size": str(CHUNK_ROWS)}
        for result in self._results("GET", parameters):
            for series in result.series:
                for values in series.values:
                    yield series.tags | dict(zip(series.columns, values, strict=True))

    def execute(self, statement: str) -> None:
        """Run a statement of InfluxQL that returns nothing; raises as `rows` does."""
        for _ in self._results("POST", {"db": self._config.database or "", "q": statement}):
            pass

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _results(self, method: str, parameters: Mapping[str, str]) -> Iterator[_InfluxqlResult]:
        where = self._config
        try:
            for line in self.lines(method, "/query", parameters):
                response = _decode(line)
                for error in (response.error, *(result.error for result in response.results)):
                    if error is not None:
                        raise _mapped(where, error)
                yield from response.results
        except PointsRejectedError as error:
            raise ConfigError(f"InfluxDB at {where} rejects the query: {error}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TransientError(
                f"the server at {where.url} is no InfluxDB, or its response was cut off ({error}): check the URL"
            ) from error


def identifier(name: str) -> str:
    """Return `name` as an identifier of InfluxQL."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def literal(text: str) -> str:
    """Return `text` as a string literal of InfluxQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _mapped(config: InfluxConfig, message: str) -> ConfigError | TransientError:
    if "not found" in message:
        return NotFoundError(f"InfluxDB at {config}: {message}: name an existing one (?bucket= of version 2, ?db= of version 1)")
    if "timeout" in message or "unavailable" in message:
        return TransientError(f"InfluxDB at {config}: {message}: retry")
    return ConfigError(f"InfluxDB at {config}: {message}")

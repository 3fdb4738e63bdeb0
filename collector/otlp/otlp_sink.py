"""The sink that sends metrics to an OTLP endpoint: one POST for each batch, compressed; what a response means.

Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp. Unlike there, a status of 500 is retried too: the ledger keeps what was sent.
"""

import gzip
import http.client
import logging
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, one_line
from edgemeter.collector.influx.client import PointsRejectedError
from edgemeter.collector.influx.sink import RejectedPoint, RetryAfterError, Sink, write_all_but_rejected
from edgemeter.collector.otlp import messages
from edgemeter.collector.otlp.otlp_config import HEADER_VARIABLES, OtlpConfig

logger = logging.getLogger(__name__)

# Source: the specification's default timeout of an export.
OTLP_TIMEOUT_S = 10.0
# An OpenTelemetry Collector accepts 20 MiB, some vendors 4 MB.
LARGEST_REQUEST_BYTES = 2_000_000
LONGEST_RETRY_AFTER_S = 600
_RESPONSE_BYTES = 1 << 16
_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip", "User-Agent": "edgemeter"}
_BUSY = frozenset({408, 429, 502, 503, 504})
# What Prometheus and Mimir call a sample that is older than what they accept.
_TOO_OLD = re.compile(r"out.of.order|out.of.bounds|too.old", re.IGNORECASE)


class MetricsRefusedError(PointsRejectedError):
    """The endpoint rejects something in the request."""

    @property
    def is_expired(self) -> bool:
        """Whether that is older than what the endpoint accepts."""
        return _TOO_OLD.search(self.server_message) is not None


class OtlpSink(Sink):
    """One OTLP endpoint; each line is the bytes of a request. `rejected_points` counts those of requests that it accepted otherwise."""

    is_database = False

    def __init__(self, config: OtlpConfig) -> None:
        messages.check_installed()
        super().__init__(f"otlp {config}")
        self.rejected_points = 0
        self._config = config
        self._opener = urllib.request.build_opener(_NoRedirect)

    def write(self, lines: Sequence[Any]) -> list[RejectedPoint]:
        """Send the requests as few; return those that are rejected on their own, when all others are accepted.

        Raises:
            ConfigError: not before the URL or the headers are corrected.
            TransientError: nobody responds, or not now.
        """
        return write_all_but_rejected(lines, self._post)

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def _post(self, lines: Sequence[bytes]) -> None:
        body = b"".join(lines)
        if len(lines) > 1 and len(body) > LARGEST_REQUEST_BYTES:
            raise MetricsRefusedError("more than one request should hold")
        try:
            self._send(body)
        except MetricsRefusedError as error:
            if not error.is_expired:
                self._check_empty()
            raise

    def _check_empty(self) -> None:
        """Raise ConfigError if the endpoint rejects an empty request too: then it is wrong, and not what was sent."""
        try:
            self._send(b"")
        except MetricsRefusedError as error:
            raise ConfigError(f"{self._config} rejects every request, an empty one too ({error}): correct --otlp or its headers") from error

    def _send(self, body: bytes) -> None:
        headers = {**_HEADERS, **self._config.headers}
        request = urllib.request.Request(self._config.url, gzip.compress(body, 1), headers, method="POST")  # noqa: S310 - parse_otlp
        try:
            with self._opener.open(request, timeout=OTLP_TIMEOUT_S) as response:
                kind, reply = response.headers.get_content_type(), response.read(_RESPONSE_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._error(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = one_line(getattr(error, "reason", None) or error)
            remedy = "check the address (OTLP over HTTP, often port 4318, not gRPC's 4317); the ledger keeps everything meanwhile"
            raise TransientError(f"no OTLP endpoint responds at {self._config} ({reason}): {remedy}") from error
        if kind == "text/html":
            raise ConfigError(f"{self._config} answers with a web page and is no OTLP endpoint: correct the address")
        points, reason = messages.rejected_in(reply)
        if points or reason:
            self.rejected_points += points
            logger.warning("%s rejected %d data points of a request: %s", self.name, points, one_line(reason))

    def _error(self, error: urllib.error.HTTPError) -> EdgemeterError:
        """Return what an unsuccessful response means."""
        try:
            body = error.read(_RESPONSE_BYTES)
        except (OSError, http.client.HTTPException):
            body = b""
        is_message = error.headers.get_content_type().endswith("protobuf")
        text = messages.rejected_in(body, is_error=True)[1] if is_message else body.decode("utf-8", "replace")
        response = f"{self._config} responds {error.code} ({one_line(text or error.reason)})"
        if error.code in {400, 413, 422}:
            return MetricsRefusedError(text or str(error.reason))
        # A date instead of seconds, which is rare, is left to our own pauses.
        if error.code in _BUSY and (pause := error.headers.get("Retry-After", "")).isdecimal():
            return RetryAfterError(f"{response}: retrying when it asked for", min(max(int(pause), 1), LONGEST_RETRY_AFTER_S))
        if error.code in _BUSY or error.code >= 500:
            return TransientError(f"{response}: retrying")
        if error.code in {401, 403}:
            return ConfigError(f"{response}: give its headers ({HEADER_VARIABLES[0]} or --otlp-headers-file)")
        return ConfigError(f"{response}: correct --otlp; Prometheus needs --web.enable-otlp-receiver and /api/v1/otlp")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection is an error: it would make a GET of the POST, and take the headers elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None

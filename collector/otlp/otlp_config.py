"""Where OpenTelemetry metrics go: the URL, and the headers that authenticate, from a file or the environment.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/ (the path, and how headers are written).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from edgemeter.agent.base.errors import ConfigError

HEADER_VARIABLES = ("EDGEMETER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
METRICS_PATH = "/v1/metrics"
FORM = "write http://HOST:4318, or http://HOST:9090/api/v1/otlp for Prometheus"
# Source: RFC 9110, section 5.6.2.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """One endpoint: the whole URL, and the headers of each request, which may be secrets."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.url


def parse_otlp(url: str, *, headers_file: Path | None = None, environ: Mapping[str, str] = os.environ) -> OtlpConfig:
    """Return the endpoint at `url`, to which the path of metrics is appended, with the headers of the file or the environment.

    Raises:
        ConfigError: the URL or the headers are invalid, or the file cannot be read.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not the URL of an OTLP endpoint ({error}): {FORM}") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"the OTLP URL contains a user or password: remove it and set {HEADER_VARIABLES[0]}")
    if not is_url:
        raise ConfigError(f"{url!r} is not the URL of an OTLP endpoint: {FORM}")
    path = parts.path.rstrip("/").removesuffix(METRICS_PATH) + METRICS_PATH
    return OtlpConfig(urlunsplit((parts.scheme, parts.netloc, path, "", "")), _headers(headers_file, environ))


def _headers(file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in `file`, by default those in the environment: NAME=VALUE, separated by commas or lines, percent-encoded."""
    if file is None:
        text, where = next((environ[name] for name in HEADER_VARIABLES if environ.get(name)), ""), "the environment"
    else:
        where = repr(str(file))
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the OTLP headers from {where} ({error}): write NAME=VALUE there, one a line") from error
    headers = {}
    for entry in filter(None, map(str.strip, re.split(r"[,\n]", text))):
        name, _, value = (unquote(part.strip()) for part in entry.partition("="))
        # What is wrong is not shown: it may be a secret.
        if not (_HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable() and value):
            raise ConfigError(f"the OTLP headers in {where} are not NAME=VALUE, separated by commas or lines: correct them")
        headers[name] = value
    if file is not None and not headers:
        raise ConfigError(f"{where} contains no OTLP header: write NAME=VALUE there, one a line")
    return headers

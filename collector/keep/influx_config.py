"""Which InfluxDB the ledger drains to: URL, organisation, bucket, and the token, which comes from a file or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit, urlunsplit

from edgemeter.agent.errors import ConfigError

DEFAULT_BUCKET = "edgemeter"
TOKEN_VARIABLES = ("EDGEMETER_INFLUX_TOKEN", "INFLUX_TOKEN")


@dataclass(frozen=True, slots=True)
class InfluxConfig:
    """One bucket of one InfluxDB; `org` None is the only one that the token sees."""

    url: str
    token: str = field(repr=False)
    org: str | None = None
    bucket: str = DEFAULT_BUCKET

    def __str__(self) -> str:
        return f"{self.url} bucket {self.bucket!r}" + (f" of {self.org!r}" if self.org else "")


def parse(
    url: str,
    *,
    org: str | None = None,
    bucket: str | None = None,
    token_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> InfluxConfig:
    """Return the configuration in `url` (`http://HOST:PORT[?org=ORG&bucket=BUCKET]`), the arguments and the environment.

    An argument goes before the URL's own, that before EDGEMETER_INFLUX_ORG and EDGEMETER_INFLUX_BUCKET.

    Raises:
        ConfigError: it is no such URL, or there is no token.
    """
    parts = _split(url)
    asked = parse_qs(parts.query)
    unknown = sorted(asked.keys() - {"org", "bucket"})
    if unknown:
        message = f"InfluxDB URL {url!r}: {unknown[0]!r} is not known there: only org and bucket are"
        raise ConfigError(message)
    in_url = {name: values[-1] for name, values in asked.items()}
    return InfluxConfig(
        url=urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")),
        token=_token(token_file, environ),
        org=org or in_url.get("org") or environ.get("EDGEMETER_INFLUX_ORG") or None,
        bucket=bucket or in_url.get("bucket") or environ.get("EDGEMETER_INFLUX_BUCKET") or DEFAULT_BUCKET,
    )


def _split(url: str) -> SplitResult:
    form = "write http://HOST:8086 or https://HOST:8086, with ?org=ORG&bucket=BUCKET where needed"
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:
        message = f"{url!r} is no InfluxDB URL ({error}): {form}"
        raise ConfigError(message) from error
    if parts.password is not None or parts.username is not None:
        message = f"the InfluxDB URL holds a user or password: leave it out and set {TOKEN_VARIABLES[0]}"
        raise ConfigError(message)
    if not is_url or parts.fragment:
        message = f"{url!r} is no InfluxDB URL: {form}"
        raise ConfigError(message)
    return parts


def _token(file: Path | None, environ: Mapping[str, str]) -> str:
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot read the InfluxDB token from {str(file)!r} ({error}): write it there as one line of text"
            raise ConfigError(message) from error
    else:
        token = next((environ[name] for name in TOKEN_VARIABLES if environ.get(name)), "")
    if not token or not token.isprintable():
        message = f"no InfluxDB token: set {TOKEN_VARIABLES[0]}, or give --influx-token-file"
        raise ConfigError(message)
    return token

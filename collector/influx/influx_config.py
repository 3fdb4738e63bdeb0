"""The bucket that a ledger is drained to: the URL, and the token from a file or the environment.

`http://HOST:8086[?org=ORG&bucket=BUCKET]` is an InfluxDB 2, or a server that accepts its writes: 3,
and 1.8 with the bucket `DATABASE/POLICY` and the token `USER:PASSWORD`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit, urlunsplit

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.tls import password_from

DEFAULT_BUCKET = "edgemeter"
TOKEN_VARIABLES = ("EDGEMETER_INFLUX_TOKEN", "INFLUX_TOKEN")
FORM = "write http://HOST:8086 or https://HOST:8086, with ?org=ORG&bucket=BUCKET where needed"

Right = Literal["write", "read"]


@dataclass(frozen=True, slots=True)
class InfluxConfig:
    """One bucket of an InfluxDB; `org` None is the only organisation that the token sees."""

    url: str
    token: str = field(repr=False)
    org: str | None = None
    bucket: str = DEFAULT_BUCKET

    def __str__(self) -> str:
        return f"{self.url} bucket {self.bucket!r}" + (f" of {self.org!r}" if self.org else "")


def parse_influx(
    url: str, *, token_file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> InfluxConfig:
    """Return the configuration in `url` and the environment.

    The URL overrides EDGEMETER_INFLUX_ORG and EDGEMETER_INFLUX_BUCKET.

    Raises:
        ConfigError: the URL is invalid, or there is no token.
    """
    try:
        parts = urlsplit(url)
        is_url = (
            parts.scheme in {"http", "https"}
            and parts.hostname
            and parts.port != 0
            and not parts.fragment
        )
    except ValueError as error:
        raise ConfigError(f"{url!r} is not an InfluxDB URL ({error}): {FORM}") from error
    if parts.password is not None or parts.username is not None:
        raise ConfigError(
            f"the InfluxDB URL contains a user or password: remove it and set {TOKEN_VARIABLES[0]}"
        )
    if not is_url:
        raise ConfigError(f"{url!r} is not an InfluxDB URL: {FORM}")
    parameters = {
        name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
    }
    if unknown := sorted(parameters.keys() - {"org", "bucket"}):
        raise ConfigError(f"InfluxDB URL {url!r}: {unknown[0]!r} is unknown: use org and bucket")
    return InfluxConfig(
        url=urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")),
        token=_token(token_file, environ),
        org=parameters.get("org") or environ.get("EDGEMETER_INFLUX_ORG") or None,
        bucket=parameters.get("bucket") or environ.get("EDGEMETER_INFLUX_BUCKET") or DEFAULT_BUCKET,
    )


def _token(file: Path | None, environ: Mapping[str, str]) -> str:
    if file is None:
        token = next((environ[name] for name in TOKEN_VARIABLES if environ.get(name)), "")
        where = f"the environment ({', '.join(TOKEN_VARIABLES)})"
        if not token:
            raise ConfigError(f"no InfluxDB token: set {TOKEN_VARIABLES[0]}")
    else:
        where = repr(str(file))
        token = password_from(str(file), "InfluxDB", "token file")
    # The client fails with a traceback on characters that a header cannot contain.
    if not (token and token.isascii() and token.isprintable()):
        raise ConfigError(
            f"the InfluxDB token in {where} is not one line of printable ASCII: copy it as "
            "InfluxDB issued it"
        )
    return token

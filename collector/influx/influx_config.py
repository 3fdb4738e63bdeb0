"""Which InfluxDB the ledger is drained to and `compare` reads from: the URL, and the token from a file or the environment.

`http://HOST:8086[?org=ORG&bucket=BUCKET]` is InfluxDB 2 and what accepts its writes (3, and 1.8 with the bucket `DATABASE/POLICY`);
`http://HOST:8086?db=DATABASE[&rp=POLICY]` is InfluxDB 1. The token of an InfluxDB 1 is `USER:PASSWORD`; none: requests are anonymous.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit, urlunsplit

from edgemeter.agent.base.errors import ConfigError

DEFAULT_BUCKET = "edgemeter"
WRITE_TOKEN, READ_TOKEN = "influx-write.token", "influx-read.token"  # Where `init-influx` writes them in $EDGEMETER_HOME.
TOKEN_VARIABLES = ("EDGEMETER_INFLUX_TOKEN", "INFLUX_TOKEN")
FORM = "write http://HOST:8086 or https://HOST:8086, with ?org=ORG&bucket=BUCKET where needed, or ?db=DATABASE for InfluxDB 1"

# Every field, from which the record can be read back; or the figures only, at a fraction of the load.
Extent = Literal["all", "figures"]
# Measurements of the raw samples, beside the record's own.
Extra = Literal["latency_histogram", "power_trace"]


@dataclass(frozen=True, slots=True)
class InfluxConfig:
    """One bucket of an InfluxDB 2 (`org` None is the only one that the token sees), or one database of an InfluxDB 1.

    `policy` is the database's retention policy, None its default one; `token` is empty where an InfluxDB 1 requires none. `extent`
    and `also` select what is written of a record: the fields of its point, and measurements of its raw samples.
    """

    url: str
    token: str = field(repr=False)
    org: str | None = None
    bucket: str = DEFAULT_BUCKET
    database: str | None = None
    policy: str | None = None
    extent: Extent = "all"
    also: frozenset[Extra] = frozenset()

    def __str__(self) -> str:
        if self.database is not None:
            return f"{self.url} database {self.database!r}" + (f" policy {self.policy!r}" if self.policy else "")
        return f"{self.url} bucket {self.bucket!r}" + (f" of {self.org!r}" if self.org else "")


def parse_influx(url: str, *, token_file: Path | None = None, environ: Mapping[str, str] = os.environ) -> InfluxConfig:
    """Return the configuration in `url` and the environment: the URL overrides EDGEMETER_INFLUX_ORG and EDGEMETER_INFLUX_BUCKET.

    Raises:
        ConfigError: the URL is invalid, or there is no token.
    """
    parts = _split(url)
    parameters = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(parameters.keys() - {"org", "bucket", "db", "rp"})
    if unknown:
        raise ConfigError(f"InfluxDB URL {url!r}: {unknown[0]!r} is unknown: use org and bucket, or db and rp")
    in_url = {name: values[-1] for name, values in parameters.items()}
    base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    token = token_of(token_file, environ)
    if "db" in in_url:
        if not in_url["db"]:
            raise ConfigError(f"InfluxDB URL {url!r}: db is empty: name the database of an InfluxDB 1 (?db=DATABASE)")
        if not in_url.keys().isdisjoint({"org", "bucket"}):
            raise ConfigError(
                f"InfluxDB URL {url!r}: db belongs to InfluxDB 1, which has neither organisation nor bucket: give one or the other"
            )
        return InfluxConfig(base, token, database=in_url["db"], policy=in_url.get("rp") or None)
    if "rp" in in_url:
        raise ConfigError(f"InfluxDB URL {url!r}: a retention policy (rp) belongs to InfluxDB 1 and needs db")
    if not token:
        raise ConfigError(f"no InfluxDB token: set {TOKEN_VARIABLES[0]}")
    return InfluxConfig(
        url=base,
        token=token,
        org=in_url.get("org") or environ.get("EDGEMETER_INFLUX_ORG") or None,
        bucket=in_url.get("bucket") or environ.get("EDGEMETER_INFLUX_BUCKET") or DEFAULT_BUCKET,
    )


def url_of(config: InfluxConfig) -> str:
    """Return the URL from which `parse_influx` makes `config`."""
    names = {"db": config.database, "rp": config.policy} if config.database is not None else {"org": config.org, "bucket": config.bucket}
    return f"{config.url}?{urlencode({name: value for name, value in names.items() if value})}"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:
        raise ConfigError(f"{url!r} is not an InfluxDB URL ({error}): {FORM}") from error
    if parts.password is not None or parts.username is not None:
        raise ConfigError(f"the InfluxDB URL contains a user or password: remove it and set {TOKEN_VARIABLES[0]}")
    if not is_url or parts.fragment:
        raise ConfigError(f"{url!r} is not an InfluxDB URL: {FORM}")
    return parts


def token_of(file: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the token in `file`, by default that in the environment; empty if there is none.

    Raises:
        ConfigError: the file cannot be read, or contains no token.
    """
    if file is None:
        token = next((environ[name] for name in TOKEN_VARIABLES if environ.get(name)), "")
        where = f"the environment ({', '.join(TOKEN_VARIABLES)})"
    else:
        where = repr(str(file))
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the InfluxDB token from {where} ({error}): write it there as one line of text") from error
        if not token:
            raise ConfigError(f"{where} contains no InfluxDB token: write it there as one line of text")
    # The client fails with a traceback on what a header cannot hold.
    if not (token.isascii() and (token.isprintable() or not token)):
        raise ConfigError(f"the InfluxDB token in {where} is not one line of printable ASCII: copy it as InfluxDB issued it")
    return token

"""Which InfluxDB the ledger drains to and `compare` reads from: URL, place, and the token, which comes from a file or the environment.

`http://HOST:8086[?org=ORG&bucket=BUCKET]` is InfluxDB 2 and what takes its writes (3, and 1.8 with the bucket `DATABASE/POLICY`);
`http://HOST:8086?db=DATABASE[&rp=POLICY]` is InfluxDB 1. The token of an InfluxDB 1 is `USER:PASSWORD`; without one it is asked as nobody.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit, urlunsplit

from edgemeter.agent.errors import ConfigError

DEFAULT_BUCKET = "edgemeter"
TOKEN_VARIABLES = ("EDGEMETER_INFLUX_TOKEN", "INFLUX_TOKEN")
FORM = "write http://HOST:8086 or https://HOST:8086, with ?org=ORG&bucket=BUCKET where needed, or ?db=DATABASE for InfluxDB 1"

# Every field, which can be read back as the record; or the figures alone, for many records at little cost to the server.
Extent = Literal["all", "figures"]
# Measurements of the raw samples, beside the record's own.
Extra = Literal["latency_histogram", "power_trace"]


@dataclass(frozen=True, slots=True)
class InfluxConfig:
    """One bucket of one InfluxDB 2 (`org` None is the only one that the token sees), or one database of one InfluxDB 1.

    `policy` is the database's retention policy, None its default one; `token` is empty where an InfluxDB 1 asks for none. `extent` and
    `also` are how much of a record is written: which fields of its point, and which measurements of its raw samples.
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


def parse(
    url: str,
    *,
    org: str | None = None,
    bucket: str | None = None,
    token_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> InfluxConfig:
    """Return the configuration in `url`, the arguments and the environment.

    An argument goes before the URL's own, that before EDGEMETER_INFLUX_ORG and EDGEMETER_INFLUX_BUCKET.

    Raises:
        ConfigError: it is no such URL, or there is no token.
    """
    parts = _split(url)
    asked = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(asked.keys() - {"org", "bucket", "db", "rp"})
    if unknown:
        message = f"InfluxDB URL {url!r}: {unknown[0]!r} is not known there: only org and bucket are, or db and rp"
        raise ConfigError(message)
    in_url = {name: values[-1] for name, values in asked.items()}
    base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    token = token_of(token_file, environ)
    if "db" in in_url:
        if not in_url["db"]:
            message = f"InfluxDB URL {url!r}: db is empty: name the database of an InfluxDB 1 there (?db=DATABASE)"
            raise ConfigError(message)
        if org or bucket or not in_url.keys().isdisjoint({"org", "bucket"}):
            message = f"InfluxDB URL {url!r}: a db is of InfluxDB 1, which has neither organisation nor bucket: leave one or the other out"
            raise ConfigError(message)
        return InfluxConfig(base, token, database=in_url["db"], policy=in_url.get("rp") or None)
    if "rp" in in_url:
        message = f"InfluxDB URL {url!r}: a retention policy (rp) is of InfluxDB 1 and needs a db"
        raise ConfigError(message)
    if not token:
        message = f"no InfluxDB token: set {TOKEN_VARIABLES[0]}, or give --influx-token-file"
        raise ConfigError(message)
    return InfluxConfig(
        url=base,
        token=token,
        org=org or in_url.get("org") or environ.get("EDGEMETER_INFLUX_ORG") or None,
        bucket=bucket or in_url.get("bucket") or environ.get("EDGEMETER_INFLUX_BUCKET") or DEFAULT_BUCKET,
    )


def url_of(config: InfluxConfig) -> str:
    """Return the URL that `parse` takes for the place of `config`."""
    names = {"db": config.database, "rp": config.policy} if config.database is not None else {"org": config.org, "bucket": config.bucket}
    return f"{config.url}?{urlencode({name: value for name, value in names.items() if value})}"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:
        message = f"{url!r} is no InfluxDB URL ({error}): {FORM}"
        raise ConfigError(message) from error
    if parts.password is not None or parts.username is not None:
        message = f"the InfluxDB URL holds a user or password: leave it out and set {TOKEN_VARIABLES[0]}"
        raise ConfigError(message)
    if not is_url or parts.fragment:
        message = f"{url!r} is no InfluxDB URL: {FORM}"
        raise ConfigError(message)
    return parts


def token_of(file: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the token in `file`, or in the environment where there is none; empty where nothing is said.

    Raises:
        ConfigError: the file cannot be read, or holds no token.
    """
    if file is None:
        token = next((environ[name] for name in TOKEN_VARIABLES if environ.get(name)), "")
        where = f"the environment ({', '.join(TOKEN_VARIABLES)})"
    else:
        where = repr(str(file))
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot read the InfluxDB token from {where} ({error}): write it there as one line of text"
            raise ConfigError(message) from error
        if not token:
            message = f"there is no InfluxDB token in {where}: write it there as one line of text"
            raise ConfigError(message)
    # What a header cannot hold would end in a traceback of the client.
    if not (token.isascii() and (token.isprintable() or not token)):
        message = f"the InfluxDB token in {where} is not one line of printable ASCII: write it there as InfluxDB gave it"
        raise ConfigError(message)
    return token

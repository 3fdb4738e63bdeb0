"""Set-up of an InfluxDB for a collector: the bucket or database, its retention, the mapping for InfluxQL, and tokens.

Every step is idempotent: what exists stays, what differs is updated, and nothing that holds data is dropped.
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.collector.influx import client, influx_config
from edgemeter.collector.influx.bucket_client import BucketClient
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.sink import open_sink

Right = Literal["write", "read"]
_KINDS: dict[Right, str] = {"write": "for the collector: write permission only", "read": "for compare: read permission only"}


def set_up_influx(config: InfluxConfig, keep_days: int | None, token_files: Mapping[Right, Path]) -> list[str]:
    """Set up the bucket or database of `config`, whose token must have the permissions; return what exists now, a sentence each.

    Points are kept `keep_days`, None: for ever. A token for each right is written to its file.

    Raises:
        ConfigError: a permission is missing, a name is rejected, or a token's file cannot be written.
        TransientError: no InfluxDB responds, or not now.
    """
    version = _Version1(config) if config.database is not None else _Version2(config)
    try:
        remarks = version.make_place(keep_days)
        return remarks + [_token(right, path, version) for right, path in token_files.items()]
    except client.PointsRejectedError as error:
        raise ConfigError(f"InfluxDB at {config} rejects it: {error}") from error
    finally:
        version.close()


def _token(right: Right, path: Path, version: "_Version1 | _Version2") -> str:
    if path.is_file():
        _try(right, path, version)
        return f"token in {str(path)!r} kept ({_KINDS[right]})"
    with os_error_as(ConfigError, f"cannot write a token to {str(path)!r}", "name another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file first: a token that cannot be stored should not be created.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            try:
                file.write(version.make_token(right) + "\n")
            except BaseException:
                path.unlink()
                raise
    return f"token written to {str(path)!r} ({_KINDS[right]})"


def _try(right: Right, path: Path, version: "_Version1 | _Version2") -> None:
    # It may belong to another bucket or server.
    tried_config = replace(version.config, token=influx_config.token_of(path))
    with closing(open_sink(tried_config)) as sink, closing(client.InfluxHttp(tried_config)) as connection:
        try:
            if right == "write":
                sink.prepare()
            else:
                for _ in connection.rows("SELECT id FROM run LIMIT 1"):
                    break
        except ConfigError as error:
            remedy = f"name another file (--{right}-token-to), or move it away"
            raise ConfigError(f"the token in {str(path)!r} has no permission to {right} at {tried_config}: {remedy}") from error


class _Version2:
    def __init__(self, config: InfluxConfig) -> None:
        self._client = BucketClient(config)
        self.config = config
        self._org_id = ""
        self._bucket_id = ""

    def make_place(self, keep_days: int | None) -> list[str]:
        try:
            self._org_id, org = self._client.organisation()
        except client.NotFoundError as error:
            if error.is_place:
                raise
            raise ConfigError(f"the server at {self.config.url} is no InfluxDB 2 ({error}): for version 1 append ?db=DATABASE") from error
        self._bucket_id = self._client.make_bucket(self._org_id, keep_days, _shard_days(keep_days))
        name = self.config.bucket
        database, _, policy = name.partition("/")
        self._client.map_to_database(self._org_id, self._bucket_id, database, policy or "autogen")
        self.config = replace(self.config, org=org)
        return [
            f"bucket {name!r} of {org!r}, {_kept(keep_days)}: --influx '{influx_config.url_of(self.config)}'",
            f"database {database!r}, retention policy {policy or 'autogen'!r}, for InfluxQL",
        ]

    def make_token(self, right: Right) -> str:
        description = f"edgemeter: {_KINDS[right]} (bucket {self.config.bucket})"
        return self._client.make_token(self._org_id, self._bucket_id, right, description)

    def close(self) -> None:
        self._client.close()


class _Version1:
    """Database, retention policy and users of InfluxDB 1; the token of a user is `USER:PASSWORD`."""

    def __init__(self, config: InfluxConfig) -> None:
        self._connection = client.InfluxHttp(config)
        self.config = config
        self._database = client.identifier(config.database or "")

    def make_place(self, keep_days: int | None) -> list[str]:
        name = self.config.policy or "autogen"
        policy, duration = client.identifier(name), f"{keep_days}d" if keep_days else "INF"
        self._connection.execute(f"CREATE DATABASE {self._database}")
        if self.config.policy:
            try:
                self._connection.execute(f"CREATE RETENTION POLICY {policy} ON {self._database} DURATION {duration} REPLICATION 1")
            except ConfigError as error:
                if "already exists" not in str(error):
                    raise
        self._connection.execute(
            f"ALTER RETENTION POLICY {policy} ON {self._database} DURATION {duration} SHARD DURATION {_shard_days(keep_days)}d DEFAULT"
        )
        where = f"--influx '{influx_config.url_of(self.config)}'"
        return [f"database {self.config.database!r}, retention policy {name!r}, {_kept(keep_days)}: {where}"]

    def make_token(self, right: Right) -> str:
        name, password = f"edgemeter_{self.config.database}_{right}", secrets.token_urlsafe(24)
        user = client.identifier(name)
        try:
            self._connection.execute(f"CREATE USER {user} WITH PASSWORD {client.literal(password)}")
        except ConfigError as error:
            if "already exists" not in str(error):
                raise
            self._connection.execute(f"SET PASSWORD FOR {user} = {client.literal(password)}")
        self._connection.execute(f"GRANT {right.upper()} ON {self._database} TO {user}")
        return f"{name}:{password}"

    def close(self) -> None:
        self._connection.close()


def _kept(keep_days: int | None) -> str:
    return f"kept {keep_days} days" if keep_days else "kept for ever"


def _shard_days(keep_days: int | None) -> int:
    # A shard is dropped as a whole, so it must be shorter than the retention.
    return 1 if keep_days and keep_days < 30 else 7

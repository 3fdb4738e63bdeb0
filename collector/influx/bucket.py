"""The bucket for points, written by influxdb-client, and its set-up.

The client is installed by `pip install 'edgemeter[influx]'`.

Measured on InfluxDB 2.7.12: a batch with a malformed point is rejected as a whole (400); of a batch
with points that do not fit the bucket the others are stored (422). InfluxDB 1.8 and 3 accept the
same writes and have no organisations.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    one_line,
    os_error_as,
)
from edgemeter.agent.base.plugins import import_extra
from edgemeter.collector.influx.influx_config import TOKEN_VARIABLES, InfluxConfig, Right
from edgemeter.collector.influx.points import MEASUREMENT

TIMEOUT_MS = 30_000
DAY_S = 24 * 3600

# The error of a server that stored the rest. It counts one of several causes: the number may be too
# small, never too large.
_DROPPED = re.compile(r"\bdropped=(\d+)")


class PointsRejectedError(EdgemeterError):
    """The server rejects something in the request."""


class NotFoundError(ConfigError):
    """The organisation, the bucket or the whole API does not exist."""


def influx_error(config: InfluxConfig, status: int | None, message: str) -> EdgemeterError:
    """Return the error of an unsuccessful response."""
    message = one_line(message)
    if status in {400, 413, 422}:
        return PointsRejectedError(message)
    if status in {401, 403}:
        remedy = f"give one with that permission ({TOKEN_VARIABLES[0]})"
        return ConfigError(f"InfluxDB at {config} does not accept the token ({message}): {remedy}")
    if status in {404, 405, 501}:
        remedy = (
            "name an existing organisation and bucket (?org=ORG&bucket=BUCKET), or create the "
            "bucket (edgemeter collector init-influx) "
            "and fill it again (edgemeter collector drain --again)"
        )
        return NotFoundError(f"InfluxDB at {config}: {message}: {remedy}")
    return TransientError(f"InfluxDB at {config} responds {status} ({message}): retrying")


def write_all_but_rejected(
    lines: Sequence[str], post: Callable[[Sequence[str]], object]
) -> dict[int, str]:
    """Write `lines` with `post`; return why some are rejected, by their index.

    It returns when all others are stored. Any other error of `post` is raised; then some lines are
    stored, and all may be written again.
    """
    rejected: dict[int, str] = {}
    waiting = [range(len(lines))]
    while waiting:
        part = waiting.pop()
        try:
            post(lines[part.start : part.stop])
        except PointsRejectedError as error:
            # After an outage longer than the bucket's retention, thousands are rejected for one
            # cause.
            dropped = _DROPPED.search(str(error))
            if len(part) == 1 or (dropped and int(dropped[1]) == len(part)):
                rejected |= dict.fromkeys(part, str(error))
            else:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
    return rejected


class Bucket:
    """The bucket of `config`; used from one thread at a time.

    `name` is that of its position in the ledger.

    Every method may block for its timeout, and raises ConfigError if the token or a name is wrong,
    and TransientError if no server responds, or not now.

    Raises:
        UnavailableError: influxdb-client is not installed.
    """

    def __init__(self, config: InfluxConfig) -> None:
        self.config = config
        self.name = f"influx {config}"
        self._library = import_extra("influxdb_client", "influx", "InfluxDB needs influxdb-client")
        self._client = self._library.InfluxDBClient(
            url=config.url, token=config.token, timeout=TIMEOUT_MS
        )
        self._org = config.org

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """Raise an error if points would not be accepted.

        An empty write is answered like a real one.
        """
        self._post([])

    def write(self, lines: Sequence[str]) -> dict[int, str]:
        """Store points; return why some are rejected, by their index.

        Writing a point again does not change it.
        """
        return write_all_but_rejected(lines, self._post)

    def delete(self, device: str, at_ns: int) -> None:
        """Delete the point of a device's run with this time.

        It raises PointsRejectedError, or ConfigError if the server cannot delete.
        """
        # The library's own call supports microseconds only.
        at = (
            f"{datetime.fromtimestamp(at_ns // 10**9, timezone.utc):%Y-%m-%dT%H:%M:%S}"
            f".{at_ns % 10**9:09d}Z"
        )
        quoted = device.replace("\\", "\\\\").replace('"', '\\"')
        request = self._library.DeletePredicateRequest(
            start=at, stop=at, predicate=f'_measurement="{MEASUREMENT}" AND device="{quoted}"'
        )
        self._call(
            self._library.DeleteService(self._client.api_client).post_delete,
            request,
            bucket=self.config.bucket,
            org=self._organisation(),
        )

    def create(self, keep_days: int | None) -> tuple[str, str]:
        """Create the bucket, or set an existing one's retention; return its id and organisation.

        The retention None keeps points for ever. The organisation is returned by its name.
        """
        org_id, org = self._only_organisation()
        rule = self._library.BucketRetentionRules(
            every_seconds=(keep_days or 0) * DAY_S,
            # A shard is dropped as a whole, so it must be shorter than the retention.
            shard_group_duration_seconds=(1 if keep_days and keep_days < 30 else 7) * DAY_S,
        )
        name, buckets = self.config.bucket, self._client.buckets_api()
        try:
            listed = self._call(buckets.find_buckets, name=name, org=org).buckets
        except NotFoundError:
            listed = []
        if listed:
            return str(
                self._call(
                    buckets.update_bucket,
                    self._library.Bucket(id=listed[0].id, name=name, retention_rules=[rule]),
                ).id
            ), org
        return str(
            self._call(
                buckets.create_bucket,
                bucket=self._library.PostBucketRequest(
                    org_id=org_id, name=name, retention_rules=[rule]
                ),
            ).id
        ), org

    def make_token(self, bucket_id: str, right: Right, description: str) -> str:
        """Return a new token with only this right to the bucket."""
        org_id, _ = self._only_organisation()
        resource = self._library.PermissionResource(type="buckets", id=bucket_id, org_id=org_id)
        return str(
            self._call(
                self._client.authorizations_api().create_authorization,
                authorization=self._library.Authorization(
                    org_id=org_id,
                    description=description,
                    permissions=[self._library.Permission(action=right, resource=resource)],
                ),
            ).token
        )

    def _post(self, lines: Sequence[str]) -> None:
        # The import takes over half a second, and the extra may be absent.
        from influxdb_client.client.write_api import SYNCHRONOUS  # noqa: PLC0415

        body = "\n".join(lines).encode("utf-8", "replace")
        with self._client.write_api(write_options=SYNCHRONOUS) as api:
            self._call(
                api.write,
                bucket=self.config.bucket,
                org=self._organisation(),
                record=body,
                write_precision="ns",
            )

    def _organisation(self) -> str:
        if self._org is None:
            try:
                self._org = self._only_organisation()[1]
            except NotFoundError:
                self._org = "-"  # 1.8 and 3 have none.
        return self._org

    def _only_organisation(self) -> tuple[str, str]:
        """Return the organisation's id and name.

        It is the configured one, else the only one that the token sees.
        """
        named = {"org": self.config.org} if self.config.org else {}
        organisations = self._call(self._client.organizations_api().find_organizations, **named)
        if len(organisations) != 1:
            names = ", ".join(sorted(repr(str(org.name)) for org in organisations))
            sees = (
                f"several organisations ({names})"
                if organisations
                else "no organisation (a write-only token sees none)"
            )
            raise ConfigError(
                f"the token for {self.config.url} sees {sees}: name one in the URL, ?org=ORG"
            )
        return str(organisations[0].id), str(organisations[0].name)

    def _call(self, function: Callable[..., Any], *values: Any, **arguments: Any) -> Any:
        # influxdb-client does not catch HTTPError.
        from influxdb_client.rest import ApiException  # noqa: PLC0415 - as above
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            return function(*values, **arguments)
        except ApiException as error:
            raise influx_error(self.config, error.status, str(error.message)) from error
        except (HTTPError, OSError) as error:
            # The library's message has its own object before the system's reason.
            reason = re.sub(r"^.*\[Errno -?\d+\] ", "", one_line(error))
            raise TransientError(
                f"no InfluxDB responds at {self.config.url} ({reason}): start it; the ledger "
                "keeps everything meanwhile"
            ) from error


_KINDS: dict[Right, str] = {
    "write": "for the collector: write permission only",
    "read": "for Grafana: read permission only",
}


def set_up_influx(
    config: InfluxConfig, keep_days: int | None, token_files: Mapping[Right, Path]
) -> list[str]:
    """Set up the bucket of `config`; return what exists now, in one sentence each.

    The token of `config` must have the permissions.

    Points are kept for `keep_days`, None: for ever. A new token for each right is written to its
    file, unless that exists.

    Raises:
        ConfigError: a permission is missing, a name is rejected, or a token's file cannot be
            written.
        TransientError: no InfluxDB responds, or not now.
    """
    with closing(Bucket(config)) as bucket:
        try:
            bucket_id, org = bucket.create(keep_days)
            url = f"{config.url}?{urlencode({'org': org, 'bucket': config.bucket})}"
            retention = f"kept {keep_days} days" if keep_days else "kept for ever"
            return [f"bucket {config.bucket!r} of {org!r}, {retention}: --influx '{url}'"] + [
                _token(bucket, bucket_id, right, path) for right, path in token_files.items()
            ]
        except PointsRejectedError as error:
            raise ConfigError(f"InfluxDB at {config} rejects it: {error}") from error


def _token(bucket: Bucket, bucket_id: str, right: Right, path: Path) -> str:
    if path.is_file():
        return f"token in {str(path)!r} kept ({_KINDS[right]})"
    with os_error_as(ConfigError, f"cannot write a token to {str(path)!r}", "name another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file first: a token that cannot be stored should not be created.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            try:
                file.write(
                    bucket.make_token(
                        bucket_id,
                        right,
                        f"edgemeter: {_KINDS[right]} (bucket {bucket.config.bucket})",
                    )
                    + "\n"
                )
            except BaseException:
                path.unlink()
                raise
    return f"token written to {str(path)!r} ({_KINDS[right]})"

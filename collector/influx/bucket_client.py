"""The API of InfluxDB 2, and of what accepts its writes (3, 1.8): points, buckets, tokens, and the mapping for InfluxQL.

The only module that knows influxdb-client (`pip install 'edgemeter[influx]'`), and the only one that posts to `/api/v2`. A POST of 5,000
points by it costs 0.8 ms of CPU more than by a bare connection, 0.3% of what the server takes.
"""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import Any, Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.collector.influx.client import InfluxHttp, NotFoundError, identifier, influx_error, unreachable
from edgemeter.collector.influx.influx_config import InfluxConfig

TIMEOUT_MS = 30_000
DAY_S = 24 * 3600


class BucketClient:
    """The bucket of `config` and what belongs to it; used from one thread.

    Every method raises ConfigError where the token or a name is wrong, PointsRejectedError where the server rejects the request, and
    TransientError where no server responds, or not now.

    Raises:
        UnavailableError: influxdb-client is not installed.
    """

    def __init__(self, config: InfluxConfig) -> None:
        self._library = import_extra("influxdb_client", "influx", "an InfluxDB 2 needs influxdb-client")
        self._client = self._library.InfluxDBClient(url=config.url, token=config.token, timeout=TIMEOUT_MS)
        self._config = config
        self._org = config.org

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._client.close()

    def write(self, lines: Sequence[str]) -> None:
        """Store points, one line each; none asks whether points would be accepted."""
        from influxdb_client.client.write_api import SYNCHRONOUS  # noqa: PLC0415 - over half a second, and the extra may be absent

        if not self._org:
            try:
                self._org = self.organisation()[1]
            except NotFoundError:
                # 1.8 and 3 accept the same writes and have no organisations.
                self._org = "-"
        body = "\n".join(lines).encode("utf-8", "replace")
        with self._client.write_api(write_options=SYNCHRONOUS) as api:
            self._call(api.write, bucket=self._config.bucket, org=self._org, record=body, write_precision="ns")

    def delete(self, measurement: str, device: str, at_ns: int) -> None:
        """Delete the points of a device in a measurement at one time."""
        at = f"{datetime.fromtimestamp(at_ns // 10**9, timezone.utc):%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9:09d}Z"
        request = json.dumps(
            {"start": at, "stop": at, "predicate": f"_measurement={identifier(measurement)} AND device={identifier(device)}"}
        ).encode()
        # The library's own call knows microseconds only.
        with closing(InfluxHttp(self._config)) as connection:
            connection.send("POST", "/api/v2/delete", {"org": self._org or "-", "bucket": self._config.bucket}, request)

    def create(self) -> None:
        """Create the bucket, which keeps everything."""
        self._call(self._client.buckets_api().create_bucket, bucket_name=self._config.bucket, org=self._org)

    def organisation(self) -> tuple[str, str]:
        """Return id and name of the bucket's organisation: the one that is configured, else the only one that the token sees."""
        named = {"org": self._config.org} if self._config.org else {}
        organisations = self._call(self._client.organizations_api().find_organizations, **named)
        if len(organisations) != 1:
            several = f"several organisations ({', '.join(sorted(repr(str(org.name)) for org in organisations))})"
            sees = several if organisations else "no organisation (a write-only token sees none)"
            raise ConfigError(f"the token for {self._config.url} sees {sees}: name one in the URL, ?org=ORG")
        self._org = str(organisations[0].name)
        return str(organisations[0].id), self._org

    def make_bucket(self, org_id: str, keep_days: int | None, shard_days: int) -> str:
        """Create the bucket, or set the retention of the one that is there; return its id."""
        rule = self._library.BucketRetentionRules(every_seconds=(keep_days or 0) * DAY_S, shard_group_duration_seconds=shard_days * DAY_S)
        name = self._config.bucket
        try:
            listing = self._call(self._client.buckets_api().find_buckets, name=name, org=self._org)
            ids = [bucket.id for bucket in listing.buckets or () if bucket.name == name]
        except NotFoundError:
            ids = []
        if ids:
            bucket = self._library.Bucket(id=ids[0], name=name, retention_rules=[rule])
            return str(self._call(self._client.buckets_api().update_bucket, bucket).id)
        request = self._library.PostBucketRequest(org_id=org_id, name=name, retention_rules=[rule])
        return str(self._call(self._client.buckets_api().create_bucket, bucket=request).id)

    def map_to_database(self, org_id: str, bucket_id: str, database: str, policy: str) -> None:
        """Let InfluxQL find the bucket as this database and retention policy."""
        service = self._library.DBRPsService(self._client.api_client)
        mappings = self._call(service.get_dbr_ps, org_id=org_id, bucket_id=bucket_id).content or ()
        if not any(mapping.database == database and mapping.retention_policy == policy and not mapping.virtual for mapping in mappings):
            request = self._library.DBRPCreate(org_id=org_id, bucket_id=bucket_id, database=database, retention_policy=policy, default=True)
            self._call(service.post_dbrp, request)

    def make_token(self, org_id: str, bucket_id: str, right: Literal["write", "read"], description: str) -> str:
        """Return a new token that may do this with the bucket and nothing else."""
        resource = self._library.PermissionResource(type="buckets", id=bucket_id, org_id=org_id)
        permissions = [self._library.Permission(action=right, resource=resource)]
        request = self._library.Authorization(org_id=org_id, description=description, permissions=permissions)
        return str(self._call(self._client.authorizations_api().create_authorization, authorization=request).token)

    def _call(self, function: Any, *values: Any, **arguments: Any) -> Any:
        from influxdb_client.client.exceptions import InfluxDBError  # noqa: PLC0415 - as above
        from influxdb_client.rest import ApiException  # noqa: PLC0415 - as above
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - what influxdb-client lets through

        try:
            return function(*values, **arguments)
        except ApiException as error:
            raise influx_error(self._config, error.status, error.body, str(error.reason)) from error
        except InfluxDBError as error:
            # The client's own message, when it cannot look up an organisation.
            raise ConfigError(f"InfluxDB at {self._config}: {error}") from error
        except (HTTPError, OSError) as error:
            raise unreachable(self._config, error) from error

"""InfluxDB 2 (and what speaks its `/api/v2/write`) as a sink of points; the only module that knows influxdb-client.

Writes are synchronous, of prebuilt line protocol with nanoseconds; the client's own batching would hide errors.
"""

import logging
from collections.abc import Sequence
from typing import Any

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.collector.keep import refusals
from edgemeter.collector.keep.influx_answers import NotFoundError, PointsRefusedError, error_of, silent
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.refusals import Refused

logger = logging.getLogger(__name__)

TIMEOUT_MS = 30_000


class InfluxSink:
    """One bucket. Used from one thread; `write` finds organisation and bucket the first time.

    Raises:
        UnavailableError: influxdb-client is not installed.
    """

    def __init__(self, config: InfluxConfig) -> None:
        try:
            from influxdb_client import InfluxDBClient  # noqa: PLC0415 - over half a second, and the extra may be absent
        except ImportError as error:
            message = "writing to InfluxDB needs influxdb-client: pip install 'edgemeter[influx]'"
            raise UnavailableError(message) from error
        self.config = config
        self._client = InfluxDBClient(url=config.url, token=config.token, timeout=TIMEOUT_MS)
        self._org: str | None = None

    @property
    def name(self) -> str:
        """The name of this sink's position in the ledger."""
        return f"influx {self.config}"

    def prepare(self) -> None:
        """Find the organisation, and the bucket, which is made when it is absent and the token may.

        Raises:
            ConfigError: the token is not accepted, it does not name one organisation, or the bucket is not there.
            TransientError: no server answers, or not now.
        """
        if self._org is not None:
            return
        org = self.config.org or self._only_org()
        try:
            # An empty write is answered like a real one, and asks for no right beyond it.
            self._post(org, [])
        except NotFoundError:
            self._make_bucket(org)
            self._post(org, [])
        self._org = org

    def write(self, lines: Sequence[str]) -> list[Refused]:
        """Store points (one line each); return those that the server does not take, when all others are stored.

        Raises:
            ConfigError: token, organisation or bucket are not accepted; nothing is stored.
            TransientError: no server answers, or not now; writing the same again later changes nothing that is stored.
        """
        self.prepare()
        org = self._org or ""
        return refusals.store(lines, lambda part: self._post(org, part))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, org: str, lines: Sequence[str]) -> None:
        from influxdb_client.client.write_api import SYNCHRONOUS  # noqa: PLC0415 - as above

        body = "\n".join(lines).encode("utf-8", "replace")
        with self._client.write_api(write_options=SYNCHRONOUS) as api:
            self._call(api.write, bucket=self.config.bucket, org=org, record=body, write_precision="ns")

    def _only_org(self) -> str:
        try:
            found = [org.name for org in self._call(self._client.organizations_api().find_organizations)]
        except NotFoundError:
            # 1.8 and 3 take the same writes and have no organisations.
            return "-"
        if len(found) != 1:
            several = f"several organisations ({', '.join(map(repr, sorted(found)))})"
            sees = several if found else "no organisation (one that may only write sees none)"
            message = f"the token for {self.config.url} sees {sees}: name one with --influx-org"
            raise ConfigError(message)
        return str(found[0])

    def _make_bucket(self, org: str) -> None:
        try:
            self._call(self._client.buckets_api().create_bucket, bucket_name=self.config.bucket, org=org)
        except (ConfigError, PointsRefusedError) as error:
            # Whether the organisation is wrong, or the token may not, the next write says in words that name what to correct.
            logger.debug("could not make bucket %r: %s", self.config.bucket, error)
        else:
            logger.info("made bucket %r at %s", self.config.bucket, self.config.url)

    def _call(self, function: Any, **arguments: Any) -> Any:
        from influxdb_client.client.exceptions import InfluxDBError  # noqa: PLC0415 - as above
        from influxdb_client.rest import ApiException  # noqa: PLC0415 - as above
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - what influxdb-client lets through

        try:
            return function(**arguments)
        except ApiException as error:
            raise error_of(self.config, error.status, error.body, str(error.reason)) from error
        except InfluxDBError as error:
            # The client's own words, when it cannot look up an organisation.
            message = f"InfluxDB at {self.config}: {error}"
            raise ConfigError(message) from error
        except (HTTPError, OSError) as error:
            raise silent(self.config, error) from error

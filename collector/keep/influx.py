"""InfluxDB 2 (and what speaks its `/api/v2/write`) as a sink of points; the only module that knows influxdb-client.

Writes are synchronous, of prebuilt line protocol with nanoseconds; the client's own batching would hide errors. What the server's
answers mean (measured on 2.7.12): 204 stored; 400 nothing of the batch is stored, one line is malformed; 422 all but some points are
stored, and only the first of these is named; 401 and 404 wrong token, organisation or bucket; 429 and 5xx later.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.collector.keep.influx_config import TOKEN_VARIABLES, InfluxConfig

logger = logging.getLogger(__name__)

TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Refused:
    """A point that the server does not take, by its place in what was written, and why."""

    index: int
    reason: str


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
        except _NotFoundError:
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
        refused: list[Refused] = []
        self._write_part(self._org or "", lines, 0, refused)
        return refused

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _write_part(self, org: str, lines: Sequence[str], first: int, refused: list[Refused]) -> None:
        try:
            self._post(org, lines)
        except _PointsRefused as error:
            if len(lines) == 1:
                refused.append(Refused(first, str(error)))
                return
            # Half by half until the bad ones stand alone; the good ones among them are the same points when they come again.
            half = len(lines) // 2
            self._write_part(org, lines[:half], first, refused)
            self._write_part(org, lines[half:], first + half, refused)

    def _post(self, org: str, lines: Sequence[str]) -> None:
        from influxdb_client.client.write_api import SYNCHRONOUS  # noqa: PLC0415 - as above

        body = "\n".join(lines).encode("utf-8", "replace")
        with self._client.write_api(write_options=SYNCHRONOUS) as api:
            self._call(api.write, bucket=self.config.bucket, org=org, record=body, write_precision="ns")

    def _only_org(self) -> str:
        try:
            found = [org.name for org in self._call(self._client.organizations_api().find_organizations)]
        except _NotFoundError:
            # 1.8 and 3 take the same writes and have no organisations.
            return "-"
        if len(found) != 1:
            sees = "no organisation" if not found else f"several organisations ({', '.join(map(repr, sorted(found)))})"
            message = f"the token for {self.config.url} sees {sees}: name one with --influx-org"
            raise ConfigError(message)
        return str(found[0])

    def _make_bucket(self, org: str) -> None:
        try:
            self._call(self._client.buckets_api().create_bucket, bucket_name=self.config.bucket, org=org)
        except (ConfigError, _PointsRefused) as error:
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
            raise self._mapped(error.status, _said(error.body) or str(error.reason)) from error
        except InfluxDBError as error:
            # The client's own words, when it cannot look up an organisation.
            message = f"InfluxDB at {self.config}: {error}"
            raise ConfigError(message) from error
        except (HTTPError, OSError) as error:
            message = f"no InfluxDB answers at {self.config.url} ({error}): start it; the ledger keeps everything until then"
            raise TransientError(message) from error

    def _mapped(self, status: int | None, said: str) -> EdgemeterError:
        where = str(self.config)
        if status in {400, 413, 422}:
            return _PointsRefused(said)
        if status in {401, 403}:
            remedy = f"give one that may write there ({TOKEN_VARIABLES[0]} or --influx-token-file)"
            return ConfigError(f"InfluxDB at {where} does not accept the token ({said}): {remedy}")
        if status == 404:
            remedy = "name those that exist (--influx-org, --influx-bucket), or a token that may make the bucket"
            return _NotFoundError(f"InfluxDB at {where}: {said}: {remedy}")
        return TransientError(f"InfluxDB at {where} answers {status} ({said}): trying again")


class _PointsRefused(EdgemeterError):  # noqa: N818 - never leaves this module
    """Something in the batch is not taken."""


class _NotFoundError(ConfigError):
    """The organisation, the bucket or the whole interface is not there."""


def _said(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        document = json.loads(text)
        text = str(document["message"])
    except (ValueError, TypeError, KeyError):
        pass
    return " ".join(text.split())[:300]

"""Sinks: where the drain writes points: their base, InfluxDB 2 and 1, and `open_sink`."""

import json
import logging
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.collector.influx import client
from edgemeter.collector.influx.bucket_client import BucketClient
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.point_schema import HISTOGRAM, MEASUREMENT

logger = logging.getLogger(__name__)

LARGEST_WRITE = 5_000

# A message this long quotes so many points that halving is as quick.
READ_CHARACTERS = 1 << 18

# How much of a rejected point is shown beside the reason.
SHOWN_CHARACTERS = 60

# The message of a server that stored the rest. It counts one of several causes: the number may be too small, never too large.
_DROPPED = re.compile(r"\bdropped=(\d+)")


@dataclass(frozen=True, slots=True)
class RejectedPoint:
    """A point that the server rejects, by its index in what was written, and the reason.

    `is_expired`: it is older than what the place retains.
    """

    index: int
    reason: str
    is_expired: bool = False


def write_all_but_rejected(lines: Sequence[str], post: Callable[[Sequence[str]], None]) -> list[RejectedPoint]:
    """Write `lines` with `post`; return those that it rejects on their own, when all others are stored.

    Any other error of `post` is raised; then some lines are stored, and all may be written again.
    """
    rejected: list[RejectedPoint] = []
    waiting = [list(range(first, min(first + LARGEST_WRITE, len(lines)))) for first in range(0, len(lines), LARGEST_WRITE)][::-1]
    while waiting:
        places = waiting.pop()
        try:
            post([lines[index] for index in places])
        except client.PointsRejectedError as error:
            # After an outage longer than the bucket's retention, thousands are rejected for one cause.
            dropped = _DROPPED.search(error.server_message)
            if len(places) == 1 or (dropped and int(dropped[1]) == len(places)):
                rejected += [RejectedPoint(index, _reason(error.server_message, lines[index]), error.is_expired) for index in places]
            else:
                waiting += _halves(lines, places, error.server_message)
    return sorted(rejected, key=operator.attrgetter("index"))


def _reason(message: str, line: str) -> str:
    # The reason follows the line, which may be long.
    return client.one_line(message.replace(line, f"{line[:SHOWN_CHARACTERS]}..."))


def _halves(lines: Sequence[str], places: list[int], message: str) -> list[list[int]]:
    """Return `places` in parts: each one whose line the message quotes on its own; if it quotes none, both halves."""
    quoted: set[int] = set()
    if "unable to parse" in message and len(message) <= READ_CHARACTERS:
        quoted = {index for index in places if f"'{lines[index]}'" in message}
    if not quoted:
        half = len(places) // 2
        return [places[half:], places[:half]]
    unquoted = [index for index in places if index not in quoted]
    return [*([unquoted] if unquoted else []), *([index] for index in sorted(quoted, reverse=True))]


class Sink:
    """Where points are written; `name` is that of its position in the ledger: the same place has the same name.

    Used from one thread at a time; may block for its own timeouts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_ready = False
        self._was_missing = False

    def prepare(self) -> None:
        """Check that points would be accepted; create the bucket or database if it is absent and the token permits that.

        Raises:
            ConfigError: not before the configuration is corrected.
            TransientError: no server responds, or not now.
        """
        if self._is_ready:
            return
        try:
            # An empty write is answered like a real one, and needs no further permission.
            self._post([])
        except client.NotFoundError as error:
            self._was_missing = self._was_missing or error.is_place
            self._create()
            self._post([])
        self._is_ready = True

    def write(self, lines: Sequence[str]) -> list[RejectedPoint]:
        """Store points, one line each; return the rejected ones, when all others are stored; raises as `prepare`.

        After an error, writing the same points again changes nothing that is stored.
        """
        self.prepare()
        try:
            return write_all_but_rejected(lines, self._post)
        except client.NotFoundError as error:
            self._is_ready = False
            self._was_missing = self._was_missing or error.is_place
            raise

    def remove(self, device: str, at_ns: int) -> None:
        """Delete the points of a device's run that have this time; raises as `prepare`, also where the server cannot delete points."""
        raise NotImplementedError

    def was_missing(self) -> bool:
        """Return whether the database was found missing since the last call, which means that what was written to it is lost."""
        was_missing, self._was_missing = self._was_missing, False
        return was_missing

    def close(self) -> None:
        """Close the connections; may be called twice."""
        raise NotImplementedError

    def _post(self, lines: Sequence[str]) -> None:
        raise NotImplementedError

    def _create(self) -> None:
        raise NotImplementedError


class _BucketSink(Sink):
    """One bucket of InfluxDB 2, and of what accepts its writes."""

    def __init__(self, config: InfluxConfig) -> None:
        super().__init__(f"influx {config}")
        self.config = config
        self._bucket = BucketClient(config)

    def close(self) -> None:
        self._bucket.close()

    def remove(self, device: str, at_ns: int) -> None:
        self.prepare()
        for measurement in (MEASUREMENT, HISTOGRAM):
            self._bucket.delete(measurement, device, at_ns)

    def _post(self, lines: Sequence[str]) -> None:
        self._bucket.write(lines)

    def _create(self) -> None:
        try:
            self._bucket.create()
        except (ConfigError, client.PointsRejectedError) as error:
            # Whether the organisation is wrong or the token lacks the permission, the next write fails with a message that names the cause.
            logger.debug("could not create bucket %r: %s", self.config.bucket, error)
        else:
            logger.info("created bucket %r at %s", self.config.bucket, self.config.url)


class _DatabaseSink(Sink):
    """One database of InfluxDB 1, by its `/write`; 1.8 and newer also accept the writes of version 2."""

    def __init__(self, config: InfluxConfig) -> None:
        super().__init__(f"influx {config}")
        self.config = config
        self._http = client.InfluxHttp(config)

    def prepare(self) -> None:
        try:
            super().prepare()
        except ConfigError as error:
            if self._is_version_2():
                raise ConfigError(
                    f"{self.config.url} is an InfluxDB 2, and ?db= is of version 1: write ?org=ORG&bucket=BUCKET, and give a token"
                ) from error
            raise

    def remove(self, device: str, at_ns: int) -> None:
        condition = f"time = {at_ns} AND device = {client.literal(device)}"
        for measurement in (MEASUREMENT, HISTOGRAM):
            self._http.execute(f"DELETE FROM {client.identifier(measurement)} WHERE {condition}")  # noqa: S608 - names of ours

    def close(self) -> None:
        self._http.close()

    def _is_version_2(self) -> bool:
        try:
            health = json.loads(self._http.send("GET", "/health", {}))
        except (EdgemeterError, ValueError, RecursionError):
            # 1.6 has none.
            return False
        return str(health.get("version", "")).lstrip("v").startswith("2.") if isinstance(health, dict) else False

    def _post(self, lines: Sequence[str]) -> None:
        parameters = {"db": self.config.database or "", "precision": "ns"} | ({"rp": self.config.policy} if self.config.policy else {})
        self._http.send("POST", "/write", parameters, "\n".join(lines).encode("utf-8", "replace"))

    def _create(self) -> None:
        self._http.execute(f"CREATE DATABASE {client.identifier(self.config.database or '')}")
        logger.info("created database %r at %s", self.config.database, self.config.url)


def open_sink(config: InfluxConfig) -> Sink:
    """Return the sink of `config`; no request is sent yet. Raises UnavailableError if influxdb-client is not installed."""
    return _BucketSink(config) if config.database is None else _DatabaseSink(config)

"""InfluxDB 1 as a sink of points: its `/write`; 1.8 and newer also take the writes of version 2."""

import logging
from collections.abc import Sequence

from edgemeter.collector.keep import influxql, refusals
from edgemeter.collector.keep.influx_answers import NotFoundError
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.influx_http import InfluxHttp, Question
from edgemeter.collector.keep.refusals import Refused

logger = logging.getLogger(__name__)


class Influx1Sink:
    """One database. Used from one thread; `write` looks for the database the first time, and makes it when it is absent."""

    def __init__(self, config: InfluxConfig) -> None:
        self.config = config
        self._http = InfluxHttp(config)
        self._is_ready = False

    @property
    def name(self) -> str:
        """The name of this sink's position in the ledger."""
        return f"influx {self.config}"

    def prepare(self) -> None:
        """Find the database, which is made when it is absent and the user may.

        Raises:
            ConfigError: the user is not accepted, or the database is not there.
            TransientError: no server answers, or not now.
        """
        if self._is_ready:
            return
        try:
            # An empty write is answered like a real one, and asks for no right beyond it.
            self._post([])
        except NotFoundError:
            influxql.execute(self._http, self.config, f"CREATE DATABASE {influxql.identifier(self.config.database or '')}")
            logger.info("made the database %r at %s", self.config.database, self.config.url)
            self._post([])
        self._is_ready = True

    def write(self, lines: Sequence[str]) -> list[Refused]:
        """Store points (one line each); return those that the server does not take, when all others are stored.

        Raises:
            ConfigError: user or database are not accepted; nothing is stored.
            TransientError: no server answers, or not now; writing the same again later changes nothing that is stored.
        """
        self.prepare()
        return refusals.store(lines, self._post)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _post(self, lines: Sequence[str]) -> None:
        parameters = {"db": self.config.database or "", "precision": "ns"} | ({"rp": self.config.policy} if self.config.policy else {})
        self._http.ask(Question("POST", "/write", parameters, "\n".join(lines).encode("utf-8", "replace")))

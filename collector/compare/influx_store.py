"""InfluxDB as a store: the runs read back from their points, by InfluxQL."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.store import Contents, LeftOut, oldest_first
from edgemeter.collector.keep import influxql, point_reader, point_schema
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.influx_http import InfluxHttp

_EVERYTHING = f"SELECT * FROM {influxql.identifier(point_schema.MEASUREMENT)}"  # noqa: S608 - a name of ours


@dataclass(frozen=True, slots=True)
class InfluxStore:
    """The points of one bucket or database; each call reads what is there now. Raw samples are never among them."""

    config: InfluxConfig

    def contents(self, *, with_samples: bool = False) -> Contents:  # noqa: ARG002 - the samples stayed in the ledger
        """Return the runs in InfluxDB, and points that do not hold a whole record as left out.

        Raises:
            ConfigError: token, bucket or database are wrong, or no point at all holds a whole record.
            TransientError: no InfluxDB answers, or not now.
        """
        runs: list[RunRecord] = []
        left_out: list[LeftOut] = []
        connection = InfluxHttp(self.config)
        try:
            for point in influxql.rows(connection, self.config, _EVERYTHING):
                try:
                    runs.append(point_reader.record(point))
                except ConfigError as error:
                    left_out.append(LeftOut(point.get("id"), f"in InfluxDB: {error}"))
        finally:
            connection.close()
        if left_out and not runs:
            message = f"no run in InfluxDB at {self.config} can be read: {left_out[0].reason}"
            raise ConfigError(message)
        return Contents(_each_once(oldest_first(runs)), left_out)

    def runs(self, *, with_samples: bool = False) -> Sequence[RunRecord]:
        """Return the runs in InfluxDB, oldest first."""
        return self.contents(with_samples=with_samples).runs


def _each_once(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return `runs` without repeats: a record without a right clock is stamped on receipt, by two collectors at two times."""
    first: dict[tuple[str, int | None, int | None, str], RunRecord] = {}
    for run in runs:
        first.setdefault((run.device, run.session, run.seq, run.id), run)
    return list(first.values())

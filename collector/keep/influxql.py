"""InfluxQL over `/query`: the language that InfluxDB 1, 2 and 3 share. Times in nanoseconds, answers in chunks."""

from collections.abc import Iterator
from typing import Any

import msgspec

from edgemeter.agent.errors import ConfigError, TransientError
from edgemeter.collector.keep.influx_answers import NotFoundError, PointsRefusedError
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.influx_http import InfluxHttp, Question

CHUNK_ROWS = 500


class _Series(msgspec.Struct):
    columns: list[str]
    values: list[list[Any]] = []
    tags: dict[str, str] = {}


class _Result(msgspec.Struct):
    series: list[_Series] = []
    error: str | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] = []
    error: str | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def rows(connection: InfluxHttp, config: InfluxConfig, query: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query, oldest first, as values by column; what a row has not is None.

    Raises:
        ConfigError: token, bucket or database are wrong, or the query is.
        TransientError: no server answers, or not now, or the answer broke off.
    """
    parameters = {**_place(config), "q": query, "epoch": "ns", "chunked": "true", "chunk_size": str(CHUNK_ROWS)}
    for result in _results(connection, config, Question("GET", "/query", parameters)):
        for series in result.series:
            for values in series.values:
                yield series.tags | dict(zip(series.columns, values, strict=True))


def execute(connection: InfluxHttp, config: InfluxConfig, statement: str) -> None:
    """Run a statement that changes something and returns nothing; raises as `rows` does."""
    for _ in _results(connection, config, Question("POST", "/query", {"q": statement})):
        pass


def identifier(name: str) -> str:
    """Return `name` quoted as InfluxQL has it."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def literal(text: str) -> str:
    """Return `text` as a literal of InfluxQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _place(config: InfluxConfig) -> dict[str, str]:
    # Version 2 maps a bucket to a database, and to a policy as well where a slash divides the two, as 1.8 has it.
    if config.database is None:
        database, _, policy = config.bucket.partition("/")
    else:
        database, policy = config.database, config.policy or ""
    return {"db": database} | ({"rp": policy} if policy else {})


def _results(connection: InfluxHttp, config: InfluxConfig, question: Question) -> Iterator[_Result]:
    try:
        for line in connection.lines(question):
            answer = _decode(line)
            for error in (answer.error, *(result.error for result in answer.results)):
                if error is not None:
                    raise _mapped(config, error)
            yield from answer.results
    except PointsRefusedError as error:
        message = f"InfluxDB at {config} does not take the query: {error}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"what answers at {config.url} is no InfluxDB, or its answer broke off ({error}): check the URL"
        raise TransientError(message) from error


def _mapped(config: InfluxConfig, said: str) -> ConfigError | TransientError:
    if "not found" in said:
        return NotFoundError(f"InfluxDB at {config}: {said}: name one that exists (?bucket= of version 2, ?db= of version 1)")
    if "timeout" in said or "unavailable" in said:
        return TransientError(f"InfluxDB at {config}: {said}: try again")
    return ConfigError(f"InfluxDB at {config}: {said}")

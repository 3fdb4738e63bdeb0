"""Runs as Parquet, by pyarrow (extra `parquet`); the only module that knows it."""

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.export.columns import Column

BATCH_ROWS = 20_000
TIME = "started_at"


def write(runs: Iterable[RunRecord], columns: Sequence[Column], path: Path) -> int:
    """Write the runs to a file; return how many they were.

    Raises:
        UnavailableError: pyarrow is not installed, or the file cannot be written.
    """
    arrow, parquet = _library()
    schema = _schema(arrow, columns)
    written = 0
    remaining = iter(runs)
    try:
        with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            while batch := list(islice(remaining, BATCH_ROWS)):
                writer.write_batch(_batch(arrow, schema, batch, columns))
                written += len(batch)
    except (OSError, OverflowError, arrow.ArrowInvalid) as error:
        message = f"cannot write {str(path)!r} ({error}): give a folder that may be written and has room"
        raise UnavailableError(message) from error
    return written


def _schema(arrow: Any, columns: Sequence[Column]) -> Any:
    types = {"float": arrow.float64(), "integer": arrow.int64(), "boolean": arrow.bool_(), "text": arrow.string(), "json": arrow.string()}
    return arrow.schema([(TIME, arrow.timestamp("ns", tz="UTC")), *((column.name, types[column.kind]) for column in columns)])


def _batch(arrow: Any, schema: Any, runs: Sequence[RunRecord], columns: Sequence[Column]) -> Any:
    arrays = [arrow.array([run.started_at_ns for run in runs], schema.field(0).type)]
    arrays += [
        arrow.array([column.value(run) for run in runs], field.type) for column, field in zip(columns, list(schema)[1:], strict=True)
    ]
    return arrow.record_batch(arrays, schema=schema)


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow  # noqa: ICN001, PLC0415 - 55 MB that only this needs
        from pyarrow import parquet  # noqa: PLC0415 - as above
    except ImportError as error:
        message = "Parquet needs pyarrow: pip install 'edgemeter[parquet]'; --csv needs nothing"
        raise UnavailableError(message) from error
    return pyarrow, parquet

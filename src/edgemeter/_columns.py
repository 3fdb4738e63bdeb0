"""`edgemeter.load`: stored runs as columns."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.run_table import RunColumn, chosen_columns
from edgemeter.collector.runs.selection import parse_selection, selections_of

logger = logging.getLogger(__name__)


def load(*sources: str | Path, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return stored runs as columns, oldest run first.

    `pandas.DataFrame` and `polars.DataFrame` accept the result.

    Args:
        sources: ledgers, documents of `edgemeter run --format json`, bundles, or folders of these.
            A source may select runs, as in `ledger.sqlite?device=pi-1&since=2026-01-01`. Default:
            this device's ledger.
        columns: names of columns, as `edgemeter report --columns all` writes them. Default: the
            usual ones.

    Returns:
        An array [runs] for each column: `started_at` as datetime64[ns] in UTC; numbers as float64
        with NaN for absent, or as int64 where all are integers; truths and texts as objects with
        None for absent; lists as JSON texts.

    Raises:
        EdgemeterError: a source is absent, in another format or not reachable, or a column is
            unknown.

    Example:
        import edgemeter

        runs = edgemeter.load(columns=["device", "model", "latency_p50_ms"])
        print(runs["latency_p50_ms"].mean())
    """
    if isinstance(columns, str):
        raise TypeError(f"columns is a list of names, as in columns=[{columns!r}]")
    if wrong := next((source for source in sources if not isinstance(source, str | Path)), None):
        raise TypeError(
            f"{wrong!r} is not a path: give the sources one by one, as in edgemeter.load(A, B)"
        )
    run_columns = chosen_columns(columns)
    selections = [parse_selection(str(source)) for source in sources] or [selections_of("", {})]
    runs = oldest_first(run for selection in selections for run in selection.runs())
    for left_out in (entry for selection in selections for entry in selection.unreadable):
        logger.warning("left out: %s: %s", left_out.name, left_out.reason)
    started = np.array([run.started_at_ns for run in runs], np.int64).astype("datetime64[ns]")
    return {
        "started_at": started,
        **{
            column.name: _values(column, runs)
            for column in run_columns
            if column.name != "started_at_ns"
        },
    }


def _values(column: RunColumn, runs: Sequence[RunRecord]) -> NDArray[Any]:
    values = [column.value(run) for run in runs]
    if column.kind == "integer" and None not in values:
        return np.array(values, np.int64)
    if column.kind in ("integer", "float"):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects

"""The Python API for notebooks: runs, their figures as columns, their raw samples, and comparisons.

    from edgemeter.collector import store

    runs = list(store.runs("ledger.sqlite", model="yolov8n", since="2026-10-01"))
    frame = pandas.DataFrame(store.columns(runs))
    latencies_ms = store.samples(runs[0])["latency"] / 1e6
    rows = store.compare("ledger.sqlite", reference="server-1")

A place is what `edgemeter compare --ledger` takes: a ledger, a document of `edgemeter run --format json`, a bundle, or a folder of
these. Errors are `edgemeter.agent.base.errors.EdgemeterError`; their text names the remedy.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.documents import Plain
from edgemeter.agent.contract import samples as packed
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.compare.columns import flat
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.export.run_table import chosen_columns
from edgemeter.collector.runs import selection
from edgemeter.collector.runs.store import open_store

__all__ = ["columns", "compare", "left_out", "runs", "samples"]


def runs(where: str = "", *, with_samples: bool = False, **selectors: str) -> Iterator[RunRecord]:
    """Yield the runs at `where` (empty: the ledger below $EDGEMETER_HOME), a ledger's one after the other as they came.

    Args:
        where: The place.
        with_samples: Whether the raw samples come along.
        selectors: What has to be equal: device, fleet, role, board, model, sha256, runtime, version, precision, suite, agent, firmware,
            verdict (of the run alone); and `since` and `until`, ISO times in UTC.

    Raises:
        ConfigError: there is no store, or no such selector.
    """
    return selection.selections_of(where, selectors).runs(with_samples=with_samples)


def columns(records: Iterable[RunRecord], names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the figures of runs by name, an array each, for a data frame; `edgemeter report --list` names them, None are the usual ones.

    Floats are float64 with NaN for what is absent; integers int64 and booleans bool, but objects where one is absent; texts are objects.
    `started_at` is datetime64[ns], UTC.

    Raises:
        ConfigError: there is no such column.
    """
    rows = list(records)
    table: dict[str, NDArray[Any]] = {"started_at": np.array([run.started_at_ns for run in rows], "datetime64[ns]")}
    for column in chosen_columns(names):
        table[column.name] = _array(column.kind, [column.value(run) for run in rows])
    return table


def samples(run: RunRecord) -> dict[str, NDArray[Any]]:
    """Return the raw samples of a run by name (`latency` in ns, `power.NAME` in W, `power_at.NAME` in ns, ...); empty where it has none.

    Raises:
        ConfigError: they are damaged.
    """
    return {series.name: packed.unpack(series) for series in run.samples}


def compare(*where: str, reference: str, days: DaysCounted = "current") -> list[dict[str, Plain]]:
    """Return every case with its reference as a flat row, the same as `edgemeter compare --format json`.

    `days` is whether the current level of each case is compared, or `all` its days.

    Raises:
        UnavailableError: there is no run.
        ConfigError: there is no store, or no such device or role.
    """
    return [flat(row) for row in _compared(where, reference, days).rows]


def left_out(*where: str, reference: str, days: DaysCounted = "current") -> list[tuple[str | None, str]]:
    """Return what `compare` leaves out: run (None where it has no name) and reason; raises as `compare` does."""
    return [(entry.run, entry.reason) for entry in _compared(where, reference, days).left_out]


def _compared(where: Sequence[str], reference: str, days: DaysCounted) -> comparing.Comparison:
    store = open_store(*(where or (selection.selections_of("", {}).where,)))
    return comparing.compare(book_of(store), reference, days=days)


def _array(kind: str, values: Sequence[Any]) -> NDArray[Any]:
    if kind == "float":
        return np.array([np.nan if value is None else value for value in values], np.float64)
    if kind in ("integer", "boolean") and None not in values:
        return np.array(values, np.int64 if kind == "integer" else np.bool_)
    return np.array(values, object)

"""The distribution of a case's latencies, computed again from the raw samples of its runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.agent.samples import unpack

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MS_PER_NS = 1e-6


@dataclass(frozen=True, slots=True)
class Distribution:
    """Latencies in ms: the quantiles 5, 25, 50, 75, 95 % over all queries of all runs, the median of each run, and dots to draw.

    `dots` are sorted; where there are more queries than dots, they stand at even ranks, the fastest and the slowest among them.
    """

    count: int
    quantiles: tuple[float, float, float, float, float]
    run_medians: tuple[float, ...]
    dots: tuple[float, ...]


def distribution(runs: Sequence[RunRecord], dots: int) -> Distribution | None:
    """Return the distribution of the inference latencies of `runs`, None where no run kept its samples (or they are damaged)."""
    series = [values for run in runs if (values := _latencies_ms(run)) is not None]
    if not series:
        return None
    every = np.sort(np.concatenate(series))
    low, quarter, half, three_quarters, high = (float(value) for value in np.quantile(every, QUANTILES))
    ranks = np.unique(np.linspace(0, every.size - 1, min(dots, every.size)).round().astype(np.int64))
    return Distribution(
        count=int(every.size),
        quantiles=(low, quarter, half, three_quarters, high),
        run_medians=tuple(float(np.median(values)) for values in series),
        dots=tuple(float(value) for value in every[ranks]),
    )


def _latencies_ms(run: RunRecord) -> NDArray[np.float64] | None:
    found = next((series for series in run.samples if series.name == "latency" and series.unit == "ns"), None)
    if found is None:
        return None
    try:
        values = unpack(found).astype(np.float64) * MS_PER_NS
    except ConfigError:
        return None
    present: NDArray[np.float64] = values[np.isfinite(values) & (values > 0)]
    return present if present.size else None

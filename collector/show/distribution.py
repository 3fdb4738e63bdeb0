"""How the latencies of every query are distributed, from the raw samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.samples import unpack

MS_PER_NS = 1e-6


@dataclass(frozen=True, slots=True)
class LatencyDistribution:
    """Latencies in ms over all queries of all runs: how many they are, and steps (latency, share of queries at most as slow).

    Where there are more queries than steps, these are at even ranks, the fastest and the slowest among them.
    """

    count: int
    steps: tuple[tuple[float, float], ...]


def latency_distribution(runs: Sequence[RunRecord], steps: int) -> LatencyDistribution | None:
    """Return the distribution of the inference latencies of `runs`, None where no run kept its samples (or they are damaged)."""
    series = [values for run in runs if (values := _latencies_ms(run)) is not None]
    if not series:
        return None
    latencies = np.sort(np.concatenate(series))
    ranks = np.unique(np.linspace(0, latencies.size - 1, min(steps, latencies.size)).round().astype(np.int64))
    return LatencyDistribution(int(latencies.size), tuple((float(latencies[rank]), float((rank + 1) / latencies.size)) for rank in ranks))


def _latencies_ms(run: RunRecord) -> NDArray[np.float64] | None:
    latency_series = next((series for series in run.samples if series.name == "latency" and series.unit == "ns"), None)
    if latency_series is None:
        return None
    try:
        values = unpack(latency_series).astype(np.float64) * MS_PER_NS
    except ConfigError:
        return None
    present: NDArray[np.float64] = values[np.isfinite(values) & (values > 0)]
    return present if present.size else None

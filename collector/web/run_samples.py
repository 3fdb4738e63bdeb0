"""The raw samples of a run as values for a chart: finite, by moments, and no more of them than can be seen."""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord, Series
from edgemeter.agent.contract.samples import unpack

NS_S = 1e-9


def values_of(record: RunRecord, name: str) -> Sequence[float] | None:
    """Return the samples of a series that are finite, None where it was not kept or is damaged."""
    matching = next((series for series in record.samples if series.name == name), None)
    return None if matching is None else finite_values(matching)


def finite_values(series: Series) -> list[float] | None:
    """Return the samples of a series that are finite, None where it is damaged."""
    try:
        values = unpack(series)
    except ConfigError:
        return None
    finite: list[float] = values[np.isfinite(values.astype(np.float64))].tolist()
    return finite


def power_trace(record: RunRecord, sensor: str) -> list[tuple[float, float]]:
    """Return the readings of a power sensor: s since the first timed query, and W; none where the moments are not known."""
    power, at = values_of(record, f"power.{sensor}"), values_of(record, f"power_at.{sensor}")
    return [(at_ns * NS_S, power_w) for at_ns, power_w in zip(at, power, strict=True)] if power and at and len(power) == len(at) else []


def thinned(values: Sequence[float], limit: int) -> list[tuple[int, float]]:
    """Return at most about `limit` values with their places, of each stretch the smallest and the largest: no outlier is lost."""
    if len(values) <= limit:
        return list(enumerate(values))
    step = -(-2 * len(values) // limit)
    indices: set[int] = set()
    for start in range(0, len(values), step):
        places = range(start, min(start + step, len(values)))
        indices |= {min(places, key=values.__getitem__), max(places, key=values.__getitem__)}
    return [(index, values[index]) for index in sorted(indices)]

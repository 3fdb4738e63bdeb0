"""The power trace in a record: every reading of every sensor around a run, so that its energy can be computed again.

For a sensor `rapl` there are two series of equal length: `power.rapl` (unit W; `energy.rapl`, unit mJ, for a counter) and
`power_at.rapl` (unit ns), when each reading was taken, counted from the first timed query and negative before it.
"""

from collections.abc import Iterable

import numpy as np

from edgemeter.agent import samples
from edgemeter.agent.energy.sampler import Trace
from edgemeter.agent.records import Series


def pack(traces: Iterable[Trace], timed_start_ns: int) -> tuple[Series, ...]:
    """Return the series of all sensors that gave readings."""
    return tuple(series for trace in traces if trace.readings for series in _pair(trace, timed_start_ns))


def _pair(trace: Trace, timed_start_ns: int) -> tuple[Series, Series]:
    taken = np.array([reading.taken_ns - timed_start_ns for reading in trace.readings], np.int64)
    is_counter = trace.readings[0].power_w is None
    values = [reading.energy_mj if is_counter else reading.power_w for reading in trace.readings]
    name, unit = (f"energy.{trace.name}", "mJ") if is_counter else (f"power.{trace.name}", "W")
    return samples.pack(name, unit, np.array(values, np.float64)), samples.pack(f"power_at.{trace.name}", "ns", taken)

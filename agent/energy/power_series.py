"""The power trace in a record: every reading of every sensor around a run, so that its energy can be computed again.

For a sensor `rapl` there are two series of equal length: `power.rapl` (unit W; `energy.rapl`, unit mJ, for a counter) and
`power_at.rapl` (unit ns), when each reading was taken, counted from the first timed query and negative before it.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from edgemeter.agent import samples
from edgemeter.agent.energy.sampler import Trace
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.power import Description, Reading
from edgemeter.agent.records import PowerTrace, Series


def pack(traces: Iterable[Trace], timed_start_ns: int) -> tuple[Series, ...]:
    """Return the series of all sensors that gave readings."""
    return tuple(series for trace in traces if trace.readings for series in _pair(trace, timed_start_ns))


def described(trace: Trace) -> PowerTrace:
    """Return what a sensor said of itself, as it stands in a record."""
    found = trace.description
    if found is None:
        return PowerTrace(name=trace.name, failures=trace.failures, ended=trace.ended)
    return PowerTrace(
        name=trace.name,
        failures=trace.failures,
        ended=trace.ended,
        sensor=found.id,
        scope=found.scope,
        excludes=found.excludes,
        kind=found.kind,
        period_ms=found.period_ms,
        resolution_w=found.resolution_w,
        resolution_mj=found.resolution_mj,
        gain_u_ratio=found.gain_u_ratio,
        warnings=found.warnings,
        blocked=found.blocked,
        offset_u_w=found.offset_u_w,
        valid_w=found.valid_w,
        is_modelled=found.is_modelled,
    )


def unpack(said: PowerTrace, series: Mapping[str, Series], timed_start_ns: int) -> Trace:
    """Return the trace that `described` and `pack` took apart; `series` are those of the record by name.

    Raises:
        ConfigError: the readings are damaged, or not as many as their times.
    """
    is_counter = said.kind == "energy"
    values_of, times_of = series.get(f"{'energy' if is_counter else 'power'}.{said.name}"), series.get(f"power_at.{said.name}")
    readings: tuple[Reading, ...] = ()
    if values_of is not None and times_of is not None:
        values, times = samples.unpack(values_of).tolist(), samples.unpack(times_of).tolist()
        if len(values) != len(times):
            message = f"sensor {said.name!r} has {len(values)} readings and {len(times)} times: the record is damaged"
            raise ConfigError(message)
        field = "energy_mj" if is_counter else "power_w"
        readings = tuple(Reading(taken_ns=at + timed_start_ns, **{field: value}) for at, value in zip(times, values, strict=True))
    return Trace(said.name, _description(said), readings, said.failures, said.ended)


def _description(said: PowerTrace) -> Description | None:
    if said.sensor is None or said.scope is None or said.kind is None or said.period_ms is None:
        return None
    return Description(
        id=said.sensor,
        scope=said.scope,
        excludes=said.excludes,
        kind=said.kind,
        period_ms=said.period_ms,
        resolution_w=said.resolution_w,
        gain_u_ratio=said.gain_u_ratio,
        resolution_mj=said.resolution_mj,
        warnings=said.warnings,
        blocked=said.blocked,
        offset_u_w=said.offset_u_w,
        valid_w=said.valid_w,
        is_modelled=said.is_modelled,
    )


def _pair(trace: Trace, timed_start_ns: int) -> tuple[Series, Series]:
    taken = np.array([reading.taken_ns - timed_start_ns for reading in trace.readings], np.int64)
    is_counter = trace.readings[0].energy_mj is not None
    values = [reading.energy_mj if is_counter else reading.power_w for reading in trace.readings]
    name, unit = (f"energy.{trace.name}", "mJ") if is_counter else (f"power.{trace.name}", "W")
    return samples.pack(name, unit, np.array(values, np.float64)), samples.pack(f"power_at.{trace.name}", "ns", taken)

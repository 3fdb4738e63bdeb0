"""Sampling reads each power sensor during a run, in a thread of its own, at random moments.

The module also makes the series in the record. For a sensor `rapl` the record holds two series of
equal length: `power.rapl` (unit W; `energy.rapl`, unit mJ, for a counter) and `power_at.rapl` (unit
ns), the moment of each reading from the first timed query, negative before it.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_figures import PowerTrace
from edgemeter.agent.power import Description, PowerSensor, Reading

logger = logging.getLogger(__name__)

# For a read that does not return: others take a period at most, and network calls have their own
# timeouts.
STOP_TIMEOUT_S = 10.0
# The largest difference of a span from the period, as a share of the period.
SPAN_SPREAD = 0.25
Wait = Callable[[threading.Event, float], bool]


@dataclass(frozen=True, slots=True)
class SensorTrace:
    """The readings of one sensor in order of time.

    `ended` is why they ended early, `failure` why the last failed read failed.
    """

    name: str
    description: Description | None
    readings: tuple[Reading, ...]
    failures: int = 0
    ended: str | None = None
    failure: str | None = None


class ReadSchedule:
    """The moments of readings, a random one in each of consecutive spans.

    The spans are a period long on average.

    The spans differ in length, because spans of the same length have two faults. A load of nearly
    that period could alias. And a sensor whose own clock has that period could renew its value
    between every two readings, so that no repeated value shows the clock.
    """

    def __init__(self, start_ns: int, period_ns: int, draw: random.Random) -> None:
        self._period_ns = max(1, period_ns)
        self._draw = draw
        self._end_ns = start_ns

    def after(self, now_ns: int) -> int:
        """Return the next moment; missed spans are skipped."""
        begin_ns = (
            self._end_ns + max(0, (now_ns - self._end_ns) // self._period_ns) * self._period_ns
        )
        self._end_ns = begin_ns + max(
            1, int(self._draw.uniform(1 - SPAN_SPREAD, 1 + SPAN_SPREAD) * self._period_ns)
        )
        return max(begin_ns + int(self._draw.random() * (self._end_ns - begin_ns)), now_ns)


class Sampler:
    """Reads every sensor of a mapping (name: sensor) from `start` to `stop`.

    It does not close them. `wait` waits up to some seconds for the event that ends the reading, and
    returns whether it is set.
    """

    def __init__(
        self,
        sensors: Mapping[str, PowerSensor],
        seed: int | None = None,
        wait: Wait = threading.Event.wait,
    ) -> None:
        self._threads = [
            _SensorThread(name, sensor, seed, wait) for name, sensor in sensors.items()
        ]
        self._begun = False

    def start(self) -> None:
        if not self._begun:
            self._begun = True
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """Stop reading; may be called again, or without a start."""
        for thread in self._threads:
            thread.ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(STOP_TIMEOUT_S)

    def traces(self) -> dict[str, SensorTrace]:
        return {thread.sensor_name: thread.trace() for thread in self._threads}


class _SensorThread(threading.Thread):
    def __init__(self, name: str, sensor: PowerSensor, seed: int | None, wait: Wait) -> None:
        super().__init__(name=f"power {name}", daemon=True)
        self._wait = wait
        self.sensor_name = name
        self.ended = threading.Event()
        self._sensor = sensor
        self._draw = random.Random(seed)  # noqa: S311 - spreads moments, guards nothing
        self._description: Description | None = None
        self._readings: list[Reading] = []
        self._failures = 0
        self._failure: str | None = None
        self._why: str | None = None

    def run(self) -> None:
        """Read until `ended` is set or the sensor gives up."""
        try:
            self._description = self._sensor.describe()
            schedule = ReadSchedule(
                time.monotonic_ns(), int(self._description.period_ms * 1e6), self._draw
            )
            while not self._wait(
                self.ended, (schedule.after(now_ns := time.monotonic_ns()) - now_ns) / 1e9
            ):
                self._read()
        except Exception as error:
            # A fault of a plug-in must not look like a silent sensor.
            is_own = isinstance(error, EdgemeterError)
            self._why = (
                str(error) if is_own else f"its driver failed with {type(error).__name__}: {error}"
            )
            logger.info("power sensor %s stopped: %s", self.sensor_name, error, exc_info=not is_own)

    def trace(self) -> SensorTrace:
        why = None if self.is_alive() else self._why
        return SensorTrace(
            self.sensor_name,
            self._description,
            tuple(self._readings),
            self._failures,
            why,
            self._failure,
        )

    def _read(self) -> None:
        try:
            reading = self._sensor.read()
        except TransientError as error:
            self._failures += 1
            self._failure = str(error)
            logger.debug("power sensor %s: %s", self.sensor_name, error)
            return
        value = reading.power_w if reading.energy_mj is None else reading.energy_mj
        if value is None or not math.isfinite(value):
            self._failures += 1
            return
        self._readings.append(reading)


def pack_traces(traces: Sequence[SensorTrace], timed_start_ns: int) -> tuple[Series, ...]:
    if not traces:
        return ()
    import numpy as np  # noqa: PLC0415 - not at the top: the doctor looks for sensors without numpy

    from edgemeter.agent.contract import samples  # noqa: PLC0415 - as above

    series: list[Series] = []
    for trace in traces:
        if trace.readings:
            is_counter = trace.readings[0].energy_mj is not None
            values = [
                reading.energy_mj if is_counter else reading.power_w for reading in trace.readings
            ]
            taken_ns = [reading.taken_ns - timed_start_ns for reading in trace.readings]
            name, unit = ("energy", "mJ") if is_counter else ("power", "W")
            series.append(samples.pack(f"{name}.{trace.name}", unit, np.array(values, np.float64)))
            series.append(
                samples.pack(f"power_at.{trace.name}", "ns", np.array(taken_ns, np.int64))
            )
    return tuple(series)


def describe_trace(trace: SensorTrace) -> PowerTrace | None:
    """Return the sensor as part of a record; None without readings."""
    if (described := trace.description) is None or not trace.readings:
        return None
    return PowerTrace(
        name=trace.name,
        sensor=described.id,
        scope=described.scope,
        period_ms=described.period_ms,
        resolution_w=described.resolution_w,
        resolution_mj=described.resolution_mj,
    )


def unpack_trace(
    recorded: PowerTrace, series: Mapping[str, Series], timed_start_ns: int
) -> SensorTrace:
    """Return the trace that `describe_trace` and `pack_traces` recorded.

    `series` are those of the record by name.

    Raises:
        ConfigError: the readings are damaged, or not as many as their times.
    """
    # The doctor looks for sensors without numpy.
    from edgemeter.agent.contract import samples  # noqa: PLC0415

    is_counter = f"energy.{recorded.name}" in series
    values_of, times_of = (
        series.get(f"{'energy' if is_counter else 'power'}.{recorded.name}"),
        series.get(f"power_at.{recorded.name}"),
    )
    readings: tuple[Reading, ...] = ()
    if values_of is not None and times_of is not None:
        values, times = samples.unpack(values_of).tolist(), samples.unpack(times_of).tolist()
        if len(values) != len(times):
            raise ConfigError(
                f"sensor {recorded.name!r} has {len(values)} readings and {len(times)} times: "
                "the record is damaged"
            )
        field = "energy_mj" if is_counter else "power_w"
        readings = tuple(
            Reading(taken_ns=at + timed_start_ns, **{field: value})
            for at, value in zip(times, values, strict=True)
        )
    description = Description(
        id=recorded.sensor,
        scope=recorded.scope,
        excludes=(),
        kind="energy" if is_counter else "power",
        period_ms=recorded.period_ms,
        resolution_w=recorded.resolution_w,
        resolution_mj=recorded.resolution_mj,
    )
    return SensorTrace(recorded.name, description, readings)

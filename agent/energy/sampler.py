"""Reads power sensors while a run goes on, each from a thread of its own, at moments that keep no step with the load."""

import logging
import math
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from edgemeter.agent.errors import EdgemeterError, TransientError
from edgemeter.agent.power import Description, PowerSensor, Reading

logger = logging.getLogger(__name__)

# A sensor's read may block for a period, and its network calls end by themselves: this is for one that does neither.
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Trace:
    """What one sensor said: its readings in the order of time; `ended` is why it gave no more, None when we stopped it."""

    name: str
    description: Description | None
    readings: tuple[Reading, ...]
    failures: int = 0
    ended: str | None = None


class Schedule:
    """When to read: once in each period, at a random moment of it, so that a load of nearly that period cannot alias."""

    def __init__(self, start_ns: int, period_ns: int, draw: random.Random) -> None:
        self._start_ns = start_ns
        self._period_ns = max(1, period_ns)
        self._draw = draw
        self._place = -1

    def after(self, now_ns: int) -> int:
        """Return the next moment; a period that has passed is left out, never made up for by a burst."""
        self._place = max(self._place + 1, (now_ns - self._start_ns) // self._period_ns)
        moment = self._start_ns + int((self._place + self._draw.random()) * self._period_ns)
        return max(moment, now_ns)


class Sampler:
    """Reads every sensor of a mapping (name: sensor) from `start` to `stop`; the sensors stay open, their owner closes them."""

    def __init__(self, sensors: Mapping[str, PowerSensor], seed: int | None = None) -> None:
        self._threads = [_SensorThread(name, sensor, seed) for name, sensor in sensors.items()]
        self._begun = False

    def start(self) -> None:
        """Begin to read; a sampler that has begun goes on."""
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

    def traces(self) -> dict[str, Trace]:
        """Return what each sensor said so far."""
        return {thread.sensor_name: thread.trace() for thread in self._threads}


class _SensorThread(threading.Thread):
    def __init__(self, name: str, sensor: PowerSensor, seed: int | None) -> None:
        super().__init__(name=f"power {name}", daemon=True)
        self.sensor_name = name
        self.ended = threading.Event()
        self._sensor = sensor
        self._draw = random.Random(seed)  # noqa: S311 - spreads moments, guards nothing
        self._description: Description | None = None
        self._readings: list[Reading] = []
        self._failures = 0
        self._why: str | None = None

    def run(self) -> None:
        """Read until `ended` is set or the sensor gives up."""
        # Stands until the thread comes to its end in order: a plug-in's bug must not look like a silent sensor.
        self._why = "its reader broke off: see the log"
        try:
            self._description = self._sensor.describe()
            schedule = Schedule(time.monotonic_ns(), int(self._description.period_ms * 1e6), self._draw)
            while not self.ended.wait(self._until(schedule)):
                self._read()
            self._why = None
        except EdgemeterError as error:
            self._why = str(error)
            logger.info("power sensor %s gives no more readings: %s", self.sensor_name, error)

    def trace(self) -> Trace:
        """Return what was read so far."""
        why = None if self.is_alive() else self._why
        return Trace(self.sensor_name, self._description, tuple(self._readings), self._failures, why)

    def _until(self, schedule: Schedule) -> float:
        now = time.monotonic_ns()
        return (schedule.after(now) - now) / 1e9

    def _read(self) -> None:
        try:
            reading = self._sensor.read()
        except TransientError as error:
            self._failures += 1
            logger.debug("power sensor %s: %s", self.sensor_name, error)
            return
        value = reading.power_w if reading.energy_mj is None else reading.energy_mj
        if value is None or not math.isfinite(value):
            self._failures += 1
            return
        self._readings.append(reading)

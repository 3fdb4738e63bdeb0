"""What a sensor shows now: watts, of a counter too."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.power import Description, PowerSensor, Reading

# How long a counter is watched to tell its power: fifty times the slowest update of one that is worth reading (100 ms) would be better,
# and too long to wait for in a listing.
COUNTER_S = 1.0
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Shown:
    """What a sensor is and shows; `power_w` is None where a counter has not moved, `error` says why there is no reading."""

    name: str
    description: Description | None
    reading: Reading | None
    power_w: float | None
    error: str | None = None


def look(name: str, sensor: PowerSensor, sleep: Callable[[float], None] = time.sleep) -> Shown:
    """Return what the sensor shows; a counter is read twice, a second apart."""
    description = None
    try:
        description = sensor.describe()
        first = sensor.read()
        if first.power_w is not None:
            return Shown(name, description, first, first.power_w)
        sleep(COUNTER_S)
        second = sensor.read()
    except EdgemeterError as error:
        return Shown(name, description, None, None, str(error))
    moved_mj = (second.energy_mj or 0.0) - (first.energy_mj or 0.0)
    passed_ms = (second.taken_ns - first.taken_ns) / NS_PER_MS
    return Shown(name, description, second, moved_mj / passed_ms if moved_mj > 0 and passed_ms > 0 else None)

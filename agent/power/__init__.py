"""Power sensors: what measures watts. The protocol, and the table of names.

A sensor is one file here, one line in `SENSORS`, one recorded fixture under `tests/fixtures/power/` and one row in the README.
Others register theirs through the entry point group `edgemeter.power`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Literal, Protocol

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Scope

SENSORS: Mapping[str, str] = {
    "rapl": "edgemeter.agent.power.rapl:Rapl",
    "replay": "edgemeter.agent.power.replay:Replay",
}


@dataclass(frozen=True, slots=True)
class Description:
    """What a sensor is: which part of the machine it sees, how often and how finely.

    `gain_u_ratio` is the relative standard uncertainty of its gain (k = 1); None means nobody knows it, which is not zero.
    `resolution_w` is the step of a power reading, `resolution_mj` that of an energy counter.
    """

    id: str
    scope: Scope
    excludes: tuple[str, ...]
    kind: Literal["power", "energy"]
    period_ms: float
    resolution_w: float | None
    gain_u_ratio: float | None
    resolution_mj: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading: `power_w` for a power sensor, `energy_mj` since some start for a counter; stamped at mid-read, monotonic."""

    taken_ns: int
    power_w: float | None = None
    energy_mj: float | None = None


class PowerSensor(Protocol):
    """Reads one sensor; constructed with its configuration as keywords; read from a thread of its own, may block for a period."""

    def describe(self) -> Description:
        """Return what the sensor is.

        Raises:
            UnavailableError: it is not on this machine, or may not be read; says what to do.
            ConfigError: a setting is wrong.
        """
        ...

    def read(self) -> Reading:
        """Return the newest reading.

        Raises:
            TransientError: this reading failed, the next may not.
            UnavailableError: the sensor is gone.
        """
        ...

    def close(self) -> None:
        """Give everything back; may be called twice."""
        ...


def names() -> list[str]:
    """Return the names of all known sensors, ours first."""
    return [*SENSORS, *(e.name for e in entry_points(group="edgemeter.power") if e.name not in SENSORS)]


def create(name: str, **configuration: str) -> PowerSensor:
    """Return the sensor of that name; nothing is read yet.

    Raises:
        ConfigError: no sensor has that name, or it does not know a setting.
    """
    try:
        if name in SENSORS:
            module, _, attribute = SENSORS[name].partition(":")
            sensor: PowerSensor = getattr(import_module(module), attribute)(**configuration)
            return sensor
        for entry in entry_points(group="edgemeter.power"):
            if entry.name == name:
                other: PowerSensor = entry.load()(**configuration)
                return other
    except TypeError as error:
        message = f"power sensor {name!r}: {error}"
        raise ConfigError(message) from error
    message = f"no power sensor is called {name!r}: choose one of {', '.join(names())}"
    raise ConfigError(message)

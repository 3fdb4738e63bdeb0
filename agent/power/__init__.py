"""Power sensors: what measures watts. The protocol, and the table of names.

A sensor is one file here, one line in `SENSORS`, one recorded fixture under `tests/fixtures/power/` and one row in the README.
Others register theirs through the entry point group `edgemeter.power`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.records import Scope

SENSORS: Mapping[str, str] = {
    "ina3221": "edgemeter.agent.power.ina3221:Ina3221",
    "ina3221x": "edgemeter.agent.power.ina3221x:Ina3221x",
    "jetson_thor": "edgemeter.agent.power.jetson_thor:JetsonThor",
    "ina2xx": "edgemeter.agent.power.ina2xx:Ina2xx",
    "powerz": "edgemeter.agent.power.powerz:PowerZ",
    "power_hwmon": "edgemeter.agent.power.power_hwmon:PowerHwmon",
    "ina_i2c": "edgemeter.agent.power.ina_i2c:InaI2c",
    "battery": "edgemeter.agent.power.battery:Battery",
    "pi5_pmic": "edgemeter.agent.power.pi5_pmic:Pi5Pmic",
    "tegrastats": "edgemeter.agent.power.tegrastats:Tegrastats",
    "jtop": "edgemeter.agent.power.jtop_service:Jtop",
    "rapl": "edgemeter.agent.power.rapl:Rapl",
    "shelly": "edgemeter.agent.power.shelly:Shelly",
    "tasmota": "edgemeter.agent.power.tasmota:Tasmota",
    "joulescope": "edgemeter.agent.power.joulescope:Joulescope",
    "fnirsi": "edgemeter.agent.power.fnirsi:Fnirsi",
    "um25c": "edgemeter.agent.power.um25c:Um25c",
    "nvml": "edgemeter.agent.power.nvml:Nvml",
    "replay": "edgemeter.agent.power.replay:Replay",
}


# What stands in `excludes` where a sensor does not see what hangs on the board's USB ports, a USB accelerator for one.
USB_DEVICES = "USB devices"


class AbsentError(UnavailableError):
    """There is no such sensor on this machine, which is no fault; any other UnavailableError is a sensor that is here and not readable."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a sensor is: which part of the machine it sees, how often and how finely.

    `gain_u_ratio` is the relative standard uncertainty of its gain (k = 1); None means nobody knows it, which is not zero.
    `resolution_w` is the step of a power reading, `resolution_mj` that of an energy counter.
    `offset_u_w` is the standard uncertainty of its zero, where a calibration knows it, and `valid_w` the power between which it holds.
    `is_modelled` marks a figure that a model made out of a narrower scope: an estimate, whatever it was fitted to.
    `warnings` say what makes one doubt its figures; `blocked` says why no energy may be given from it as it is set up, and what to do.
    """

    id: str
    scope: Scope
    excludes: tuple[str, ...]
    kind: Literal["power", "energy"]
    period_ms: float
    resolution_w: float | None
    gain_u_ratio: float | None
    resolution_mj: float | None = None
    warnings: tuple[str, ...] = ()
    blocked: str | None = None
    offset_u_w: float | None = None
    valid_w: tuple[float, float] | None = None
    is_modelled: bool = False


@dataclass(frozen=True, slots=True)
class Rail:
    """One rail or channel of a sensor; negative power is kept; None where it was not read."""

    name: str
    power_w: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading: `power_w` of a power sensor, `energy_mj` since some start of a counter; stamped at mid-read, monotonic.

    A counter that also shows its power now may give it in `power_w`: for people, not for the energy. `rails` are what it was made of,
    where the sensor sees parts; they need not add up to the whole.
    """

    taken_ns: int
    power_w: float | None = None
    energy_mj: float | None = None
    rails: tuple[Rail, ...] = ()


class PowerSensor(Protocol):
    """Reads one sensor; read from a thread of its own, may block for a period.

    Constructed, without reading anything, with its configuration as keywords (strings), and with `world` (`edgemeter.agent.power.world`)
    where another than this machine is to be read.
    """

    def describe(self) -> Description:
        """Return what the sensor is.

        Raises:
            AbsentError: it is not on this machine.
            UnavailableError: it is here and cannot be read; says what to do.
            ConfigError: a setting is wrong or missing.
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

    @staticmethod
    def recognises(content: bytes) -> bool:
        """Say whether a recorded file is, by its form, one of this sensor's, be it an error that its source prints.

        False for a sensor that reads a tree of files: a tree is tried by `describe`.
        """
        ...


def names() -> list[str]:
    """Return the names of all known sensors, ours first."""
    return [*SENSORS, *(e.name for e in entry_points(group="edgemeter.power") if e.name not in SENSORS)]


def sensor_class(name: str) -> type[PowerSensor]:
    """Return what constructs the sensor of that name.

    Raises:
        ConfigError: no sensor has that name.
    """
    if name in SENSORS:
        module, _, attribute = SENSORS[name].partition(":")
        found: type[PowerSensor] = getattr(import_module(module), attribute)
        return found
    for entry in entry_points(group="edgemeter.power"):
        if entry.name == name:
            other: type[PowerSensor] = entry.load()
            return other
    message = f"no power sensor is called {name!r}: choose one of {', '.join(names())}"
    raise ConfigError(message)


def create(name: str, **configuration: Any) -> PowerSensor:
    """Return the sensor of that name; nothing is read yet. A setting `type` names the sensor where `name` is the user's own.

    Raises:
        ConfigError: no sensor has that name, or it does not know a setting.
    """
    kind = configuration.pop("type", name)
    constructor = sensor_class(kind)
    try:
        return constructor(**configuration)
    except TypeError as error:
        message = f"power sensor {name!r}: {error}: correct [sensors.{name}] in the configuration"
        raise ConfigError(message) from error

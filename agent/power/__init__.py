"""Power sensors: what measures watts. The protocol, and the table of names.

A sensor is one file here, one line in `SENSORS` and one recorded fixture under
`tests/fixtures/power/`. Others register theirs through the entry point group `edgemeter.power`, or
are named as `FILE.py:NAME`.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from edgemeter.agent.base import untried
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.power.values import positive_setting
from edgemeter.agent.sandbox.user_code import plugin_class

SENSORS: Mapping[str, str] = {
    "ina3221": "edgemeter.agent.power.ina3221:Ina3221",
    "ina3221x": "edgemeter.agent.power.ina3221x:Ina3221x",
    "jetson_thor": "edgemeter.agent.power.jetson_thor:JetsonThor",
    "hwmon": "edgemeter.agent.power.hwmon:Hwmon",
    "pi5_pmic": "edgemeter.agent.power.pi5_pmic:Pi5Pmic",
    "jtop": "edgemeter.agent.power.jtop_service:Jtop",
    "rapl": "edgemeter.agent.power.rapl:Rapl",
    "shelly": "edgemeter.agent.power.shelly:Shelly",
    "tasmota": "edgemeter.agent.power.tasmota:Tasmota",
    "joulescope": "edgemeter.agent.power.joulescope:Joulescope",
    "fnirsi": "edgemeter.agent.power.fnirsi:Fnirsi",
    "um25c": "edgemeter.agent.power.um25c:Um25c",
    "nvml": "edgemeter.agent.power.nvml:Nvml",
    "replay": "edgemeter.agent.power.replay:ReplaySensor",
}
ENTRY_POINTS = "edgemeter.power"
# The folder that stands for / where a sensor reads files; another one in tests.
ROOT = Path("/")
# Settings of any sensor: its gain as a factor, the relative standard uncertainty (k = 1) of the
# gain, its drift with temperature, and the largest delay of the sensor.
USER_SETTINGS = ("gain", "gain_u_ratio", "gain_drift_ratio", "delay_ms")
# The annotations of settings; a sensor of another package may have none, or strings.
_TEXTS = (str, str | None, "str", "str | None", inspect.Parameter.empty)
# Entries of `excludes` for sensors that do not see devices on the board's USB ports, or in its PCIe
# and M.2 slots.
USB_DEVICES = "USB devices"
PCIE_DEVICES = "PCIe devices"


class AbsentError(UnavailableError):
    """A missing sensor, which is not a fault: this machine has none of the kind.

    Any other UnavailableError means that there is a sensor but it cannot be read.
    """


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a sensor: which part of the machine it sees, how often and how finely.

    `gain_u_ratio` is the relative standard uncertainty of its gain (k = 1); None means unknown, not
    zero. `gain_drift_ratio` is how far the gain may drift with temperature, in either direction,
    relative to it. `delay_ms` is how late its readings may be at most. `resolution_w` is the step
    of a power reading, `resolution_mj` that of an energy counter. `offset_u_w` is the standard
    uncertainty of its zero, where the driver knows it. `warnings` are reasons to doubt its figures;
    `blocked` is why its present set-up gives no energy, with the remedy.
    """

    id: str
    scope: Scope
    excludes: tuple[str, ...]
    kind: Literal["power", "energy"]
    period_ms: float
    resolution_w: float | None = None
    gain_u_ratio: float | None = None
    resolution_mj: float | None = None
    warnings: tuple[str, ...] = ()
    blocked: str | None = None
    offset_u_w: float | None = None
    gain_drift_ratio: float = 0.0
    delay_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Rail:
    """One rail or channel of a sensor; power may be negative, None: not read."""

    name: str
    power_w: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a sensor, with the monotonic time at the middle of the read.

    It holds `power_w` of a power sensor, or `energy_mj` since some start of a counter. A counter
    may also give its present power in `power_w`: for display, not for the energy. `rails` are the
    parts that the sensor sees; they need not add up to the whole.
    """

    taken_ns: int
    power_w: float | None = None
    energy_mj: float | None = None
    rails: tuple[Rail, ...] = ()


class PowerSensor(Protocol):
    """Reads one sensor, in a thread of its own; a read may block for a period.

    A child process must not inherit open files.

    Constructed, without reading anything, with its configuration as keywords (strings), and with
    `root` where it has that parameter.
    """

    def describe(self) -> Description:
        """Return the description of the sensor.

        Raises:
            AbsentError: it is not on this machine.
            UnavailableError: it is here and cannot be read; the message holds the remedy.
            ConfigError: a setting is wrong or missing.
        """

    def read(self) -> Reading:
        """Return the newest reading.

        Raises:
            TransientError: this reading failed, the next may not.
            UnavailableError: the sensor is gone.
        """

    def close(self) -> None:
        """Release everything; may be called twice."""
        return


def names() -> list[str]:
    """Return the names of all known sensors, ours first."""
    return plugin_names(SENSORS, ENTRY_POINTS)


def sensor_class(name: str) -> type[PowerSensor]:
    """Return the class of the sensor of that name.

    Raises:
        ConfigError: no sensor has that name, or `FILE.py:NAME` is none.
        UnavailableError: it is another package's or in a file, and cannot be imported.
    """
    sensor: type[PowerSensor] = plugin_class("power sensor", name, PowerSensor) or find_plugin(
        "power sensor", SENSORS, name, ENTRY_POINTS
    )
    return sensor


def create(name: str, **settings: Any) -> PowerSensor:
    """Return the sensor of that name, which has read nothing yet.

    If `name` is the user's own, the setting `type` names the sensor. A `root` that is a Path is the
    folder that stands for /, for sensors that read files.

    Raises:
        ConfigError: no sensor has that name, or it does not know a setting.
    """
    root = settings.pop("root") if isinstance(settings.get("root"), Path) else ROOT
    check_settings(name, settings)
    settings = {key: str(value) for key, value in settings.items()}
    kind = settings.pop("type", name)
    user_values = {
        key: _user_value(name, key, settings.pop(key)) for key in USER_SETTINGS if key in settings
    }
    constructor = sensor_class(kind)
    sensor = constructor(
        **settings,
        **({"root": root} if "root" in inspect.signature(constructor).parameters else {}),
    )
    warnings = (untried.SENSOR,) if untried.is_untried(kind) else ()
    return (
        ConfiguredSensor(sensor, **user_values, warnings=warnings)
        if user_values or warnings
        else sensor
    )


def _user_value(name: str, key: str, text: str) -> float:
    """Return the value of one of USER_SETTINGS; only a gain may be negative."""
    is_turned = key == "gain" and text.startswith("-")
    return (
        -positive_setting(name, key, text[1:]) if is_turned else positive_setting(name, key, text)
    )


class ConfiguredSensor(PowerSensor):
    """Reads a sensor and applies the user's settings.

    Power and energy are multiplied by `gain`, but not the rails. `warnings` are added to the
    sensor's; `overrides` are fields of its description.
    """

    def __init__(
        self,
        sensor: PowerSensor,
        gain: float = 1.0,
        warnings: tuple[str, ...] = (),
        **overrides: Any,
    ) -> None:
        self._sensor, self._gain, self._warnings, self._overrides = (
            sensor,
            gain,
            warnings,
            overrides,
        )

    def describe(self) -> Description:
        """Return the driver's description with the user's settings; the id names the gain."""
        description = self._sensor.describe()
        steps = {
            name: abs(self._gain) * step
            for name in ("resolution_w", "resolution_mj", "offset_u_w")
            if (step := getattr(description, name)) is not None
        }
        return replace(
            description,
            id=description.id if self._gain == 1 else f"{description.id}*{self._gain:g}",
            warnings=(*description.warnings, *self._warnings),
            **steps,
            **self._overrides,
        )

    def read(self) -> Reading:
        reading = self._sensor.read()
        return replace(
            reading,
            power_w=self._multiplied(reading.power_w),
            energy_mj=self._multiplied(reading.energy_mj),
        )

    def _multiplied(self, value: float | None) -> float | None:
        return None if value is None else self._gain * value

    def close(self) -> None:
        """Close the sensor."""
        self._sensor.close()


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Check the table [sensors.NAME] of a configuration, whatever the machine has.

    Raises:
        ConfigError: no sensor has that name, or it does not know a setting, or one is neither text
            nor number.
    """
    kind = settings.get("type", name)
    wrong = next((key for key, value in settings.items() if not is_setting(value)), None)
    keys = None if wrong == "type" else settings_of(kind)
    unknown = None if keys is None else next((key for key in settings if key not in keys), None)
    exist = "" if keys is None else f"; the keys of {kind} are {', '.join(keys)}"
    if unknown is not None:
        raise ConfigError(
            f"power sensor {name!r} has no setting {unknown!r}: correct [sensors.{name}] in the "
            f"configuration{exist}"
        )
    if wrong is not None:
        raise ConfigError(
            f"power sensor {name!r}: {wrong} = {settings[wrong]!r} in [sensors.{name}] is "
            f"neither text nor number{exist}"
        )


def is_setting(value: object) -> bool:
    """Return whether a value in [sensors.NAME] has a valid type: text or number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def settings_of(kind: str) -> list[str]:
    """Return the keys of a sensor's table.

    They are `type`, the texts that its constructor accepts, and the keys of any sensor.

    Raises:
        ConfigError: there is no such sensor.
    """
    parameters = inspect.signature(sensor_class(kind)).parameters.values()
    return [
        "type",
        *(parameter.name for parameter in parameters if parameter.annotation in _TEXTS),
        *USER_SETTINGS,
    ]


def example(name: str) -> str:
    """Return the example of a sensor's table, as TOML; empty for a sensor without settings.

    It is `[sensors.NAME]` and the lines below it.
    """
    data_sheet = getattr(inspect.getmodule(sensor_class(name)), "__doc__", None) or ""
    table = re.search(
        rf"^ +\[sensors\.{re.escape(name)}\]\n(?: +\S.*\n?)*", data_sheet, re.MULTILINE
    )
    return "" if table is None else inspect.cleandoc(table[0]) + "\n"


def defaults(name: str) -> Mapping[str, str]:
    """Return the keys of its table with their defaults; an empty text means no default."""
    parameters = inspect.signature(sensor_class(name)).parameters
    return {
        key: ""
        if parameters[key].default in (None, inspect.Parameter.empty)
        else str(parameters[key].default)
        for key in settings_of(name)
        if key in parameters
    }

"""The power sensors of this machine, the one that a run uses, and what a sensor reads now.

If you choose none, a run uses the sensor with the widest scope.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent import power
from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Scope
from edgemeter.agent.power import AbsentError, Description, PowerSensor, Reading

# It plays a recording, so it is used only if it is asked for.
NEVER_FOUND = frozenset({"replay"})
NO_SENSOR = "no power sensor on this machine"
# Sensors that two processes would disturb, each with the setting without which it opens nothing.
EXCLUSIVE = {"um25c": "port", "joulescope": None, "fnirsi": None}
# How long a counter is watched to measure its power; more would be better, but too long for a
# listing.
COUNTER_S = 1.0


@dataclass(frozen=True, slots=True)
class DetectedSensor:
    """One supported sensor: its description if it is present, else the reason why not.

    `is_absent` is false where the sensor is present but unreadable. `is_chosen_unasked` is false of
    one that a run uses only when it was named; `is_configured` of one that has no settings of the
    user's; `is_misconfigured` marks one whose settings are wrong.
    """

    name: str
    description: Description | None
    reason: str | None
    is_absent: bool = False
    is_chosen_unasked: bool = True
    is_configured: bool = False
    is_misconfigured: bool = False

    @property
    def missed(self) -> str | None:
        """Why it gives no readings, although it is present or configured."""
        if not self.is_chosen_unasked or (self.is_absent and not self.is_configured):
            return None
        if self.description is not None:
            return (
                None
                if self.description.blocked is None
                else f"gives no energy as it is set up: {self.description.blocked}"
            )
        if self.is_misconfigured:
            return f"is configured wrongly: {self.reason}"
        return (
            f"{'is configured and absent' if self.is_absent else 'is here and cannot be read'}: "
            f"{self.reason}"
        )


def detect_sensors(
    settings: Mapping[str, Mapping[str, str]] | None = None, root: Path = power.ROOT
) -> list[DetectedSensor]:
    """Return every known sensor, present or not, the widest scope first.

    `settings` has the configuration of each by name. `replay` is inspected only where it is
    configured.
    """
    configured = settings or {}
    usual_names = [name for name in power.names() if name not in NEVER_FOUND]
    sensors = [
        replace(_inspect(name, configured.get(name, {}), root), is_configured=name in configured)
        for name in dict.fromkeys([*usual_names, *configured])
    ]
    return sorted(
        sensors,
        key=lambda sensor: (
            sensor.description is None,
            scope_rank(sensor.description.scope) if sensor.description else 0,
        ),
    )


def choose_sensor(detected: Iterable[DetectedSensor]) -> tuple[str | None, str]:
    """Return the name of the sensor with the widest scope, and why; or None and why there is none.

    One that is blocked from giving an energy yields to one that is not. A configured one that gives
    nothing is named with its reason.
    """
    sensors = list(detected)
    present = [
        (sensor, sensor.description)
        for sensor in sensors
        if sensor.description is not None and sensor.is_chosen_unasked
    ]
    if not present:
        return None, "; ".join(
            f"{sensor.name} {sensor.missed}" for sensor in sensors if sensor.missed
        ) or NO_SENSOR
    best, description = min(
        present, key=lambda pair: (pair[1].blocked is not None, scope_rank(pair[1].scope))
    )
    narrower = [
        sensor.name
        for sensor, other in present
        if sensor is not best and scope_rank(other.scope) > scope_rank(description.scope)
    ]
    equals = [
        sensor.name
        for sensor, other in present
        if sensor is not best and other.scope == description.scope
    ]
    reason = f"{best.name}, which sees {description.scope}"
    reason += f", more than {', '.join(narrower)}" if narrower else ""
    reason += f", before {', '.join(equals)} of the same scope" if equals else ""
    return best.name, "; ".join(
        [reason, *(f"{sensor.name} {sensor.missed}" for sensor in passed_over(sensors, best))]
    )


def passed_over(
    detected: Iterable[DetectedSensor], selected: DetectedSensor
) -> list[DetectedSensor]:
    """Return the configured sensors without readings whose scope is not below the chosen one's."""
    least = None if selected.description is None else scope_rank(selected.description.scope)
    missing = [
        sensor
        for sensor in detected
        if sensor is not selected and sensor.is_configured and sensor.missed
    ]
    return [
        sensor
        for sensor in missing
        if sensor.description is None
        or least is None
        or scope_rank(sensor.description.scope) <= least
    ]


def scope_rank(scope: Scope) -> int:
    """Return the rank of a scope, 0 for the widest."""
    return WIDEST_FIRST.index(scope)


def _inspect(name: str, settings: Mapping[str, str], root: Path) -> DetectedSensor:
    unasked = settings.get("type", name) not in NEVER_FOUND
    try:
        with closing(power.create(name, root=root, **settings)) as sensor:
            return DetectedSensor(name, sensor.describe(), None, is_chosen_unasked=unasked)
    except EdgemeterError as error:
        return DetectedSensor(
            name,
            None,
            str(error),
            isinstance(error, AbsentError),
            unasked,
            is_misconfigured=isinstance(error, ConfigError),
        )


class MissingSensor(PowerSensor):
    """A configured sensor that gave no reading at the beginning of a session.

    It is not tried again in that session.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def describe(self) -> Description:
        raise UnavailableError(self._why)

    def read(self) -> Reading:
        raise UnavailableError(self._why)


def check_sensors(
    requested: str | None, usual: tuple[str, ...], settings: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise the errors of `open_sensors`, as far as they can be known without a free meter.

    Another run may be reading the same meter meanwhile.
    """
    for name, table in settings.items():
        power.check_settings(name, table)
    for name in _names(requested, usual):
        table = settings.get(name, {})
        kind = table.get("type", name)
        opens_nothing = EXCLUSIVE.get(kind) is not None and not table.get(EXCLUSIVE[kind] or "")
        is_shared = kind in power.SENSORS and (kind not in EXCLUSIVE or opens_nothing)
        with closing(open_sensor(name, settings) if is_shared else power.create(name, **table)):
            pass


def _names(requested: str | None, usual: tuple[str, ...]) -> list[str]:
    names = [name.strip() for name in requested.split(",")] if requested else list(usual)
    return [] if names == ["none"] else names


@contextmanager
def open_sensors(
    requested: str | None, usual: tuple[str, ...], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[dict[str, PowerSensor], str]]:
    """Open the sensors of a run, and yield them with the reason for the choice.

    They are the `requested` ones (NAME[,NAME] or none), else the `usual` ones, else the widest.
    Where the widest is taken, one that is configured and gives nothing is a MissingSensor beside
    it, so that the record holds why another took its place.

    Raises:
        UnavailableError: a sensor that was asked for by name is not here.
        ConfigError: there is no such sensor, or a setting is wrong.
    """
    if requested == "none":
        yield {}, "power was not to be measured (--power none)"
        return
    names, why = _names(requested, usual), ""
    sensors: dict[str, PowerSensor] = {}
    with ExitStack() as stack:
        if not names:
            for name, table in settings.items():
                power.check_settings(name, table)
            detected = detect_sensors(settings)
            selected_name, why = choose_sensor(detected)
            names = [selected_name] if selected_name else []
            selected = next((sensor for sensor in detected if sensor.name == selected_name), None)
            sensors = (
                {
                    sensor.name: MissingSensor(sensor.missed or "")
                    for sensor in passed_over(detected, selected)
                }
                if selected
                else {}
            )
        for name in names:
            sensors[python_target.plain_name(name)] = stack.enter_context(
                closing(open_sensor(name, settings))
            )
        yield sensors, why


def described(sensors: Mapping[str, PowerSensor]) -> dict[str, Description]:
    """Return the descriptions of the open sensors.

    Sensors without a description, such as a MissingSensor, are left out.
    """
    descriptions: dict[str, Description] = {}
    for name, sensor in sensors.items():
        with suppress(EdgemeterError):
            descriptions[name] = sensor.describe()
    return descriptions


def open_sensor(name: str, settings: Mapping[str, Mapping[str, str]]) -> PowerSensor:
    """Return the sensor, which is present.

    Raises:
        UnavailableError: it is not here.
        ConfigError: there is no such sensor, or a setting is wrong.
    """
    with ExitStack() as stack:
        sensor = stack.enter_context(closing(power.create(name, **settings.get(name, {}))))
        # If a sensor is asked for by name and absent, the command ends before it measures.
        try:
            sensor.describe()
        except AbsentError as error:
            raise AbsentError(
                f"{error}; see `edgemeter energy sensors` for those here; a run that names none "
                "(--power, `power`) takes the widest"
            ) from error
        stack.pop_all()
    return sensor


@dataclass(frozen=True, slots=True)
class LiveReading:
    """A sensor and its current reading.

    `power_w` is None if a counter has not moved; `error` is why there is no reading.
    """

    name: str
    description: Description | None
    reading: Reading | None
    power_w: float | None
    error: str | None = None


def read_now(
    name: str, sensor: PowerSensor, sleep: Callable[[float], None] = time.sleep
) -> LiveReading:
    """Return the current reading of the sensor; a counter is read twice, a second apart."""
    description = None
    try:
        description = sensor.describe()
        first = sensor.read()
        if first.power_w is not None:
            return LiveReading(name, description, first, first.power_w)
        sleep(COUNTER_S)
        second = sensor.read()
    except EdgemeterError as error:
        return LiveReading(name, description, None, None, str(error))
    moved_mj = (second.energy_mj or 0.0) - (first.energy_mj or 0.0)
    passed_ms = (second.taken_ns - first.taken_ns) / NS_PER_MS
    return LiveReading(
        name, description, second, moved_mj / passed_ms if moved_mj > 0 and passed_ms > 0 else None
    )

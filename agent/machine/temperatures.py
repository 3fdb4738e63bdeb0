"""Temperatures of the machine, by the name of their sensor, in degrees Celsius."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.machine.machine import Machine

# Sensors inside processors without a thermal zone (AMD), or finer than it (Intel).
CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower"})
# A Jetson's power management chip has no thermometer: its driver returns one of these. Source:
# tegrastats of all JetPacks.
FAKE_PMIC_C = (50.0, 100.0)
# A sensor that is switched off reads -256; no supported board works beyond these.
LOWEST_C, HIGHEST_C = -60.0, 200.0


def read(machine: Machine) -> dict[str, float]:
    """Return the temperatures by name, without sensors that are off or fake.

    A second sensor of the same name (of two sockets) gets a number.
    """
    counts = Counter[str]()
    temperatures_c: dict[str, float] = {}
    for name, value_c in _as_named(machine):
        if value_c is not None and not (name.upper().startswith("PMIC") and value_c in FAKE_PMIC_C):
            counts[name] += 1
            temperatures_c[name if counts[name] == 1 else f"{name}-{counts[name]}"] = value_c
    return temperatures_c


def _as_named(machine: Machine) -> Iterator[tuple[str, float | None]]:
    for zone in machine.find("sys/class/thermal/thermal_zone*"):
        yield machine.line(zone / "type") or zone.name, _celsius(machine, zone / "temp")
    for sensor in machine.find("sys/class/hwmon/hwmon*"):
        name = machine.text(sensor / "name")
        if name in CPU_SENSORS:
            inside = [_celsius(machine, path) for path in machine.find(f"{sensor}/temp*_input")]
            yield name, max((value for value in inside if value is not None), default=None)
    for apex in machine.find("sys/class/apex/apex_*"):
        yield apex.name, _celsius(machine, apex / "temp")


def _celsius(machine: Machine, path: Path) -> float | None:
    millidegrees = machine.number(path)
    value = None if millidegrees is None else millidegrees / 1000
    return value if value is not None and LOWEST_C < value < HIGHEST_C else None

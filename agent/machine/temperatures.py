"""Temperatures of the machine, by the name of their sensor, in degrees Celsius, and where each begins to slow it down."""

from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import Machine

# Sensors inside processors that have no thermal zone of their own (AMD), or a finer one (Intel).
CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower"})
# A Jetson's power management chip has no thermometer: its driver returns one of these. Source: tegrastats of all JetPacks.
FAKE_PMIC_C = (50.0, 100.0)
# A sensor that is switched off reads -256; no supported board works beyond these.
LOWEST_C, HIGHEST_C = -60.0, 200.0
# Trip points that slow the machine down or shut it off; `active` ones start a fan.
# Source: Linux Documentation/driver-api/thermal/sysfs-api.rst.
LIMITING = frozenset({"passive", "hot", "critical"})
# Limits below this are placeholders (0 C, 20 C), not temperatures at which a processor is slowed.
LOWEST_LIMIT_C = 50.0
# A Raspberry Pi's firmware slows the cores from here on, which no file shows; the 3B+ and 3A+ begin earlier.
# Source: raspberrypi.com documentation of config.txt, temp_limit and temp_soft_limit.
PI_LIMIT_C, PI_EARLY_LIMIT_C = 80.0, 60.0
PI_EARLY = ("Raspberry Pi 3 Model A Plus", "Raspberry Pi 3 Model B Plus")


def read(machine: Machine) -> dict[str, float]:
    """Return every temperature that can be read now; sensors that are off or fake are left out."""
    return {name: value_c for name, value_c, _ in _thermometers(machine)}


def limits(machine: Machine) -> dict[str, float]:
    """Return for each sensor with a known limit the temperature at which the machine begins to slow down or to shut off."""
    limits_c = {name: limit_c for name, _, folder in _thermometers(machine) if (limit_c := _limit(machine, folder)) is not None}
    if board.is_raspberry_pi(machine):
        limits_c["cpu-thermal"] = PI_EARLY_LIMIT_C if (board.model(machine) or "").startswith(PI_EARLY) else PI_LIMIT_C
    return limits_c


def _thermometers(machine: Machine) -> Iterator[tuple[str, float, Path]]:
    """Yield name, temperature and folder of each; where two sockets have sensors of the same name, the second gets a number."""
    counts: dict[str, int] = {}
    for name, value_c, folder in _as_named(machine):
        if value_c is not None and not (name.upper().startswith("PMIC") and value_c in FAKE_PMIC_C):
            counts[name] = counts.get(name, 0) + 1
            yield name if counts[name] == 1 else f"{name}-{counts[name]}", value_c, folder


def _as_named(machine: Machine) -> Iterator[tuple[str, float | None, Path]]:
    for zone in machine.find("sys/class/thermal/thermal_zone*"):
        yield machine.line(zone / "type") or zone.name, _celsius(machine, zone / "temp"), zone
    for sensor in machine.find("sys/class/hwmon/hwmon*"):
        name = machine.text(sensor / "name")
        if name in CPU_SENSORS:
            inside = [_celsius(machine, path) for path in machine.find(f"{sensor}/temp*_input")]
            yield name, max((value for value in inside if value is not None), default=None), sensor
    for apex in machine.find("sys/class/apex/apex_*"):
        yield apex.name, _celsius(machine, apex / "temp"), apex


def _limit(machine: Machine, folder: Path) -> float | None:
    """Return the lowest limit beside a sensor: trip points of a thermal zone or a Coral, maximum of a hwmon chip."""
    # A Coral's trip points have no type: each lowers its clock.
    types = {path: machine.text(path.with_name(path.name.replace("_temp", "_type"))) for path in machine.find(f"{folder}/trip_point*_temp")}
    trips = [path for path, kind in types.items() if kind is None or kind in LIMITING]
    limits_c = [_celsius(machine, path) for path in (*trips, *machine.find(f"{folder}/temp*_max"), *machine.find(f"{folder}/temp*_crit"))]
    return min((value for value in limits_c if value is not None and value >= LOWEST_LIMIT_C), default=None)


def _celsius(machine: Machine, path: Path) -> float | None:
    millidegrees = machine.number(path)
    value = None if millidegrees is None else millidegrees / 1000
    return value if value is not None and LOWEST_C < value < HIGHEST_C else None

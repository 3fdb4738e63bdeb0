"""Whether the board holds its clock back, or its supply is too weak: now, and at any time since it was switched on."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import Machine, whole_number

# Raspberry Pi, get_throttled; the same bits 16 higher: since boot. Source: raspberrypi.com documentation of vcgencmd.
UNDER_VOLTAGE = 1 << 0
HELD_BACK = 1 << 1 | 1 << 2 | 1 << 3
SINCE_BOOT = 16
PI_SYSFS = "sys/devices/platform/soc*/soc*:firmware/get_throttled"
# Cooling devices that take speed away, fans not among them.
SLOWING = re.compile(r"cpufreq|devfreq|throttle|^Processor$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Throttling:
    """What the machine says of itself; None where it has no way to say it.

    `flags` are a Raspberry Pi's as they came; `events` counts throttle events since boot, by the name of their counter.
    """

    now: bool | None = None
    since_boot: bool | None = None
    under_voltage_now: bool | None = None
    under_voltage_since_boot: bool | None = None
    flags: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)


def read(machine: Machine) -> Throttling:
    """Return what the firmware flags, the cooling devices and the event counters say together."""
    flags = _pi_flags(machine)
    events = _events(machine)
    under_voltage_events = events.get("oc1")
    return Throttling(
        now=_any([_bits(flags, HELD_BACK), _slowed(machine)]),
        since_boot=_any([_bits(flags, HELD_BACK << SINCE_BOOT), any(events.values()) if events else None]),
        under_voltage_now=_any([_bits(flags, UNDER_VOLTAGE), _voltage_alarm(machine)]),
        under_voltage_since_boot=_any(
            [_bits(flags, UNDER_VOLTAGE << SINCE_BOOT), None if under_voltage_events is None else under_voltage_events > 0]
        ),
        flags=flags,
        events=events,
    )


def rose(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    """Return by how much each counter rose between two readings, those only that did."""
    return {name: last[name] - first[name] for name in first if last.get(name, 0) > first[name]}


def flags_of(text: str | None) -> int | None:
    """Return the flags in what sysfs (`50005`) or vcgencmd (`throttled=0x50005`) prints; both are hexadecimal."""
    return None if text is None else whole_number(text.strip().removeprefix("throttled="), 16)


def _pi_flags(machine: Machine) -> int | None:
    for path in machine.find(PI_SYSFS):
        flags = flags_of(machine.text(path))
        if flags is not None:
            return flags
    return flags_of(machine.output(["vcgencmd", "get_throttled"])) if board.is_raspberry_pi(machine) else None


def _events(machine: Machine) -> dict[str, int]:
    """Return a Jetson's counters (oc1 under-voltage, oc2 average and oc3 instantaneous over-current) and that of x86 cores together."""
    found: dict[str, int] = {}
    for sensor in machine.find("sys/class/hwmon/hwmon*"):
        if machine.text(sensor / "name") != "soctherm_oc":
            continue
        for path in machine.find(f"{sensor}/oc*_event_cnt"):
            count = machine.number(path)
            if count is not None:
                found[path.name.partition("_")[0]] = count
    cores = [machine.number(path) for path in machine.find("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")]
    known = [count for count in cores if count is not None]
    return found | ({"core": sum(known)} if known else {})


def _slowed(machine: Machine) -> bool | None:
    states = [
        machine.number(device / "cur_state")
        for device in machine.find("sys/class/thermal/cooling_device*")
        if SLOWING.search(machine.text(device / "type") or "")
    ]
    return _any(None if state is None else state > 0 for state in states)


def _voltage_alarm(machine: Machine) -> bool | None:
    alarms = [
        machine.number(sensor / "in0_lcrit_alarm")
        for sensor in machine.find("sys/class/hwmon/hwmon*")
        if machine.text(sensor / "name") == "rpi_volt"
    ]
    return _any(None if alarm is None else alarm > 0 for alarm in alarms)


def _bits(flags: int | None, mask: int) -> bool | None:
    return None if flags is None else bool(flags & mask)


def _any(claims: Iterable[bool | None]) -> bool | None:
    known = [claim for claim in claims if claim is not None]
    return any(known) if known else None

"""CPU clocks, the governor, and whether the board throttles.

The module also reads whether the supply voltage is too low, now and since boot.

Source: Linux Documentation/admin-guide/pm/cpufreq.rst (values in kHz).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.base.flags import any_known
from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import Machine, whole_number

# Raspberry Pi, get_throttled; the same bits 16 higher: since boot. Source: raspberrypi.com
# documentation of vcgencmd.
UNDER_VOLTAGE = 1 << 0
HELD_BACK = 1 << 1 | 1 << 2 | 1 << 3
SINCE_BOOT = 16
PI_SYSFS = "sys/devices/platform/soc*/soc*:firmware/get_throttled"

# Cooling devices that reduce the clock; fans are not among them.
SLOWING = re.compile(r"cpufreq|devfreq|throttle|^Processor$", re.IGNORECASE)
CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Throttling:
    """The throttling that the machine reports (None: unknown).

    `throttle_events` are counts since boot by the name of the counter.
    """

    throttled_now: bool | None = None
    throttled_since_boot: bool | None = None
    under_voltage_now: bool | None = None
    under_voltage_since_boot: bool | None = None
    throttle_events: Mapping[str, int] = field(default_factory=dict)


def read(machine: Machine) -> Throttling:
    """Return the combined state of firmware flags, cooling devices and event counters."""
    flags = next(
        (
            flags
            for path in machine.find(PI_SYSFS)
            if (flags := flags_of(machine.text(path))) is not None
        ),
        None,
    )
    if flags is None and board.is_raspberry_pi(machine):
        flags = flags_of(machine.output(["vcgencmd", "get_throttled"]))
    events = _events(machine)
    voltage_alarms = [
        sensor / "in0_lcrit_alarm"
        for sensor in machine.find("sys/class/hwmon/hwmon*")
        if machine.text(sensor / "name") == "rpi_volt"
    ]
    return Throttling(
        throttled_now=any_known([_bits(flags, HELD_BACK), is_slowed_to_cool(machine)]),
        throttled_since_boot=any_known(
            [_bits(flags, HELD_BACK << SINCE_BOOT), any(events.values()) if events else None]
        ),
        under_voltage_now=any_known(
            [_bits(flags, UNDER_VOLTAGE), _is_any_set(machine, voltage_alarms)]
        ),
        under_voltage_since_boot=any_known(
            [
                _bits(flags, UNDER_VOLTAGE << SINCE_BOOT),
                events["oc1"] > 0 if "oc1" in events else None,
            ]
        ),
        throttle_events=events,
    )


def is_slowed_to_cool(machine: Machine) -> bool | None:
    """Return whether the kernel lowers a clock now to cool the chip."""
    states = [
        device / "cur_state"
        for device in machine.find("sys/class/thermal/cooling_device*")
        if SLOWING.search(machine.text(device / "type") or "")
    ]
    return _is_any_set(machine, states)


def rose(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    """Return the increase of each counter that rose between two readings."""
    return {name: last[name] - first[name] for name in first if last.get(name, 0) > first[name]}


def flags_of(text: str | None) -> int | None:
    """Return the flags from the text of sysfs or vcgencmd, both hexadecimal.

    For example `50005` and `throttled=0x50005`.
    """
    return None if text is None else whole_number(text.strip().removeprefix("throttled="), 16)


def _events(machine: Machine) -> dict[str, int]:
    """Return a Jetson's counters, and the sum of x86 cores.

    The counters are oc1 under-voltage, oc2 average and oc3 instantaneous over-current.
    """
    counts = {
        path.name.partition("_")[0]: count
        for sensor in machine.find("sys/class/hwmon/hwmon*")
        if machine.text(sensor / "name") == "soctherm_oc"
        for path in machine.find(f"{sensor}/oc*_event_cnt")
        if (count := machine.number(path)) is not None
    }
    of_cores = [
        count
        for path in machine.find(
            "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
        )
        if (count := machine.number(path)) is not None
    ]
    return counts | ({"core": sum(of_cores)} if of_cores else {})


def _is_any_set(machine: Machine, paths: Iterable[Path]) -> bool | None:
    return any_known([None if state is None else state > 0 for state in map(machine.number, paths)])


def _bits(flags: int | None, mask: int) -> bool | None:
    return None if flags is None else bool(flags & mask)


def governor(machine: Machine) -> str | None:
    """Return the governor; if the clusters of a processor differ, several joined by `+`."""
    return (
        "+".join(
            sorted(
                {
                    text
                    for path in machine.find(f"{CPUS}/cpufreq/policy*/scaling_governor")
                    if (text := machine.line(path))
                }
            )
        )
        or None
    )


def cpu_clocks_hz(machine: Machine, cpu: int | None = None) -> tuple[float | None, float | None]:
    """Return the clock now and the hardware's highest clock of one core.

    Without `cpu` they are those of the fastest.

    The policy's highest clock is not used, because thermal throttling lowers it.
    """
    of_core = None if cpu is None else _cpu_clocks(machine, f"{CPUS}/cpu{cpu}/cpufreq")
    of_policies = (
        _cpu_clocks(machine, str(path)) for path in machine.find(f"{CPUS}/cpufreq/policy*")
    )
    return of_core or max(filter(None, of_policies), default=(None, None))


def _cpu_clocks(machine: Machine, path: str) -> tuple[float, float] | None:
    now = machine.number(f"{path}/scaling_cur_freq")
    highest = machine.number(f"{path}/cpuinfo_max_freq") or machine.number(
        f"{path}/scaling_max_freq"
    )
    return (now * 1e3, highest * 1e3) if now and highest else None

"""ChargerLAB POWER-Z KM002C and KM003C, meters that sit in a USB-C lead, through the kernel's driver `powerz`.

Plug the meter into the board's USB-C feed, and its own data port into the machine that runs Edgemeter.
Where: /sys/class/hwmon/hwmonN with the name `powerz` (Linux 6.7 or newer, CONFIG_SENSORS_POWERZ): in0_input is VBUS in mV,
curr1_input IBUS in mA; its sign is the direction. There is no power file. Each file is a USB exchange of its own, so voltage and current
are some milliseconds apart. Source: Linux drivers/hwmon/powerz.c and Documentation/hwmon/powerz.rst.

    [sensors.powerz]
    direction = "forward"      # or "reverse", where current towards the board reads negative
    scope = "board-input"      # what hangs on the meter
    device = "hwmon4"          # which one, where there are several

The driver gives whole milliamperes and millivolts. The meter's gain error is not known to us: compare it with a
better meter, and set `gain` and `gain_u_ratio`.
Tested with: trees of the driver's form; not yet with a meter.
"""

import time
from collections.abc import Callable
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading
from edgemeter.agent.power.sysfs import HwmonChip, LocatedSensor, hwmon_chips
from edgemeter.agent.power.values import as_unavailable, direction_setting, plausible_power_w, scope_setting

NAME = "powerz"
PERIOD_MS = 100.0
# Twice what goes through a USB-C lead (48 V, 5 A).
HIGHEST_W = 500.0
# The driver cuts microamperes down to this.
CURRENT_STEP_A = 0.001


class PowerZ(LocatedSensor[HwmonChip]):
    """Multiplies voltage and current of the USB-C lead."""

    def __init__(
        self,
        direction: str = "forward",
        scope: str = "",
        device: str = "",
        root: Path = ROOT,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(root, clock)
        self._sign = direction_setting("powerz", direction)
        self._scope = scope_setting("powerz", scope or "board-input")
        self._device = device

    def describe(self) -> Description:
        """Return what the meter sees."""
        self._located = chip = self._find()
        with as_unavailable(AbsentError):
            reading = self.read()
            voltage_v = chip.number("in0_input") / 1000
        backwards = reading.power_w is not None and reading.power_w < 0
        warning = 'current flows backwards through the meter: turn it around, or set direction = "reverse" in [sensors.powerz]'
        return Description(
            id=f"powerz:{chip.folder.name}",
            scope=self._scope,
            excludes=("power-supply loss",),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=max(voltage_v, 1.0) * CURRENT_STEP_A,
            warnings=(warning,) if backwards else (),
        )

    def read(self) -> Reading:
        """Return voltage times current."""
        chip = self._parts()
        begin = self._clock()
        found_w = self._sign * chip.number("in0_input") * chip.number("curr1_input") / 1e6
        power_w = plausible_power_w(found_w, HIGHEST_W, "the POWER-Z")
        return Reading(taken_ns=(begin + self._clock()) // 2, power_w=power_w, rails=(Rail("VBUS", power_w),))

    def _find(self) -> HwmonChip:
        meters = [chip for chip in hwmon_chips(self._root) if is_powerz(chip)]
        selected = [chip for chip in meters if not self._device or chip.answers_to(self._device)]
        if not meters:
            raise AbsentError(
                f"no POWER-Z in {str(self._root / 'sys/class/hwmon')!r}: plug one in; its driver is in Linux 6.7 (`modprobe powerz`)"
            )
        if len(selected) != 1:
            raise UnavailableError(
                f"device = {self._device!r} matches {len(selected)} of {len(meters)} POWER-Z meters: "
                f"name one in [sensors.powerz], {' or '.join(chip.folder.name for chip in meters)}"
            )
        return selected[0]


def is_powerz(chip: HwmonChip) -> bool:
    """Return whether the chip is one."""
    return chip.name == NAME

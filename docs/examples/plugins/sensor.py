"""A power sensor that reads a laptop's battery.

edgemeter run model.onnx --power sensor.py:Battery

It reads `power_now` in uW from the kernel's power-supply class, while the first battery discharges.
It does not see the charger. Source: Linux, Documentation/ABI/testing/sysfs-class-power. Its gain
and its resolution are unknown, so they are None.
"""

import time
from pathlib import Path

from edgemeter.plugin import (
    AbsentError,
    Description,
    PowerSensor,
    Reading,
    UnavailableError,
    as_unavailable,
    read_number,
)


class Battery(PowerSensor):
    """Reads the battery. The contract is `edgemeter.plugin.PowerSensor`."""

    def __init__(self, supplies: str = "/sys/class/power_supply") -> None:
        # The configuration may set it: `[sensors.mine]`, `type = "sensor.py:Battery"`, `supplies =
        # "..."`. Do not read the sensor here.
        self._supplies = Path(supplies)

    def describe(self) -> Description:
        """Return the sensor's properties. It must be present and readable."""
        self._power_w()
        return Description(
            id="battery",
            scope="board-input",
            excludes=("charger",),
            kind="power",
            period_ms=1000.0,
            resolution_w=None,
            gain_u_ratio=None,
        )

    def read(self) -> Reading:
        """Return the newest reading, stamped at mid-read."""
        started_ns = time.monotonic_ns()
        power_w = self._power_w()
        return Reading(taken_ns=(started_ns + time.monotonic_ns()) // 2, power_w=power_w)

    def _power_w(self) -> float:
        files = sorted(self._supplies.glob("BAT*/power_now"))
        if not files:
            raise AbsentError(
                f"no battery states its power in {str(self._supplies)!r}: take another sensor"
            )
        with as_unavailable():
            if (files[0].parent / "status").read_text(encoding="ascii").strip() != "Discharging":
                raise UnavailableError(
                    f"{files[0].parent.name} does not discharge: unplug the charger"
                )
            return read_number(files[0]) / 1e6

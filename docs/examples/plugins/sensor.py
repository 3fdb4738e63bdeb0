"""A power sensor of one's own: what a laptop's battery gives, `edgemeter run model.onnx --power sensor.py:Battery`.

What it is: `power_now` of the kernel's power-supply class, in uW, of the first battery that discharges; the charger is not seen.
Source: Linux, Documentation/ABI/testing/sysfs-class-power. Gain and resolution: unknown, which None states.
"""

import time
from pathlib import Path

from edgemeter.plugin import AbsentError, Description, PowerSensor, Reading, UnavailableError, as_unavailable, read_number


class Battery(PowerSensor):
    """Reads the battery; the contract is `edgemeter.plugin.PowerSensor`."""

    def __init__(self, supplies: str = "/sys/class/power_supply") -> None:
        # A setting is a text: `[sensors.mine]`, `type = "sensor.py:Battery"`, `supplies = "..."`. Nothing is read here.
        self._supplies = Path(supplies)

    def describe(self) -> Description:
        """Return what the sensor is; it must be here and readable."""
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
            raise AbsentError(f"no battery states its power in {str(self._supplies)!r}: take another sensor")
        with as_unavailable():
            if (files[0].parent / "status").read_text(encoding="ascii").strip() != "Discharging":
                raise UnavailableError(f"{files[0].parent.name} does not discharge: unplug the charger")
            return read_number(files[0]) / 1e6

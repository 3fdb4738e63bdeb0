"""Input of a Jetson Thor, measured by the INA238 of its carrier board.

It sees carrier and USB devices, but not the loss in the power supply. Resolution and gain are
unknown: NVIDIA publishes neither the shunt nor the range.

Where: the rails VDD_GPU, VDD_CPU_SOC_MSS and VIN_SYS_5V0 of the module are shown too; they are part
of the input. It is the hwmon folder with the name `ina238`, `power1_input` in uW, labelled VIN.
Most kernels give no label: then the only INA238 of a Thor is used. A Thor is recognised by its
device tree, or by the rail VDD_CPU_SOC_MSS of its INA3221. Rails near zero may be negative.
Source: Linux drivers/hwmon/ina238.c and Documentation/hwmon/ina238.rst.
Tested with: trees of this form.
"""

from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.jetson import (
    JetsonChannel,
    JetsonMonitors,
    JetsonSensor,
    ina3221_channels,
    is_thor,
    label_in,
    monitor_chips,
)
from edgemeter.agent.power.sysfs import NumberFile

LABELS = ("in1_label", "power1_label", "curr1_label", "label")


class JetsonThor(JetsonSensor):
    """Reads the input, and shows the rails inside it."""

    sensor = "jetson_thor"

    def _find(self) -> JetsonMonitors:
        chips = monitor_chips(self._root, "ina238")
        rail_chips = monitor_chips(self._root, "ina3221") if chips else []
        rails = ina3221_channels(rail_chips)
        inputs = self._inputs(chips, rails)
        if len(inputs) != 1:
            raise AbsentError(
                f"no INA238 of a Jetson Thor (label VIN) below {str(self._root / 'sys')!r}"
            )
        files = (
            ("power1_input",)
            if (inputs[0] / "power1_input").exists()
            else ("in1_input", "curr1_input")
        )
        channel = JetsonChannel("VIN", tuple(NumberFile(inputs[0] / file) for file in files))
        return self._monitors([channel, *rails], chips=[*chips, *rail_chips])

    def _inputs(self, chips: Sequence[Path], rails: Sequence[JetsonChannel]) -> list[Path]:
        """Return the chips labelled VIN; without one on a Thor those without a label."""
        labels = {
            chip: next(filter(None, (label_in(chip / file) for file in LABELS)), None)
            for chip in chips
        }
        labelled = [chip for chip in chips if labels[chip] == "VIN"]
        return labelled or [
            chip for chip in chips if labels[chip] is None and is_thor(self._root, rails)
        ]

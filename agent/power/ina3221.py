"""INA3221 monitors of a Jetson with JetPack 5, 6 or 7, read through hwmon.

Readings have steps of 40 mW at 5 V on Orin Nano and NX, and 400 mW on the 20 V rail of an AGX Orin.
Nobody has measured the gain, so its standard uncertainty defaults to 5%. If only root may read the
files, run `sudo chmod a+r` on those that the error names.

Where: /sys/class/hwmon/hwmonN (name `ina3221`); AGX modules have two. in1..3_label; power =
in1..3_input (mV) x curr1..3_input (mA); there is no power1_input. in4..6 are shunt voltages in uV,
in7 and curr4 sums over channels: not read. A channel that is off answers ENODATA or EIO.
Timing: by default a cycle over three channels takes 6.6 ms (`update_interval`). Voltage and current
of a channel are measured one after the other, each for 1.1 ms of it. A periodic load of 30-100 Hz
can alias; the sampler's random moments spread the error. Resolution: 40 uV over the shunt
(`shuntN_resistor`, else the board's usual one) at the present voltage: 8 mA on Orin Nano and NX, 20
mA on AGX Orin. Offset: one step either way; a negative reading is kept. Range: 163.8 mV over the
shunt, which is 32.76 A on 5 mOhm; a current at its end is no reading.
Source: Linux drivers/hwmon/ina3221.c and Documentation/hwmon/ina3221.rst.
Tested with: trees of the forms of JetPack 5 to 7; a partial one recorded on an Orin Nano.
"""

from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.jetson import (
    JetsonMonitors,
    JetsonSensor,
    ina3221_channels,
    is_thor,
    monitor_chips,
)


class Ina3221(JetsonSensor):
    """Reads the rails of all INA3221 chips."""

    sensor = "ina3221"

    def _find(self) -> JetsonMonitors:
        chips = monitor_chips(self._root, "ina3221")
        if not chips:
            raise AbsentError(
                f"no INA3221 below {str(self._root / 'sys')!r}: Jetsons with JetPack 5 "
                "or newer have one"
            )
        channels = ina3221_channels(chips)
        if is_thor(self._root, channels) and monitor_chips(self._root, "ina238"):
            raise AbsentError(
                "the total of a Jetson Thor is not in its INA3221 but in its INA238: use the "
                "sensor jetson_thor"
            )
        return self._monitors(channels, chips=chips)

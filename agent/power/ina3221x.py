"""INA3221 monitors of a Jetson with JetPack 4, read through NVIDIA's driver `ina3221x`.

Where: /sys/bus/i2c/drivers/ina3221x/*/iio:deviceN. AGX Xavier, TX1 and TX2 have several.
rail_name_K, in_powerK_input in mW, in_voltageK_input in mV, in_currentK_input in mA; K = 0, 1, 2.
Timing: by the number of processors online and their clocks, the driver switches between one
conversion of 140 us per read and a mean of 64 conversions over three channels. The slower of the
two, 422 ms for a fresh value, is assumed. Resolution: 40 uV over a shunt of 5 mOhm, which is 8 mA
or 40 mW at 5 V. The gain's uncertainty defaults to 5% (k = 1), because nobody has measured it.
Source: L4T 4.9 drivers/staging/iio/meter/ina3221.c.
Tested with: trees of this form.
"""

from pathlib import Path

from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.jetson import JetsonChannel, JetsonMonitors, JetsonSensor, label_in
from edgemeter.agent.power.jetson_rails import is_rail
from edgemeter.agent.power.sysfs import NumberFile

# 64 samples x 3 channels x 2.2 ms.
PERIOD_MS = 422.0
# `iio_device` is what some kernels call it.
PLACES = (
    "sys/bus/i2c/drivers/ina3221x/*/iio?device*",
    "sys/bus/i2c/devices/*/iio?device*",
    "sys/bus/iio/devices/iio:device*",
)


class Ina3221x(JetsonSensor):
    """Reads the rails of all its chips."""

    sensor = "ina3221x"

    def _find(self) -> JetsonMonitors:
        chips = next(filter(None, (sorted(self._root.glob(pattern)) for pattern in PLACES)), [])
        names = [path for chip in chips for path in sorted(chip.glob("rail_name_*"))]
        if not names:
            raise AbsentError(
                f"no ina3221x below {str(self._root / 'sys/bus')!r}: Jetsons with JetPack "
                "4 have one"
            )
        return self._monitors(
            [channel for channel in map(_channel, names) if is_rail(channel.label)], PERIOD_MS
        )


def _channel(name: Path) -> JetsonChannel:
    chip, number = name.parent, name.name.removeprefix("rail_name_")
    power, voltage, current = (
        chip / f"in_{kind}{number}_input" for kind in ("power", "voltage", "current")
    )
    label = label_in(name) or f"{chip.name} {number}"
    if power.exists():
        return JetsonChannel(label, (NumberFile(power),), per_w=1000, voltage_mv=voltage)
    return JetsonChannel(label, (NumberFile(voltage), NumberFile(current)), voltage_mv=voltage)

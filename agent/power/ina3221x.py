"""The INA3221 monitors of a Jetson under JetPack 4, through NVIDIA's IIO driver `ina3221x`.

Where: /sys/bus/i2c/drivers/ina3221x/*/iio:deviceN: `rail_name_K`, `in_powerK_input` in mW, `in_voltageK_input` in mV, `in_currentK_input`
in mA, K = 0, 1, 2. AGX Xavier, TX1 and TX2 have several. What of it is the total: `jetson_rails`.

Timing: the driver switches by the number of processors online and their clocks between one conversion of 140 us per read and a mean of
64 conversions over three channels, 422 ms per fresh value; so the slower of the two is what we count on.
Resolution: 40 uV over a shunt of 5 mOhm at the present voltage: 8 mA, 40 mW at 5 V. Gain: 5 % (k = 1) by default, see `jetson_rails`.

Configuration: nothing.

    [sensors.ina3221x]

Tested with: trees of this form.
"""

from pathlib import Path

from edgemeter.agent.power import AbsentError, Description, Reading, jetson_channels, jetson_rails
from edgemeter.agent.power.jetson_channels import Channel, Monitored
from edgemeter.agent.power.world import HERE, World

# Source: L4T 4.9 drivers/staging/iio/meter/ina3221.c: 64 samples x 3 channels x 2.2 ms.
PERIOD_MS = 422.0
MW_PER_W = 1000
# `iio_device` is what some kernels call it.
PLACES = (
    "sys/bus/i2c/drivers/ina3221x/*/iio?device*",
    "sys/bus/i2c/devices/*/iio?device*",
    "sys/bus/iio/devices/iio:device*",
    "sys/devices/*.i2c/i2c-*/*/iio?device*",
    "sys/devices/*/*.i2c/i2c-*/*/iio?device*",
)


class Ina3221x:
    """Reads the rails of a Jetson's module."""

    def __init__(self, world: World = HERE) -> None:
        self._root = world.root
        self._monitored: Monitored | None = None

    def describe(self) -> Description:
        """Return which board's total it is.

        Raises:
            AbsentError: there is no such driver at work.
            UnavailableError: it may not be read, or its rails make no total that we know.
        """
        return self._open().describe()

    def read(self) -> Reading:
        """Return the power of the rails and of the module.

        Raises:
            TransientError: a rail of the total gave no value this time.
            UnavailableError: the chip is not there, or may not be read.
        """
        return self._open().read()

    def close(self) -> None:
        """Forget the chips."""
        self._monitored = None

    @staticmethod
    def recognises(content: bytes) -> bool:  # noqa: ARG004 - it reads a tree
        """Return False."""
        return False

    def _open(self) -> Monitored:
        self._monitored = self._monitored or self._find()
        return self._monitored

    def _find(self) -> Monitored:
        folders = jetson_channels.once(folder for place in PLACES for folder in sorted(self._root.glob(place)))
        names = {path: folder for folder in folders for path in sorted(folder.glob("rail_name_*"))}
        if not names:
            message = f"no ina3221x below {str(self._root / 'sys/bus')!r}: Jetsons with JetPack 4 have one"
            raise AbsentError(message)
        channels = [channel for name, folder in names.items() if (channel := _channel(folder, name)) is not None]
        return jetson_channels.monitored("ina3221x", self._root, channels, PERIOD_MS)


def _channel(folder: Path, name: Path) -> Channel | None:
    number = name.name.removeprefix("rail_name_")
    label = jetson_channels.label(name) or f"{folder.name} {number}"
    if not jetson_rails.is_rail(label):
        return None
    power, voltage, current = (folder / f"in_{kind}{number}_input" for kind in ("power", "voltage", "current"))
    if power.exists():
        return Channel(label, (power,), MW_PER_W, voltage_mv=voltage)
    return Channel(label, (voltage, current), voltage_mv=voltage)

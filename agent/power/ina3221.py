"""The INA3221 monitors of a Jetson under JetPack 5, 6 and 7, through Linux hwmon.

Where: /sys/class/hwmon/hwmonN (name `ina3221`) and /sys/bus/i2c/drivers/ina3221/*/hwmon/hwmonN; both lead to the same chips, of which
AGX modules have two. What of it is the total: `jetson_rails`.

Timing: by default a cycle over three channels takes 6.6 ms (`update_interval`); voltage and current of a channel are measured one after
the other, each for 1.1 ms of it. A periodic load of 30-100 Hz can alias, which the sampler's jittered moments spread.
Resolution: 40 uV over the shunt (`shuntN_resistor`, else the board's usual one) at the present voltage: 8 mA or 40 mW at 5 V on Orin Nano
and NX, 20 mA on AGX Orin, where a rail at 20 V moves in steps of 400 mW. Offset: a step either way; a reading may be negative and is kept.
Gain: 5 % (k = 1) by default, see `jetson_rails`.

On some releases only root may read it: run as root, or `sudo chmod a+r` the files that the error names.

Configuration: nothing.

    [sensors.ina3221]

Tested with: trees of the forms of JetPack 5 to 7; a partial one recorded on an Orin Nano.
"""

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.power import AbsentError, Description, Reading, jetson_channels
from edgemeter.agent.power.jetson_channels import Monitored
from edgemeter.agent.power.world import HERE, World


class Ina3221:
    """Reads the rails of a Jetson's module."""

    def __init__(self, world: World = HERE) -> None:
        self._root = world.root
        self._monitored: Monitored | None = None

    def describe(self) -> Description:
        """Return which board's total it is.

        Raises:
            AbsentError: there is no INA3221, or another of our sensors reads this board's total.
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
        folders = jetson_channels.chips(self._root, "ina3221")
        if not folders:
            message = f"no INA3221 below {str(self._root / 'sys')!r}: Jetsons with JetPack 5 or newer have one"
            raise AbsentError(message)
        channels = jetson_channels.of_ina3221(folders)
        try:
            return jetson_channels.monitored("ina3221", self._root, channels, jetson_channels.period_ms(folders))
        except UnavailableError as error:
            rails = [channel.label for channel in channels]
            if jetson_channels.of_ina238(self._root, jetson_channels.chips(self._root, "ina238"), rails) is None:
                raise
            message = "the total of this board is not in its INA3221 but in its INA238: use the sensor jetson_thor, which reads both"
            raise AbsentError(message) from error

"""The input of a Jetson Thor: the INA238 of its carrier board, with the module's INA3221 rails beside it, through Linux hwmon.

Where: the hwmon folder with the name `ina238`, `power1_input` in uW, labelled VIN; most kernels give no label, and on a Thor (by its
device tree, or the rail VDD_CPU_SOC_MSS of its INA3221) the only INA238 is taken. It sees what the board draws, carrier and USB devices
included; not the loss in the power supply. The rails VDD_GPU, VDD_CPU_SOC_MSS and VIN_SYS_5V0 lie inside and are shown; near zero they
may be negative.

Resolution and gain: the shunt and the range are not published, so both are unknown.

Configuration: nothing.

    [sensors.jetson_thor]

Tested with: trees of this form; not yet on a Thor.
"""

from edgemeter.agent.power import AbsentError, Description, Reading, jetson_channels
from edgemeter.agent.power.jetson_channels import Monitored
from edgemeter.agent.power.world import HERE, World


class JetsonThor:
    """Reads what a Jetson Thor draws at its input."""

    def __init__(self, world: World = HERE) -> None:
        self._root = world.root
        self._monitored: Monitored | None = None

    def describe(self) -> Description:
        """Return what it is.

        Raises:
            AbsentError: there is no Thor's INA238.
            UnavailableError: it may not be read.
        """
        return self._open().describe()

    def read(self) -> Reading:
        """Return the power at the input, and of the rails.

        Raises:
            TransientError: the INA238 gave no value this time.
            UnavailableError: it is not there, or may not be read.
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
        folders = jetson_channels.chips(self._root, "ina238")
        rail_folders = jetson_channels.chips(self._root, "ina3221") if folders else []
        rails = jetson_channels.of_ina3221(rail_folders)
        channel = jetson_channels.of_ina238(self._root, folders, [rail.label for rail in rails])
        if channel is None:
            message = f"no INA238 of a Jetson Thor (label VIN) below {str(self._root / 'sys')!r}"
            raise AbsentError(message)
        return jetson_channels.monitored("jetson_thor", self._root, [channel, *rails], jetson_channels.period_ms([*folders, *rail_folders]))

"""The common part of the sensors that read a Jetson's monitors in sysfs.

`jetson_rails` defines which rails make the total of a board. The gain's uncertainty defaults to 5%
(k = 1), see `jetson_rails`. If only root may read the files, run as root, or `sudo chmod a+r` the
files that the error names.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading, jetson_rails
from edgemeter.agent.power.jetson_rails import JetsonBoard
from edgemeter.agent.power.sysfs import (
    LocatedSensor,
    NumberFile,
    hwmon_chips,
    optional_number,
    read_text,
)
from edgemeter.agent.power.values import as_unavailable, within_range

# The sampling period, unless the chip is slower: its three channels take 6.6 ms by default.
PERIOD_MS = 100.0
CHANNELS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class JetsonChannel:
    """One rail: its power, in W, is the product of the `factors` over `per_w`.

    The factors are files with whole numbers.
    """

    label: str
    factors: tuple[NumberFile, ...]
    per_w: int = 1_000_000
    voltage_mv: Path | None = None
    shunt_uohm: int | None = None
    disabled_by: Path | None = None

    def power_w(self) -> float:
        """Return the power now; negative where the offset or the current is.

        Raises as `read_number`.
        """
        if self.disabled_by is not None:
            raise UnavailableError(
                f"{str(self.disabled_by)!r} is 0: `echo 1 | sudo tee {self.disabled_by}` lets "
                "the chip measure it"
            )
        *voltages, last = (file.number() for file in self.factors)
        full_scale_ma = (
            jetson_rails.SHUNT_LAST_UV / self.shunt_uohm * 1000 if self.shunt_uohm else math.inf
        )
        return (
            math.prod(voltages)
            * within_range(last, full_scale_ma, f"INA3221 of {self.label}")
            / self.per_w
        )

    def step_w(self, usual_shunt_uohm: int) -> float | None:
        """Return the step of the power at the present voltage, None if the voltage is unknown."""
        voltage_mv = optional_number(self.voltage_mv) or 0
        return (
            jetson_rails.SHUNT_STEP_UV / (self.shunt_uohm or usual_shunt_uohm) * voltage_mv / 1000
            if voltage_mv > 0
            else None
        )


@dataclass(frozen=True, slots=True)
class JetsonMonitors:
    """The channels of a board.

    Those of its total must be readable; others are shown if they are.
    """

    board: JetsonBoard
    channels: Sequence[JetsonChannel]
    period_ms: float
    update_interval_s: float


class JetsonSensor(LocatedSensor[JetsonMonitors]):
    """Reads the rails, and adds up those of the board's total."""

    sensor = ""

    def describe(self) -> Description:
        monitors = self._parts()
        warnings, rails = [], []
        for channel in monitors.channels:
            try:
                rails.append(Rail(channel.label, channel.power_w()))
            except EdgemeterError as error:
                if channel.label in monitors.board.total:
                    raise UnavailableError(
                        f"rail {channel.label!r} is part of the total and cannot be read: {error}"
                    ) from error
                rails.append(Rail(channel.label, None))
                warnings.append(
                    f"rail {channel.label!r} cannot be read and is not needed for "
                    f"the total: {error}"
                )
        steps_w = {
            channel.label: channel.step_w(monitors.board.shunt_uohm)
            for channel in monitors.channels
        }
        with as_unavailable():
            described = jetson_rails.describe(
                self.sensor, monitors.board, rails, monitors.period_ms, steps_w, warnings
            )
        return dataclasses.replace(described, delay_ms=1000 * monitors.update_interval_s)

    def read(self) -> Reading:
        """Return the board's total, and the power of each rail."""
        monitors, begin = self._parts(), self._clock()
        rails = tuple(
            Rail(channel.label, _shown_w(channel, monitors.board)) for channel in monitors.channels
        )
        return Reading(
            taken_ns=(begin + self._clock()) // 2,
            power_w=jetson_rails.total_w(monitors.board, rails),
            rails=rails,
        )

    def _monitors(
        self,
        channels: Sequence[JetsonChannel],
        usual_ms: float = PERIOD_MS,
        chips: Sequence[Path] = (),
    ) -> JetsonMonitors:
        """Return the channels with the board whose total they make.

        The period is that of fresh values from all hwmon `chips`.

        Raises:
            UnavailableError: they make no total that we know, or a rail of it is there twice.
        """
        board = jetson_rails.board_of(
            [channel.label for channel in channels], jetson_rails.device_tree_names(self._root)
        )
        for rail in board.total:
            places = [
                str(channel.factors[0].path.parent) for channel in channels if channel.label == rail
            ]
            if len(places) > 1:
                raise UnavailableError(
                    f"rail {rail!r} is there more than once ({', '.join(places)}), and it is "
                    "unknown which is the board's: report it"
                )
        update_ms = max(
            (float(optional_number(chip / "update_interval") or 0) for chip in chips), default=0.0
        )
        return JetsonMonitors(board, channels, max(usual_ms, update_ms), update_ms / 1000)


def _shown_w(channel: JetsonChannel, board: JetsonBoard) -> float | None:
    try:
        return channel.power_w()
    except (UnavailableError, TransientError):
        if channel.label in board.total:
            raise
        return None


def monitor_chips(root: Path, driver: str) -> list[Path]:
    """Return the hwmon folders of the driver's chips; raises as `hwmon_chips`."""
    return [chip.folder for chip in hwmon_chips(root) if chip.name == driver]


def label_in(path: Path) -> str | None:
    """Return the label that the file holds, None without one.

    Raises:
        UnavailableError: the file cannot be read.
    """
    with as_unavailable():
        try:
            return read_text(path) or None
        except AbsentError:
            return None


def ina3221_channels(chips: Sequence[Path]) -> list[JetsonChannel]:
    channels = []
    for chip in chips:
        for number in CHANNELS:
            voltage, enable = chip / f"in{number}_input", chip / f"in{number}_enable"
            label = label_in(chip / f"in{number}_label")
            if jetson_rails.is_rail(label) if label else voltage.exists():
                factors = NumberFile(voltage), NumberFile(chip / f"curr{number}_input")
                disabled_by = enable if optional_number(enable) == 0 else None
                shunt_uohm = optional_number(chip / f"shunt{number}_resistor")
                channels.append(
                    JetsonChannel(
                        label or f"{chip.name} in{number}",
                        factors,
                        voltage_mv=voltage,
                        shunt_uohm=shunt_uohm,
                        disabled_by=disabled_by,
                    )
                )
    return channels


def is_thor(root: Path, channels: Sequence[JetsonChannel]) -> bool:
    """Return whether this is a Jetson Thor, by a rail that no other has or by the device tree."""
    return any(channel.label == "VDD_CPU_SOC_MSS" for channel in channels) or any(
        word in jetson_rails.device_tree_names(root) for word in jetson_rails.THOR.words
    )

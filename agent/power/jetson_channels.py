"""The channels of a Jetson's power monitors in sysfs: where they are, and one reading of all of them.

    INA3221, hwmon   in1..3_label; power = in1..3_input (mV) x curr1..3_input (mA); there is no power1_input. in4..6 are shunt voltages
                     in uV, in7 and curr4 sums over channels: not read. A channel that is off answers ENODATA or EIO.
    INA238, hwmon    power1_input (uW): the input of a Jetson Thor, with its carrier board. Most kernels give it no label.

Source: Linux drivers/hwmon/ina3221.c, ina238.c and Documentation/hwmon.
"""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading, hwmon, jetson_rails, sysfs_file
from edgemeter.agent.power.jetson_rails import Board

# How often we read, unless the chip is slower: its three channels take 6.6 ms by default.
PERIOD_MS = 100.0
# Where a chip's folder may be. hwmonN changes from boot to boot and names one device in all of them.
HWMON_PLACES = (
    "sys/class/hwmon/hwmon*",
    "sys/bus/i2c/drivers/{driver}/*/hwmon/hwmon*",
    "sys/bus/i2c/devices/*/hwmon/hwmon*",
    "sys/devices/platform/*/i2c-*/*/hwmon/hwmon*",
    "sys/devices/platform/*/*/i2c-*/*/hwmon/hwmon*",
)
CHANNELS = (1, 2, 3)
INA238_LABELS = ("in1_label", "power1_label", "curr1_label", "label")
UW_PER_W = 1_000_000
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Channel:
    """One rail: its power in W is the product of the `factors`, files with whole numbers, over `per_w`."""

    label: str
    factors: tuple[Path, ...]
    per_w: int = UW_PER_W
    voltage_mv: Path | None = None
    shunt_uohm: Path | None = None
    enable: Path | None = None

    def power_w(self) -> float:
        """Return the power now; negative where the offset or the current is.

        Raises:
            UnavailableError: a file is gone or may not be read.
            TransientError: the chip gave no value this time.
        """
        product = 1
        for factor in self.factors:
            product *= sysfs_file.number(factor)
        return product / self.per_w

    def step_w(self, usual_shunt_uohm: int) -> float | None:
        """Return the step of the power at the present voltage; None where the voltage is not told."""
        voltage_mv = _number(self.voltage_mv)
        shunt_uohm = _number(self.shunt_uohm) or usual_shunt_uohm
        if voltage_mv is None or voltage_mv <= 0 or shunt_uohm <= 0:
            return None
        return jetson_rails.SHUNT_STEP_UV / shunt_uohm * voltage_mv / 1000

    def is_off(self) -> bool:
        """Return whether the chip was told not to measure it."""
        return _number(self.enable) == 0


@dataclass(frozen=True, slots=True)
class Monitored:
    """The channels of a board: those of its total must be read, the others are shown where they can be."""

    sensor: str
    board: Board
    channels: tuple[Channel, ...]
    off: frozenset[str]
    period_ms: float

    def describe(self) -> Description:
        """Return what they are together.

        Raises:
            UnavailableError: a rail of the total cannot be read.
        """
        warnings, rails = [], []
        for channel in self.channels:
            try:
                rails.append(Rail(channel.label, self._power_w(channel)))
            except EdgemeterError as error:
                if channel.label in self.board.total:
                    message = f"rail {channel.label!r} is part of the total and cannot be read: {error}"
                    raise UnavailableError(message) from error
                rails.append(Rail(channel.label, None))
                warnings.append(f"rail {channel.label!r} cannot be read and is not needed for the total: {error}")
        steps_w = {one.label: one.step_w(self.board.shunt_uohm) for one in self.channels if one.label in self.board.total}
        try:
            return jetson_rails.describe(self.sensor, self.board, rails, self.period_ms, steps_w, warnings)
        except TransientError as error:
            raise UnavailableError(str(error)) from error

    def read(self) -> Reading:
        """Return one reading of all channels.

        Raises:
            UnavailableError, TransientError: a rail of the total gave no value.
        """
        begin = time.monotonic_ns()
        rails = tuple(Rail(channel.label, self._shown_w(channel)) for channel in self.channels)
        taken_ns = (begin + time.monotonic_ns()) // 2
        return Reading(taken_ns=taken_ns, power_w=jetson_rails.total_w(self.board, rails), rails=rails)

    def _shown_w(self, channel: Channel) -> float | None:
        try:
            return self._power_w(channel)
        except (UnavailableError, TransientError):
            if channel.label in self.board.total:
                raise
            return None

    def _power_w(self, channel: Channel) -> float:
        if channel.label in self.off:
            message = f"{str(channel.enable)!r} is 0: `echo 1 | sudo tee {channel.enable}` lets the chip measure it"
            raise UnavailableError(message)
        return channel.power_w()


def monitored(sensor: str, root: Path, channels: Sequence[Channel], period_ms: float) -> Monitored:
    """Return the channels with the board whose total they make.

    Raises:
        UnavailableError: they make no total that we know, or a rail of it is there twice.
    """
    labels = [channel.label for channel in channels]
    board = jetson_rails.board_of(labels, jetson_rails.device_tree_says(root))
    for rail in board.total:
        places = [str(channel.factors[0].parent) for channel in channels if channel.label == rail]
        if len(places) > 1:
            message = (
                f"rail {rail!r} is there more than once ({', '.join(places)}), and which of them is the board's is not known: report it"
            )
            raise UnavailableError(message)
    return Monitored(sensor, board, tuple(channels), frozenset(one.label for one in channels if one.is_off()), period_ms)


def chips(root: Path, driver: str) -> list[Path]:
    """Return the hwmon folders of the driver's chips, each once.

    Raises:
        UnavailableError: there is none that can be told, and one may not be asked for its name.
    """
    found: list[Path] = []
    refused = None
    for place in HWMON_PLACES:
        for folder in sorted(root.glob(place.format(driver=driver))):
            try:
                is_ours = "/drivers/" in place or sysfs_file.text(folder / "name") == driver
            except AbsentError:
                is_ours = driver == "ina3221" and _is_jetsons(folder)
            except EdgemeterError as error:
                is_ours, refused = False, error
            if is_ours:
                found.append(folder)
    if not found and refused is not None:
        raise UnavailableError(str(refused)) from refused
    return sorted(once(found), key=lambda folder: int(re.sub(r"\D", "", folder.name) or 0))


def once(folders: Iterable[Path]) -> list[Path]:
    """Return each device once: its links, and a recording's copies of them, bear its number and, where they tell it, its address."""
    found: list[tuple[str | None, Path]] = []
    for folder in folders:
        address = hwmon.address_of(folder)
        for place, (known, first) in enumerate(found):
            if first.name == folder.name and (known == address or None in (known, address)):
                found[place] = (known or address, first)
                break
        else:
            found.append((address, folder))
    return [folder for _, folder in found]


def of_ina3221(folders: Sequence[Path]) -> list[Channel]:
    """Return the connected channels of these chips.

    Raises:
        UnavailableError: a label may not be read.
    """
    return [channel for folder in folders for number in CHANNELS if (channel := _channel(folder, number)) is not None]


def of_ina238(root: Path, folders: Sequence[Path], rails: Sequence[str]) -> Channel | None:
    """Return the input of a Jetson Thor among these chips: the one labelled VIN, or, on a Thor, the only one without a label."""
    labelled = {folder: _first_label(folder) for folder in folders}
    inputs = [folder for folder, label in labelled.items() if label == "VIN"]
    is_thor = "VDD_CPU_SOC_MSS" in rails or any(word in jetson_rails.device_tree_says(root) for word in jetson_rails.THOR.words)
    if not inputs and is_thor:
        inputs = [folder for folder, label in labelled.items() if label is None]
    if len(inputs) != 1:
        return None
    folder = inputs[0]
    if (folder / "power1_input").exists():
        return Channel("VIN", (folder / "power1_input",))
    return Channel("VIN", (folder / "in1_input", folder / "curr1_input"))


def period_ms(folders: Sequence[Path]) -> float:
    """Return how often a fresh value can be had of all these chips, and not more often than we read."""
    return max(PERIOD_MS, *(float(_number(folder / "update_interval") or 0) for folder in folders))


def label(path: Path) -> str | None:
    """Return what a rail is called; None where nobody says it.

    Raises:
        UnavailableError: it may not be read.
    """
    try:
        return sysfs_file.text(path) or None
    except AbsentError:
        return None
    except TransientError as error:
        raise UnavailableError(str(error)) from error


def _channel(folder: Path, number: int) -> Channel | None:
    voltage, current = folder / f"in{number}_input", folder / f"curr{number}_input"
    name = label(folder / f"in{number}_label")
    if (name is None and not voltage.exists()) or (name is not None and not jetson_rails.is_rail(name)):
        return None
    return Channel(
        label=name or f"{folder.name} in{number}",
        factors=(voltage, current),
        voltage_mv=voltage,
        shunt_uohm=folder / f"shunt{number}_resistor",
        enable=folder / f"in{number}_enable",
    )


def _is_jetsons(folder: Path) -> bool:
    """Say whether a chip without a name (an excerpt of a tree) has a rail that only Jetsons have."""
    return any(label(folder / f"in{number}_label") in jetson_rails.KNOWN_RAILS for number in CHANNELS)


def _first_label(folder: Path) -> str | None:
    return next((found for name in INA238_LABELS if (found := label(folder / name)) is not None), None)


def _number(path: Path | None) -> int | None:
    """Return what stands in a file that one can do without."""
    try:
        return None if path is None else sysfs_file.number(path)
    except EdgemeterError:
        return None

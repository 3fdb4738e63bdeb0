"""The power monitors of a Jetson in sysfs: INA3221 under JetPack 4 (IIO) and JetPack 5 to 7 (hwmon), and the INA238 of a Thor.

The class of each sensor is its data sheet; `jetson_rails` defines which rails make the total of a board. They need no configuration.

    INA3221, hwmon   in1..3_label; power = in1..3_input (mV) x curr1..3_input (mA); there is no power1_input. in4..6 are shunt voltages
                     in uV, in7 and curr4 sums over channels: not read. A channel that is off answers ENODATA or EIO.
    INA3221, IIO     rail_name_K, in_powerK_input in mW, in_voltageK_input in mV, in_currentK_input in mA; K = 0, 1, 2.
    INA238, hwmon    power1_input (uW): the input of a Jetson Thor, with its carrier board. Most kernels give it no label.

Gain: 5% (k = 1) by default, see `jetson_rails`; unknown for the INA238. On some releases only root may read the files: run as root, or
`sudo chmod a+r` the files that the error names.
Source: Linux drivers/hwmon/ina3221.c, ina238.c and Documentation/hwmon; L4T 4.9 drivers/staging/iio/meter/ina3221.c.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading, jetson_rails
from edgemeter.agent.power.jetson_rails import JetsonBoard
from edgemeter.agent.power.sysfs import LocatedSensor, NumberFile, hwmon_chips, optional_number, read_text
from edgemeter.agent.power.values import Averaging, as_unavailable, averaging_by, within_range

# How often we read, unless the chip is slower: its three channels take 6.6 ms by default.
HWMON_PERIOD_MS = 100.0
CHANNELS = (1, 2, 3)
INA238_LABELS = ("in1_label", "power1_label", "curr1_label", "label")
# Of the IIO driver: 64 samples x 3 channels x 2.2 ms.
IIO_PERIOD_MS = 422.0
# `iio_device` is what some kernels call it.
IIO_PLACES = (
    "sys/bus/i2c/drivers/ina3221x/*/iio?device*",
    "sys/bus/i2c/devices/*/iio?device*",
    "sys/bus/iio/devices/iio:device*",
)


@dataclass(frozen=True, slots=True)
class JetsonChannel:
    """One rail: its power in W is the product of the `factors`, files with whole numbers, over `per_w`."""

    label: str
    factors: tuple[NumberFile, ...]
    per_w: int = 1_000_000
    voltage_mv: Path | None = None
    shunt_uohm: Path | None = None
    disabled_by: Path | None = None
    full_scale_ma: float = math.inf

    def power_w(self) -> float:
        """Return the power now; negative where the offset or the current is. Raises as `read_number`."""
        if self.disabled_by is not None:
            raise UnavailableError(f"{str(self.disabled_by)!r} is 0: `echo 1 | sudo tee {self.disabled_by}` lets the chip measure it")
        *voltages, last = (file.number() for file in self.factors)
        return math.prod(voltages) * within_range(last, self.full_scale_ma, f"INA3221 of {self.label}") / self.per_w

    def step_w(self, usual_shunt_uohm: int) -> float | None:
        """Return the step of the power at the present voltage, None if the voltage is unknown."""
        voltage_mv = optional_number(self.voltage_mv)
        shunt_uohm = optional_number(self.shunt_uohm) or usual_shunt_uohm
        if voltage_mv is None or voltage_mv <= 0 or shunt_uohm <= 0:
            return None
        return jetson_rails.SHUNT_STEP_UV / shunt_uohm * voltage_mv / 1000


@dataclass(frozen=True, slots=True)
class JetsonMonitors:
    """The channels of a board: those of its total must be read, the others are shown where they can be."""

    sensor: str
    board: JetsonBoard
    channels: Sequence[JetsonChannel]
    period_ms: float
    averaging: Averaging | None

    def describe(self) -> Description:
        """Return what they are together."""
        warnings, rails = [], []
        for channel in self.channels:
            try:
                rails.append(Rail(channel.label, channel.power_w()))
            except EdgemeterError as error:
                if channel.label in self.board.total:
                    raise UnavailableError(f"rail {channel.label!r} is part of the total and cannot be read: {error}") from error
                rails.append(Rail(channel.label, None))
                warnings.append(f"rail {channel.label!r} cannot be read and is not needed for the total: {error}")
        steps_w = {channel.label: channel.step_w(self.board.shunt_uohm) for channel in self.channels if channel.label in self.board.total}
        with as_unavailable():
            described = jetson_rails.describe(self.sensor, self.board, rails, self.period_ms, steps_w, warnings)
        return dataclasses.replace(described, averaging=self.averaging)

    def read(self) -> Reading:
        """Return one reading of all channels."""
        begin = time.monotonic_ns()
        rails = tuple(Rail(channel.label, self._shown_w(channel)) for channel in self.channels)
        taken_ns = (begin + time.monotonic_ns()) // 2
        return Reading(taken_ns=taken_ns, power_w=jetson_rails.total_w(self.board, rails), rails=rails)

    def _shown_w(self, channel: JetsonChannel) -> float | None:
        try:
            return channel.power_w()
        except (UnavailableError, TransientError):
            if channel.label in self.board.total:
                raise
            return None


def find_monitors(sensor: str, root: Path, channels: Sequence[JetsonChannel], folders: Sequence[Path] = ()) -> JetsonMonitors:
    """Return the channels with the board whose total they make; of hwmon `folders` no more often than all their chips have a fresh value.

    Raises:
        UnavailableError: they make no total that we know, or a rail of it is there twice.
    """
    labels = [channel.label for channel in channels]
    board = jetson_rails.board_of(labels, jetson_rails.device_tree_names(root))
    for rail in board.total:
        places = [str(channel.factors[0].path.parent) for channel in channels if channel.label == rail]
        if len(places) > 1:
            raise UnavailableError(
                f"rail {rail!r} is there more than once ({', '.join(places)}), and it is unknown which of them is the board's: report it"
            )
    slowest_ms = max((float(optional_number(folder / "update_interval") or 0) for folder in folders), default=0.0)
    period_ms = max(HWMON_PERIOD_MS, slowest_ms) if folders else IIO_PERIOD_MS
    return JetsonMonitors(sensor, board, channels, period_ms, averaging_by("driver", update_interval_s=slowest_ms / 1000))


def monitor_chips(root: Path, driver: str) -> list[Path]:
    """Return the hwmon folders of the driver's chips; raises as `hwmon_chips`."""
    return [chip.folder for chip in hwmon_chips(root) if chip.name == driver]


def _ina3221_channels(folders: Sequence[Path]) -> list[JetsonChannel]:
    return [channel for folder in folders for number in CHANNELS if (channel := _channel(folder, number)) is not None]


def _thor_input(root: Path, folders: Sequence[Path], rails: Sequence[JetsonChannel]) -> JetsonChannel | None:
    """Return the input of a Jetson Thor among these chips: the one labelled VIN, or, on a Thor, the only one without a label."""
    labels = {folder: [label for name in INA238_LABELS if (label := _label(folder / name)) is not None] for folder in folders}
    inputs = [folder for folder in folders if labels[folder][:1] == ["VIN"]]
    has_rail = any(rail.label == "VDD_CPU_SOC_MSS" for rail in rails)
    is_thor = has_rail or any(word in jetson_rails.device_tree_names(root) for word in jetson_rails.THOR.words)
    if not inputs and is_thor:
        inputs = [folder for folder in folders if not labels[folder]]
    if len(inputs) != 1:
        return None
    folder = inputs[0]
    if (folder / "power1_input").exists():
        return JetsonChannel("VIN", (NumberFile(folder / "power1_input"),))
    return JetsonChannel("VIN", (NumberFile(folder / "in1_input"), NumberFile(folder / "curr1_input")))


def _label(path: Path) -> str | None:
    try:
        return read_text(path) or None
    except AbsentError:
        return None
    except TransientError as error:
        raise UnavailableError(str(error)) from error


def _channel(folder: Path, number: int) -> JetsonChannel | None:
    voltage, current = folder / f"in{number}_input", folder / f"curr{number}_input"
    name = _label(folder / f"in{number}_label")
    if (name is None and not voltage.exists()) or (name is not None and not jetson_rails.is_rail(name)):
        return None
    shunt_uohm, enable = optional_number(folder / f"shunt{number}_resistor"), folder / f"in{number}_enable"
    return JetsonChannel(
        label=name or f"{folder.name} in{number}",
        factors=(NumberFile(voltage), NumberFile(current)),
        voltage_mv=voltage,
        shunt_uohm=folder / f"shunt{number}_resistor",
        disabled_by=enable if optional_number(enable) == 0 else None,
        full_scale_ma=jetson_rails.SHUNT_LAST_UV / shunt_uohm * 1000 if shunt_uohm else math.inf,
    )


def _iio_channel(folder: Path, name: Path) -> JetsonChannel | None:
    number = name.name.removeprefix("rail_name_")
    label = _label(name) or f"{folder.name} {number}"
    if not jetson_rails.is_rail(label):
        return None
    power, voltage, current = (folder / f"in_{kind}{number}_input" for kind in ("power", "voltage", "current"))
    if power.exists():
        return JetsonChannel(label, (NumberFile(power),), 1000, voltage_mv=voltage)
    return JetsonChannel(label, (NumberFile(voltage), NumberFile(current)), voltage_mv=voltage)


class JetsonSensor(LocatedSensor[JetsonMonitors]):
    """The base of the three sensors."""

    def describe(self) -> Description:
        """Return which board's total it is."""
        return self._parts().describe()

    def read(self) -> Reading:
        """Return the board's total, and the power of each rail."""
        return self._parts().read()


class Ina3221(JetsonSensor):
    """The INA3221 monitors of a Jetson under JetPack 5, 6 and 7, through Linux hwmon.

    Where: /sys/class/hwmon/hwmonN (name `ina3221`) and /sys/bus/i2c/drivers/ina3221/*/hwmon/hwmonN; both lead to the same chips, of which
    AGX modules have two.
    Timing: by default a cycle over three channels takes 6.6 ms (`update_interval`); voltage and current of a channel are measured one after
    the other, each for 1.1 ms of it. A periodic load of 30-100 Hz can alias, which the sampler's jittered moments spread.
    Resolution: 40 uV over the shunt (`shuntN_resistor`, else the board's usual one) at the present voltage: 8 mA or 40 mW at 5 V on Orin
    Nano and NX, 20 mA on AGX Orin, where a rail at 20 V moves in steps of 400 mW. Offset: a step either way; a negative reading is kept.
    Range: 163.8 mV over the shunt, 32.76 A on 5 mOhm; a current at its end is no reading.
    Tested with: trees of the forms of JetPack 5 to 7; a partial one recorded on an Orin Nano.
    """

    def _find(self) -> JetsonMonitors:
        root = self._root
        folders = monitor_chips(root, "ina3221")
        if not folders:
            raise AbsentError(f"no INA3221 below {str(root / 'sys')!r}: Jetsons with JetPack 5 or newer have one")
        channels = _ina3221_channels(folders)
        try:
            return find_monitors("ina3221", root, channels, folders)
        except UnavailableError as error:
            if _thor_input(root, monitor_chips(root, "ina238"), channels) is None:
                raise
            raise AbsentError(
                "the total of this board is not in its INA3221 but in its INA238: use the sensor jetson_thor, which reads both"
            ) from error


class Ina3221x(JetsonSensor):
    """The INA3221 monitors of a Jetson under JetPack 4, through NVIDIA's IIO driver `ina3221x`.

    Where: /sys/bus/i2c/drivers/ina3221x/*/iio:deviceN. AGX Xavier, TX1 and TX2 have several.
    Timing: the driver switches by the number of processors online and their clocks between one conversion of 140 us per read and a mean of
    64 conversions over three channels, 422 ms per fresh value; so the slower of the two is what we count on.
    Resolution: 40 uV over a shunt of 5 mOhm at the present voltage: 8 mA, 40 mW at 5 V.
    Tested with: trees of this form.
    """

    def _find(self) -> JetsonMonitors:
        root = self._root
        folders = next(filter(None, (sorted(root.glob(pattern)) for pattern in IIO_PLACES)), [])
        names = {path: folder for folder in folders for path in sorted(folder.glob("rail_name_*"))}
        if not names:
            raise AbsentError(f"no ina3221x below {str(root / 'sys/bus')!r}: Jetsons with JetPack 4 have one")
        channels = [channel for name, folder in names.items() if (channel := _iio_channel(folder, name)) is not None]
        return find_monitors("ina3221x", root, channels)


class JetsonThor(JetsonSensor):
    """The input of a Jetson Thor: the INA238 of its carrier board, with the module's INA3221 rails beside it, through Linux hwmon.

    Where: the hwmon folder with the name `ina238`, `power1_input` in uW, labelled VIN; most kernels give no label, and on a Thor (by its
    device tree, or the rail VDD_CPU_SOC_MSS of its INA3221) the only INA238 is taken. It sees what the board draws, carrier and USB devices
    included; not the loss in the power supply. The rails VDD_GPU, VDD_CPU_SOC_MSS and VIN_SYS_5V0 lie inside and are shown; near zero they
    may be negative.
    Resolution and gain: the shunt and the range are not published, so both are unknown.
    Tested with: trees of this form; not yet on a Thor.
    """

    def _find(self) -> JetsonMonitors:
        root = self._root
        folders = monitor_chips(root, "ina238")
        rail_folders = monitor_chips(root, "ina3221") if folders else []
        rails = _ina3221_channels(rail_folders)
        channel = _thor_input(root, folders, rails)
        if channel is None:
            raise AbsentError(f"no INA238 of a Jetson Thor (label VIN) below {str(root / 'sys')!r}")
        return find_monitors("jetson_thor", root, [channel, *rails], [*folders, *rail_folders])

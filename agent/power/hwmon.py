"""Chips with a power reading in /sys/class/hwmon: INA2xx monitors, POWER-Z meters, graphics cards.

To connect a current monitor, load its driver: `echo ina219 0x40 | sudo tee
/sys/bus/i2c/devices/i2c-1/new_device`. The driver assumes a shunt of 10 mOhm, but most boards have
100 mOhm. Set `shunt_ohm` as printed on it, such as 0.1 for R100: without it there is no energy. If
the meter is wired the wrong way round, set `gain = -1`. Most chips also need `scope`.

    [sensors.hwmon]
    device = "1-0040"          # which chip, if there are several: name, hwmonN or bus address
    channel = "power1"         # which power, if the chip has several: powerN or its label
    shunt_ohm = 0.1            # printed on the shunt of a current monitor (R100)
    scope = "board-input"      # what the chip measures; for a current monitor your wiring decides

The gain's uncertainty defaults to 2% for a current monitor, and to 0.5% if the shunt is inside the
chip. For other chips it is unknown.

Protocol: a POWER-Z KM002C or KM003C needs Linux 6.7. The stock overlay `i2c-sensor,ina219` does
nothing. Voltage times current is the power of current monitors (INA219/220/226/230/231/234/260,
SY24655, INA228/237/238/700/780, SQ52206) and of POWER-Z, because the INA219's power register has no
sign and those of the others have coarser steps. Other chips are read by their powerN or energyN,
except a Jetson's INA3221 and batteries. An energy counter is read where there is one; that of a
current monitor has no sign, so it is read only while current flows forwards. A current at the last
step of a chip's range is no reading. The 2% are the sum of a 1% shunt and 0.5 to 1% of the chip.
Source: Linux Documentation/hwmon, Documentation/gpu/amdgpu/thermal.rst,
Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon and
drivers/hwmon/{ina2xx,ina238,powerz}.c; the chips' data sheets.
Tested with: a capture of an INA219 in a UPS, and trees of the drivers' form.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Scope
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading, values
from edgemeter.agent.power.sysfs import (
    HWMON,
    HwmonChip,
    LocatedSensor,
    hwmon_chips,
    list_folder,
    optional_number,
)

PERIOD_MS, HIGHEST_W = 100.0, 100_000.0
# INA2XX_RSHUNT_DEFAULT and INA238_RSHUNT_DEFAULT in the drivers.
DRIVER_SHUNT_OHM = 0.01
BOARD_U_RATIO, INTERNAL_U_RATIO = 0.02, 0.005
CURRENT, SUPPLY_LOSS = "curr1_input", "power-supply loss"
# The drivers give whole milliamperes, so a current near the last step may be the last.
DRIVER_STEP_MA, FULL_SCALE_RATIO = 1.0, 0.999
CHANNEL = re.compile(r"((power|energy)\d+)_(input|average)")
# The type of a power supply, which a chip that belongs to one has: batteries and chargers.
SUPPLIES = frozenset({"Battery", "Mains", "UPS", "USB", "Wireless"})


@dataclass(frozen=True, slots=True)
class ChipFacts:
    """The facts of a driver's chips.

    Their power is the file `voltage` times the current, or a file of its own where `voltage` is
    None.
    """

    scope: Scope
    excludes: tuple[str, ...] = (SUPPLY_LOSS,)
    warning: str | None = None
    voltage: str | None = None
    shunt_step_uv: float | None = None
    step_ma: float = DRIVER_STEP_MA
    bus_step_mv: float = 1.25
    last_step: float = math.inf
    gain_u_ratio: float | None = None


WIRING = (
    "taken for the board's input: if its shunt feeds something else, set scope in [sensors.hwmon]"
)
INA226 = ChipFacts(
    "board-input",
    (SUPPLY_LOSS,),
    WIRING,
    "in1_input",
    shunt_step_uv=2.5,
    last_step=0x7FFF,
    gain_u_ratio=BOARD_U_RATIO,
)
INA219 = replace(INA226, shunt_step_uv=10.0, bus_step_mv=4.0, last_step=32_000)
INA238 = replace(INA226, shunt_step_uv=5.0, bus_step_mv=3.125)
INA260 = replace(INA226, shunt_step_uv=None, step_ma=1.25, gain_u_ratio=INTERNAL_U_RATIO)
GPU = ChipFacts("gpu-board", ("mainboard", "processor", SUPPLY_LOSS))
CHIPS: Mapping[str, ChipFacts] = {
    **dict.fromkeys(("ina219", "ina220"), INA219),
    **dict.fromkeys(("ina226", "ina230", "ina231", "sy24655"), INA226),
    "ina234": replace(INA226, bus_step_mv=25.6),
    "ina228": replace(INA226, shunt_step_uv=0.3125, last_step=0x7FFFF),
    **dict.fromkeys(("ina237", "ina238", "sq52206"), INA238),
    "ina260": INA260,
    "ina700": replace(INA260, step_ma=0.48),
    "ina780": replace(INA260, step_ma=2.4),
    "powerz": ChipFacts("board-input", voltage="in0_input"),
    "amdgpu": replace(GPU, warning="in an APU this is the whole chip, processor included"),
    **dict.fromkeys(("i915", "xe"), GPU),
    "fam15h_power": ChipFacts(
        "cpu-package", ("mainboard", "memory", "disks", "GPU", "fans", SUPPLY_LOSS)
    ),
    "power_meter": ChipFacts(
        "board-input", warning='if it measures before the power supply, set scope = "wall-ac"'
    ),
}
UNKNOWN = ChipFacts("soc-rails", ("whatever the chip does not see",))


@dataclass(frozen=True, slots=True)
class HwmonChannel:
    """One power or energy of a chip: the product of its `files` and of `shunt_ratio`.

    `shunt_ratio` is the driver's shunt over the confirmed one.
    """

    chip: HwmonChip
    facts: ChipFacts
    kind: str
    id: str
    name: str
    files: tuple[str, ...]
    step_ma: float = DRIVER_STEP_MA
    shunt_ratio: float = 1.0
    is_default_shunt: bool = False

    def value(self) -> float:
        """Return the channel's value now, in W or J.

        It raises as `read_number`, and where the current is at the end of its range.
        """
        *voltages, last = (self.chip.number(file) for file in self.files)
        if voltages:
            values.within_range(
                last, FULL_SCALE_RATIO * self.step_ma * self.facts.last_step, self.chip.known_as
            )
        return math.prod(voltages, start=last) * self.shunt_ratio / 1e6

    def resolution_w(self) -> float | None:
        """Return the step of the power at the present voltage and current.

        It is None where only the driver knows the step.
        """
        if self.facts.voltage is None:
            return None
        voltage_mv, current_ma = (
            abs(self.chip.number(file)) for file in (self.facts.voltage, CURRENT)
        )
        return (
            max(voltage_mv * max(self.step_ma, DRIVER_STEP_MA), current_ma * self.facts.bus_step_mv)
            * self.shunt_ratio
            / 1e6
        )


class Hwmon(LocatedSensor[HwmonChannel]):
    """Reads one power or energy of one chip."""

    def __init__(
        self,
        device: str = "",
        channel: str = "",
        shunt_ohm: str = "",
        scope: str = "",
        root: Path = ROOT,
    ) -> None:
        super().__init__(root)
        self._device, self._channel = device, channel
        self._shunt_ohm = (
            values.positive_setting("hwmon", "shunt_ohm", shunt_ohm) if shunt_ohm else None
        )
        self._scope = values.scope_setting("hwmon", scope) if scope else None
        self._last_mj = -math.inf

    def describe(self) -> Description:
        """Return the description of the chip, blocked if its scope or shunt is unknown."""
        with values.as_unavailable():
            self._located = channel = self._find()
        chip, facts, counts = channel.chip, channel.facts, channel.kind == "energy"
        # The chip is present, even if a file is missing.
        with values.as_unavailable(AbsentError):
            power_w, step_w = self.read().power_w, channel.resolution_w()
        warnings = [facts.warning] if facts.warning and not self._scope else []
        if power_w is not None and power_w < 0:
            warnings.append(
                "current flows backwards: turn the meter around, or set gain = -1 in "
                "[sensors.hwmon]"
            )
        blocked = None
        if facts is UNKNOWN and self._scope is None:
            blocked = (
                f"it is unknown what {chip.known_as} measures: set scope in [sensors.hwmon], as "
                'in scope = "board-input"'
            )
        elif channel.is_default_shunt:
            blocked = (
                f"{chip.known_as} uses the driver's default shunt of {DRIVER_SHUNT_OHM:g} Ohm, "
                "where most boards have 0.1 Ohm: "
                "look at the shunt (R100 is 0.1 Ohm, R010 is 0.01) and set shunt_ohm = 0.1 in "
                "[sensors.hwmon]"
            )
        mean_ms, update_ms = (
            optional_number(chip.folder / file) or 0
            for file in (f"{channel.files[0]}_interval", "update_interval")
        )
        return Description(
            id=":".join(filter(None, ("hwmon", chip.name, chip.address, channel.id))),
            scope=self._scope or facts.scope,
            excludes=() if self._scope == "wall-ac" else facts.excludes,
            kind="energy" if counts else "power",
            period_ms=max(PERIOD_MS, float(update_ms)),
            resolution_w=None if counts else step_w,
            gain_u_ratio=facts.gain_u_ratio,
            # A counter uses the same converter, so its zero has the same uncertainty.
            offset_u_w=step_w / math.sqrt(3) if counts and step_w is not None else None,
            warnings=tuple(warnings),
            blocked=blocked,
            delay_ms=mean_ms + update_ms or None,
        )

    def read(self) -> Reading:
        channel, begin = self._parts(), self._clock()
        value = channel.value()
        taken_ns = (begin + self._clock()) // 2
        if channel.kind == "power":
            power_w = values.plausible_power_w(value, HIGHEST_W, channel.chip.known_as)
            return Reading(taken_ns=taken_ns, power_w=power_w, rails=(Rail(channel.name, power_w),))
        if channel.facts.voltage and channel.chip.number(CURRENT) < 0:
            raise UnavailableError(
                f"{channel.chip.known_as} counts without a sign, and current flows backwards: "
                "turn the meter around"
            )
        if 1000 * value < self._last_mj:
            raise UnavailableError(
                f"the energy counter of {channel.chip.known_as} went back: it was reset or "
                "wrapped, measure again"
            )
        self._last_mj = 1000 * value
        return Reading(
            taken_ns=taken_ns, energy_mj=self._last_mj, rails=(Rail(channel.name, None),)
        )

    def _find(self) -> HwmonChannel:
        """Return the user's channel, or the only one with the widest scope."""
        channels = [
            channel
            for chip in hwmon_chips(self._root)
            for channel in _channels(chip, self._shunt_ohm)
        ]
        if not channels:
            raise AbsentError(
                f"no chip in {str(self._root / HWMON)!r} measures power: plug in a POWER-Z "
                "(`modprobe powerz`), or wire an INA2xx "
                "and load its driver, `echo ina219 0x40 | sudo tee "
                "/sys/bus/i2c/devices/i2c-1/new_device`"
            )
        meant = [
            channel
            for channel in channels
            if self._device
            in {"", channel.chip.address, channel.chip.name, channel.chip.folder.name}
            and self._channel in {"", channel.id, channel.name}
        ]
        ranks = [
            (channel.facts is UNKNOWN, WIDEST_FIRST.index(channel.facts.scope)) for channel in meant
        ]
        widest = [channel for channel, rank in zip(meant, ranks, strict=True) if rank == min(ranks)]
        # A counter next to a power of the same chip counts that power.
        if [channel.kind for channel in widest] == ["energy", "power"] and widest[0].chip == widest[
            1
        ].chip:
            del widest[1]
        if len(widest) != 1:
            raise UnavailableError(
                f"device = {self._device!r} and channel = {self._channel!r} in [sensors.hwmon] "
                f"match {len(widest)} of the powers here: "
                "choose one of "
                + ", ".join(
                    f"{channel.chip.known_as} {channel.id} {channel.name}" for channel in channels
                )
            )
        return widest[0]


def _channels(chip: HwmonChip, confirmed_ohm: float | None) -> list[HwmonChannel]:
    facts = CHIPS.get(chip.name or "", UNKNOWN)
    if facts.voltage is None:
        if chip.name == "ina3221" or chip.text("device/type") in SUPPLIES:
            return []
        # In order of names, energies come before powers, and `_average` before `_input`, which is
        # newer and replaces it.
        matches = {
            match[1]: match
            for path in list_folder(chip.folder, "channels")
            if (match := CHANNEL.fullmatch(path.name))
        }
        return [
            HwmonChannel(chip, facts, match[2], key, chip.text(f"{key}_label") or key, (match[0],))
            for key, match in matches.items()
        ]
    channel = HwmonChannel(
        chip,
        facts,
        "power",
        "",
        chip.text("label") or str(chip.name),
        (facts.voltage, CURRENT),
        facts.step_ma,
    )
    if chip.has("energy1_input") and chip.number(CURRENT) >= 0:
        channel = replace(channel, kind="energy", files=("energy1_input",))
    if facts.shunt_step_uv is None:
        return [channel]
    in_tree_uohm = chip.device_tree_number("shunt-resistor")
    # The driver ina238 shows no such file.
    shunt_uohm = chip.number("shunt_resistor") if chip.has("shunt_resistor") else in_tree_uohm
    shunt_ohm = shunt_uohm / 1e6 if shunt_uohm else DRIVER_SHUNT_OHM
    is_default = shunt_ohm == DRIVER_SHUNT_OHM and confirmed_ohm is None and in_tree_uohm is None

    return [
        replace(
            channel,
            step_ma=facts.shunt_step_uv / shunt_ohm / 1000,
            shunt_ratio=shunt_ohm / (confirmed_ohm or shunt_ohm),
            is_default_shunt=is_default,
        )
    ]

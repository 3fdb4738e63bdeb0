"""INA219/220/226/230/231/234/260, SY24655 and INA228/237/238/700/780, SQ52206 current monitors through the kernel's drivers.

Where: /sys/class/hwmon/hwmonN, `name` as above: in1_input bus mV, curr1_input mA (signed), energy1_input uJ where the chip counts.
in0_input is the shunt's voltage. power1_input is not used: the INA219's power register has no sign, and the others' have coarser steps.
INA228, INA780 and SQ52206 count energy in the chip; that counter has no sign either and is used only while current flows forwards.
Source: Linux drivers/hwmon/ina2xx.c, ina238.c and their documentation.

The driver takes a shunt of 10 mOhm unless another is configured; common boards have 100 mOhm, which makes its current ten times
too high. So a shunt that nobody set is a reason to give no energy, until it is confirmed here. A confirmed shunt that differs from the
driver's rescales the current. To load the driver: `echo ina219 0x40 | sudo tee /sys/bus/i2c/devices/i2c-1/new_device` (the stock
overlay `i2c-sensor,ina219` does nothing). Where the shunt sits is the user's wiring: in the 5 V feed it sees the whole board.

    [sensors.ina2xx]
    shunt_ohm = "0.1"          # what is printed on the shunt (R100), confirms or corrects the driver's
    device = "1-0040"          # which chip, where there are several; "1-0040,1-0041" adds them up
    scope = "board-input"      # what the shunt feeds
    direction = "forward"      # or "reverse", where current towards the board reads negative

Gain: 2% standard uncertainty (a 1% shunt and 0.5 to 1% of the chip, added); 0.5% where the shunt is in
the chip. Both are a class, not a data sheet's figure: set `gain` and `gain_u_ratio` for better. A current at the last step of the range
(320 mV on the shunt of an INA219, 82 mV on that of an INA226, 164 or 41 mV on that of an INA228 or INA238) is no reading, as it may be any
larger one.
Tested with: a capture of an INA219 in a UPS, and trees of the drivers' form; not yet on a board.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading, values
from edgemeter.agent.power.sysfs import HwmonChip, LocatedSensor, hwmon_chips, optional_number

PERIOD_MS = 100.0
# Source: INA2XX_RSHUNT_DEFAULT and INA238_RSHUNT_DEFAULT in the drivers, 10 mOhm.
DRIVER_SHUNT_OHM = 0.01
BOARD_U_RATIO = 0.02
INTERNAL_U_RATIO = 0.005
# A step of the shunt's voltage in uV. Source: shunt_div in ina2xx.c; the data sheets of INA228, INA238 (ADCRANGE = 0).
SHUNT_STEP_UV = {
    "ina219": 10.0, "ina220": 10.0,
    "ina226": 2.5, "ina230": 2.5, "ina231": 2.5, "ina234": 2.5, "sy24655": 2.5,
    "ina237": 5.0, "ina238": 5.0, "sq52206": 5.0, "ina228": 0.3125,
}  # fmt: skip
UNKNOWN_STEP_UV = 10.0
# The last step that a chip shows, either way: the INA219's amplifier ends at 320 mV. Source: data sheets.
LAST_STEP = {"ina219": 32_000, "ina220": 32_000, "ina228": 0x7FFFF}
USUAL_LAST_STEP = 0x7FFF
# The last steps of a current that was rounded on its way.
FULL_SCALE_RATIO = 0.999
# Chips whose amplifier the device tree may set, with what it is set to otherwise. Source: ina238.c, ti,shunt-gain.
USUAL_GAIN = {"ina228": 4, "ina237": 4, "ina238": 4, "sq52206": 4}
# Chips with the shunt inside, and a step of their current in mA. Source: data sheets, "current LSB"; INA780 and INA700: from ina238.c.
INTERNAL_STEP_MA = {"ina260": 1.25, "ina700": 0.48, "ina780": 2.4}
NAMES = frozenset({*SHUNT_STEP_UV, *INTERNAL_STEP_MA})
BUS_STEP_MV = {"ina219": 4.0, "ina220": 4.0, "ina234": 25.6, "ina237": 3.125, "ina238": 3.125, "sq52206": 3.125}
USUAL_BUS_STEP_MV = 1.25
# The drivers give whole milliamperes and millivolts.
DRIVER_STEP_MA = 1.0
DRIVER_STEP_MV = 1.0
# More than rounding: the driver's shunt is another than the user's.
SAME_SHUNT_RATIO = 1e-6
# 85 V, and 164 mV on a shunt of a tenth of a milliohm.
HIGHEST_W = 140_000.0


@dataclass(frozen=True, slots=True)
class _Shunt:
    """The driver's shunt and where its value is from, and the user's; None where the chip has its own."""

    driver_ohm: float
    origin: Literal["set", "device tree", "default"]
    confirmed_ohm: float | None

    @property
    def true_ohm(self) -> float:
        return self.confirmed_ohm or self.driver_ohm


@dataclass(frozen=True, slots=True)
class _Meter:
    chip: HwmonChip
    shunt: _Shunt | None
    sign: int
    counts: bool

    @property
    def current_ratio(self) -> float:
        """The factor by which the driver's current, and so its energy, is corrected."""
        return self.shunt.driver_ohm / self.shunt.true_ohm if self.shunt else 1.0

    def power_w(self) -> float:
        """Return voltage times current, towards the board."""
        full_scale_ma = FULL_SCALE_RATIO * self.step_ma() * LAST_STEP.get(self.chip.name or "", USUAL_LAST_STEP)
        current_ma = values.within_range(self.chip.number("curr1_input"), full_scale_ma, self.chip.known_as)
        found_w = self.sign * self.chip.number("in1_input") * current_ma * self.current_ratio / 1e6
        return values.plausible_power_w(found_w, HIGHEST_W, self.chip.known_as)

    def step_ma(self) -> float:
        name = self.chip.name or ""
        if self.shunt is None:
            return INTERNAL_STEP_MA[name]
        gain = self.chip.device_tree_number("ti,shunt-gain")
        wider = gain / USUAL_GAIN[name] if gain and name in USUAL_GAIN else 1.0
        return wider * SHUNT_STEP_UV.get(name, UNKNOWN_STEP_UV) / self.shunt.driver_ohm / 1000

    def energy_mj(self) -> float:
        return self.chip.number("energy1_input") * self.current_ratio / 1000

    def resolution_w(self) -> float:
        """Return the step of a power reading at the present voltage and current."""
        name = self.chip.name or ""
        voltage_step_v = max(BUS_STEP_MV.get(name, USUAL_BUS_STEP_MV), DRIVER_STEP_MV) / 1000
        voltage_v = abs(self.chip.number("in1_input")) / 1000
        current_a = abs(self.chip.number("curr1_input")) * self.current_ratio / 1000
        return max(voltage_v * max(self.step_ma(), DRIVER_STEP_MA) * self.current_ratio / 1000, current_a * voltage_step_v)


class Ina2xx(LocatedSensor[tuple[_Meter, ...]]):
    """Multiplies voltage and current of one chip, or of several that the user adds up."""

    def __init__(
        self,
        shunt_ohm: str = "",
        device: str = "",
        scope: str = "",
        direction: str = "forward",
        root: Path = ROOT,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(root, clock)
        self._confirmed_ohm = values.positive_setting("ina2xx", "shunt_ohm", shunt_ohm) if shunt_ohm else None
        self._devices = tuple(filter(None, map(str.strip, device.split(","))))
        self._scope = values.scope_setting("ina2xx", scope) if scope else None
        self._sign = values.direction_setting("ina2xx", direction)
        self._last_mj: float | None = None

    def describe(self) -> Description:
        """Return which chip is read, and whether its shunt is known."""
        chips = self._chosen()
        # The chip is here: a missing file does not mean an absent chip.
        with values.as_unavailable(AbsentError):
            self._located = meters = tuple(map(self._meter, chips))
            resolution_w = max(meter.resolution_w() for meter in meters)
            reading = self.read()
        counts = reading.energy_mj is not None
        internal = all(meter.shunt is None for meter in meters)
        update_ms = float(max(optional_number(meter.chip.folder / "update_interval") or 0 for meter in meters))
        return Description(
            id=f"ina2xx:{'+'.join(meter.chip.known_as.replace(' at ', '@') for meter in meters)}",
            scope=self._scope or "board-input",
            excludes=("power-supply loss",),
            kind="energy" if counts else "power",
            period_ms=max(PERIOD_MS, update_ms),
            resolution_w=None if counts else resolution_w,
            # What the chip counts went through the same converter: its zero is known no better.
            offset_u_w=resolution_w / math.sqrt(3) if counts else None,
            gain_u_ratio=INTERNAL_U_RATIO if internal else BOARD_U_RATIO,
            warnings=tuple(self._warnings(meters, reading)),
            averaging=values.averaging_by("driver", update_interval_s=update_ms / 1000),
            blocked="; ".join(filter(None, map(_blocked, meters))) or None,
        )

    def read(self) -> Reading:
        """Return voltage times current, or the chip's energy counter."""
        meters = self._parts()
        begin = self._clock()
        powers_w = [meter.power_w() for meter in meters]
        counts = all(meter.counts for meter in meters)
        energy_mj = sum(meter.energy_mj() for meter in meters) if counts else None
        taken_ns = (begin + self._clock()) // 2
        rails = tuple(
            Rail(meter.chip.text("label") or meter.chip.name or "ina2xx", power) for meter, power in zip(meters, powers_w, strict=True)
        )
        if energy_mj is None:
            return Reading(taken_ns=taken_ns, power_w=sum(powers_w), rails=rails)
        self._check_counter(energy_mj, powers_w)
        return Reading(taken_ns=taken_ns, energy_mj=energy_mj, rails=rails)

    def close(self) -> None:
        """Forget the chips."""
        super().close()
        self._last_mj = None

    def _find(self) -> tuple[_Meter, ...]:
        return tuple(map(self._meter, self._chosen()))

    def _chosen(self) -> list[HwmonChip]:
        chips = [chip for chip in hwmon_chips(self._root) if is_ina2xx(chip)]
        if not chips:
            raise AbsentError(
                f"no INA2xx chip in {str(self._root / 'sys/class/hwmon')!r}: wire one and load its driver, "
                "`echo ina219 0x40 | sudo tee /sys/bus/i2c/devices/i2c-1/new_device`"
            )
        selected = [chip for chip in chips if not self._devices or any(chip.answers_to(device) for device in self._devices)]
        names = ", ".join(chip.known_as for chip in chips)
        unknown = [device for device in self._devices if not any(chip.answers_to(device) for chip in chips)]
        if unknown:
            raise UnavailableError(
                f"no INA2xx chip is called {', '.join(unknown)!r}: correct device in [sensors.ina2xx]; there are {names}"
            )
        if len(selected) > max(1, len(self._devices)) or (len(selected) > 1 and not self._devices):
            first = selected[0].address or selected[0].folder.name
            labels = ", ".join(map(_seen, selected))
            raise UnavailableError(
                f"there are {len(selected)} INA2xx chips ({labels}), and it is unknown which of them is the total: "
                f'set device = "{first}" in [sensors.ina2xx], or several joined by commas to add them up'
            )
        return selected

    def _meter(self, chip: HwmonChip) -> _Meter:
        shunt = None if chip.name in INTERNAL_STEP_MA else _shunt(chip, self._confirmed_ohm)
        counts = chip.has("energy1_input") and self._sign > 0 and chip.number("curr1_input") >= 0
        return _Meter(chip, shunt, self._sign, counts)

    def _check_counter(self, energy_mj: float, powers_w: Sequence[float]) -> None:
        if min(powers_w) < 0:
            raise UnavailableError(
                "the INA2xx's energy counter has no sign, and current flows backwards through it: turn the chip's IN+ and IN- around, "
                'or set direction = "reverse" in [sensors.ina2xx] to read power instead'
            )
        if self._last_mj is not None and energy_mj < self._last_mj:
            raise UnavailableError(
                f"the INA2xx's energy counter went back from {self._last_mj:.0f} to {energy_mj:.0f} mJ: it was reset, measure again"
            )
        self._last_mj = energy_mj

    def _warnings(self, meters: Sequence[_Meter], reading: Reading) -> list[str]:
        warnings = []
        if self._scope is None:
            warnings.append("taken for the board's input: set scope in [sensors.ina2xx] where the shunt feeds something else")
        warnings += filter(None, map(_rescaled, meters))
        warnings += [
            f"{rail.name} is negative: current flows backwards, out of a battery for one; "
            'set direction = "reverse" in [sensors.ina2xx] where that feeds the board'
            for rail in reading.rails
            if rail.power_w is not None and rail.power_w < 0
        ]
        return warnings


def is_ina2xx(chip: HwmonChip) -> bool:
    """Return whether the chip is one of these."""
    return chip.name in NAMES


def _shunt(chip: HwmonChip, confirmed_ohm: float | None) -> _Shunt:
    in_tree_uohm = chip.device_tree_number("shunt-resistor")
    in_tree_ohm = in_tree_uohm and in_tree_uohm / 1e6
    if not chip.has("shunt_resistor"):
        # ina238.c shows no such file.
        return _Shunt(in_tree_ohm or DRIVER_SHUNT_OHM, "device tree" if in_tree_ohm else "default", confirmed_ohm)
    driver_ohm = chip.number("shunt_resistor") / 1e6
    if driver_ohm <= 0:
        raise UnavailableError(f"{chip.known_as}: shunt_resistor is {driver_ohm:g} Ohm: write the shunt's microohms into it")
    if in_tree_ohm == driver_ohm:
        return _Shunt(driver_ohm, "device tree", confirmed_ohm)
    return _Shunt(driver_ohm, "default" if driver_ohm == DRIVER_SHUNT_OHM else "set", confirmed_ohm)


def _rescaled(meter: _Meter) -> str | None:
    if meter.shunt is None or abs(meter.current_ratio - 1) < SAME_SHUNT_RATIO:
        return None
    return (
        f"{meter.chip.known_as}: the driver takes a shunt of {meter.shunt.driver_ohm:g} Ohm ({meter.shunt.origin}), "
        f"{meter.shunt.true_ohm:g} was confirmed: its current is multiplied by {meter.current_ratio:g}"
    )


def _blocked(meter: _Meter) -> str | None:
    if meter.shunt is None or meter.shunt.confirmed_ohm or meter.shunt.origin != "default":
        return None
    return (
        f"{meter.chip.known_as} uses the driver's default shunt of {DRIVER_SHUNT_OHM:g} Ohm, where most boards have 0.1 Ohm and a tenth of "
        'the power: look at the shunt (R100 is 0.1 Ohm, R010 is 0.01) and set shunt_ohm = "0.1" in [sensors.ina2xx]'
    )


def _seen(chip: HwmonChip) -> str:
    try:
        return f"{chip.known_as} {chip.number('in1_input') * chip.number('curr1_input') / 1e6:.3f} W"
    except (UnavailableError, TransientError):
        return f"{chip.known_as} unreadable"

"""Power-management chip of a Raspberry Pi 5, Compute Module 5 or 500, read by `vcgencmd`.

It adds up twelve rails behind the board's regulators. It misses the loss in the regulators, and
whatever takes the 5 V directly: USB devices (a USB Coral too), HATs, NVMe drives, the fan. The
gain's error is unknown. A reading takes 23 ms.

Install `raspi-utils` or `libraspberrypi-bin`. Unless you are root, join the group `video`.

Protocol: `vcgencmd pmic_read_adc` prints current and voltage of each rail; they are paired by name,
because the numbers in brackets differ. `EXT5V` (the 5 V input) and `BATT` (the clock's battery)
have a voltage only. Early firmware calls `0V8_SW` `0V8_SYS`. A step of the core's current is 8.93
mA, about 8 mW; of the other rails' 0.976 mA (both seen in captures). The DDR rails read exactly 0
at low load. The rails are read one after the other within the 23 ms of the firmware's time.
Tested with: captures of Raspberry Pi 5 at idle and under load, and of older boards' refusals.
"""

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.machine.machine import run_in_english
from edgemeter.agent.power import (
    ROOT,
    USB_DEVICES,
    AbsentError,
    Description,
    PowerSensor,
    Rail,
    Reading,
)
from edgemeter.agent.power.sysfs import optional_text
from edgemeter.agent.power.values import as_unavailable, plausible_power_w

COMMAND = ("vcgencmd", "pmic_read_adc")
PERIOD_MS = 100.0
# Source: steps between values in captures (VDD_CORE carries most of the power and has the coarsest
# step: 8.93 mA at about 0.9 V).
RESOLUTION_W = 0.008
RAILS = (
    "3V7_WL_SW", "3V3_SYS", "1V8_SYS", "DDR_VDD2", "DDR_VDDQ", "1V1_SYS",
    "0V8_SW", "VDD_CORE", "3V3_DAC", "3V3_ADC", "0V8_AON", "HDMI",
)  # fmt: skip
# Source: Raspberry Pi documentation, the firmware warns of under-voltage at 4.63 V.
LOWEST_INPUT_V = 4.63
# Four times what the board's supply gives.
HIGHEST_W = 100.0
EARLY_NAMES = {"0V8_SYS": "0V8_SW"}
VOLTAGE_ONLY = frozenset({"EXT5V", "BATT"})
EXCLUDES = (USB_DEVICES, "HATs", "NVMe drives", "fan", "conversion loss", "power-supply loss")
VALUE = re.compile(
    r"([A-Z0-9_]+)_(?:A\s+current\(\d+\)=(?P<A>-?\d+\.\d+)A|V\s+volt\(\d+\)=(?P<V>-?\d+\.\d+)V)"
)
# The start of a line of ours, whole or cut.
OURS = re.compile(r"\b[A-Z0-9_]+_(A\s+current|V\s+volt)\(\d+\)")
# A mark that lines of rails have even if they are cut or garbled.
RAIL_BEGINS = re.compile(r"[A-Z0-9]_[AV]\b|current\(|volt\(")
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[bytes]"]
PI_5_FAMILY = re.compile(r"Raspberry Pi (5|500|Compute Module 5)")


class Pi5Pmic(PowerSensor):
    """Adds up the rails of the power-management chip."""

    def __init__(
        self,
        root: Path = ROOT,
        run: Run = run_in_english,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._root, self._run = root, run
        self._clock = clock

    def describe(self) -> Description:
        with as_unavailable():
            currents_a, voltages_v = self._values()
        return Description(
            id="pi5_pmic",
            scope="soc-rails",
            excludes=EXCLUDES,
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=RESOLUTION_W,
            warnings=tuple(_warnings(currents_a, voltages_v)),
        )

    def read(self) -> Reading:
        begin = self._clock()
        currents_a, voltages_v = self._values()
        taken_ns = (begin + self._clock()) // 2
        powers_w = {
            name: plausible_power_w(current_a * voltages_v[name], HIGHEST_W, f"rail {name!r}")
            for name, current_a in currents_a.items()
        }
        return Reading(
            taken_ns=taken_ns,
            power_w=sum(powers_w.values()),
            rails=tuple(Rail(name, power_w) for name, power_w in powers_w.items()),
        )

    def _values(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return current and voltage of each rail, A and V."""
        try:
            completed = self._run(COMMAND)
        except FileNotFoundError as error:
            raise AbsentError(
                "vcgencmd is not installed: on a Raspberry Pi 5, `sudo apt install raspi-utils`"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise TransientError(
                f"`{' '.join(COMMAND)}` took longer than {error.timeout:.3g} s: check the load "
                "of the machine"
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"cannot start `vcgencmd`: {error.strerror}: run it by hand to see what it needs"
            ) from error
        stdout = completed.stdout.decode(errors="replace")
        if not OURS.search(stdout):
            raise self._refusal(f"{stdout}\n{completed.stderr.decode(errors='replace')}")
        return _parse(stdout)

    def _refusal(self, output: str) -> UnavailableError:
        text = " ".join(output.split())
        if "not registered" in text:
            model = optional_text(self._root / "proc/device-tree/model") or ""
            is_older = "Raspberry Pi" in model and not PI_5_FAMILY.search(model)
            return (AbsentError if is_older else UnavailableError)(
                f"the firmware knows no `pmic_read_adc` ({text[:80]}): a Raspberry Pi 4 or older "
                "has no power sensor, "
                "measure it with an external one; on a Raspberry Pi 5 update with `sudo "
                "rpi-eeprom-update -a`"
            )
        if "VCHI" in text or "vchiq" in text or "/dev/vc" in text:
            return UnavailableError(
                f"vcgencmd may not ask the firmware ({text[:80]}): `sudo usermod -aG video "
                "$USER`, then log in again"
            )
        return UnavailableError(
            f"`{' '.join(COMMAND)}` printed {text[:80]!r}, and no rail: run it by hand, on a "
            "Raspberry Pi 5"
        )


def _parse(output: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return current and voltage by rail; other lines (a prompt, a date, a comment) are skipped."""
    by_kind: dict[str, dict[str, float]] = {"A": {}, "V": {}}
    for line in map(str.strip, output.splitlines()):
        value = VALUE.fullmatch(line)
        if value is not None:
            name, kind = EARLY_NAMES.get(value[1], value[1]), value.lastgroup or ""
            if name in by_kind[kind]:
                raise TransientError(
                    f"`pmic_read_adc` printed {line[:60]!r} and another value before it: give "
                    "one reading at a time"
                )
            by_kind[kind][name] = float(value[kind])
        elif RAIL_BEGINS.search(line):
            raise TransientError(
                f"`pmic_read_adc` printed {line[:60]!r}, which is cut or garbled, so there is no "
                "sum: read it again"
            )
    currents_a, voltages_v = by_kind["A"], by_kind["V"]
    cut = [
        name
        for name in dict.fromkeys((*RAILS, *currents_a))
        if name not in currents_a or name not in voltages_v
    ]
    if cut:
        raise TransientError(
            f"`pmic_read_adc` printed no current or no voltage of {', '.join(cut)}: read again, "
            "without arguments"
        )
    return currents_a, voltages_v


def _warnings(currents_a: Mapping[str, float], voltages_v: Mapping[str, float]) -> list[str]:
    warnings = []
    if unknown := [name for name in voltages_v if name not in RAILS and name not in VOLTAGE_ONLY]:
        counted = [name for name in unknown if name in currents_a]
        warnings.append(
            f"rails that this version does not know: {', '.join(unknown)}; counted: "
            f"{', '.join(counted) or 'none (no current)'}"
        )
    if voltages_v.get("EXT5V", LOWEST_INPUT_V) < LOWEST_INPUT_V:
        warnings.append(
            f"the 5 V input is at {voltages_v['EXT5V']:.2f} V, below {LOWEST_INPUT_V} V: use a "
            "better supply or cable"
        )
    return warnings

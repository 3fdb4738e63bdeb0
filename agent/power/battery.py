"""The battery of a laptop, a tablet or a UPS board, by its fuel gauge; it sees the machine only while nothing else feeds it.

Where: /sys/class/power_supply/NAME/{type,status,power_now,current_now,voltage_now,present,scope} in uW, uA and uV, or the same in
NAME/uevent. Of a `Battery` or `UPS` whose scope is not `Device` (a mouse, a pen) power_now is taken, else current times voltage. Drivers
disagree about the sign of a current that flows out, so the status gives the direction, the current the amount. Several batteries add up.
Source: Linux Documentation/ABI/testing/sysfs-class-power.

While the battery charges, is full, or an adapter is in, there is no figure: unplug it. Gauges answer with an average over seconds and
change once a second or slower; their gain error is unknown. A gauge with a voltage only (MAX17040) cannot measure power.

Configuration: nothing.
Tested with: trees of the ABI's form; not yet on a board.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading
from edgemeter.agent.power.sysfs import WHOLE_NUMBER, list_folder, read_text
from edgemeter.agent.power.values import as_unavailable, plausible_power_w
from edgemeter.agent.power.world import LocatedSensor

FOLDER = "sys/class/power_supply"
PERIOD_MS = 1000.0
DISCHARGING = "Discharging"
# The status of a second battery while the first one feeds the machine.
RESTING = frozenset({"Not charging", "Unknown", "Full"})
HIGHEST_W = 10_000.0
REMEDY = "unplug the power supply while measuring, or measure at the wall"
ADAPTERS = frozenset({"Mains", "USB", "Wireless"})
# Jetsons list the port that feeds others, ucsi-source-psy-..., as a supply.
NO_BATTERY = re.compile(r"ucsi.*")


@dataclass(frozen=True, slots=True)
class _Supply:
    """One folder of power_supply."""

    folder: Path

    def text(self, key: str) -> str | None:
        """Return a property from its file, else from uevent; None where neither has it."""
        with suppress(AbsentError):
            return read_text(self.folder / key) or None
        begin = f"POWER_SUPPLY_{key.upper()}="
        with suppress(AbsentError):
            lines = read_text(self.folder / "uevent").splitlines()
            return next((line.removeprefix(begin).strip() for line in lines if line.startswith(begin)), None)
        return None

    def number(self, key: str) -> int | None:
        text = self.text(key)
        if text is None:
            return None
        if not WHOLE_NUMBER.fullmatch(text):
            raise TransientError(f"{key} of battery {self.folder.name!r} is {text[:40]!r}, not a whole number")
        return int(text)

    def power_w(self) -> float:
        """Return what flows, whatever its direction."""
        power_uw = self.number("power_now")
        # Some gauges have the file and never fill it.
        if power_uw:
            return abs(power_uw) / 1e6
        current_ua, voltage_uv = self.number("current_now"), self.number("voltage_now")
        if current_ua and voltage_uv and voltage_uv > 0:
            return abs(current_ua) * voltage_uv / 1e12
        if power_uw is None and (current_ua is None or voltage_uv is None):
            raise UnavailableError(
                f"battery {self.folder.name!r} shows neither power_now nor current_now and voltage_now: its gauge cannot measure power"
            )
        raise TransientError(f"battery {self.folder.name!r} discharges and shows no power: its gauge has not measured yet; read it again")


class Battery(LocatedSensor[list[_Supply]]):
    """Reads what the batteries give while they alone feed the machine."""

    def describe(self) -> Description:
        """Return which batteries there are."""
        with as_unavailable():
            self._located = batteries = self._find()
            self.read()
        return Description(
            id=f"battery:{'+'.join(battery.folder.name for battery in batteries)}",
            scope="board-input",
            excludes=("power-supply loss", "battery loss"),
            kind="power",
            period_ms=PERIOD_MS,
            warnings=("fuel gauges average over seconds: measure for minutes",),
        )

    def read(self) -> Reading:
        """Return what the batteries give."""
        batteries = self._parts()
        begin = self._clock()
        feeding = self._feeding(batteries)
        rails = tuple(
            Rail(battery.folder.name, plausible_power_w(battery.power_w(), HIGHEST_W, battery.folder.name)) for battery in feeding
        )
        taken_ns = (begin + self._clock()) // 2
        return Reading(taken_ns=taken_ns, power_w=sum(rail.power_w or 0.0 for rail in rails), rails=rails)

    def _find(self) -> list[_Supply]:
        batteries = [supply for supply in self._supplies() if _is_battery(supply)]
        if not batteries:
            raise AbsentError(f"no battery of this machine in {str(self._world.root / FOLDER)!r}")
        return batteries

    def _supplies(self) -> list[_Supply]:
        return [_Supply(folder) for folder in list_folder(self._world.root / FOLDER, "batteries") if folder.is_dir()]

    def _feeding(self, batteries: list[_Supply]) -> list[_Supply]:
        states = {battery: battery.text("status") for battery in batteries}
        feeding = [battery for battery, status in states.items() if status == DISCHARGING]
        other_statuses = [status for status in states.values() if status != DISCHARGING and status not in RESTING]
        states_text = ", ".join(f"{battery.folder.name} is {status or 'without a status'}" for battery, status in states.items())
        if not feeding or other_statuses:
            raise UnavailableError(
                f"the battery does not feed the machine alone ({states_text}), so it does not see what the machine draws: {REMEDY}"
            )
        adapters = [
            supply.folder.name
            for supply in self._supplies()
            if supply.text("type") in ADAPTERS and supply.text("online") not in {None, "0"}
        ]
        if adapters:
            raise UnavailableError(f"{', '.join(adapters)} feeds the machine in addition to the battery ({states_text}): {REMEDY}")
        return feeding


def _is_battery(supply: _Supply) -> bool:
    if NO_BATTERY.fullmatch(supply.folder.name) or supply.text("scope") == "Device" or supply.text("present") == "0":
        return False
    kind = supply.text("type")
    # An excerpt of a tree may lack the type: no other kind of supply has a capacity and a state.
    return kind in {"Battery", "UPS"} if kind else supply.text("status") is not None

"""The battery of a laptop, a tablet or a UPS board, by its fuel gauge; it sees the machine only while nothing else feeds it.

Where: /sys/class/power_supply/NAME/{type,status,power_now,current_now,voltage_now,present,scope} in uW, uA and uV, or the same in
NAME/uevent. Of a `Battery` or `UPS` whose scope is not `Device` (a mouse, a pen) power_now is taken, else current times voltage. Drivers
disagree about the sign of a current that flows out, so the status tells the direction and the amount is taken. Several batteries add up.
Source: Linux Documentation/ABI/testing/sysfs-class-power.

While the battery charges, is full, or an adapter is in, there is no figure: unplug it. Gauges answer with an average over seconds and
change once a second or slower; their gain error is unknown. A gauge with a voltage only (MAX17040) cannot tell power.

Configuration: nothing.
Tested with: trees of the ABI's form; not yet on a board.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading, plausible, sysfs_file
from edgemeter.agent.power.world import HERE, World

PERIOD_MS = 1000.0
DISCHARGING = "Discharging"
# What a second battery says while the first one feeds the machine.
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
        try:
            return sysfs_file.text(self.folder / key) or None
        except AbsentError:
            pass
        try:
            lines = sysfs_file.text(self.folder / "uevent").splitlines()
        except AbsentError:
            return None
        begin = f"POWER_SUPPLY_{key.upper()}="
        return next((line.removeprefix(begin).strip() for line in lines if line.startswith(begin)), None)

    def number(self, key: str) -> int | None:
        """Return a property's number; None where there is none.

        Raises:
            TransientError: it is no number.
        """
        said = self.text(key)
        if said is None:
            return None
        if not sysfs_file.NUMBER.fullmatch(said):
            message = f"{key} of battery {self.folder.name!r} is {said[:40]!r}, not a whole number"
            raise TransientError(message)
        return int(said)

    def power_w(self) -> float:
        """Return what flows, whatever its direction.

        Raises:
            UnavailableError: the gauge does not tell.
            TransientError: it gave no number this time.
        """
        power_uw = self.number("power_now")
        # Some gauges have the file and never fill it.
        if power_uw:
            return abs(power_uw) / 1e6
        current_ua, voltage_uv = self.number("current_now"), self.number("voltage_now")
        if current_ua and voltage_uv and voltage_uv > 0:
            return abs(current_ua) * voltage_uv / 1e12
        if power_uw is None and (current_ua is None or voltage_uv is None):
            message = (
                f"battery {self.folder.name!r} tells neither power_now nor current_now and voltage_now: its gauge cannot measure power"
            )
            raise UnavailableError(message)
        message = f"battery {self.folder.name!r} discharges and shows no power: its gauge has not measured yet; read it again"
        raise TransientError(message)


class Battery:
    """Reads what the batteries give while they alone feed the machine."""

    def __init__(self, world: World = HERE, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._folder = world.root / "sys/class/power_supply"
        self._clock = clock
        self._batteries: list[_Supply] = []

    def describe(self) -> Description:
        """Return which batteries there are.

        Raises:
            AbsentError: there is none.
            UnavailableError: it does not feed the machine, or its gauge tells no power.
        """
        try:
            self._batteries = self._find()
            self.read()
        except TransientError as error:
            raise UnavailableError(str(error)) from error
        return Description(
            id=f"battery:{'+'.join(battery.folder.name for battery in self._batteries)}",
            scope="board-input",
            excludes=("power-supply loss", "battery loss"),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=None,
            gain_u_ratio=None,
            warnings=("fuel gauges average over seconds: measure for minutes",),
        )

    def read(self) -> Reading:
        """Return what the batteries give.

        Raises:
            UnavailableError: a charger came, or a battery went.
            TransientError: a gauge gave no number this time.
        """
        self._batteries = self._batteries or self._find()
        begin = self._clock()
        feeding = self._feeding()
        rails = tuple(
            Rail(battery.folder.name, plausible.power_w(battery.power_w(), HIGHEST_W, battery.folder.name)) for battery in feeding
        )
        taken_ns = (begin + self._clock()) // 2
        return Reading(taken_ns=taken_ns, power_w=sum(rail.power_w or 0.0 for rail in rails), rails=rails)

    def close(self) -> None:
        """Forget the batteries."""
        self._batteries = []

    @staticmethod
    def recognises(content: bytes) -> bool:  # noqa: ARG004 - it reads a tree
        """Return False."""
        return False

    def _find(self) -> list[_Supply]:
        batteries = [supply for supply in self._supplies() if _is_battery(supply)]
        if not batteries:
            message = f"no battery of this machine in {str(self._folder)!r}"
            raise AbsentError(message)
        return batteries

    def _supplies(self) -> list[_Supply]:
        try:
            return [_Supply(folder) for folder in sorted(self._folder.iterdir()) if folder.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            message = f"cannot look for batteries in {str(self._folder)!r}: {error.strerror}: run where /sys is open"
            raise UnavailableError(message) from error

    def _feeding(self) -> list[_Supply]:
        """Return the batteries that feed the machine.

        Raises:
            UnavailableError: none does, or not alone.
        """
        states = {battery: battery.text("status") for battery in self._batteries}
        feeding = [battery for battery, status in states.items() if status == DISCHARGING]
        others = [status for status in states.values() if status != DISCHARGING and status not in RESTING]
        said = ", ".join(f"{battery.folder.name} is {status or 'silent about its state'}" for battery, status in states.items())
        if not feeding or others:
            message = f"the battery does not feed the machine alone ({said}), so it does not see what the machine draws: {REMEDY}"
            raise UnavailableError(message)
        adapters = [
            supply.folder.name
            for supply in self._supplies()
            if supply.text("type") in ADAPTERS and supply.text("online") not in {None, "0"}
        ]
        if adapters:
            message = f"{', '.join(adapters)} feeds the machine beside the battery ({said}): {REMEDY}"
            raise UnavailableError(message)
        return feeding


def _is_battery(supply: _Supply) -> bool:
    if NO_BATTERY.fullmatch(supply.folder.name) or supply.text("scope") == "Device" or supply.text("present") == "0":
        return False
    kind = supply.text("type")
    # An excerpt of a tree may lack the type: no other kind of supply has a capacity and a state.
    return kind in {"Battery", "UPS"} if kind else supply.text("status") is not None

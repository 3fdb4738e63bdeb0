"""Energy counters inside Intel and AMD processors (RAPL), read through Linux powercap.

It sees processors and memory, or the whole platform where the counter `psys` works. The gain's
error is unknown. Since Linux 5.10 only root may read the counters. To open them to all, add this
line to /etc/udev/rules.d/70-rapl.rules and reboot:

    SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chmod a+r /sys%p/energy_uj"

Where: /sys/class/powercap/intel-rapl:N/{name,energy_uj,max_energy_range_uj}; AMD uses the same
names. `package-N` zones add up. `core` and `uncore` lie inside a package and are left out; `dram`
does not and is added. `psys` is used alone if it counts at least as much as the packages.
`intel-rapl-mmio` is the package a second time and is left out. The counters wrap at
max_energy_range_uj, about every 20 minutes at 200 W. CVE-2020-8694 is why only root may read.
Tested with: trees of this form.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading
from edgemeter.agent.power.sysfs import (
    LocatedSensor,
    NumberFile,
    list_folder,
    optional_number,
    optional_text,
)
from edgemeter.agent.power.values import as_unavailable

# The counters move every millisecond; this is how often we read.
PERIOD_MS = 100.0
# Source: Intel SDM vol. 4, MSR_RAPL_POWER_UNIT: a step is at most 2**-14 J on processors with
# powercap; AMD's is 2**-16 J.
STEP_MJ = 1000 / 2**14
# More than any socket draws: a counter that seems to is one that was reset, not one that wrapped.
HIGHEST_W = 5000.0
# psys is there but dead on many machines: it counts when it moves at least this much as the
# packages do.
PSYS_RATIO = 0.9
PSYS_CHECK_S = 0.05
ZONE = re.compile(r"^intel-rapl:\d+(:\d+)?$")
POWERCAP = "sys/class/powercap"


@dataclass(slots=True)
class _Zone:
    """One counter, unwrapped; energies in microjoules as the kernel gives them."""

    file: NumberFile
    name: str
    range_uj: int | None
    last_uj: int | None = None
    last_ns: int = 0
    sum_uj: int = 0


class Rapl(LocatedSensor[list[_Zone]]):
    """Adds up the processor's packages and memory, or reads the platform's counter."""

    def __init__(
        self,
        root: Path = ROOT,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(root, clock)
        self._sleep = sleep

    def describe(self) -> Description:
        names = [zone.name for zone in self._parts()]
        platform = names == ["psys"]
        excludes = (
            ("power-supply loss",)
            if platform
            else ("mainboard", "disks", "GPU", "fans", "power-supply loss")
        )
        return Description(
            id=f"rapl:{'+'.join(names)}",
            scope="board-input" if platform else "cpu-package",
            excludes=excludes if platform or "dram" in names else ("memory", *excludes),
            kind="energy",
            period_ms=PERIOD_MS,
            resolution_mj=STEP_MJ,
        )

    def read(self) -> Reading:
        """Return the energy since the first reading."""
        zones = self._parts()
        begin = self._clock()
        energy_uj = sum(self._count(zone) for zone in zones)
        return Reading(
            taken_ns=(begin + self._clock()) // 2,
            energy_mj=energy_uj / 1000,
            rails=tuple(Rail(zone.name, None) for zone in zones),
        )

    def _find(self) -> list[_Zone]:
        top = _zone_folders(self._root / POWERCAP)
        # The class folder lists sub-zones beside their zone, which holds them too.
        by_name = {
            folder.name: folder
            for folder in (*top, *(below for zone in top for below in _zone_folders(zone)))
        }
        zones = [zone for _, folder in sorted(by_name.items()) if (zone := _zone(folder))]
        packages = [zone for zone in zones if zone.name.startswith("package")]
        memory = [zone for zone in zones if zone.name == "dram"]
        platform = [zone for zone in zones if zone.name == "psys"][:1]
        counters = packages + memory
        if not counters and not platform:
            raise AbsentError(
                f"no RAPL counter in {str(self._root / POWERCAP)!r}: a virtual machine and most "
                "ARM boards have none; "
                "on an Intel or AMD machine try `sudo modprobe intel_rapl_msr`"
            )
        with as_unavailable():
            for zone in [*counters, *platform]:
                self._count(zone)
        return platform if platform and self._is_alive(platform[0], packages) else counters

    def _is_alive(self, platform: _Zone, packages: list[_Zone]) -> bool:
        if not packages:
            return True
        before = platform.sum_uj, sum(zone.sum_uj for zone in packages)
        self._sleep(PSYS_CHECK_S)
        moved = self._count(platform) - before[0]
        return moved > 0 and moved >= PSYS_RATIO * (
            sum(self._count(zone) for zone in packages) - before[1]
        )

    def _count(self, zone: _Zone) -> int:
        """Return the energy of one zone since its first reading, microjoules."""
        try:
            now_uj, now_ns = zone.file.number(), self._clock()
        except AbsentError as error:
            raise UnavailableError(
                f"{error}, though its zone is here: see the kernel log for intel_rapl"
            ) from error
        if zone.last_uj is not None:
            moved = now_uj - zone.last_uj
            if moved < 0:
                moved += zone.range_uj or 0
                if moved < 0 or moved / 1e6 > HIGHEST_W * (now_ns - zone.last_ns) / 1e9:
                    raise UnavailableError(
                        f"RAPL counter {str(zone.file.path)!r} was reset (from {zone.last_uj} to "
                        f"{now_uj} uJ): measure again"
                    )
            zone.sum_uj += moved
        zone.last_uj, zone.last_ns = now_uj, now_ns
        return zone.sum_uj


def _zone_folders(parent: Path) -> list[Path]:
    return [path for path in list_folder(parent, "RAPL counters") if ZONE.match(path.name)]


def _zone(folder: Path) -> _Zone | None:
    name = optional_text(folder / "name")
    return (
        None
        if name is None
        else _Zone(
            NumberFile(folder / "energy_uj"), name, optional_number(folder / "max_energy_range_uj")
        )
    )

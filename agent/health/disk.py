"""The file system that holds the agent's data: what is free, and what its medium says of its wear.

eMMC tells in steps of 10 % how much of its life is used, and whether its spare blocks run out; an SD card tells nothing, so what ext4
counted as written is all there is. Source: JESD84-B51, EXT_CSD 267 to 269; Linux Documentation/driver-api/mmc/mmc-dev-attrs.rst;
Documentation/ABI/testing/sysfs-fs-ext4.
"""

import os
from pathlib import Path

from edgemeter.agent.health.contract import Disk
from edgemeter.agent.machine.machine import Machine, whole_number

STEP_RATIO = 0.1
WORN_OUT = 0x0B
# PRE_EOL_INFO: 1 normal, 2 80 % of the spare blocks are used, 3 urgent.
URGENT = 3


def read(home: Path, machine: Machine) -> Disk:
    """Return the state of the file system that `home` is on."""
    try:
        seen = os.statvfs(home)
        number = home.stat().st_dev
    except OSError:
        return Disk()
    block = f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    wear_ratio, is_worn_out = wear(block, machine)
    return Disk(
        free_bytes=seen.f_bavail * seen.f_frsize,
        size_bytes=seen.f_blocks * seen.f_frsize,
        wear_ratio=wear_ratio,
        is_worn_out=is_worn_out,
        written_bytes=_written(block, machine),
    )


def wear(block: str, machine: Machine) -> tuple[float | None, bool | None]:
    """Return how much of its life an eMMC has used at most, and whether its end is announced; None where the medium does not tell."""
    for device in (f"{block}/device", f"{block}/../device"):
        used = [found for word in (machine.text(f"{device}/life_time") or "").split() if (found := whole_number(word, 16))]
        end = whole_number(machine.text(f"{device}/pre_eol_info"), 16)
        if used or end:
            ratio = min(1.0, STEP_RATIO * max(used)) if used else None
            return ratio, max(used, default=0) >= WORN_OUT or (end or 0) >= URGENT
    return None, None


def _written(block: str, machine: Machine) -> int | None:
    try:
        name = (machine.root / block).resolve().name
    except OSError:
        return None
    kilobytes = machine.number(f"sys/fs/ext4/{name}/lifetime_write_kbytes")
    return None if kilobytes is None else kilobytes << 10

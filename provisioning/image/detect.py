"""Detects the first-boot format of a card, and files on it that do not match.

A wrong format silently does nothing.
"""

import re

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.image import cloudinit, firstrun
from edgemeter.provisioning.image.adapter_text import KERNEL_LINE, BootFormat
from edgemeter.provisioning.image.boot_partition import OVER_SSH, BootPartition

ISSUE = "issue.txt"
# The first Raspberry Pi OS with a Python for the agent, and the last one built for firstrun.sh: the
# first Trixie. Source: rpi-imager doc/os_customisation_formats.md; Debian 12 has Python 3.11,
# Debian 13 has 3.13.
FIRST_BOOKWORM, LAST_FIRSTRUN = "2023-10-10", "2025-10-01"
REFERENCE = re.compile(r"Raspberry Pi reference (\d{4}-\d{2}-\d{2})")
# Kernels of 32 bits, which an image for 64 bits does not have. Source: the packages raspi-firmware
# and linux-image-rpi of Raspberry Pi OS.
KERNELS_32 = frozenset({"kernel.img", "kernel7.img", "kernel7l.img"})
# Files that act at a board's first boot, and their formats.
FIRST_BOOT_FILES: dict[str, BootFormat | None] = {
    cloudinit.USER_DATA: "cloudinit",
    firstrun.NAME: "firstrun",
    "custom.toml": None,
    "userconf.txt": None,
}


def choose_format(boot: BootPartition) -> tuple[BootFormat, str]:
    """Return the format of the system, and why.

    It is found by the date in its issue.txt, else by the files of its boot partition.

    Raises:
        ConfigError: the system is too old, or nothing shows its format.
    """
    names = boot.names()
    date = system_date(boot)
    why = f"its {ISSUE} names Raspberry Pi OS of {date}"
    if date is not None and date < FIRST_BOOKWORM:
        raise ConfigError(
            f"{str(boot.path)!r} is Raspberry Pi OS of {date}, whose Python is too old: take "
            "Bookworm or later"
        )
    if date is not None:
        return "firstrun" if date <= LAST_FIRSTRUN else "cloudinit", why
    if re.search(r"\binit=\S*/firstboot\b", boot.text(KERNEL_LINE) or ""):
        return "firstrun", f"its {KERNEL_LINE} starts Raspberry Pi OS Bookworm's firstboot"
    seeds = [
        name
        for name in (cloudinit.USER_DATA, cloudinit.META_DATA, cloudinit.NETWORK)
        if name in names
    ]
    if seeds:
        return "cloudinit", f"it has {' and '.join(seeds)}"
    if boot.label.upper() == "CIDATA":
        return "cloudinit", f"its label is {boot.label}"
    listed = ", ".join(sorted(names)[:8]) or "nothing"
    raise ConfigError(
        f"cannot tell which first-boot format {str(boot.path)!r} has (it holds {listed}): choose "
        f"one (--first-boot), or {OVER_SSH}"
    )


def system_date(boot: BootPartition) -> str | None:
    """Return the date of the Raspberry Pi OS, None for another system."""
    dated = REFERENCE.search(boot.text(ISSUE) or "")
    return dated[1] if dated else None


def misfits(boot: BootPartition, form: BootFormat, arch: str, python: str) -> list[str]:
    """Return other files that act at the first boot, and reasons against this release.

    These are reasons why a release for this architecture and Python may not fit the system.
    """
    names = boot.names()
    texts = [
        f"{name} also acts at the first boot: delete it if that is not intended"
        for name, owner in FIRST_BOOT_FILES.items()
        if name in names and owner != form
    ]
    if form != "firstrun" and "systemd.run=" in (boot.text(KERNEL_LINE) or ""):
        texts.append(
            f"systemd.run= in {KERNEL_LINE} runs a command in place of the first boot: delete it"
        )
    if arch == "aarch64" and names & KERNELS_32:
        texts.append(
            f"the release is for {arch}, and the system has {min(names & KERNELS_32)}, as one of "
            "32 bits: take the 64-bit image"
        )
    date = system_date(boot)
    system_python = "3.11" if date and date < LAST_FIRSTRUN else "3.13"
    if date is not None and system_python != python:
        texts.append(
            f"the release is for Python {python}, and Raspberry Pi OS of {date} has "
            f"{system_python}: "
            f"build it with `fleet release build --python {system_python}`"
        )
    return texts

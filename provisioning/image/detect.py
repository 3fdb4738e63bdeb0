"""Which first-boot format a card has; an adapter of an earlier preparation for another format is removed: a card has exactly one.

The Raspberry Pi alone has three formats in use, and writing the wrong one fails silently.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.image import boot_partition, cloudinit, firstrun, preseed
from edgemeter.provisioning.image.adapter_text import KERNEL_LINE
from edgemeter.provisioning.image.boot_partition import PlannedPartition, Readable

BootFormat = Literal["cloudinit", "preseed", "firstrun", "cidata"]
BOOT_FORMATS: tuple[BootFormat, ...] = get_args(BootFormat)
STICK = "CIDATA"
ISSUE = "issue.txt"

# The last Raspberry Pi OS that was built for firstrun.sh whatever its kernel line: the first Trixie.
# Source: rpi-imager doc/os_customisation_formats.md.
LAST_FIRSTRUN = "2025-10-01"
FIRST_BOOKWORM = "2023-10-10"
REFERENCE = re.compile(r"Raspberry Pi reference (\d{4}-\d{2}-\d{2})")
CLOUD_FILES = (cloudinit.USER_DATA, cloudinit.META_DATA, cloudinit.NETWORK)

# The Python of each Raspberry Pi OS, by the date of its first release; Source: Debian 12 has 3.11, Debian 13 has 3.13.
PYTHONS = (("2023-10-10", "Raspberry Pi OS Bookworm", "3.11"), (LAST_FIRSTRUN, "Raspberry Pi OS Trixie", "3.13"))
# Kernels of 32 bits, which an image for 64 bits does not have. Source: the packages raspi-firmware and linux-image-rpi of Raspberry Pi OS.
KERNELS_32 = frozenset({"kernel.img", "kernel7.img", "kernel7l.img"})
KERNEL_64 = "kernel8.img"

# Files of other formats that the board would act on too, and what they belong to.
ALSO_FIRE = {
    "custom.toml": "Raspberry Pi OS Bookworm's settings",
    "userconf.txt": "Raspberry Pi OS's first account",
    firstrun.NAME: "firstrun",
    preseed.NAME: "rpi-preseed",
    cloudinit.USER_DATA: "cloud-init",
}
OWN_FILES: dict[BootFormat, frozenset[str]] = {
    "cloudinit": frozenset(CLOUD_FILES),
    "cidata": frozenset(CLOUD_FILES),
    "preseed": frozenset({preseed.NAME}),
    "firstrun": frozenset({firstrun.NAME}),
}


@dataclass(frozen=True, slots=True)
class ChosenFormat:
    """A format, and why it was chosen."""

    form: BootFormat
    why: str


def choose_format(boot: Readable, requested: BootFormat | None) -> ChosenFormat:
    """Return `requested`, else the format that the boot partition shows; raises ConfigError if it shows none, or several."""
    signs = _signs(boot)
    if requested is not None:
        return ChosenFormat(requested, "--first-boot requests it")
    if len(signs) == 1:
        return signs[0]
    choices = ", ".join(BOOT_FORMATS)
    if signs:
        candidates = " and ".join(f"{sign.form} ({sign.why})" for sign in signs)
        message = f"{boot.where} could be {candidates}: choose one (--first-boot {choices})"
    else:
        names = ", ".join(sorted(boot.names())[:8]) or "nothing"
        message = f"cannot tell which first-boot format {boot.where} has (it holds {names}): choose one (--first-boot {choices})"
    raise ConfigError(message)


def _signs(boot: Readable) -> list[ChosenFormat]:
    names = {name.lower() for name in boot.names()}
    signs = []
    cloud = [name for name in CLOUD_FILES if name in names]
    if boot.label.upper() == STICK and not names & {KERNEL_LINE, "config.txt"}:
        return [ChosenFormat("cidata", f"its label is {boot.label}")]
    if preseed.NAME in names or "rpi-preseed" in names:
        signs.append(ChosenFormat("preseed", f"it has {preseed.NAME if preseed.NAME in names else 'a folder rpi-preseed'}"))
    if cloud:
        signs.append(ChosenFormat("cloudinit", f"it has {' and '.join(cloud)}"))
    line = (boot_partition.read_text(boot, KERNEL_LINE) or "") if KERNEL_LINE in names else ""
    if re.search(r"\binit=\S*/firstboot\b", line):
        signs.append(ChosenFormat("firstrun", f"its {KERNEL_LINE} starts Raspberry Pi OS Bookworm's firstboot"))
    elif not signs and firstrun.NAME in names:
        signs.append(ChosenFormat("firstrun", f"it has {firstrun.NAME}"))
    elif not signs and ISSUE in names:
        dated = REFERENCE.search(boot_partition.read_text(boot, ISSUE) or "")
        if dated and FIRST_BOOKWORM <= dated[1] <= LAST_FIRSTRUN:
            signs.append(ChosenFormat("firstrun", f"its {ISSUE} names Raspberry Pi OS of {dated[1]}"))
    return signs


def also_firing(boot: Readable, form: BootFormat) -> list[str]:
    """Return what else on the card acts at the first boot, as text: files of other formats, a command of the kernel line."""
    names = {name.lower() for name in boot.names()}
    texts = [f"{name} ({owner})" for name, owner in ALSO_FIRE.items() if name in names and name not in OWN_FILES[form]]
    line = (boot_partition.read_text(boot, KERNEL_LINE) or "") if KERNEL_LINE in names else ""
    words = line.split()
    if form != "firstrun" and any(word.startswith("systemd.run=") for word in words):
        texts.append(f"systemd.run= in {KERNEL_LINE} (a command of the kernel line)")
    if form == "cloudinit" and any(word.startswith("ds=") and ("seedfrom=" in word or ";s=" in word) for word in words):
        texts.append(f"ds= in {KERNEL_LINE} (cloud-init reads its files from elsewhere)")
    return texts


def misfits(boot: Readable, arch: str, python: str) -> list[str]:
    """Return why a release for this architecture and Python does not seem to fit the system, as far as its boot partition shows."""
    names = {name.lower() for name in boot.names()}
    texts = []
    if arch == "aarch64" and names & KERNELS_32:
        texts.append(f"the release is for {arch}, and the system has {min(names & KERNELS_32)}, as one of 32 bits: take the 64-bit image")
    elif arch != "aarch64" and KERNEL_64 in names:
        texts.append(f"the release is for {arch}, and the system has {KERNEL_64}, as one for aarch64: take another release")
    dated = REFERENCE.search(boot_partition.read_text_if_any(boot, ISSUE))
    fitting = [(system, version) for since, system, version in PYTHONS if dated and dated[1] >= since]
    if fitting and fitting[-1][1] != python:
        system, version = fitting[-1]
        texts.append(
            f"the release is for Python {python}, and {system} has {version}: build it with `fleet release build --python {version}`"
        )
    return texts


# A stick and a card of cloud-init have the same files: one overwrites the other.
ADAPTERS = (
    (frozenset({"cloudinit", "cidata"}), cloudinit.withdrawal),
    (frozenset({"preseed"}), preseed.withdrawal),
    (frozenset({"firstrun"}), firstrun.withdrawal),
)


def without_previous(boot: Readable, form: BootFormat) -> PlannedPartition:
    """Return the boot partition without the adapters of formats other than `form`; the user's lines all stay."""
    after = PlannedPartition(boot)
    for forms, withdrawal in ADAPTERS:
        if form not in forms:
            after.changes |= {change.path.lower(): change for change in withdrawal(after)}
    return after

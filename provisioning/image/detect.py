"""Which first-boot format a card has: three are alive at once on the Raspberry Pi alone, and writing the wrong one is silent."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.image import boot_partition, cloudinit, firstrun, kernel_line, preseed
from edgemeter.provisioning.image.boot_partition import Readable

Format = Literal["cloudinit", "preseed", "firstrun", "cidata"]
FORMATS: tuple[Format, ...] = get_args(Format)
STICK = "CIDATA"
ISSUE = "issue.txt"
# The last Raspberry Pi OS that was built for firstrun.sh whatever its kernel line says: the first Trixie.
# Source: rpi-imager doc/os_customisation_formats.md.
LAST_FIRSTRUN = "2025-10-01"
FIRST_BOOKWORM = "2023-10-10"
REFERENCE = re.compile(r"Raspberry Pi reference (\d{4}-\d{2}-\d{2})")
CLOUD_FILES = (cloudinit.USER_DATA, cloudinit.META_DATA, cloudinit.NETWORK)
# What a board with that format would run too, by its file, and what that is.
ALSO_FIRE = {
    "custom.toml": "Raspberry Pi OS Bookworm's settings",
    "userconf.txt": "Raspberry Pi OS's first account",
    firstrun.NAME: "firstrun",
    preseed.NAME: "rpi-preseed",
    cloudinit.USER_DATA: "cloud-init",
}
OWN_FILES: dict[Format, frozenset[str]] = {
    "cloudinit": frozenset(CLOUD_FILES),
    "cidata": frozenset(CLOUD_FILES),
    "preseed": frozenset({preseed.NAME}),
    "firstrun": frozenset({firstrun.NAME}),
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A format, and why it is this one."""

    form: Format
    why: str


def choose(boot: Readable, wanted: Format | None) -> Chosen:
    """Return the format that `wanted` says, else the one that the boot partition shows.

    Raises:
        ConfigError: it shows none, or two.
    """
    signs = _signs(boot)
    if wanted is not None:
        return Chosen(wanted, "--format says so")
    if len(signs) == 1:
        return signs[0]
    choices = ", ".join(FORMATS)
    if signs:
        what = " and ".join(f"{sign.form} ({sign.why})" for sign in signs)
        message = f"{boot.where} could be {what}: say which one (--format {choices})"
    else:
        names = ", ".join(sorted(boot.names())[:8]) or "nothing"
        message = f"cannot tell which first-boot format {boot.where} has (it holds {names}): say which one (--format {choices})"
    raise ConfigError(message)


def _signs(boot: Readable) -> list[Chosen]:
    names = {name.lower() for name in boot.names()}
    found = []
    cloud = [name for name in CLOUD_FILES if name in names]
    if boot.label.upper() == STICK and not names & {kernel_line.NAME, "config.txt"}:
        return [Chosen("cidata", f"its label is {boot.label}")]
    if preseed.NAME in names or "rpi-preseed" in names:
        found.append(Chosen("preseed", f"it has {preseed.NAME if preseed.NAME in names else 'a folder rpi-preseed'}"))
    if cloud:
        found.append(Chosen("cloudinit", f"it has {' and '.join(cloud)}"))
    line = (boot_partition.text(boot, kernel_line.NAME) or "") if kernel_line.NAME in names else ""
    if re.search(r"\binit=\S*/firstboot\b", line):
        found.append(Chosen("firstrun", f"its {kernel_line.NAME} starts Raspberry Pi OS Bookworm's firstboot"))
    elif not found and firstrun.NAME in names:
        found.append(Chosen("firstrun", f"it has {firstrun.NAME}"))
    elif not found and ISSUE in names:
        dated = REFERENCE.search(boot_partition.text(boot, ISSUE) or "")
        if dated and FIRST_BOOKWORM <= dated[1] <= LAST_FIRSTRUN:
            found.append(Chosen("firstrun", f"its {ISSUE} says Raspberry Pi OS of {dated[1]}"))
    return found


def also_firing(boot: Readable, form: Format) -> list[str]:
    """Return what else on the card would act at the first boot, in words: another format's files, a kernel line's command."""
    names = {name.lower() for name in boot.names()}
    found = [f"{name} ({what})" for name, what in ALSO_FIRE.items() if name in names and name not in OWN_FILES[form]]
    line = (boot_partition.text(boot, kernel_line.NAME) or "") if kernel_line.NAME in names else ""
    words = line.split()
    if form != "firstrun" and any(word.startswith("systemd.run=") for word in words):
        found.append(f"systemd.run= in {kernel_line.NAME} (a command of the kernel's line)")
    if form == "cloudinit" and any(word.startswith("ds=") and ("seedfrom=" in word or ";s=" in word) for word in words):
        found.append(f"ds= in {kernel_line.NAME} (cloud-init reads its files from elsewhere)")
    return found

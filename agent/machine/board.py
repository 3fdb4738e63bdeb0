"""Which board this is: model, system on chip, processor, firmware, power mode."""

import re
from collections import Counter

from edgemeter.agent.machine.machine import Machine

DEVICE_TREE = ("proc/device-tree", "sys/firmware/devicetree/base")
# What makers leave in the DMI table when they fill in nothing.
PLACEHOLDERS = re.compile(
    r"^(to be filled|default string|system (product|manufacturer)|not (applicable|specified)|unknown|none$|o\.?e\.?m)", re.IGNORECASE
)

# Source: Linux arch/arm64/include/asm/cputype.h.
PARTS = {
    (0x41, 0xB76): "ARM1176",
    (0x41, 0xC07): "Cortex-A7",
    (0x41, 0xC08): "Cortex-A8",
    (0x41, 0xC09): "Cortex-A9",
    (0x41, 0xC0F): "Cortex-A15",
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x41, 0xD84): "Neoverse-V3",
    (0x4E, 0x003): "NVIDIA Denver 2",
    (0x4E, 0x004): "NVIDIA Carmel",
}


def model(machine: Machine) -> str | None:
    """Return the board as its device tree names it, or as its maker does in the DMI table."""
    for tree in DEVICE_TREE:
        if named := machine.line(f"{tree}/model"):
            return named
    for vendor, product in (("sys_vendor", "product_name"), ("board_vendor", "board_name")):
        told = [text for file in (vendor, product) if (text := _dmi(machine, file))]
        if told:
            return " ".join(dict.fromkeys(told))
    return None


def soc(machine: Machine) -> str | None:
    """Return the system on chip: the last, most general entry of the device tree's `compatible`."""
    for tree in DEVICE_TREE:
        if compatible := machine.text(f"{tree}/compatible"):
            return " ".join(compatible.split("\0")[-1].split())
    return None


def cpu(machine: Machine) -> str | None:
    """Return the processor: the cores' design on ARM, the maker's name elsewhere; several designs with their counts."""
    text = machine.text("proc/cpuinfo") or ""
    implementers = re.findall(r"^CPU implementer\s*:\s*(0x[0-9a-f]+)", text, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(0x[0-9a-f]+)", text, re.MULTILINE)
    if parts and len(parts) == len(implementers):
        kinds = Counter(_core(int(maker, 16), int(part, 16)) for maker, part in zip(implementers, parts, strict=True))
        return next(iter(kinds)) if len(kinds) == 1 else " + ".join(f"{count}x {kind}" for kind, count in kinds.items())
    named = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return named[1].strip() if named else None


def cores(machine: Machine) -> int | None:
    """Return how many processors the kernel runs on."""
    return len(re.findall(r"^processor\s*:", machine.text("proc/cpuinfo") or "", re.MULTILINE)) or None


def firmware(machine: Machine) -> str | None:
    """Return the version of what lies below the kernel: L4T on a Jetson, VideoCore on a Raspberry Pi, BIOS on a PC."""
    release = re.match(r"# R(\d+) \(release\), REVISION: ([\d.]+)", machine.text("etc/nv_tegra_release") or "")
    if release:
        return f"L4T {release[1]}.{release[2]}"
    if is_raspberry_pi(machine):
        return _videocore(machine.output(["vcgencmd", "version"]))
    told = [text for file in ("bios_vendor", "bios_version", "bios_date") if (text := _dmi(machine, file))]
    return " ".join(told) or None


def power_mode(machine: Machine) -> str | None:
    """Return the power mode: `2 MAXN_SUPER` (id and name) on a Jetson, the platform profile where ACPI has one."""
    if is_jetson(machine):
        told = machine.output(["nvpmodel", "-q"]) or ""
        mode = re.search(r"NV Power Mode:\s*(\S+)\s*^(\d+)\s*$", told, re.MULTILINE)
        return f"{mode[2]} {mode[1]}" if mode else None
    return machine.line("sys/firmware/acpi/platform_profile")


def is_raspberry_pi(machine: Machine) -> bool:
    """Return whether the board is a Raspberry Pi, whose firmware answers `vcgencmd`."""
    return (model(machine) or "").startswith("Raspberry Pi")


def is_jetson(machine: Machine) -> bool:
    """Return whether the board carries a Tegra."""
    return machine.text("etc/nv_tegra_release") is not None or "tegra" in (soc(machine) or "")


def _core(implementer: int, part: int) -> str:
    return PARTS.get((implementer, part), f"ARM implementer {implementer:#04x} part {part:#05x}")


def _dmi(machine: Machine, file: str) -> str | None:
    text = machine.line(f"sys/class/dmi/id/{file}")
    return None if text is None or PLACEHOLDERS.match(text) else text


def _videocore(told: str | None) -> str | None:
    """Return hash and date out of what `vcgencmd version` prints: a date, a copyright, `version HASH (release) ...`."""
    lines = (told or "").splitlines()
    version = next((line.split()[1] for line in lines if line.startswith("version ") and len(line.split()) > 1), None)
    return f"{version} of {' '.join(lines[0].split())}" if version else None

"""The identity of the machine, and whether it is a guest.

It is the board, system on chip, processor, firmware and power mode.

Signs of a virtual machine or container are those of systemd-detect-virt that an ordinary user can
read in files.
"""

import re
from collections import Counter

from edgemeter.agent.machine.machine import Machine

DEVICE_TREE = ("proc/device-tree", "sys/firmware/devicetree/base")

# Texts in the DMI table that vendors left as they were.
PLACEHOLDERS = re.compile(
    r"^(to be filled|default string|system (product|manufacturer)|not "
    r"(applicable|specified)|unknown|none$|o\.?e\.?m)",
    re.IGNORECASE,
)

# Source: Linux arch/arm64/include/asm/cputype.h.
CPU_PARTS = {
    (0x41, 0xB76): "ARM1176", (0x41, 0xC07): "Cortex-A7", (0x41, 0xC08): "Cortex-A8",
    (0x41, 0xC09): "Cortex-A9", (0x41, 0xC0F): "Cortex-A15", (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35", (0x41, 0xD05): "Cortex-A55", (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73", (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0C): "Neoverse-N1", (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1", (0x41, 0xD41): "Cortex-A78", (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD44): "Cortex-X1", (0x41, 0xD46): "Cortex-A510", (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2", (0x41, 0xD49): "Neoverse-N2", (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD4D): "Cortex-A715", (0x41, 0xD4E): "Cortex-X3", (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD80): "Cortex-A520", (0x41, 0xD81): "Cortex-A720", (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD83): "Neoverse-V3AE", (0x41, 0xD84): "Neoverse-V3", (0x4E, 0x003): "NVIDIA Denver 2",
    (0x4E, 0x004): "NVIDIA Carmel",
}  # fmt: skip
_SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Vendor names by which hypervisors show. Source: systemd src/basic/virt.c, dmi_vendors.
HYPERVISOR_MAKERS = (
    ("qemu", "qemu"), ("kvm", "kvm"), ("openstack", "kvm"), ("kubevirt", "kvm"),
    ("amazon ec2", "amazon"), ("google compute engine", "google"), ("vmware", "vmware"),
    ("innotek", "virtualbox"), ("virtualbox", "virtualbox"), ("xen", "xen"), ("bochs", "bochs"),
    ("parallels", "parallels"), ("bhyve", "bhyve"), ("hyper-v", "hyper-v"),
    ("microsoft corporation virtual machine", "hyper-v"), ("apple virtualization", "apple"),
)  # fmt: skip
# Clock sources that only a guest has.
GUEST_CLOCKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyper-v"), ("xen", "xen"))
CONTAINERS = re.compile(r"\b(docker|kubepods|containerd|libpod|lxc|machine\.slice)\b")
CONTAINER_NAMES = {"libpod": "podman", "kubepods": "kubernetes", "machine.slice": "systemd-nspawn"}


def model(machine: Machine) -> str | None:
    """Return the board's model, from the device tree or else from the DMI table."""
    for tree in DEVICE_TREE:
        if named := machine.line(f"{tree}/model"):
            return named
    for vendor, product in (("sys_vendor", "product_name"), ("board_vendor", "board_name")):
        names = [text for file in (vendor, product) if (text := _dmi(machine, file))]
        if names:
            return " ".join(dict.fromkeys(names))
    return None


def soc(machine: Machine) -> str | None:
    """Return the system on chip: the last, most general entry of the device tree's `compatible`."""
    texts = (machine.text(f"{tree}/compatible") for tree in DEVICE_TREE)
    compatible = next(filter(None, texts), None)
    return None if compatible is None else " ".join(compatible.split("\0")[-1].split())


def cpu(machine: Machine) -> str | None:
    """Return the processor.

    It is the core design on ARM, the model name elsewhere; several designs have their counts.
    """
    text = machine.text("proc/cpuinfo") or ""
    implementers = re.findall(r"^CPU implementer\s*:\s*(0x[0-9a-f]+)", text, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(0x[0-9a-f]+)", text, re.MULTILINE)
    if parts and len(parts) == len(implementers):
        codes = [
            (int(implementer, 16), int(part, 16))
            for implementer, part in zip(implementers, parts, strict=True)
        ]
        kinds = Counter(
            CPU_PARTS.get(code, "ARM implementer {:#04x} part {:#05x}".format(*code))
            for code in codes
        )
        return (
            next(iter(kinds))
            if len(kinds) == 1
            else " + ".join(f"{count}x {kind}" for kind, count in kinds.items())
        )
    named = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return named[1].strip() if named else None


def cores(machine: Machine) -> int | None:
    return (
        len(re.findall(r"^processor\s*:", machine.text("proc/cpuinfo") or "", re.MULTILINE)) or None
    )


def firmware(machine: Machine) -> str | None:
    """Return the firmware version: L4T on a Jetson, VideoCore on a Raspberry Pi, BIOS on a PC."""
    release = re.match(
        r"# R(\d+) \(release\), REVISION: ([\d.]+)", machine.text("etc/nv_tegra_release") or ""
    )
    if release:
        return f"L4T {release[1]}.{release[2]}"
    if is_raspberry_pi(machine):
        # The lines are a date, a copyright, and `version HASH (release) ...`.
        lines = (machine.output(["vcgencmd", "version"]) or "").splitlines()
        version = next(
            (
                line.split()[1]
                for line in lines
                if line.startswith("version ") and len(line.split()) > 1
            ),
            None,
        )
        return f"{version} of {' '.join(lines[0].split())}" if version else None
    bios = (_dmi(machine, file) for file in ("bios_vendor", "bios_version", "bios_date"))
    return " ".join(filter(None, bios)) or None


def cache_mb(machine: Machine) -> float | None:
    """Return the total size of the last level of caches in MB; None if the kernel reports none."""
    sizes: dict[tuple[int, str], int] = {}
    for path in machine.find("sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        level, shared_by, size = (
            machine.number(path / "level"),
            machine.line(path / "shared_cpu_list"),
            machine.line(path / "size"),
        )
        if (
            level
            and shared_by
            and size
            and machine.line(path / "type") != "Instruction"
            and size[:-1].isdecimal()
        ):
            sizes[level, shared_by] = int(size[:-1]) * _SIZE_UNITS.get(size[-1], 0)
    last = max((level for level, _ in sizes), default=0)
    return sum(size for (level, _), size in sizes.items() if level == last) / 1e6 or None


def power_mode(machine: Machine) -> str | None:
    """Return the power mode.

    It is `2 MAXN_SUPER` (id and name) on a Jetson, elsewhere ACPI's platform profile.
    """
    if is_jetson(machine):
        mode = re.search(
            r"NV Power Mode:\s*(\S+)\s*^(\d+)\s*$",
            machine.output(["nvpmodel", "-q"]) or "",
            re.MULTILINE,
        )
        return f"{mode[2]} {mode[1]}" if mode else None
    return machine.line("sys/firmware/acpi/platform_profile")


def is_raspberry_pi(machine: Machine) -> bool:
    """Return whether the board is a Raspberry Pi, whose firmware supports `vcgencmd`."""
    return (model(machine) or "").startswith("Raspberry Pi")


def is_jetson(machine: Machine) -> bool:
    return machine.text("etc/nv_tegra_release") is not None or "tegra" in (soc(machine) or "")


def _dmi(machine: Machine, file: str) -> str | None:
    text = machine.line(f"sys/class/dmi/id/{file}")
    return None if text is None or PLACEHOLDERS.match(text) else text


def detect_virtualisation(machine: Machine) -> str | None:
    """Return the container and hypervisor, the innermost first (`docker in kvm`).

    None if there are no signs of either.
    """
    return " in ".join(filter(None, (container(machine), hypervisor(machine)))) or None


def container(machine: Machine) -> str | None:
    if named := machine.line("run/systemd/container"):
        return named
    if (machine.root / "run/.containerenv").exists():
        return "podman"
    if (machine.root / ".dockerenv").exists():
        return "docker"
    sign = CONTAINERS.search(
        f"{machine.text('proc/1/cgroup') or ''}\n{machine.text('proc/self/cgroup') or ''}"
    )
    return CONTAINER_NAMES.get(sign[1], sign[1]) if sign else None


def hypervisor(machine: Machine) -> str | None:
    """Return the hypervisor; `vm` if its name is unknown."""
    if "microsoft" in (machine.text("proc/sys/kernel/osrelease") or "").lower():
        return "wsl"
    if device_tree := machine.text("proc/device-tree/hypervisor/compatible"):
        return device_tree.split("\0")[0].removeprefix("linux,").split(",")[0]
    texts = [
        machine.text(f"sys/class/dmi/id/{file}")
        for file in ("sys_vendor", "product_name", "board_vendor", "bios_vendor")
    ]
    if "linux,dummy-virt" in (machine.text("proc/device-tree/compatible") or ""):
        texts.append("qemu")
    vendors = " ".join(filter(None, texts)).lower()
    # Cloud providers write the same vendor on bare-metal machines.
    named = (
        None
        if ".metal" in vendors
        else next((name for sign, name in HYPERVISOR_MAKERS if sign in vendors), None)
    )
    if not _processor_says_guest(machine):
        return None if machine.arch in {"x86_64", "i686"} else named
    clocks = machine.text("sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    return named or next((name for sign, name in GUEST_CLOCKS if sign in clocks), "vm")


def _processor_says_guest(machine: Machine) -> bool:
    flags = re.search(
        r"^flags\s*:.*\bhypervisor\b", machine.text("proc/cpuinfo") or "", re.MULTILINE
    )
    if not flags and machine.text("sys/hypervisor/type") != "xen":
        return False
    # Xen's dom0 has the flag too, but is not a guest.
    return "control_d" not in (machine.text("proc/xen/capabilities") or "")

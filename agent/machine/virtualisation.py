"""Whether this is a machine of its own, or a guest whose neighbours share the processor: `kvm`, `docker`, `docker in kvm`, ...

The signs are those that systemd-detect-virt reads, as far as files show them to an ordinary user.
"""

import re

from edgemeter.agent.machine.machine import Machine

# What a hypervisor writes where a maker writes its name. Source: systemd src/basic/virt.c, dmi_vendors.
MAKERS = (
    ("qemu", "qemu"),
    ("kvm", "kvm"),
    ("openstack", "kvm"),
    ("kubevirt", "kvm"),
    ("amazon ec2", "amazon"),
    ("google compute engine", "google"),
    ("vmware", "vmware"),
    ("innotek", "virtualbox"),
    ("virtualbox", "virtualbox"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("parallels", "parallels"),
    ("bhyve", "bhyve"),
    ("hyper-v", "hyper-v"),
    ("microsoft corporation virtual machine", "hyper-v"),
    ("apple virtualization", "apple"),
)
# Clocks that only a guest has.
CLOCKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyper-v"), ("xen", "xen"))
CONTAINERS = re.compile(r"\b(docker|kubepods|containerd|libpod|lxc|machine\.slice)\b")
CONTAINER_NAMES = {"libpod": "podman", "kubepods": "kubernetes", "machine.slice": "systemd-nspawn"}


def detect(machine: Machine) -> str | None:
    """Return what the operating system runs in, the innermost first; None where nothing shows that it is a guest."""
    found = [name for name in (container(machine), hypervisor(machine)) if name]
    return " in ".join(found) or None


def container(machine: Machine) -> str | None:
    """Return the kind of container that this process runs in."""
    if named := machine.line("run/systemd/container"):
        return named
    if (machine.root / "run/.containerenv").exists():
        return "podman"
    if (machine.root / ".dockerenv").exists():
        return "docker"
    groups = f"{machine.text('proc/1/cgroup') or ''}\n{machine.text('proc/self/cgroup') or ''}"
    sign = CONTAINERS.search(groups)
    return CONTAINER_NAMES.get(sign[1], sign[1]) if sign else None


def hypervisor(machine: Machine) -> str | None:
    """Return what runs the virtual machine that this is; `vm` where it does not give its name."""
    if "microsoft" in (machine.text("proc/sys/kernel/osrelease") or "").lower():
        return "wsl"
    if device_tree := machine.text("proc/device-tree/hypervisor/compatible"):
        return device_tree.split("\0")[0].removeprefix("linux,").split(",")[0]
    makers = _makers(machine)
    # A cloud writes the same maker on the machines that it rents out whole.
    named = None if ".metal" in makers else next((name for sign, name in MAKERS if sign in makers), None)
    if not _processor_says_guest(machine):
        return None if machine.arch in {"x86_64", "i686"} else named
    clocks = machine.text("sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    return named or next((name for sign, name in CLOCKS if sign in clocks), "vm")


def _makers(machine: Machine) -> str:
    files = ("sys_vendor", "product_name", "board_vendor", "bios_vendor")
    told = [machine.text(f"sys/class/dmi/id/{file}") for file in files]
    if "linux,dummy-virt" in (machine.text("proc/device-tree/compatible") or ""):
        told.append("qemu")
    return " ".join(text for text in told if text).lower()


def _processor_says_guest(machine: Machine) -> bool:
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", machine.text("proc/cpuinfo") or "", re.MULTILINE)
    if not flags and machine.text("sys/hypervisor/type") != "xen":
        return False
    # Xen's own first domain sees the flag too, and is no guest.
    return "control_d" not in (machine.text("proc/xen/capabilities") or "")

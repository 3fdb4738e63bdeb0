"""Hardware attached to the board, which is accelerators, NVMe drives and HATs.

Each has a name that begins with its kind.
"""

from pathlib import Path

from edgemeter.agent.machine.machine import Machine

CORAL_USB, CORAL_PCIE, HAILO, NVME, HAT = "Coral USB", "Coral PCIe", "Hailo", "NVMe", "HAT"
UNUSED_CORAL = "1a6e:089a"
# The USB Coral changes its id when its firmware is loaded, at the first inference. Source: Linux
# USB id list; observed on boards.
USB_ACCELERATORS = {
    UNUSED_CORAL: f"{CORAL_USB} ({UNUSED_CORAL}, not used since it was plugged in)",
    "18d1:9302": f"{CORAL_USB} (18d1:9302)",
}
USB_2 = "at 480 Mbit/s"
# Source: hailort-drivers, common/pcie_common.h.
HAILO_VENDOR = "0x1e60"
HAILO_CHIPS = {"0x2864": "Hailo-8", "0x45c4": "Hailo-10H", "0x43a2": "Hailo-15L"}


def edge_tpus(machine: Machine) -> tuple[str, ...]:
    """Return the attached Corals, each with the speed of its USB link: a Coral on USB 2 is slow."""
    usb_devices = [
        text
        for device in machine.find("sys/bus/usb/devices/*")
        if (text := _usb_accelerator(machine, device))
    ]
    return (*usb_devices, *(f"{CORAL_PCIE} ({path.name})" for path in machine.find("dev/apex_*")))


def accelerators(machine: Machine) -> tuple[str, ...]:
    """Return the attached accelerators, Corals first."""
    return (
        *edge_tpus(machine),
        *(
            text
            for device in machine.find("sys/bus/pci/devices/*")
            if (text := _hailo(machine, device))
        ),
    )


def attached(machine: Machine) -> tuple[str, ...]:
    """Return the attached devices that draw power.

    They are accelerators, NVMe drives, and HATs with an ID EEPROM.
    """
    drives = [
        f"{NVME} ({': '.join(filter(None, (path.name, machine.line(path / 'model'))))})"
        for path in machine.find("sys/class/nvme/nvme*")
    ]
    names = [
        " ".join(filter(None, (machine.line(path.with_name("vendor")), machine.line(path))))
        for path in machine.find("proc/device-tree/hat*/product")
    ]
    return (*accelerators(machine), *drives, *(f"{HAT} ({name or 'unnamed'})" for name in names))


def is_on_usb_2(accelerator: str) -> bool:
    """Return whether an accelerator, as `accelerators` names it, is on a USB 2 link."""
    return accelerator.endswith(USB_2)


def _usb_accelerator(machine: Machine, device: Path) -> str | None:
    vendor, product = machine.text(device / "idVendor"), machine.text(device / "idProduct")
    label = USB_ACCELERATORS.get(f"{vendor}:{product}".lower())
    if label is None:
        return None
    speed = machine.text(device / "speed")
    return f"{label} at {speed} Mbit/s" if speed else label


def _hailo(machine: Machine, device: Path) -> str | None:
    if (machine.text(device / "vendor") or "").lower() != HAILO_VENDOR:
        return None
    return (
        f"{HAILO_CHIPS.get((machine.text(device / 'device') or '').lower(), HAILO)} PCIe "
        f"({device.name})"
    )

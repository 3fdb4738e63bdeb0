"""Accelerators that are plugged in, found without their libraries."""

from pathlib import Path

from edgemeter.agent.machine.machine import Machine

# The USB Coral changes its id when its firmware is loaded, at the first inference. Source: Linux USB id list; seen on boards.
USB = {
    "1a6e:089a": "Coral USB (1a6e:089a, not used since it was plugged in)",
    "18d1:9302": "Coral USB (18d1:9302)",
}
USB_2 = "at 480 Mbit/s"


def accelerators(machine: Machine) -> tuple[str, ...]:
    """Return what is plugged in, each with the speed of its USB link: a Coral on USB 2 is slow, and that has to be on record."""
    found = [text for device in machine.find("sys/bus/usb/devices/*") if (text := _usb(machine, device))]
    found += [f"Coral PCIe ({path.name})" for path in machine.find("dev/apex_*")]
    return tuple(found)


def is_on_usb_2(accelerator: str) -> bool:
    """Return whether an accelerator, as `accelerators` names it, hangs on a USB 2 link."""
    return accelerator.endswith(USB_2)


def _usb(machine: Machine, device: Path) -> str | None:
    vendor, product = machine.text(device / "idVendor"), machine.text(device / "idProduct")
    known = USB.get(f"{vendor}:{product}".lower())
    if known is None:
        return None
    speed = machine.text(device / "speed")
    return f"{known} at {speed} Mbit/s" if speed else known

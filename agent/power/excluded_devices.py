"""Attached devices outside a sensor's scope.

A run on such a device has no energy, and runs on other devices get a note. Rails and processors'
counters lie behind the branches to USB ports, M.2 and PCIe slots, and HATs. A sensor in the board's
supply sees them all.
"""

import re
from collections.abc import Sequence
from typing import Literal

from edgemeter.agent.contract.record_conditions import RuntimeInfo
from edgemeter.agent.machine.attached import CORAL_PCIE, CORAL_USB, HAILO, HAT, NVME
from edgemeter.agent.power import PCIE_DEVICES, USB_DEVICES, Description

Link = Literal["USB", "PCIe"]
SEES_BOARD = frozenset({"wall-ac", "board-input"})
# How `excludes` of a sensor names what hangs on a link, or what it is plugged into.
_LEFT_OUT = {
    "USB": frozenset({USB_DEVICES, "mainboard"}),
    "PCIe": frozenset({PCIE_DEVICES, "HATs", "carrier board", "mainboard"}),
}
# By the beginning of an attached device's name: the name by which a sensor excludes it, and names
# that already cover it.
_DRAWS = {
    CORAL_USB: (USB_DEVICES, _LEFT_OUT["USB"]),
    CORAL_PCIE: (PCIE_DEVICES, _LEFT_OUT["PCIe"]),
    HAILO: (PCIE_DEVICES, _LEFT_OUT["PCIe"]),
    NVME: ("NVMe drives", _LEFT_OUT["PCIe"] - {"HATs"} | {"NVMe drives", "disks"}),
    HAT: ("HATs", frozenset({"HATs", "carrier board", "mainboard"})),
}
_ON_USB = frozenset({"usb", "myriad"})
_EDGE_TPU = frozenset({"edgetpu", "libedgetpu", "tpu", "coral"})
_ON_PCIE = frozenset({"pci", "pcie", "apex"})


def accelerator_link(runtime: RuntimeInfo, attached: Sequence[str]) -> Link | None:
    """Return the link of the runtime's accelerator, None without one.

    `attached` is as in the environment. A back-end that is named for the Edge TPU only is on USB,
    unless the only attached Coral is on PCIe.
    """
    words = set(re.findall(r"[a-z]+", f"{runtime.name} {runtime.backend}".lower()))
    if words & _ON_USB:
        return "USB"
    if words & _ON_PCIE or any(word.startswith("hailo") for word in words):
        return "PCIe"
    if not words & _EDGE_TPU:
        return None
    kinds = {
        kind for kind in (CORAL_USB, CORAL_PCIE) for device in attached if device.startswith(kind)
    }
    return "PCIe" if kinds == {CORAL_PCIE} else "USB"


def is_blind_to(description: Description, link: Link) -> bool:
    """Return whether a sensor excludes devices on a link."""
    return bool(_LEFT_OUT[link] & set(description.excludes)) or description.scope not in SEES_BOARD


def accelerator_refusal(description: Description, link: Link | None) -> str | None:
    """Return why a sensor gives no energy for a run on an accelerator on that link."""
    if link is None or not is_blind_to(description, link):
        return None
    devices = "USB devices" if link == "USB" else "PCIe and M.2 devices"
    return (
        f"it does not measure {devices}, and this case runs on a {link} accelerator, so it would "
        "miss exactly what is measured: "
        "use a meter in the board's supply (scope board-input: an INA2xx or a USB-C meter) or at "
        "the wall (wall-ac: a smart plug)"
    )


def excluded(description: Description, attached: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of this board that a sensor does not see.

    They are the parts that it never sees, and attached devices outside its scope.
    """
    parts = dict.fromkeys(description.excludes)
    if description.scope not in SEES_BOARD:
        for part, names in (
            draw for device in attached for kind, draw in _DRAWS.items() if device.startswith(kind)
        ):
            if not names & parts.keys():
                parts[part] = None
    return tuple(parts)

"""Whether a case runs on an accelerator that hangs on a USB port, and whether a power sensor would see it there."""

import re
from collections.abc import Sequence

from edgemeter.agent.power import USB_DEVICES, Description
from edgemeter.agent.records import Runtime

# Whatever draws its power from the board's 5 V passes these; rails and processors' counters lie behind the branch to the USB ports.
SEES_USB = frozenset({"wall-ac", "board-input"})
REFUSAL = (
    "it does not see USB devices, and this case runs on a USB accelerator, so it would count all but what is measured: "
    "use a meter in the board's supply (scope board-input: an INA2xx or a USB-C meter) or at the wall (wall-ac: a smart plug)"
)

_ON_USB = frozenset({"usb", "myriad"})
_EDGE_TPU = frozenset({"edgetpu", "libedgetpu", "tpu", "coral"})
_ON_PCIE = frozenset({"pci", "pcie", "apex"})


def runs_on_usb(runtime: Runtime, attached: Sequence[str]) -> bool:
    """Say whether the runtime's back-end is a USB accelerator; `attached` is what the machine has, as `machine.attached` names it.

    A back-end that only says Edge TPU is on USB unless the only Coral here is on PCIe.
    """
    words = set(re.findall(r"[a-z]+", f"{runtime.name} {runtime.backend}".lower()))
    if words & _ON_USB:
        return True
    if not words & _EDGE_TPU or words & _ON_PCIE:
        return False
    kinds = {kind for kind in ("Coral USB", "Coral PCIe") for one in attached if one.startswith(kind)}
    return kinds != {"Coral PCIe"}


def is_blind(description: Description) -> bool:
    """Say whether a sensor leaves out what hangs on USB ports; a model of a wider scope knows no more than the sensor it is fed by."""
    return USB_DEVICES in description.excludes or description.scope not in SEES_USB or description.is_modelled

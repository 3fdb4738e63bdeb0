"""Which board this is, one among all of its type: a hash, so that nobody's serial number leaves the machine."""

import hashlib

from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

# The board's own serial number, else the installation's: a card moved to another board takes the last of them along.
PLACES = ("proc/device-tree/serial-number", "sys/class/dmi/id/product_uuid", "etc/machine-id")
LENGTH = 16


def board_key(machine: Machine = THIS_MACHINE) -> str | None:
    """Return 16 hexadecimal digits that are this board's; None where it tells nothing of itself."""
    for place in PLACES:
        if serial := machine.line(place):
            return hashlib.sha256(f"{place} {serial}".encode()).hexdigest()[:LENGTH]
    return None

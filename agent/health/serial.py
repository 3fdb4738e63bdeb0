"""The board's serial number, by which a fleet knows it whatever it is called."""

from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import Machine

DMI = ("product_serial", "board_serial")


def read(machine: Machine) -> str | None:
    """Return the serial number of the device tree or the DMI table (which only root may read), None where there is none."""
    for tree in board.DEVICE_TREE:
        if found := machine.line(f"{tree}/serial-number"):
            return found
    for file in DMI:
        found = machine.line(f"sys/class/dmi/id/{file}")
        if found and not board.PLACEHOLDERS.match(found):
            return found
    return None

"""The serial number of this board: what stays the same when its card is flashed anew, and differs when the card moves to another board."""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.identity.messages import SerialSource
from edgemeter.agent.machine.board import PLACEHOLDERS
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

# An SD card has a number too, but it is the card's: only what is soldered on (type MMC) is the board's.
_PLACES: tuple[tuple[SerialSource, str], ...] = (
    ("device-tree", "proc/device-tree/serial-number"),
    ("device-tree", "sys/firmware/devicetree/base/serial-number"),
    ("emmc", "sys/block/mmcblk*/device/cid"),
    ("dmi", "sys/class/dmi/id/product_uuid"),
    ("dmi", "sys/class/dmi/id/board_serial"),
    ("dmi", "sys/class/dmi/id/product_serial"),
    ("installation", "etc/machine-id"),
)
_LONGEST = 128


@dataclass(frozen=True, slots=True)
class BoardSerial:
    """A serial number, and where it was found: `path` below the root, None where it was drawn."""

    serial: str
    source: SerialSource
    path: str | None


def read(machine: Machine = THIS_MACHINE) -> BoardSerial:
    """Return the surest serial number that this board has; one drawn at random where it has none at all."""
    for source, path in _places(machine):
        if (serial := _serial(machine, path)) is not None:
            return BoardSerial(serial, source, path)
    return BoardSerial(f"made-{secrets.token_hex(16)}", "made", None)


def is_other_board(known: BoardSerial, machine: Machine = THIS_MACHINE) -> bool:
    """Return whether this board is surely another than the `known` one.

    What may not be read (some numbers are root's), and what was drawn at random, tells nothing: then it is taken for the same.
    """
    if known.path is None:
        return False
    here = _serial(machine, known.path)
    if here is not None:
        return here != known.serial
    # The number is gone, not hidden: a Pi's card in a board without a device tree, an eMMC's image on a card.
    return not (machine.root / known.path).exists() and read(machine).source not in {"made", "installation"}


def _places(machine: Machine) -> Iterator[tuple[SerialSource, str]]:
    for source, place in _PLACES:
        if "*" not in place:
            yield source, place
            continue
        for path in machine.find(place):
            if machine.line(path.parent / "type") == "MMC":
                yield source, str(path)


def _serial(machine: Machine, path: str | Path) -> str | None:
    """Return the number in a file; None where there is none, or what stands for none."""
    text = re.sub(r"[^A-Za-z0-9._:-]+", "-", machine.line(path) or "").strip("-._:")
    if not text or set(text) <= set("0-.:") or set(text.lower()) <= set("f-") or PLACEHOLDERS.match(text.replace("-", " ")):
        return None
    return text.lower()[:_LONGEST]

"""The chips that the kernel shows in /sys/class/hwmon, and how one is told from another: by its bus address, its name or its folder."""

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, sysfs_file

# The class folder links to the devices; a recorded tree may hold copies of them, or the devices alone.
LINKED = {"sys/class/hwmon": ("hwmon*",)} | dict.fromkeys(
    ("sys/bus/i2c/devices", "sys/bus/i2c/drivers"), ("*/hwmon/hwmon*", "*/*/hwmon/hwmon*")
)
DEVICES = {"sys/devices": tuple(f"platform/{'*/' * depth}i2c-*/*/hwmon/hwmon*" for depth in range(1, 5))}
FOLDER = re.compile(r"hwmon\d+")
I2C_ADDRESS = re.compile(r"\d+-00[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Chip:
    """One folder hwmonN; `name` is None where the file is not there or empty (an excerpt of a tree); `address` is one like 1-0040."""

    folder: Path
    name: str | None
    address: str | None

    def has(self, file: str) -> bool:
        """Say whether there is such a file."""
        return (self.folder / file).exists()

    def number(self, file: str) -> int:
        """Return the number in one of its files; raises as `sysfs_file.number`."""
        return sysfs_file.number(self.folder / file)

    def text(self, file: str) -> str | None:
        """Return the text of one of its files, None where there is none."""
        try:
            return sysfs_file.text(self.folder / file) or None
        except AbsentError:
            return None

    @property
    def known_as(self) -> str:
        """What a message and a rail call it."""
        return f"{self.name or 'unnamed'} at {self.address or self.folder.name}"

    def answers_to(self, device: str) -> bool:
        """Say whether the user's `device` means this one."""
        return device in {self.address, self.name, self.folder.name}

    def shunt_in_device_tree_ohm(self) -> float | None:
        """Return the shunt that the board's device tree names, None where it names none."""
        try:
            content = (self.folder / "device/of_node/shunt-resistor").read_bytes()
        except OSError:
            return None
        # Source: device tree specification, a cell is 32 bits, big-endian; ti,ina2xx.yaml, shunt-resistor is in microohms.
        return struct.unpack(">I", content)[0] / 1e6 if len(content) == 4 and any(content) else None


def chips(root: Path) -> list[Chip]:
    """Return all chips, in the order of their numbers.

    Raises:
        UnavailableError: there are some, and this user may not look at them.
    """
    found = _found(root, LINKED) or _found(root, DEVICES)
    return sorted(found.values(), key=lambda chip: int(chip.folder.name.removeprefix("hwmon")))


def _found(root: Path, places: Mapping[str, Sequence[str]]) -> dict[str, Chip]:
    found: dict[str, Chip] = {}
    for place, patterns in places.items():
        for folder in _below(root / place, patterns):
            known = found.get(folder.name)
            if known is None or known.address is None:
                address = address_of(folder)
                if known is None or address is not None:
                    found[folder.name] = Chip(folder, _name(folder), address)
    return found


def _below(place: Path, patterns: Sequence[str]) -> Iterator[Path]:
    try:
        # A glob finds nothing where it may not look, and does not say so.
        os.scandir(place).close()
        for pattern in patterns:
            yield from (folder for folder in place.glob(pattern) if FOLDER.fullmatch(folder.name) and folder.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        message = f"cannot look for chips in {str(place)!r}: {error.strerror}: run where /sys is open"
        raise UnavailableError(message) from error


def _name(folder: Path) -> str | None:
    for file in ("name", "device/name"):
        try:
            return sysfs_file.text(folder / file) or None
        except AbsentError:
            continue
        except TransientError:
            return None
    return None


def address_of(folder: Path) -> str | None:
    """Return the chip's address on its bus, like 1-0040; None where its place does not tell it."""
    parts = [*(folder / "device").resolve().parts, *folder.resolve().parts]
    return next((part for part in reversed(parts) if I2C_ADDRESS.fullmatch(part)), None)

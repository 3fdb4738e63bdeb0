"""The kernel's small files: their text or number, the chips in hwmon, and a base of sensors.

The chips are those in /sys/class/hwmon; the base is that of the sensors that read such files.
"""

import errno
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import ROOT, AbsentError, PowerSensor

Located = TypeVar("Located")
LONGEST_BYTES = 4096
FLAGS = os.O_RDONLY | os.O_NONBLOCK
# An integer of the kernel, up to 64 bits; int() accepts more.
WHOLE_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)
# Errors of a driver while its hardware is off or busy: the next read may work.
TRANSIENT_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EIO,
        errno.ENODATA,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.EINTR,
    }
)
HWMON = "sys/class/hwmon"
HWMON_FOLDER = re.compile(r"hwmon\d+")
I2C_ADDRESS = re.compile(r"\d+-00[0-9a-f]{2}")


def read_text(path: Path | str) -> str:
    """Return the text of a file, without surrounding white space and NULs.

    Raises:
        AbsentError: there is no such file.
        UnavailableError: it may not be read.
        TransientError: the driver gave no value this time.
    """
    try:
        # Text mode raises TypeError if a driver answers EAGAIN.
        descriptor = os.open(path, FLAGS)
        try:
            content = os.read(descriptor, LONGEST_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _explained(path, error) from error
    return _text(content)


def read_number(path: Path | str) -> int:
    """Return the integer in a file.

    Raises:
        AbsentError: there is no such file.
        UnavailableError: it may not be read.
        TransientError: it holds no number, or the driver gave no value this time.
    """
    return _number(read_text(path), path)


class NumberFile:
    """A file with an integer that is read repeatedly.

    If it is the kernel's, it stays open as long as this object lives. Read from its beginning such
    a file gives a new value; when its device or driver goes it gives an error for ever, and is
    opened again. Elsewhere another file may take its place without an error: there it is opened for
    each reading.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._stays_open: bool | None = None

    def __del__(self) -> None:
        self._close()

    def number(self) -> int:
        """Return the number; raises as `read_number`."""
        if self._descriptor is None:
            return self._opened_number()
        try:
            content = os.pread(self._descriptor, LONGEST_BYTES, 0)
        except OSError as error:
            if error.errno in TRANSIENT_ERRNOS:
                raise _explained(self.path, error) from error
            self._close()
            return self._opened_number()
        return _number(_text(content), self.path)

    def _opened_number(self) -> int:
        number = read_number(self.path)
        if self._stays_open is not False:
            with suppress(OSError):
                # File systems of the kernel have no blocks.
                self._stays_open = os.statvfs(self.path).f_blocks == 0
                self._descriptor = os.open(self.path, FLAGS) if self._stays_open else None
        return number

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _text(content: bytes) -> str:
    return content.decode(errors="replace").strip("\0 \t\r\n")


def _number(text: str, path: Path | str) -> int:
    if not WHOLE_NUMBER.fullmatch(text):
        raise TransientError(
            f"{str(path)!r} holds {text[:40]!r}, not a whole number: read it again, and check "
            "the kernel log"
        )
    return int(text)


def _explained(path: Path | str, error: OSError) -> UnavailableError | TransientError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return AbsentError(f"there is no {str(path)!r}")
    if isinstance(error, PermissionError):
        return UnavailableError(
            f"no permission to read {str(path)!r}: run as root, or grant read access (`sudo "
            f"chmod a+r {path}`)"
        )
    return (TransientError if error.errno in TRANSIENT_ERRNOS else UnavailableError)(
        f"cannot read {str(path)!r}: {error.strerror}"
    )


def optional_text(path: Path) -> str | None:
    """Return the text of a file, None if it is absent or unreadable."""
    try:
        return read_text(path)
    except (UnavailableError, TransientError):
        return None


def optional_number(path: Path | None) -> int | None:
    """Return the integer in a file, None if it is absent or unreadable."""
    try:
        return None if path is None else read_number(path)
    except (UnavailableError, TransientError):
        return None


def list_folder(folder: Path, contents: str) -> list[Path]:
    """Return the paths in a folder, sorted; empty without a folder.

    Raises:
        UnavailableError: this user may not search the folder for `contents`.
    """
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnavailableError(
            f"cannot look for {contents} in {str(folder)!r}: {error.strerror}: run where "
            "/sys is readable"
        ) from error


@dataclass(frozen=True, slots=True)
class HwmonChip:
    """One folder hwmonN of a chip.

    `name` is None where its file is absent or empty; `address` is one like 1-0040.
    """

    folder: Path
    name: str | None
    address: str | None
    _files: dict[str, NumberFile] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def has(self, file: str) -> bool:
        return (self.folder / file).exists()

    def number(self, file: str) -> int:
        """Return the number in one of its files; raises as `read_number`."""
        if file not in self._files:
            self._files[file] = NumberFile(self.folder / file)
        return self._files[file].number()

    def text(self, file: str) -> str | None:
        """Return the text of one of its files, None if there is none."""
        try:
            return read_text(self.folder / file) or None
        except AbsentError:
            return None

    @property
    def known_as(self) -> str:
        """The name in messages and of the rail."""
        return f"{self.name or 'unnamed'} at {self.address or self.folder.name}"

    def device_tree_number(self, name: str) -> int | None:
        """Return a property of the chip in the board's device tree, None if there is none."""
        try:
            content = (self.folder / "device/of_node" / name).read_bytes()
        except OSError:
            return None
        # Source: device tree specification, a cell is 32 bits, big-endian; ti,ina2xx.yaml:
        # shunt-resistor is in microohms.
        return int.from_bytes(content, "big") if len(content) == 4 and any(content) else None


def hwmon_chips(root: Path) -> list[HwmonChip]:
    """Return all chips, in order of their numbers.

    Raises:
        UnavailableError: this user may not list them.
    """
    folders = [
        folder
        for folder in list_folder(root / HWMON, "chips")
        if HWMON_FOLDER.fullmatch(folder.name) and folder.is_dir()
    ]
    chips = [HwmonChip(folder, _name(folder), _address(folder)) for folder in folders]
    return sorted(chips, key=lambda chip: int(chip.folder.name.removeprefix("hwmon")))


def _address(folder: Path) -> str | None:
    """Return the address of a chip on its bus, like 1-0040, or None."""
    parts = [*(folder / "device").resolve().parts, *folder.resolve().parts]
    return next((part for part in reversed(parts) if I2C_ADDRESS.fullmatch(part)), None)


def _name(folder: Path) -> str | None:
    for file in ("name", "device/name"):
        try:
            return read_text(folder / file) or None
        except AbsentError:
            continue
        except TransientError:
            return None
    return None


class LocatedSensor(PowerSensor, ABC, Generic[Located]):
    """The base of sensors whose parts are located once and then read.

    `_find` locates the parts; they are read until the sensor is closed.
    """

    def __init__(self, root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._root, self._clock = root, clock
        self._located: Located | None = None

    def close(self) -> None:
        """Forget the parts, which closes their files."""
        self._located = None

    def _parts(self) -> Located:
        self._located = self._located or self._find()
        return self._located

    @abstractmethod
    def _find(self) -> Located:
        """Return the parts to read, at least one; raises as `describe`."""

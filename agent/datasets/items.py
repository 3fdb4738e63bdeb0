"""The items of a data set, each a file or an array inside a file.

The module also lists the photographs and arrays in a folder.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json

Row = TypeVar("Row")
PHOTOGRAPHS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
ARRAYS = (".npy", ".npz", ".bin")


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a data set, whose `name` is unique in it.

    `path` is its file, or the file that contains its `array`.
    """

    name: str
    path: Path
    kind: Literal["image", "tensor"]
    array: NDArray[Any] | None = field(default=None, compare=False)

    @property
    def is_file(self) -> bool:
        """Whether the item is a file of its own."""
        return self.array is None

    @property
    def file(self) -> Path:
        """The item's own file; raises ConfigError if it is an array inside a file."""
        if not self.is_file:
            raise ConfigError(
                f"item {self.name!r} lies inside {self.path.name!r}, and a file of its own is "
                "needed: check task in the card"
            )
        return self.path

    def sha256(self) -> bytes:
        """Return the hash of its content; raises OSError if the file cannot be read."""
        if self.array is not None:
            form = f"{self.array.dtype.str} {self.array.shape} ".encode()
            return hashlib.sha256(form + np.ascontiguousarray(self.array).tobytes()).digest()
        return bytes.fromhex(sha256_of(self.path))


def read_bytes(path: Path, noun: str) -> bytes:
    """Return the bytes of a file (`noun`, for the message).

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {noun} {str(path)!r}: {error.strerror}; give a file that can be read"
        ) from error


def head_of(path: Path, size_bytes: int) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size_bytes)
    except OSError:
        return b""


def read_text(path: Path, noun: str) -> str:
    """Return the text of a file; raises ConfigError if it cannot be read or is not UTF-8."""
    try:
        return read_bytes(path, noun).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{str(path)!r} is not UTF-8 text ({error.reason} at byte {error.start}): "
            "write it as UTF-8"
        ) from error


def json_lines(where: str, content: bytes, kind: type[Row]) -> Iterator[tuple[int, Row]]:
    """Yield line numbers and objects of JSON Lines, without empty lines.

    Raises:
        ConfigError: a line is wrong; the message begins with `where`.
    """
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                yield number, decode_json(line, kind)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{where}, line {number}: {error}") from error


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def item_of_file(folder: Path, name: str) -> Item:
    """Return the item of the file `name` in the folder.

    Every file that is not an array counts as an image.
    """
    return Item(name, folder / name, "tensor" if Path(name).suffix.lower() in ARRAYS else "image")


def photographs_in(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted.

    Raises:
        ConfigError: the folder cannot be read.
    """
    return files_in(folder, PHOTOGRAPHS)


def files_in(folder: Path, suffixes: Sequence[str]) -> list[str]:
    """Return the names of the files in the folder that end in one of these, sorted.

    Raises:
        ConfigError: the folder cannot be read.
    """
    try:
        return sorted(
            path.name
            for path in folder.iterdir()
            if path.suffix.lower() in suffixes and path.is_file()
        )
    except OSError as error:
        raise ConfigError(
            f"cannot read the image folder {str(folder)!r}: {error.strerror}; give the folder "
            "that holds the photographs"
        ) from error


def list_items(folder: Path, kinds: Sequence[Sequence[str]] = (PHOTOGRAPHS, ARRAYS)) -> list[str]:
    """Return the names of the photographs in the folder, or else of its arrays, sorted.

    Raises:
        ConfigError: it has neither.
    """
    names = next(filter(None, (files_in(folder, suffixes) for suffixes in kinds)), None)
    if names is None:
        sought = " and no ".join(
            f"{noun} ({', '.join(suffixes)})"
            for noun, suffixes in zip(("photographs", "arrays"), kinds, strict=False)
        )
        raise ConfigError(
            f"no {sought} in {str(folder)!r}: give the folder that holds them itself, "
            "not one above it"
        )
    return names


def list_photographs(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted.

    Raises:
        ConfigError: it cannot be read or has none.
    """
    return list_items(folder, (PHOTOGRAPHS,))

"""Photographs: files to pixels and back, by Pillow; the one module that knows it."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import import_extra

Pixels = NDArray[np.uint8]
# The EXIF orientations that swap width and height. Source: EXIF 2.32, tag 0x0112.
_ORIENTATION = 0x0112
_SIDEWAYS = frozenset({5, 6, 7, 8})
# Pillow's raw modes of files with 16 bits a channel; BGR;16 has 5 or 6.
_WIDE = re.compile(r"(L|LA|RGB|RGBA|RGBX|I);16\w*")
# Formats whose greys have at most 16 bits: Pillow keeps some of them in 32.
_AT_MOST_16_BIT = ("PNG", "PPM")
# The largest that is read: of 16,384 x 16,384 pixels the decoded photograph takes a gigabyte.
LARGEST_PIXELS = 2**28
# Files of 16 bits a channel whose values use at most this many bits are nearly black in the upper
# 8; with more they may just be dark.
_NARROW_BITS = 14


def pillow() -> Any:
    """Return the module PIL.Image; raises UnavailableError if Pillow is not installed."""
    return import_extra(
        "PIL.Image", "vision", "reading photographs needs Pillow, which is not installed"
    )


def read(path: Path) -> Any:
    """Return the photograph as an RGB image of Pillow's, upright by its EXIF orientation.

    Of 16 bits a channel the upper 8 count, in grey as in colour; alpha is dropped, CMYK becomes RGB
    without a colour profile.

    Raises:
        ConfigError: the file is not an image that can be read, or its values have no known range
            (named).
    """
    with _opened(path) as photo:
        photo.load()
        import_module("PIL.ImageOps").exif_transpose(photo, in_place=True)
        if photo.mode == "RGB":
            return photo
        if photo.mode == "F" or (photo.mode == "I" and photo.format not in _AT_MOST_16_BIT):
            value_kind = "32-bit integers" if photo.mode == "I" else "floating-point numbers"
            raise ConfigError(
                f"the photograph {str(path)!r} holds {value_kind}, and which value is white is "
                "unknown: save it with 8 or 16 bits"
            )
        if photo.mode.startswith("I"):
            return pillow().fromarray((np.asarray(photo) >> 8).astype(np.uint8)).convert("RGB")
        return photo.convert("RGB")


def of_pixels(pixels: Pixels) -> Any:
    """Return pixels (uint8 [h, w, 3], RGB) as `read` returns a photograph."""
    return pillow().fromarray(pixels)


def read_map(path: Path) -> NDArray[Any]:
    """Return a map of values for each pixel, [height, width].

    It is the greys of a PNG or indices of its palette, or the array of a .npy file.

    Raises:
        ConfigError: it cannot be read, or holds more than one value a pixel (named).
    """
    try:
        if path.suffix.lower() == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            with _opened(path) as picture:
                values = np.asarray(picture)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(
            f"cannot read the map {str(path)!r}: {' '.join(str(error).split())[:200]}; fetch or "
            "export it again"
        ) from error
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "iuf":
        raise ConfigError(
            f"the map {str(path)!r} holds more than one number a pixel, or none: save it as "
            "greys or with a palette"
        )
    return values


def size(path: Path) -> tuple[int, int]:
    """Return width and height of the photograph, upright; reads only the head of the file.

    Raises:
        ConfigError: the file is not an image that can be read (named).
    """
    with _opened(path) as photo:
        width, height = photo.size
        return (
            (height, width) if photo.getexif().get(_ORIENTATION) in _SIDEWAYS else (width, height)
        )


def is_wide(path: Path) -> bool:
    """Return whether the file has 16 bits a channel; reads only its head.

    Raises:
        ConfigError: the file is not an image that can be read (named).
    """
    with _opened(path) as photo:
        raw = [
            str(word)
            for tile in photo.tile
            for word in (tile[3] if isinstance(tile[3], tuple) else (tile[3],))
        ]
        return photo.mode.startswith("I;16") or any(_WIDE.fullmatch(word) for word in raw)


def narrow_bits(paths: Sequence[Path]) -> tuple[int, list[Path]] | None:
    """Return the bits used by the values in files of 16 bits a channel, and these files.

    The result is None if there are no such files or most bits are used.
    """
    wide = list(filter(is_wide, paths))
    bits = max((_bits(path) for path in wide), default=_NARROW_BITS + 1)
    return (bits, wide) if bits <= _NARROW_BITS else None


def _bits(path: Path) -> int:
    with _opened(path) as photo:
        values = np.asarray(photo)
        # Pillow keeps the upper 8 bits of colours.
        return int(values.max(initial=0)).bit_length() + (8 if values.dtype == np.uint8 else 0)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    imaging = pillow()
    largest = imaging.MAX_IMAGE_PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", imaging.DecompressionBombWarning)
            imaging.MAX_IMAGE_PIXELS = LARGEST_PIXELS
            with imaging.open(path) as photo:
                yield photo
    except (imaging.DecompressionBombError, imaging.DecompressionBombWarning) as error:
        raise ConfigError(
            f"the photograph {str(path)!r} has more than {LARGEST_PIXELS:,} pixels, the limit "
            f"({error}): save it with fewer pixels"
        ) from error
    # The errors of Pillow's format plug-ins for garbled files, which have no common base.
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(
            f"cannot read the photograph {str(path)!r}: {error}; remove it or replace it by a "
            "whole image file"
        ) from error
    finally:
        imaging.MAX_IMAGE_PIXELS = largest

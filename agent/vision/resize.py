"""Bilinear resize without smoothing, bit for bit as OpenCV's INTER_LINEAR on uint8; by OpenCV itself where it gives those bits.

Ours is written by hand because Pillow's bilinear resize smooths, the same photograph must give the same tensor on every device, and OpenCV
is more than twice the size of numpy and has no wheels for 32-bit ARM. `pip install opencv-python-headless` brings it, several times as
fast; a build with the maker's own kernels may round otherwise: it is tried, and not used then.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Indices = NDArray[np.int64]

_ONE = 2048
# Rows worked on together: what they need stays in the cache.
_BLOCK = 32
logger = logging.getLogger(__name__)
Resize = Callable[[Pixels, int, int], Pixels]
# Old (w, h) and new: shrinking by much, by little and to the half, growing, and both.
_TRIALS = (((610, 470), (300, 201)), ((331, 257), (317, 240)), ((256, 192), (128, 96)), ((61, 47), (100, 90)), ((90, 33), (45, 70)))


def resize_bilinear(pixels: Pixels, width: int, height: int) -> Pixels:
    """Return the picture (uint8 [h, w, channels]) in the new size: uint8 [height, width, channels].

    Four channels are as fast as three: a pixel is then fetched as one number.
    """
    old_height, old_width, channels = pixels.shape
    first, weight = _taps(old_width, width)
    weight = np.where((first < 0) | (first >= old_width - 1), 0, weight)
    columns = [np.clip(first + step, 0, old_width - 1) for step in (0, 1)]
    source = pixels.reshape(old_height, -1)
    if channels == 4:
        source = source.view(np.uint32)
    else:
        # Where each channel of each column lies in a row.
        columns = [(column[:, None] * channels + np.arange(channels)).ravel() for column in columns]
    # step * weight >> 4 in 16 bits, which numpy does several at a time: the upper bits of the weight, then the lower four.
    coarse, fine = (np.repeat(part.astype(np.int16), channels) for part in (weight >> 4, weight & 15))
    first, weight = _taps(old_height, height)
    above, below = np.clip(first, 0, old_height - 1), np.clip(first + 1, 0, old_height - 1)
    shares = weight.astype(np.uint32)[:, None]
    resized = np.empty((height, width * channels), np.uint8)
    for start in range(0, height, _BLOCK):
        part = slice(start, start + _BLOCK)
        # When shrinking to less than half, some rows lie between all taps.
        needed_rows, places = np.unique(np.concatenate([above[part], below[part]]), return_inverse=True)
        rows = _horizontal(source[needed_rows], columns, coarse, fine)
        resized[part] = _vertical(rows[places[: len(places) // 2]], rows[places[len(places) // 2 :]], shares[part])
    return resized.reshape(height, width, channels)


def _horizontal(rows: NDArray[Any], columns: Sequence[Indices], coarse: NDArray[np.int16], fine: NDArray[np.int16]) -> NDArray[np.uint16]:
    """Return rows in the new width, in 1/128 of a grey level: uint16 [rows, width * channels]."""
    value, next_value = (rows.take(column, axis=1).view(np.uint8).astype(np.int16) for column in columns)
    step = np.subtract(next_value, value, out=next_value)
    value <<= 7
    if fine.any():
        low = step * fine
        low >>= 4
        value += low
    step *= coarse
    value += step
    return value.view(np.uint16)


def _vertical(above: NDArray[np.uint16], below: NDArray[np.uint16], shares: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the rows between two, as grey levels, by the share of the lower: uint32 [rows, width * channels]."""
    # Each product loses its low bits before the sum, as OpenCV's does: together they would round differently.
    value = above * (_ONE - shares)
    value >>= 16
    other = below * shares
    other >>= 16
    value += other
    value += 2
    value >>= 2
    return value


def _taps(old: int, new: int) -> tuple[Indices, NDArray[np.int64]]:
    """Return for each new position the first of its two old neighbours (-1 at the edge) and the weight of the second, in 1/2048."""
    at = ((np.arange(new) + 0.5) * (old / new) - 0.5).astype(np.float32)
    first = np.floor(at)
    return first.astype(np.int64), np.rint((at - first) * np.float32(_ONE)).astype(np.int64)


@cache
def fastest_resize() -> Resize:
    """Return OpenCV's resize, or ours where OpenCV is not installed or rounds otherwise; both called as `resize_bilinear` is."""
    try:
        cv2 = import_module("cv2")
    except ImportError:
        return resize_bilinear
    # A query's surroundings take one core, as everything of ours.
    cv2.setNumThreads(1)

    def resized(pixels: Pixels, width: int, height: int) -> Pixels:
        return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR))

    trials = ((np.random.RandomState(width).randint(0, 256, (height, width, 4)).astype(np.uint8), new) for (width, height), new in _TRIALS)
    if all(np.array_equal(resized(pixels, *new), resize_bilinear(pixels, *new)) for pixels, new in trials):
        return resized
    logger.info("OpenCV %s rounds otherwise than most builds when it resizes, and is not used", cv2.__version__)
    return resize_bilinear

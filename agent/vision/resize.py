"""Bilinear resize without smoothing, bit for bit as OpenCV's INTER_LINEAR on uint8; by OpenCV itself where it gives those bits.

Ours is written by hand because OpenCV is not a dependency, Pillow's bilinear resize smooths, and the same photograph must give the
same tensor on every device. `pip install opencv-python-headless` brings OpenCV, several times as fast; a build with the maker's own
kernels may round otherwise: it is tried, and not used then.
"""

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module

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
    first, weight = _taps(old_height, height)
    above, below = np.clip(first, 0, old_height - 1), np.clip(first + 1, 0, old_height - 1)
    # When shrinking to less than half, some rows lie between all taps.
    needed_rows, places = np.unique(np.concatenate([above, below]), return_inverse=True)
    rows = _horizontal(pixels, needed_rows, _taps(old_width, width))
    return _vertical(rows, places[:height], places[height:], weight).reshape(height, width, channels)


def _horizontal(pixels: Pixels, needed_rows: Indices, taps: tuple[Indices, NDArray[np.int64]]) -> NDArray[np.uint16]:
    """Return the needed rows in the new width, in 1/128 of a grey level: uint16 [rows, width * channels]."""
    _, old, channels = pixels.shape
    first, weight = taps
    weight = np.where((first < 0) | (first >= old - 1), 0, weight)
    left_columns, right = np.clip(first, 0, old - 1), np.clip(first + 1, 0, old - 1)
    # step * weight >> 4 in 16 bits, which numpy does several at a time: the upper bits of the weight, then the lower four.
    coarse, fine = (np.repeat(part.astype(np.int16), channels) for part in (weight >> 4, weight & 15))
    source = pixels.reshape(len(pixels), -1)
    if channels == 4:
        source = source.view(np.uint32)
    else:
        # Where each channel of each column lies in a row.
        left_columns, right = ((columns[:, None] * channels + np.arange(channels)).ravel() for columns in (left_columns, right))
    rows = np.empty((len(needed_rows), len(coarse)), np.int16)
    for start in range(0, len(needed_rows), _BLOCK):
        block = source[needed_rows[start : start + _BLOCK]]
        begin = block.take(left_columns, axis=1).view(np.uint8)
        value = np.subtract(block.take(right, axis=1).view(np.uint8), begin, dtype=np.int16)
        low = value * fine
        low >>= 4
        value *= coarse
        value += low
        np.multiply(begin, np.int16(_ONE >> 4), out=low, dtype=np.int16)
        np.add(value, low, out=rows[start : start + _BLOCK])
    return rows.view(np.uint16)


def _vertical(rows: NDArray[np.uint16], above: Indices, below: Indices, weight: NDArray[np.int64]) -> Pixels:
    """Return the rows in the new height, as grey levels: uint8 [height, width * channels]."""
    shares = weight.astype(np.uint32)[:, None]
    pixels = np.empty((len(above), rows.shape[1]), np.uint8)
    for start in range(0, len(above), _BLOCK):
        part = slice(start, start + _BLOCK)
        # Each product loses its low bits before the sum, as OpenCV's does: together they would round differently.
        value = np.multiply(rows[above[part]], _ONE - shares[part], dtype=np.uint32)
        value >>= 16
        other = np.multiply(rows[below[part]], shares[part], dtype=np.uint32)
        other >>= 16
        value += other
        value += 2
        value >>= 2
        pixels[part] = value
    return pixels


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

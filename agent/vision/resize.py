"""Bilinear resize without smoothing, bit for bit as OpenCV's INTER_LINEAR on uint8.

OpenCV itself does it if it gives the same bits. We have our own because Pillow's bilinear resize
smooths, the same photograph must give the same tensor on every device, and OpenCV is more than
twice the size of numpy and has no wheels for 32-bit ARM. With `pip install opencv-python-headless`
it is several times as fast; builds with vendors' kernels may round differently, so OpenCV is tried
first.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Indices = NDArray[np.int64]

_ONE = 2048
# Rows per step, so that they stay in the cache.
_BLOCK = 64
logger = logging.getLogger(__name__)
Resize = Callable[[Pixels, int, int], Pixels]
# Old and new (w, h): shrinking by much, by little and to half, enlarging, and both.
_TRIALS = (
    ((610, 470), (300, 201)),
    ((331, 257), (317, 240)),
    ((256, 192), (128, 96)),
    ((61, 47), (100, 90)),
    ((90, 33), (45, 70)),
)


def resize_bilinear(pixels: Pixels, width: int, height: int) -> Pixels:
    """Return the picture (uint8 [h, w, channels]) in the new size: uint8 [height, width, channels].

    A fourth channel only makes each pixel one 32-bit number, which is faster, and is dropped; the
    others are then planes in memory.
    """
    old_height, old_width, channels = pixels.shape
    columns, coarse, fine = _columns(old_width, width, channels)
    source = pixels.reshape(old_height, -1)
    if channels == 4:
        source = source.view(np.uint32)
    needed_rows, neighbours, shares = _rows(old_height, height)
    resized = np.empty((height, width * channels), np.uint8)
    for start in range(0, height, _BLOCK):
        part = slice(start, start + _BLOCK)
        begin, end = neighbours[0, start], neighbours[1, part][-1] + 1
        rows = _horizontal(source[needed_rows[begin:end]], columns, coarse, fine)
        resized[part] = _vertical(rows, neighbours[:, part] - begin, shares[:, part])
    if channels < 4:
        return resized.reshape(height, width, channels)
    planes = np.stack([(resized.view("<u4") >> shift).astype(np.uint8) for shift in (0, 8, 16)])
    return np.moveaxis(planes, 0, 2)


def resize_to_half_width(planes: Iterable[Pixels], width: int, height: int) -> Pixels:
    """Return three channels as `resize_bilinear` does, but faster.

    The channels are uint8 [h, 2 * width] each; the result is uint8 [height, width, 3], as planes.
    """
    resized = np.empty((3, height, width), np.uint8)
    for plane, values in zip(planes, resized, strict=True):
        pairs = plane.view(np.uint16)
        rows: NDArray[np.uint16] = np.right_shift(pairs, 8)
        rows += pairs & 255
        if len(plane) == 2 * height:
            sums = rows[::2] + rows[1::2]
            sums += 2
            values[...] = sums >> 2
        else:
            rows <<= 6
            needed_rows, neighbours, shares = _rows(len(plane), height)
            values[...] = _vertical(rows, needed_rows[neighbours], shares)
    return np.moveaxis(resized, 0, 2)


def _horizontal(
    rows: NDArray[Any],
    columns: Sequence[Indices],
    coarse: NDArray[np.int16],
    fine: NDArray[np.int16],
) -> NDArray[np.uint16]:
    """Return rows in the new width, in 1/128 of a grey level: uint16 [rows, width * channels]."""
    value, next_value = (
        rows.take(column, axis=1).view(np.uint8).astype(np.int16) for column in columns
    )
    step = np.subtract(next_value, value, out=next_value)
    value <<= 7
    if fine.any():
        low = step * fine
        low >>= 4
        value += low
    step *= coarse
    value += step
    return value.view(np.uint16)


def _vertical(
    rows: NDArray[np.uint16], neighbours: Indices, shares: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Return grey levels between two neighbours each, by their shares.

    Neighbours are [2, n], shares [2, n, 1]; the result is uint32 [n, width * channels].
    """
    # Each product is cut before the sum, as in OpenCV: cutting the sum would round differently.
    value: NDArray[np.uint32] = rows[neighbours[0]].astype(np.uint32)
    other = rows[neighbours[1]].astype(np.uint32)
    value *= shares[0]
    value >>= 16
    other *= shares[1]
    other >>= 16
    value += other
    value += 2
    value >>= 2
    return value


@lru_cache(maxsize=8)
def _columns(
    old: int, new: int, channels: int
) -> tuple[Sequence[Indices], NDArray[np.int16], NDArray[np.int16]]:
    """Return the positions of each new column's two neighbours, and the second's weight.

    The weight is its upper bits, in 1/128, and the lower four.
    """
    first, weight = _taps(old, new)
    weight[(first < 0) | (first >= old - 1)] = 0
    offsets = np.arange(1 if channels == 4 else channels)
    columns = [
        ((first + step).clip(0, old - 1)[:, None] * len(offsets) + offsets).ravel()
        for step in (0, 1)
    ]
    coarse, fine = (part.astype(np.int16).repeat(channels) for part in (weight >> 4, weight & 15))
    return columns, coarse, fine


@lru_cache(maxsize=8)
def _rows(old: int, new: int) -> tuple[Indices, Indices, NDArray[np.uint32]]:
    """Return the needed old rows, each new row's two neighbours among these, and their shares.

    The neighbours are [2, new], the shares [2, new, 1].
    """
    first, weight = _taps(old, new)
    # Shrinking to less than half does not need all rows.
    neighbours = np.stack([first, first + 1]).clip(0, old - 1)
    needed_rows = np.unique(neighbours)
    return (
        needed_rows,
        needed_rows.searchsorted(neighbours),
        np.stack([_ONE - weight, weight]).astype(np.uint32)[..., None],
    )


def _taps(old: int, new: int) -> tuple[Indices, NDArray[np.int64]]:
    """Return each new position's first neighbour, and the second neighbour's weight.

    The first neighbour is -1 at the edge; the weight is in 1/2048.
    """
    at = ((np.arange(new) + 0.5) * (old / new) - 0.5).astype(np.float32)
    first = np.floor(at)
    return first.astype(np.int64), np.rint((at - first) * np.float32(_ONE)).astype(np.int64)


@cache
def fastest_resize() -> Resize:
    """Return OpenCV's resize, or else `resize_bilinear`.

    The latter is returned if OpenCV is not installed or rounds differently.
    """
    try:
        cv2 = import_module("cv2")
    except ImportError:
        return resize_bilinear
    # Work around the queries takes one core only.
    cv2.setNumThreads(1)

    def resized(pixels: Pixels, width: int, height: int) -> Pixels:
        return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR))[
            ..., :3
        ]

    trials = (
        (np.random.RandomState(width).randint(0, 256, (height, width, 4)).astype(np.uint8), new)
        for (width, height), new in _TRIALS
    )
    if all(
        np.array_equal(resized(pixels, *new), resize_bilinear(pixels, *new))
        for pixels, new in trials
    ):
        return resized
    logger.info(
        "OpenCV %s is not used to resize, because it rounds differently from most builds",
        cv2.__version__,
    )
    return resize_bilinear

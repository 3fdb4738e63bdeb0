"""Shared code of mask decoders: from a map of logits or probabilities, in cells of the input, to the pixels of a photograph."""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.vision.decoders import Floats, Mask, PhotoFrame


def photo_mask(values: Floats, box: Floats, frame: PhotoFrame, threshold: float) -> Mask:
    """Return the pixels within the box whose value exceeds the threshold, by bilinear interpolation between the cells of a map.

    Args:
        values: float32 [rows, columns], which cover the whole input.
        box: x1, y1, x2, y2 in pixels of the photograph.
        frame: how the photograph lies in the input.
        threshold: of the values.
    """
    left, right = _pixels(box[0], box[2], frame.photo_width)
    top, bottom = _pixels(box[1], box[3], frame.photo_height)
    rows, columns = values.shape
    first, next_, weight = taps(top, bottom, frame.scale_y, frame.offset_y, rows / frame.input_height, rows)
    lines = values[first] * (1 - weight)[:, None] + values[next_] * weight[:, None]
    first, next_, weight = taps(left, right, frame.scale_x, frame.offset_x, columns / frame.input_width, columns)
    return Mask(left, top, lines[:, first] * (1 - weight) + lines[:, next_] * weight > threshold)


def _pixels(low: float, high: float, size: int) -> tuple[int, int]:
    """Return from which pixel to which (exclusive) a side goes: those whose number is at least its begin and below its end."""
    begin, end = (int(np.clip(np.ceil(side), 0, size)) for side in (low, high))
    return begin, max(begin, end)


def taps(
    begin: int, end: int, scale: float, offset: float, cells_per_px: float, cells: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return for each pixel the two cells around its centre, and the weight of the second; at the rim the outermost counts alone."""
    at = np.clip(((np.arange(begin, end) + 0.5) * scale + offset) * cells_per_px - 0.5, 0, cells - 1)
    first = np.minimum(at.astype(np.int64), cells - 1)
    return first, np.minimum(first + 1, cells - 1), (at - first).astype(np.float32)

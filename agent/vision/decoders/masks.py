"""Masks and keypoints of YOLO's heads for other tasks, and masks of torchvision."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, Mask, PhotoFrame, Shape, tamed
from edgemeter.agent.vision.decoders.boxes import mismatch
from edgemeter.agent.vision.decoders.family import KEYPOINTS, PROTOTYPES

# The side of a cell of the prototypes in pixels of the input.
_CELL_PX = 4


def split_rows(family: str, shapes: Sequence[Shape]) -> tuple[int, int]:
    """Return the indices of rows and prototypes; raises ConfigError for other outputs."""
    ranks = [len(shape) for shape in shapes]
    if sorted(ranks) != [3, 4]:
        raise mismatch(
            family, "rows of three axes and prototypes of four", [list(shape) for shape in shapes]
        )
    return ranks.index(3), ranks.index(4)


def rows_alone(family: str, loaded: Loaded) -> tuple[Loaded, int]:
    """Return `loaded` with the rows as its only output, and the number of prototypes.

    The number is 32 if it is open.
    """
    if not loaded.outputs:
        return loaded, PROTOTYPES
    rows, prototypes = split_rows(family, [info.shape for info in loaded.outputs])
    shape = loaded.outputs[prototypes].shape
    sizes = [size for size in (shape[1], shape[3]) if size is not None]
    return replace(
        loaded, outputs=(loaded.outputs[rows],)
    ), PROTOTYPES if PROTOTYPES in sizes or not sizes else min(sizes)


def with_masks(
    detections: Detections, coefficients: Floats, tensor: Floats, frame: PhotoFrame
) -> Detections:
    """Return the detections with masks.

    `coefficients` are float32 [n, count]; `tensor` has the prototypes in either layout.
    """
    sides = (-(-frame.input_height // _CELL_PX), -(-frame.input_width // _CELL_PX))
    is_planar, is_channels_last = tensor.shape[2:] == sides, tensor.shape[1:3] == sides
    if tensor.shape[0] != 1 or not (is_planar or is_channels_last):
        raise ConfigError(
            f"the prototypes have the shape {list(tensor.shape)}, not {sides[0]} x {sides[1]} "
            "cells: correct the card"
        )
    prototypes = tamed(tensor[0] if is_planar else tensor[0].transpose(2, 0, 1))
    count = len(prototypes)
    if coefficients.shape[1] != count:
        raise ConfigError(
            f"an object has {coefficients.shape[1]} coefficients for {count} prototypes: correct "
            "output.classes in the card"
        )
    logits = (coefficients @ prototypes.reshape(count, -1)).reshape(-1, *sides)
    return replace(
        detections,
        masks=tuple(
            photo_mask(logit, box, frame, 0.0)
            for logit, box in zip(logits, detections.boxes, strict=True)
        ),
    )


def photo_mask(values: Floats, box: Floats, frame: PhotoFrame, threshold: float) -> Mask:
    """Return the pixels within the box above the threshold.

    They are interpolated bilinearly between the cells of a map. `values`, float32 [rows, columns],
    cover the whole input; the box is x1, y1, x2, y2 in pixels of the photograph.
    """
    left_px, right = _pixels(box[0], box[2], frame.photo_width)
    top, bottom = _pixels(box[1], box[3], frame.photo_height)
    rows, columns = values.shape
    first, next_, weight = taps(
        top, bottom, frame.scale_y, frame.offset_y, rows / frame.input_height, rows
    )
    lines = values[first] * (1 - weight)[:, None] + values[next_] * weight[:, None]
    first, next_, weight = taps(
        left_px, right, frame.scale_x, frame.offset_x, columns / frame.input_width, columns
    )
    return Mask(left_px, top, lines[:, first] * (1 - weight) + lines[:, next_] * weight > threshold)


def _pixels(low: float, high: float, size: int) -> tuple[int, int]:
    """Return the first pixel of a side, and the pixel after its last."""
    begin, end = (int(np.clip(np.ceil(side), 0, size)) for side in (low, high))
    return begin, max(begin, end)


def taps(
    begin: int, end: int, scale: float, offset: float, cells_per_px: float, cells: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return for each pixel the two cells around its centre, and the weight of the second.

    At the rim only the outermost cell counts.
    """
    at = np.clip(
        ((np.arange(begin, end) + 0.5) * scale + offset) * cells_per_px - 0.5, 0, cells - 1
    )
    first = np.minimum(at.astype(np.int64), cells - 1)
    return first, np.minimum(first + 1, cells - 1), (at - first).astype(np.float32)


def with_keypoints(
    detections: Detections, values: Floats, unit: Floats, frame: PhotoFrame
) -> Detections:
    """Return the detections with keypoints in pixels of the photograph, clipped to it.

    `values`, float32 [n, 3 x points], are x, y and score of each point; `unit` has the factors of x
    and y that give pixels of the input.
    """
    points = values.reshape(len(values), KEYPOINTS, 3)
    x = np.clip((points[..., 0] * unit[0] - frame.offset_x) / frame.scale_x, 0, frame.photo_width)
    y = np.clip((points[..., 1] * unit[1] - frame.offset_y) / frame.scale_y, 0, frame.photo_height)
    in_photo = np.stack([x, y, points[..., 2]], axis=-1).astype(np.float32)
    return replace(detections, keypoints=in_photo)

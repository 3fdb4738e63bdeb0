"""Grids: where the cells of a detector's feature maps lie in its input, and which numbers of cells an input can have."""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoder import Floats


def side(size_px: int, stride: int) -> int:
    """Return how many cells a side of the input has: a convolution with padding starts one for a part of a stride too."""
    return -(-size_px // stride)


def count(height: int, width: int, strides: Sequence[int]) -> int:
    """Return how many cells all grids have together."""
    return sum(side(height, stride) * side(width, stride) for stride in strides)


def cells(height: int, width: int, strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the cells' x, y (in cells) and their strides (pixels), each grid row by row: float32 [n, 2] and [n, 1]."""
    corners, sizes = [], []
    for stride in strides:
        y, x = np.mgrid[: side(height, stride), : side(width, stride)]
        corners.append(np.stack([x.ravel(), y.ravel()], axis=1))
        sizes.append(np.full((x.size, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(sizes).astype(np.float32)


def sigmoid(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-values)); what is 0..1 throughout comes back as it is, the graph applied it already.

    Logits of scores are below 0 but for the few that found something, so one look at all of them tells.
    """
    if values.size and values.min() >= 0 and values.max() <= 1:
        return values
    # Beyond 88 the exponential leaves float32; the sigmoid is 0 there to all its digits.
    one: Floats = np.float32(1) / (np.float32(1) + np.exp(-np.clip(values, -88, 88)))
    return one

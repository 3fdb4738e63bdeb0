"""What boxes seem to be where they are not x, y, width, height in pixels of their photograph: told by where they lie."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.float64]

FORM = "bbox is x, y, width, height in pixels"
# So many boxes at least before their form is judged by where they lie.
_ENOUGH = 20
# No photograph is as small as this; boxes as ratios of it stay below.
_LARGEST_RATIO = 2.0
# A box may leave the photograph by this much and still be x, y, width, height: not every decoder clips.
_SLACK_PX = 2.0


def problem(what: str, boxes: Boxes, sizes: Boxes) -> str | None:
    """Return why these can hardly be x, y, width, height in pixels, None where nothing speaks against it.

    Args:
        what: the boxes are of, in words.
        boxes: float64 [n, 4].
        sizes: width and height of the photograph of each, float64 [n, 2]; NaN where they are not known.
    """
    if len(boxes) >= _ENOUGH and boxes.max() <= _LARGEST_RATIO:
        return f"the boxes of all {len(boxes)} {what} are 0..1: {FORM}"
    known = np.isfinite(sizes).all(axis=1)
    boxes, sizes = boxes[known], sizes[known] + _SLACK_PX
    if len(boxes) < _ENOUGH:
        return None
    leaves = (boxes[:, :2] + boxes[:, 2:] > sizes).any(axis=1)
    # Most leave their photograph as they are said to be, and none as corners.
    if leaves.mean() > 0.5 and ((boxes[:, 2:] >= boxes[:, :2]) & (boxes[:, 2:] <= sizes)).all():
        return (
            f"{int(leaves.sum())} of {len(boxes)} boxes leave their photograph, "
            f"and none would if they were two corners (x1, y1, x2, y2): {FORM}"
        )
    return None


def _from_centre(boxes: Boxes) -> Boxes:
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]], axis=1)


def _from_corners(boxes: Boxes) -> Boxes:
    return np.concatenate([boxes[:, :2], np.maximum(boxes[:, 2:] - boxes[:, :2], 0)], axis=1)


# What people write in place of x, y, width, height, and how to get that from it.
OTHERS: Mapping[str, Callable[[Boxes], Boxes]] = {
    "centre x, centre y, width, height": _from_centre,
    "two corners, x1, y1, x2, y2": _from_corners,
    "y, x, height, width": lambda boxes: boxes[:, [1, 0, 3, 2]],
    "two corners, y1, x1, y2, x2": lambda boxes: _from_corners(boxes[:, [1, 0, 3, 2]]),
}

"""Class-wise non-maximum suppression: greedy, exact, in blocks so that numpy does the work."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

# Candidates looked at together: large enough that numpy's call overhead vanishes, small enough that the pairs stay in the cache.
_BLOCK = 128


def class_wise(boxes: Floats, scores: Floats, classes: Ints, iou: float, limit: int) -> NDArray[np.int64]:
    """Return the indices of the boxes that survive, best score first, at most `limit`: int64 [k].

    A box falls when an already kept box of its class overlaps it by more than `iou` (0..1; equal does not fall). Among equal
    scores the lower index comes first. A box without area overlaps nothing.

    Args:
        boxes: float32 [n, 4] as x1, y1, x2, y2, any unit.
        scores: float32 [n].
        classes: int32 [n].
        iou: highest overlap (intersection over union) that two kept boxes of one class may have.
        limit: how many to keep over all classes.
    """
    order = np.argsort(-scores, kind="stable")
    kept = np.empty(0, np.int64)
    for start in range(0, len(order), _BLOCK):
        if len(kept) >= limit:
            break
        block = order[start : start + _BLOCK]
        if len(kept):
            block = block[~_overlaps(boxes, classes, block, kept, iou).any(axis=1)]
        kept = np.concatenate([kept, block[_greedy(_overlaps(boxes, classes, block, block, iou))]])
    return kept[: max(limit, 0)]


def _overlaps(boxes: Floats, classes: Ints, rows: NDArray[np.int64], columns: NDArray[np.int64], iou: float) -> NDArray[np.bool_]:
    """Return whether row and column are of one class and overlap by more than `iou`: bool [rows, columns]."""
    a, b = boxes[rows], boxes[columns]
    width = np.minimum(a[:, None, 2], b[:, 2]) - np.maximum(a[:, None, 0], b[:, 0])
    height = np.minimum(a[:, None, 3], b[:, 3]) - np.maximum(a[:, None, 1], b[:, 1])
    shared = np.maximum(width, 0) * np.maximum(height, 0)
    union = _area(a)[:, None] + _area(b) - shared
    # Multiplied out, so that two boxes without area are no division by zero.
    over: NDArray[np.bool_] = (shared > np.float32(iou) * union) & (classes[rows][:, None] == classes[columns])
    return over


def _area(boxes: Floats) -> Floats:
    area: Floats = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return area


def _greedy(over: NDArray[np.bool_]) -> list[int]:
    """Return which of the candidates survive each other; `over` is symmetric, best candidate first."""
    fallen = np.zeros(len(over), np.bool_)
    survivors = []
    for i in range(len(over)):
        if not fallen[i]:
            survivors.append(i)
            fallen |= over[i]
    return survivors

"""Do two sets of detections in one photograph show the same objects?"""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.vision.decoder import Detections

# What a user is shown; a box just below on one side is still looked for on the other.
SHOWN_SCORE = 0.25
PARTNER_SCORE = 0.15
# COCO's loosest match.
SAME_IOU = 0.5


def matched_ratio(one: Detections, other: Detections) -> float | None:
    """Return the share (0..1) of the shown boxes of both sides that the other side has too; None where neither shows any."""
    shown = _shown(one), _shown(other)
    total = int(shown[0].sum() + shown[1].sum())
    if total == 0:
        return None
    matched = _matched(one, shown[0], other) + _matched(other, shown[1], one)
    return matched / total


def _shown(found: Detections) -> NDArray[np.bool_]:
    shown: NDArray[np.bool_] = found.scores >= SHOWN_SCORE
    return shown


def _matched(one: Detections, shown: NDArray[np.bool_], other: Detections) -> int:
    """Return how many of the shown boxes have a partner of their own: same class, enough overlap, the best of those left."""
    free = other.scores >= PARTNER_SCORE
    matched = 0
    for index in np.nonzero(shown)[0]:
        overlap = np.where(free & (other.classes == one.classes[index]), _iou(one.boxes[index], other.boxes), 0.0)
        if overlap.size and overlap.max() >= SAME_IOU:
            free[overlap.argmax()] = False
            matched += 1
    return matched


def _iou(box: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the overlap (intersection over union) of a box with others, float32 [n]; x1, y1, x2, y2."""
    sides = np.clip(np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2]), 0, None)
    shared = sides.prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared
    overlap: NDArray[np.float32] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return overlap

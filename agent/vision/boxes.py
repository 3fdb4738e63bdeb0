"""Boxes: what all decoders do with their candidates once they have read them from the tensors."""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.recognition import card
from edgemeter.agent.vision import nms
from edgemeter.agent.vision.decoder import Detections, Floats, Frame

# As many candidates as Ultralytics hands to its suppression (`max_nms`); more only cost time, they never reach the first 300.
MOST_CANDIDATES = 30_000


def corners(centred: Floats) -> Floats:
    """Return x1, y1, x2, y2 of boxes given as centre x, centre y, width, height: float32 [n, 4]."""
    half = centred[:, 2:] / 2
    return np.concatenate([centred[:, :2] - half, centred[:, :2] + half], axis=1)


def to_photo(boxes: Floats, frame: Frame) -> Floats:
    """Return boxes (x1, y1, x2, y2 in pixels of the input) in pixels of the photograph, clipped to it: float32 [n, 4]."""
    offset = np.array([frame.offset_x, frame.offset_y] * 2, np.float32)
    scale = np.array([frame.scale_x, frame.scale_y] * 2, np.float32)
    size = np.array([frame.photo_width, frame.photo_height] * 2, np.float32)
    clipped: Floats = np.clip((boxes - offset) / scale, 0, size)
    return clipped


def select(boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: card.Output, frame: Frame) -> Detections:
    """Return the candidates that survive suppression, best first, in pixels of the photograph.

    Candidates are already above the card's score threshold; without `nms_iou` on the card nothing is suppressed.

    Args:
        boxes: float32 [n, 4] as x1, y1, x2, y2 in pixels of the input.
        scores: float32 [n].
        classes: int32 [n].
        output: the card's thresholds.
        frame: how the photograph lies in the input.
    """
    if len(scores) > MOST_CANDIDATES:
        best = np.sort(np.argpartition(-scores, MOST_CANDIDATES)[:MOST_CANDIDATES])
        boxes, scores, classes = boxes[best], scores[best], classes[best]
    if output.nms_iou is None:
        kept = np.argsort(-scores, kind="stable")[: output.max_detections]
    else:
        kept = nms.class_wise(boxes, scores, classes, output.nms_iou, output.max_detections)
    return Detections(to_photo(boxes[kept], frame), scores[kept], classes[kept])

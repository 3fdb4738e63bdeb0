"""Boxes: what all decoders do with their candidates once they have read them from the tensors."""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.recognition import card
from edgemeter.agent.vision import nms
from edgemeter.agent.vision.decoder import Detections, Floats, Frame

# As many candidates as Ultralytics hands to its suppression (`max_nms`); more only cost time, they never reach the first 300.
MOST_CANDIDATES = 30_000
# A coordinate in 0..1 never reaches this, even of a box that leaves the picture; in pixels the rightmost always do.
LARGEST_NORMALISED = 2.0


def corners(centred: Floats) -> Floats:
    """Return x1, y1, x2, y2 of boxes given as centre x, centre y, width, height: float32 [n, 4]."""
    half = centred[:, 2:] / 2
    return np.concatenate([centred[:, :2] - half, centred[:, :2] + half], axis=1)


def in_pixels(boxes: Floats, frame: Frame) -> Floats:
    """Return boxes (four coordinates of the input, x first) in its pixels: where none exceeds 2 they are 0..1; float32 [n, 4]."""
    if boxes.max(initial=0.0) > LARGEST_NORMALISED:
        return boxes
    return boxes * np.array([frame.input_width, frame.input_height] * 2, np.float32)


def unplaced(boxes: Floats, frame: Frame) -> Floats:
    """Return boxes (x1, y1, x2, y2 in pixels of the input) in pixels of the photograph, which they may leave: float32 [n, 4]."""
    offset = np.array([frame.offset_x, frame.offset_y] * 2, np.float32)
    scale = np.array([frame.scale_x, frame.scale_y] * 2, np.float32)
    return (boxes - offset) / scale


def to_photo(boxes: Floats, frame: Frame) -> Floats:
    """Return boxes (x1, y1, x2, y2 in pixels of the input) in pixels of the photograph, clipped to it: float32 [n, 4]."""
    clipped: Floats = np.clip(unplaced(boxes, frame), 0, np.array([frame.photo_width, frame.photo_height] * 2, np.float32))
    return clipped


def select(boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: card.Output, frame: Frame) -> Detections:
    """Return the candidates that survive suppression, best first, in pixels of the photograph; the arguments are those of `survivors`."""
    boxes, scores, classes = survivors(boxes, scores, classes, output)
    return Detections(to_photo(boxes, frame), scores, classes)


def survivors(boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: card.Output) -> tuple[Floats, Floats, NDArray[np.int32]]:
    """Return boxes, scores and classes of the candidates that survive suppression, best first.

    Candidates are already above the card's score threshold; without `nms_iou` on the card nothing is suppressed. A box that is no
    number is nowhere and falls; that there was one is the verdict's business.

    Args:
        boxes: float32 [n, 4] as x1, y1, x2, y2 in pixels of the input.
        scores: float32 [n].
        classes: int32 [n].
        output: the card's thresholds.
    """
    if not np.isfinite(boxes).all():
        sound = np.isfinite(boxes).all(axis=1)
        boxes, scores, classes = boxes[sound], scores[sound], classes[sound]
    if len(scores) > MOST_CANDIDATES:
        best = np.sort(np.argpartition(-scores, MOST_CANDIDATES)[:MOST_CANDIDATES])
        boxes, scores, classes = boxes[best], scores[best], classes[best]
    if output.nms_iou is None:
        kept = np.argsort(-scores, kind="stable")[: output.max_detections]
    else:
        kept = nms.class_wise(boxes, scores, classes, output.nms_iou, output.max_detections)
    return boxes[kept], scores[kept], classes[kept]

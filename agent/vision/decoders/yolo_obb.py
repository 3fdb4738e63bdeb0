"""YOLO's head for oriented boxes (YOLOv8-obb, YOLO11-obb): [1, 4 + classes + 1, anchors], the last value is the angle in radians.

Boxes are centre x, centre y, width, height, in pixels or as 0..1 as the detector's; the angle turns them clockwise, as the picture's y goes
down. Suppression compares boxes of one class as Gaussians (probabilistic IoU): a box falls where any better one is as like it as the card's
nms_iou, fallen or not, as in Ultralytics' validation.
Source: ultralytics `utils/nms.py` (`fast_nms`), `utils/metrics.py` (`batch_probiou`), `utils/ops.py` (`xywhr2xyxyxyxy`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.boxes import MOST_CANDIDATES
from edgemeter.agent.vision.decoders.yolov8 import YoloV8

_EPSILON = 1e-7
# Candidates compared together.
_BLOCK = 128
Doubles = NDArray[np.float64]


class YoloObb(YoloV8):
    """Decodes the one tensor."""

    FAMILY = "yolo-obb"
    _extra = 1

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections with corners; `outputs` is the one tensor, float32."""
        centred, scores, classes, angles = self._candidates(outputs[0], frame)
        best = np.argsort(-scores, kind="stable")[:MOST_CANDIDATES]
        turned = np.concatenate([centred, angles], axis=1).astype(np.float64)[best]
        limit = self._output.nms_iou
        survivors = best if limit is None else best[_free_of_better(turned, classes[best], limit)]
        survivors = survivors[: self._output.max_detections]
        places = corners_of(np.concatenate([centred, angles], axis=1)[survivors])
        places = (places - np.array([frame.offset_x, frame.offset_y])) / np.array([frame.scale_x, frame.scale_y])
        around = np.concatenate([places.min(axis=1), places.max(axis=1)], axis=1).astype(np.float32)
        return Detections(around, scores[survivors], classes[survivors], corners=places.astype(np.float32))


def corners_of(turned: NDArray[np.floating]) -> Doubles:
    """Return the corners of boxes (centre x, centre y, width, height, angle), in order around them: float64 [n, 4, 2]."""
    x, y, width, height, angle = turned.astype(np.float64).T
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1) * width[:, None] / 2
    across = np.stack([-np.sin(angle), np.cos(angle)], axis=1) * height[:, None] / 2
    centre = np.stack([x, y], axis=1)
    corners: Doubles = np.stack(
        [centre + along + across, centre + along - across, centre - along - across, centre - along + across], axis=1
    )
    return corners


def _free_of_better(turned: Doubles, classes: NDArray[np.int32], limit: float) -> NDArray[np.int64]:
    """Return the places of the boxes, best first, that are like no better one of their class."""
    free = np.ones(len(turned), np.bool_)
    for begin in range(0, len(turned), _BLOCK):
        block = np.arange(begin, min(begin + _BLOCK, len(turned)))
        like = probabilistic_iou(turned[block], turned[: block[-1] + 1]) >= limit
        like &= classes[block][:, None] == classes[: block[-1] + 1]
        like &= np.arange(block[-1] + 1) < block[:, None]
        free[block] = ~like.any(axis=1)
    return np.flatnonzero(free)


def probabilistic_iou(boxes: Doubles, other: Doubles) -> Doubles:
    """Return how alike two boxes are as Gaussians (1 - Hellinger distance), 0..1: float64 [n, m]."""
    (x1, y1, a1, b1, c1), (x2, y2, a2, b2, c2) = ((part[:, None] for part in _gaussian(boxes)), _gaussian(other))
    a, b, c = a1 + a2, b1 + b2, c1 + c2
    determinant = a * b - c * c
    apart = (a * (y1 - y2) ** 2 + b * (x1 - x2) ** 2) / (determinant + _EPSILON) / 4
    turned = c * (x2 - x1) * (y1 - y2) / (determinant + _EPSILON) / 2
    determinants = np.sqrt(np.maximum(a1 * b1 - c1 * c1, 0) * np.maximum(a2 * b2 - c2 * c2, 0))
    sized = np.log(np.maximum(determinant, 0) / (4 * determinants + _EPSILON) + _EPSILON) / 2
    distance = np.clip(apart + turned + sized, _EPSILON, 100)
    return np.asarray(1 - np.sqrt(1 - np.exp(-distance) + _EPSILON))


def _gaussian(turned: Doubles) -> tuple[Doubles, ...]:
    """Return x, y and the covariance of each box."""
    x, y, width, height, angle = turned.T
    wide, high, cosine, sine = width**2 / 12, height**2 / 12, np.cos(angle), np.sin(angle)
    return x, y, wide * cosine**2 + high * sine**2, wide * sine**2 + high * cosine**2, (wide - high) * cosine * sine

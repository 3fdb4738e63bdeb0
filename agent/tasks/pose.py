"""Pose: keypoints of people in photographs, scored by COCO's average precision over the similarity of keypoints (OKS)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import keypoints_of
from edgemeter.agent.tasks.coco_ap import KEYPOINTS, ObjectKind
from edgemeter.agent.tasks.detection import ShapeTask, by_boxes
from edgemeter.agent.vision.decoders import Detections

# COCO's, of a person: the similarity has a tolerance for each of them.
COUNT = 17
# How far annotators differ, relative to a person's size. Source: cocoapi `cocoeval.py`, `kpt_oks_sigmas`.
_SIGMAS = np.array([26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89], np.float32) / 1000


def by_keypoints(detections: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the similarity (OKS) of a person's keypoints with those of others; the box stands for the person's area."""
    if detections.keypoints is None or other.keypoints is None or detections.keypoints.shape[1] != COUNT:
        return by_boxes(detections, index, other)
    sides = detections.boxes[index, 2:] - detections.boxes[index, :2]
    apart = np.square(detections.keypoints[index, :, :2] - other.keypoints[..., :2]).sum(axis=-1)
    similar: NDArray[np.float32] = np.exp(-apart / (2 * np.square(2 * _SIGMAS) * max(float(sides.prod()), 1.0))).mean(axis=-1)
    return similar


class Pose(ShapeTask):
    """Keeps the keypoints of everybody found."""

    KIND: ClassVar[ObjectKind] = KEYPOINTS
    KEY = "keypoints"
    similar = staticmethod(by_keypoints)

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        annotations = []
        for annotation in truth["annotations"]:
            points = keypoints_of(annotation)
            if len(points) != 3 * COUNT:
                raise ConfigError(f"annotation {annotation['id']}: it has {len(points) // 3} keypoints, COCO's people have {COUNT}")
            annotations.append({**annotation, "keypoints": points, "num_keypoints": sum(visibility > 0 for visibility in points[2::3])})
        return {**truth, "annotations": annotations}

    def _check_shapes(self, detections: Detections) -> None:
        if detections.keypoints is None:
            raise ConfigError(f"family {self._model.family!r} finds boxes without keypoints: correct task or family in the card")
        if (count := detections.keypoints.shape[1]) != COUNT:
            raise ConfigError(f"the model finds {count} keypoints, COCO's people have {COUNT}: its poses cannot be scored")

    def _shape(self, index: int, detections: Detections, object_index: int) -> list[float]:
        del index
        points: list[float] = np.asarray(detections.keypoints, np.float64)[object_index].ravel().tolist()
        return points

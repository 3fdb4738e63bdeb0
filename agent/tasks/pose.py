"""Pose: keypoints of people in photographs, scored by COCO's average precision over the similarity of keypoints (OKS)."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import keypoints_of
from edgemeter.agent.tasks.coco_ap import KEYPOINTS, Found, ObjectKind
from edgemeter.agent.tasks.detection import Detection, Similarity, by_boxes
from edgemeter.agent.vision.decoders import Detections

# COCO's, of a person: the similarity has a tolerance for each of them.
COUNT = 17


# How far annotators differ, relative to a person's size. Source: cocoapi `cocoeval.py`, `kpt_oks_sigmas`.
_SIGMAS = np.array([26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89], np.float32) / 1000


def by_keypoints(one: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the similarity (OKS) of a person's keypoints with those of others; the box stands for the person's area."""
    if one.keypoints is None or other.keypoints is None or one.keypoints.shape[1] != COUNT:
        return by_boxes(one, index, other)
    sides = one.boxes[index, 2:] - one.boxes[index, :2]
    apart = np.square(one.keypoints[index, :, :2] - other.keypoints[..., :2]).sum(axis=-1)
    similar: NDArray[np.float32] = np.exp(-apart / (2 * np.square(2 * _SIGMAS) * max(float(sides.prod()), 1.0))).mean(axis=-1)
    return similar


class Pose(Detection):
    """Keeps the keypoints of everybody found."""

    KIND: ClassVar[ObjectKind] = KEYPOINTS

    def _similarity(self) -> Similarity:
        return by_keypoints

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        annotations = []
        for one in truth["annotations"]:
            points = keypoints_of(one)
            if len(points) != 3 * COUNT:
                raise ConfigError(f"annotation {one['id']}: it has {len(points) // 3} keypoints, COCO's people have {COUNT}")
            annotations.append({**one, "keypoints": points, "num_keypoints": sum(seen > 0 for seen in points[2::3])})
        return {**truth, "annotations": annotations}

    def _kept(self, index: int, found: Detections) -> Sequence[Mapping[str, Any]]:
        del index
        points = found.keypoints
        if points is None:
            raise ConfigError(f"family {self._model.family!r} finds boxes without keypoints: correct task or family in the card")
        if points.shape[1:] != (COUNT, 3):
            raise ConfigError(f"the model finds {points.shape[1]} keypoints, COCO's people have {COUNT}: its poses cannot be scored")
        if self._truth is None:
            return ()
        known, ids = self._known(found)
        return [
            {"category_id": category, "keypoints": points[place].astype(np.float64).ravel().tolist(), "score": float(found.scores[place])}
            for place, category in zip(np.nonzero(known)[0].tolist(), ids.tolist(), strict=True)
        ]

    def _results(self, kept: Mapping[int, Any]) -> Found:
        return list(chain.from_iterable([{"image_id": image_id, **one} for one in found] for image_id, found in kept.items()))

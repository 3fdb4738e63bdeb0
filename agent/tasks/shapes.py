"""Objects with a shape besides their boxes, scored by COCO's average precision: outlines (instance segmentation) and keypoints (pose)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import keypoints_of, outline_of
from edgemeter.agent.tasks.coco_ap import KEYPOINTS, MASKS, Found, ObjectKind
from edgemeter.agent.tasks.detection import Detection, by_boxes
from edgemeter.agent.tasks.mask_edges import Edges, edges_of, edges_of_outline
from edgemeter.agent.tasks.similarity import SIGMAS
from edgemeter.agent.vision.decoders import Detections

# COCO's, of a person: the similarity has a tolerance for each of them.
COUNT = len(SIGMAS)
_SIGMAS = SIGMAS.astype(np.float32)


class ShapeTask(Detection):
    """The base of tasks whose objects have a shape besides their boxes: keeps a result of COCO's for each, under the key of the shape."""

    KEY: ClassVar[str]

    def _kept(self, index: int, detections: Detections) -> list[dict[str, Any]]:
        self._check_shapes(detections)
        super()._kept(index, detections)
        if self._truth is None:
            return []
        have_category, ids = self._known(detections)
        return [
            {
                "category_id": category,
                self.KEY: self._shape(index, detections, object_index),
                "score": float(detections.scores[object_index]),
            }
            for object_index, category in zip(np.nonzero(have_category)[0].tolist(), ids.tolist(), strict=True)
        ]

    def _check_shapes(self, detections: Detections) -> None:
        """Raise ConfigError where the objects have no shapes of this kind."""
        raise NotImplementedError

    def _shape(self, index: int, detections: Detections, object_index: int) -> Any:
        """Return the shape of one object in COCO's form."""
        raise NotImplementedError

    def _results(self, predictions: Mapping[int, Any]) -> Found:
        return [{"image_id": image_id, **result} for image_id, results in predictions.items() for result in results]


def by_keypoints(detections: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the similarity (OKS) of a person's keypoints with those of others; the box stands for the person's area."""
    if detections.keypoints is None or other.keypoints is None or detections.keypoints.shape[1] != COUNT:
        return by_boxes(detections, index, other)
    sides = detections.boxes[index, 2:] - detections.boxes[index, :2]
    apart = np.square(detections.keypoints[index, :, :2] - other.keypoints[..., :2]).sum(axis=-1)
    return np.asarray(np.exp(-apart / (2 * np.square(2 * _SIGMAS) * max(float(sides.prod()), 1.0))).mean(axis=-1))


def with_keypoints(truth: Mapping[str, Any]) -> dict[str, Any]:
    """Return COCO's document as plain data with the keypoints of each annotation; raises ConfigError where they are not COCO's 17."""
    annotations = []
    for annotation in truth["annotations"]:
        points = keypoints_of(annotation)
        if len(points) != 3 * COUNT:
            raise ConfigError(f"annotation {annotation['id']}: it has {len(points) // 3} keypoints, COCO's people have {COUNT}")
        annotations.append({**annotation, "keypoints": points})
    return {**truth, "annotations": annotations}


def with_outlines(truth: Mapping[str, Any]) -> dict[str, Any]:
    """Return COCO's document as plain data with each mask as edges; raises ConfigError where an image has no size, or a mask is garbled."""
    sizes = {image["id"]: (image["height"], image["width"]) for image in truth["images"]}
    unsized = [number for number, size in sizes.items() if None in size]
    if unsized:
        raise ConfigError(f"image {unsized[0]} of the annotations has no width and height, and masks need them: add them")
    annotations = []
    for annotation in truth["annotations"]:
        try:
            edges = edges_of_outline(outline_of(annotation), *sizes[annotation["image_id"]])
        except ValueError as error:
            raise ConfigError(f"annotation {annotation['id']}: its mask cannot be read: {error}: export it again") from error
        annotations.append({**annotation, "segmentation": edges})
    return {**truth, "annotations": annotations}


class Pose(ShapeTask):
    """Keeps the keypoints of everybody found."""

    KIND: ClassVar[ObjectKind] = KEYPOINTS
    KEY = "keypoints"
    similar = staticmethod(by_keypoints)

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_keypoints(truth)

    def _check_shapes(self, detections: Detections) -> None:
        if detections.keypoints is None:
            raise ConfigError(f"family {self._model.family!r} finds boxes without keypoints: correct task or family in the card")
        if (count := detections.keypoints.shape[1]) != COUNT:
            raise ConfigError(f"the model finds {count} keypoints, COCO's people have {COUNT}: its poses cannot be scored")

    def _shape(self, index: int, detections: Detections, object_index: int) -> list[float]:
        del index
        points: list[float] = np.asarray(detections.keypoints, np.float64)[object_index].ravel().tolist()
        return points


class Segmentation(ShapeTask):
    """Keeps the edges of every mask: the masks themselves would not fit into a board's memory."""

    KIND: ClassVar[ObjectKind] = MASKS
    KEY = "segmentation"

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_outlines(truth)

    def _check_shapes(self, detections: Detections) -> None:
        if detections.masks is None:
            raise ConfigError(f"family {self._model.family!r} finds boxes without masks: correct task or family in the card")

    def _shape(self, index: int, detections: Detections, object_index: int) -> Edges:
        frame, mask = self._frames[index], (detections.masks or ())[object_index]
        pixels = np.zeros((frame.photo_height, frame.photo_width), np.uint8)
        height, width = mask.pixels.shape
        pixels[mask.top : mask.top + height, mask.left : mask.left + width] = mask.pixels
        return edges_of(pixels)

"""Instance segmentation: objects in photographs with their outlines, scored by COCO's average precision over the overlap of masks."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import outline_of
from edgemeter.agent.tasks.coco_ap import MASKS, ObjectKind, mask_code
from edgemeter.agent.tasks.detection import ShapeTask
from edgemeter.agent.vision.decoders import Detections


class Segmentation(ShapeTask):
    """Keeps a run-length code of every mask: the masks themselves would not fit into a board's memory."""

    KIND: ClassVar[ObjectKind] = MASKS
    KEY = "segmentation"

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        unsized = [image["id"] for image in truth["images"] if None in (image["width"], image["height"])]
        if unsized:
            raise ConfigError(f"image {unsized[0]} of {self._data.name!r} has no width and height, and masks need them: add them")
        return {**truth, "annotations": [{**annotation, "segmentation": outline_of(annotation)} for annotation in truth["annotations"]]}

    def _check_shapes(self, detections: Detections) -> None:
        if detections.masks is None:
            raise ConfigError(f"family {self._model.family!r} finds boxes without masks: correct task or family in the card")

    def _shape(self, index: int, detections: Detections, object_index: int) -> dict[str, Any]:
        frame, mask = self._frames[index], (detections.masks or ())[object_index]
        pixels = np.zeros((frame.photo_height, frame.photo_width), np.uint8)
        height, width = mask.pixels.shape
        pixels[mask.top : mask.top + height, mask.left : mask.left + width] = mask.pixels
        return mask_code(pixels)

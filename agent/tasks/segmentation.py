"""Instance segmentation: objects in photographs with their outlines, scored by COCO's average precision over the overlap of masks."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import outline_of
from edgemeter.agent.tasks.coco_ap import MASKS, Found, ObjectKind, mask_code
from edgemeter.agent.tasks.detection import Detection
from edgemeter.agent.vision.decoders import Detections


class Segmentation(Detection):
    """Keeps a run-length code of every mask: the masks themselves would not fit into a board's memory."""

    KIND: ClassVar[ObjectKind] = MASKS

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        unsized = [image["id"] for image in truth["images"] if None in (image["width"], image["height"])]
        if unsized:
            raise ConfigError(f"image {unsized[0]} of {self._data.name!r} has no width and height, and masks need them: add them")
        return {**truth, "annotations": [{**one, "segmentation": outline_of(one)} for one in truth["annotations"]]}

    def _kept(self, index: int, found: Detections) -> Sequence[Mapping[str, Any]]:
        if found.masks is None:
            raise ConfigError(f"family {self._model.family!r} finds boxes without masks: correct task or family in the card")
        if self._truth is None:
            return ()
        known, ids = self._known(found)
        frame = self._frames[index]
        kept = []
        for place, category in zip(np.nonzero(known)[0].tolist(), ids.tolist(), strict=True):
            whole = np.zeros((frame.photo_height, frame.photo_width), np.uint8)
            mask = found.masks[place]
            height, width = mask.pixels.shape
            whole[mask.top : mask.top + height, mask.left : mask.left + width] = mask.pixels
            kept.append({"category_id": category, "segmentation": mask_code(whole), "score": float(found.scores[place])})
        return kept

    def _results(self, kept: Mapping[int, Any]) -> Found:
        return list(chain.from_iterable([{"image_id": image_id, **one} for one in found] for image_id, found in kept.items()))

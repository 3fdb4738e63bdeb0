"""torchvision's Faster/Mask R-CNN, RetinaNet, SSD, FCOS: boxes [n, 4], labels [n], scores [n].

Boxes are x1, y1, x2, y2 in pixels of the input, after suppression. Label 0 is the background,
others count from 1; with COCO's weights labels are COCO's ids, 1..90. The lists come in any order,
with or without a leading batch axis, and n differs from image to image. Masks of Mask R-CNN are [n,
1, H, W], 0..1 in pixels of the input. Keypoints are ignored.

Source: pytorch/vision `torchvision/models/detection/generalized_rcnn.py` and `roi_heads.py`
(`postprocess_detections`).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import (
    COCO_LAST_ID,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.lists import labelled_lists, labels_and_scores, whole_outputs
from edgemeter.agent.vision.decoders.masks import photo_mask

# Source: `torchvision/models/detection/roi_heads.py` leaves it to the user; its references and COCO
# scripts use 0.5.
_MASK_THRESHOLD = 0.5


class Torchvision(Family):
    """Decodes the three lists, and the masks."""

    NAME = r"faster_?-?rcnn|mask_?-?rcnn|retinanet|fcos|ssd300|ssdlite320"
    PICTURES = Pictures("stretch", side=800)

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        if len(facts.shapes) < 3 or labelled_lists(facts.shapes) is None:
            return None
        doubt = (
            "labels count from 1, 0 is the background, as torchvision's do; set `family` in its "
            "card if that is wrong"
        )
        classes = facts.foreground or facts.classes_or(COCO_LAST_ID)
        return Recognition(
            classes,
            (*facts.unnamed(classes, "COCO's ids" if classes == COCO_LAST_ID else ""), doubt),
        )

    @classmethod
    def by_name(cls, facts: UnknownModel) -> Recognition:
        """Return Mask R-CNN as a segmenter."""
        classes = facts.classes_or(COCO_LAST_ID)
        return Recognition(
            classes,
            facts.unnamed(classes),
            task="segmentation" if re.search(r"mask_?-?rcnn", facts.name.lower()) else None,
        )

    def __init__(self, model: Card, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        self._whole = whole_outputs(loaded.outputs)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        at, lists = self._check([output.shape for output in outputs])
        labels, scores = labels_and_scores(outputs, lists, self._whole)
        are_above = scores > self._output.score_threshold
        if np.any(labels[are_above] < 1):
            raise ConfigError(
                "label 0 has a score: labels of family torchvision count from 1, 0 is the "
                "background; lists that count from 0 and "
                "come with their number (TensorRT's EfficientNMS) are of family detr-lists; "
                "correct `family` in the card"
            )
        corners, scores = (
            boxes.in_pixels(outputs[at].reshape(-1, 4)[are_above], frame),
            scores[are_above],
        )
        classes = labels[are_above].astype(np.int32) - 1
        survivors = boxes.surviving(corners, scores, classes, self._output)
        detections = Detections(
            boxes.to_photo(corners[survivors], frame), scores[survivors], classes[survivors]
        )
        maps = next(
            (
                output
                for output in outputs
                if output.ndim == 4 and output.shape[:2] == (len(labels), 1)
            ),
            None,
        )
        if maps is None:
            return detections
        # Masks extend beyond their boxes by 1/28, rounded up (`paste_masks_in_image`); outside they
        # are 0.
        margins = np.tile(
            (detections.boxes[:, 2:] - detections.boxes[:, :2]) / 14 + 2, 2
        ) * np.array([-1, -1, 1, 1], np.float32)
        pairs = zip(maps[are_above, 0][survivors], detections.boxes + margins, strict=True)
        return replace(
            detections,
            masks=tuple(photo_mask(mask, box, frame, _MASK_THRESHOLD) for mask, box in pairs),
        )

    def _check(self, shapes: Sequence[Shape]) -> tuple[int, tuple[int, int]]:
        if (lists := labelled_lists(shapes)) is None:
            raise boxes.mismatch(
                "torchvision",
                "boxes [n, 4], labels [n] and scores [n]",
                [list(shape) for shape in shapes],
            )
        return lists

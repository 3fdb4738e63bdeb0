"""torchvision's detectors (Faster R-CNN, RetinaNet, SSD, FCOS): lists of boxes, labels and scores, of another length each time.

Boxes [n, 4] as x1, y1, x2, y2 in pixels of the input, labels [n] counted from 1 (0 is the background; with COCO's weights they are its ids,
1..90), scores [n]; in any order, with or without a leading batch axis. Suppression is inside the model.
Source: pytorch/vision `torchvision/models/detection/generalized_rcnn.py` and `roi_heads.py` (`postprocess_detections`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes
from edgemeter.agent.vision.decoders.boxes import photo_mask

# Source: `torchvision/models/detection/roi_heads.py` leaves it to the user; its references and COCO scripts take 0.5.
_MASK_THRESHOLD = 0.5


class Torchvision:
    """Decodes the three lists, and the masks of Mask R-CNN: [n, 1, H, W], 0..1 in pixels of the input; keypoints are left alone."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        self._labels = [i for i, info in enumerate(loaded.outputs) if info.dtype.startswith("int") and info.scale is None]
        if loaded.outputs and len(loaded.outputs) < 3:
            raise _mismatch([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` are the lists, float32."""
        corners, labels, scores = self._lists(outputs)
        above = scores > self._output.score_threshold
        if np.any(labels[above] < 1):
            raise ConfigError(
                "label 0 has a score: labels of family torchvision count from 1, 0 is the background; lists that count from 0 and "
                "come with their number (TensorRT's EfficientNMS) are of family detr-lists; correct `family` in the card"
            )
        corners, scores = boxes.in_pixels(corners[above], frame), scores[above]
        classes = labels[above].astype(np.int32) - 1
        survivors = boxes.surviving(corners, scores, classes, self._output)
        detections = Detections(boxes.to_photo(corners[survivors], frame), scores[survivors], classes[survivors])
        maps = next((output for output in outputs if output.ndim == 4 and output.shape[:2] == (len(labels), 1)), None)
        if maps is None:
            return detections
        # Masks reach out of their boxes by 1/28, rounded up (`paste_masks_in_image`); beyond they are 0.
        margins = np.tile((detections.boxes[:, 2:] - detections.boxes[:, :2]) / 14 + 2, 2) * np.array([-1, -1, 1, 1], np.float32)
        pairs = zip(maps[above, 0][survivors], detections.boxes + margins, strict=True)
        return replace(detections, masks=tuple(photo_mask(mask, box, frame, _MASK_THRESHOLD) for mask, box in pairs))

    def _lists(self, outputs: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
        """Return boxes [n, 4], labels [n] and scores [n]."""
        at = next((i for i, output in enumerate(outputs) if output.ndim in (2, 3) and output.shape[-1] == 4), None)
        if at is None:
            raise _mismatch([output.shape for output in outputs])
        corners = outputs[at].reshape(-1, 4)
        sizes = [(*output.shape[-1:], output.size) if output.ndim <= 2 else () for output in outputs]
        lists = [i for i, size in enumerate(sizes) if i != at and size == (len(corners), len(corners))]
        if len(lists) != 2:
            raise _mismatch([output.shape for output in outputs])
        labels, scores = lists if self._is_labels(outputs, *lists) else lists[::-1]
        return corners, outputs[labels].ravel(), outputs[scores].ravel()

    def _is_labels(self, outputs: Sequence[Floats], index: int, other: int) -> bool:
        """Return whether the first of two lists holds the labels: whole numbers where the other has scores."""
        if self._labels:
            return index in self._labels
        return bool(np.all(outputs[index] >= 1) and np.all(outputs[index] == np.floor(outputs[index])) and np.all(outputs[other] <= 1))


def _mismatch(shapes: Sequence[tuple[int | None, ...]]) -> ConfigError:
    return boxes.mismatch("torchvision", "boxes [n, 4], labels [n] and scores [n]", [list(shape) for shape in shapes])

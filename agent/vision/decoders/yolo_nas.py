"""YOLO-NAS as super-gradients exports it without suppression: boxes [1, n, 4] and scores [1, n, classes], a row for each cell of its grids.

Boxes are x1, y1, x2, y2 in pixels of the input, scores 0..1, each class of a cell above the threshold a candidate of its own. Pictures are
RGB 0..1, padded with 114 on all sides to 636 of 640 pixels; a card's letterbox fills all 640.
Source: Deci-AI/super-gradients `training/models/detection_models/pp_yolo_e/pp_yolo_head.py` and `training/processing/processing.py`
(`default_yolo_nas_coco_processing_params`).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, blanks, boxes


class YoloNas:
    """Decodes the two tensors; where both end in 4, the boxes come first."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        if declared := blanks(loaded):
            self._parts(declared)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` are the two tensors, float32."""
        corners, scores = self._parts(outputs)
        cells, classes = np.nonzero(scores > self._output.score_threshold)
        candidates = boxes.in_pixels(corners, frame)[cells]
        return boxes.select(candidates, scores[cells, classes], classes.astype(np.int32), self._output, frame)

    def _parts(self, outputs: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return boxes [n, 4] and scores [n, classes]."""
        shapes = [output.shape for output in outputs]
        at = next((index for index, shape in enumerate(shapes) if len(shape) == 3 and shape[0] == 1 and shape[2] == 4), None)
        if len(shapes) == 2 and at is not None:
            other = shapes[1 - at]
            if len(other) == 3 and other[:2] == (1, shapes[at][1]) and self._output.classes in (None, other[2]):
                return outputs[at][0], outputs[1 - at][0]
        needs = f"boxes [1, n, 4] and scores [1, n, {self._output.classes or 'classes'}]"
        raise boxes.mismatch("yolo-nas", needs, [list(shape) for shape in shapes], "`classes` or `family`")

"""YOLOv8 and its successors with the same head (YOLO11, YOLOv5u): [1, 4 + classes, anchors], no objectness.

Boxes are centre x, centre y, width, height: pixels of the input in ONNX and TorchScript files, 0..1 in TFLite files. Every class
of an anchor above the threshold is a candidate of its own, as in Ultralytics' validation.
Source: ultralytics `utils/nms.py` (`non_max_suppression`, multi_label) and `engine/exporter.py` (TFLite divides by the size).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes, tamed
from edgemeter.agent.vision.decoders.boxes import OneTensor, above, mismatch


class YoloV8(OneTensor):
    """Decodes one [1, 4 + classes, anchors] tensor; the transposed [1, anchors, 4 + classes] too."""

    takes_invalid = True

    def __init__(self, model: Card, loaded: Loaded) -> None:
        if len(loaded.outputs) > 1:
            raise ConfigError(
                f"model {model.name!r}: family yolov8 has one output, this model has {len(loaded.outputs)}: choose another family"
            )
        super().__init__(model, loaded)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` is the one tensor, float32."""
        tensor = outputs[0]
        rows = tensor[0] if self._check(tensor.shape) else tensor[0].T
        classes, anchors = above(rows[4:], self._output.score_threshold)
        centred = tamed(rows[:4, anchors].T)
        if np.fmax.reduce(rows[0], initial=0.0) <= boxes.LARGEST_NORMALISED:
            centred = centred * np.array([frame.input_width, frame.input_height] * 2, np.float32)
        scores = tamed(rows[4 + classes, anchors])
        return boxes.select(boxes.corners(centred), scores, classes.astype(np.int32), self._output, frame)

    def _check(self, shape: tuple[int, ...]) -> bool:
        """Return whether the last axis holds the anchors; the card's class count decides, without one the longer axis."""
        classes = self._output.classes
        if len(shape) == 3 and shape[0] == 1 and min(shape[1:]) > 4:
            if classes is None:
                return shape[2] > shape[1]
            if 4 + classes in shape[1:]:
                return shape[1] == 4 + classes
        raise mismatch("yolov8", f"[1, {self._values(4)}, anchors]", shape)

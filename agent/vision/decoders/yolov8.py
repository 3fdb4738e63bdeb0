"""YOLOv8 and its successors with the same head (YOLO11, YOLOv5u): [1, 4 + classes, anchors], no objectness; and their pose head.

Boxes are centre x, centre y, width, height: pixels of the input in ONNX and TorchScript files, 0..1 in TFLite files. Every class
of an anchor above the threshold is a candidate of its own, as in Ultralytics' validation.
The pose head (YOLOv8-pose, YOLO11-pose) gives [1, 4 + classes + 3 x keypoints, anchors]. A keypoint is x, y (in pixels or as 0..1, as the
boxes are) and score (the sigmoid is in the graph). Suppression is that of the boxes.
Source: ultralytics `utils/nms.py` (`non_max_suppression`, multi_label), `engine/exporter.py` (TFLite divides by the size) and
`nn/modules/head.py` (`Pose.kpts_decode`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes, tamed
from edgemeter.agent.vision.decoders.boxes import KEYPOINTS, OneTensor, above, keypoints_in_photo, mismatch


class YoloV8(OneTensor):
    """Decodes one [1, 4 + classes, anchors] tensor; the transposed [1, anchors, 4 + classes] too."""

    takes_invalid = True
    FAMILY = "yolov8"
    # Values of an anchor behind its classes, in heads for other tasks.
    _extra = 0

    def __init__(self, model: Card, loaded: Loaded) -> None:
        if len(loaded.outputs) > 1:
            raise ConfigError(
                f"model {model.name!r}: family {self.FAMILY} has one output, this model has {len(loaded.outputs)}: choose another family"
            )
        super().__init__(model, loaded)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` is the one tensor, float32."""
        return self._found(outputs[0], frame)[0]

    def _found(self, tensor: Floats, frame: PhotoFrame, scaled: Sequence[int] = ()) -> tuple[Detections, Floats]:
        """Return the detections, and the values behind the classes of each: float32 [n, extra].

        `scaled` are those of these values that are an x, with the y behind it: in pixels or as 0..1, as the boxes are.
        """
        rows = tensor[0] if self._check(tensor.shape) else tensor[0].T
        end = len(rows) - self._extra
        classes, anchors = above(rows[4:end], self._output.score_threshold)
        parts = [rows[:4, anchors], rows[4 + classes, anchors][None], *([rows[end:, anchors]] if self._extra else ())]
        values = tamed(np.concatenate(parts))
        centred, scores, extra = values[:4].T, values[4], values[5:].T
        if np.fmax.reduce(rows[0], initial=0.0) <= boxes.LARGEST_NORMALISED:
            centred = centred * np.array([frame.input_width, frame.input_height] * 2, np.float32)
            sizes = np.ones(self._extra, np.float32)
            for x in scaled:
                sizes[x], sizes[x + 1] = frame.input_width, frame.input_height
            extra = extra * sizes
        corners, kinds = boxes.corners(centred), classes.astype(np.int32)
        survivors = boxes.surviving(corners, scores, kinds, self._output)
        return Detections(boxes.to_photo(corners[survivors], frame), scores[survivors], kinds[survivors]), extra[survivors]

    def _check(self, shape: tuple[int, ...]) -> bool:
        """Return whether the last axis holds the anchors; the card's class count decides, without one the longer axis."""
        classes, other_values = self._output.classes, 4 + self._extra
        if len(shape) == 3 and shape[0] == 1 and min(shape[1:]) > other_values:
            if classes is None:
                return shape[2] > shape[1]
            if other_values + classes in shape[1:]:
                return shape[1] == other_values + classes
        raise mismatch(self.FAMILY, f"an output of shape [1, {self._values(other_values)}, anchors]", list(shape), "`classes` or `family`")


class YoloPose(YoloV8):
    """Decodes the one tensor; without a class count on the card there is one class, people."""

    FAMILY = "yolo-pose"
    _extra = 3 * KEYPOINTS

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections with keypoints; `outputs` is the one tensor, float32."""
        detections, extra = self._found(outputs[0], frame, scaled=range(0, self._extra, 3))
        return replace(detections, keypoints=keypoints_in_photo(extra.reshape(-1, KEYPOINTS, 3), frame))

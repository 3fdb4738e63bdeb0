"""YOLOv8 and its successors with the same head (YOLO11, YOLOv5u): [1, 4 + classes, anchors], no objectness.

Boxes are centre x, centre y, width, height: pixels of the input in ONNX and TorchScript files, 0..1 in TFLite files. Every class
of an anchor above the threshold is a candidate of its own, as in Ultralytics' validation.
Source: ultralytics `utils/nms.py` (`non_max_suppression`, multi_label) and `engine/exporter.py` (TFLite divides by the size).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision import boxes
from edgemeter.agent.vision.decoder import Detections, Floats, Frame


class YoloV8:
    """Decodes one [1, 4 + classes, anchors] tensor; the transposed [1, anchors, 4 + classes] too."""

    def __init__(self, model: card.Card, loaded: Loaded) -> None:
        self._output = model.output
        if loaded.outputs and len(loaded.outputs) != 1:
            message = f"model {model.name!r}: family yolov8 has one output, this model has {len(loaded.outputs)}: choose another family"
            raise ConfigError(message)
        for info in loaded.outputs:
            if len(info.shape) == 3 and None not in info.shape:
                self._anchors_last(tuple(size or 0 for size in info.shape))

    def decode(self, outputs: Sequence[Floats], frame: Frame) -> Detections:
        """Return the detections; `outputs` is the one tensor, float32."""
        tensor = outputs[0]
        rows = tensor[0] if self._anchors_last(tensor.shape) else tensor[0].T
        # One flat search is several times as fast as numpy's in two axes.
        classes, anchors = np.divmod(np.flatnonzero(rows[4:] > self._output.score_threshold), rows.shape[1])
        centred = rows[:4, anchors].T
        if rows[0].max(initial=0.0) <= boxes.LARGEST_NORMALISED:
            centred = centred * np.array([frame.input_width, frame.input_height] * 2, np.float32)
        scores = rows[4 + classes, anchors]
        return boxes.select(boxes.corners(centred), scores, classes.astype(np.int32), self._output, frame)

    def _anchors_last(self, shape: tuple[int, ...]) -> bool:
        """Return whether the last axis holds the anchors; the card's class count decides, without one the longer axis.

        Raises:
            ConfigError: neither axis fits.
        """
        classes = self._output.classes
        if len(shape) == 3 and shape[0] == 1 and min(shape[1:]) > 4:
            if classes is None:
                return shape[2] > shape[1]
            if 4 + classes in shape[1:]:
                return shape[1] == 4 + classes
        wanted = f"[1, {'4 + classes' if classes is None else 4 + classes}, anchors]"
        message = (
            f"family yolov8 needs an output of shape {wanted}, the model gives {list(shape)}: correct `classes` or `family` in its card"
        )
        raise ConfigError(message)

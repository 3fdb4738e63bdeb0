"""YOLO26, YOLOv10 and Ultralytics exports with `nms=True`: [1, n, 6], end to end, without further suppression.

A row is x1, y1, x2, y2, score, class; boxes are pixels of the input, 0..1 where the file is a TFLite one: the values decide.
Source: ultralytics `nn/modules/head.py` (`Detect.postprocess`).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes

COLUMNS = 6
# What fp16 may do to a class number; a quantised one is off by more.
_ROUNDING = 0.01


class Yolo26:
    """Decodes the one tensor; rows are candidates as they are."""

    FAMILY = "yolo26"
    # Values of a row behind its class, in heads for other tasks.
    _extra = 0

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        if loaded.outputs:
            self._check([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` is the one tensor, float32."""
        return self._found(outputs, frame)[0]

    def _found(self, outputs: Sequence[Floats], frame: PhotoFrame) -> tuple[Detections, Floats]:
        """Return the detections, and the values behind the class of each: float32 [n, extra]."""
        self._check([output.shape for output in outputs])
        rows = outputs[0].reshape(-1, COLUMNS + self._extra)
        corners = boxes.in_pixels(rows[:, :4], frame)
        above = rows[:, 4] > self._output.score_threshold
        classes = np.rint(rows[above, 5])
        if not np.all(np.abs(rows[above, 5] - classes) <= _ROUNDING):
            raise ConfigError(
                "the sixth column should hold class numbers, and they are not whole: quantised with one scale for boxes and classes? "
                "Export end-to-end models in float, or without the end-to-end head (family yolov8)"
            )
        corners, scores, kinds = corners[above], rows[above, 4], classes.astype(np.int32)
        survivors = boxes.surviving(corners, scores, kinds, self._output)
        return Detections(boxes.to_photo(corners[survivors], frame), scores[survivors], kinds[survivors]), rows[above, COLUMNS:][survivors]

    def _check(self, shapes: Sequence[tuple[int | None, ...]]) -> None:
        shape = shapes[0]
        columns = COLUMNS + self._extra
        if len(shapes) == 1 and len(shape) in (2, 3) and shape[-1] in (columns, None) and (len(shape) == 2 or shape[0] in (1, None)):
            return
        raise ConfigError(
            f"family {self.FAMILY} needs one output of shape [1, n, {columns}], the model gives {[list(shape) for shape in shapes]}: "
            "one with [1, 4 + classes, anchors] is of family yolov8; correct `family` in its card"
        )

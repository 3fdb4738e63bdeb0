"""YOLO26, YOLOv10 and Ultralytics exports with `nms=True`: [1, n, 6], not suppressed further.

A row is x1, y1, x2, y2, score, class. Boxes are in pixels of the input, or 0..1 in a TFLite file:
the values decide.
Source: ultralytics `nn/modules/head.py` (`Detect.postprocess`).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import (
    COCO_CLASSES,
    MOST_QUERIES,
    Family,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.grids import anchors_per_cell

COLUMNS = 6
# The error of a class number in fp16; a quantised one is off by more.
_ROUNDING = 0.01


class Yolo26(Family):
    """Decodes the one tensor; rows are candidates as they are."""

    NAME = r"yolo(v?10|v?26)"
    # The number of values after the class, in heads for other tasks.
    _extra = 0

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Recognise models with rows that are no grid.

        If their number is open, six columns may also be YOLOv5's with one class.
        """
        rows, columns = facts.table
        is_grid = anchors_per_cell(rows, facts.size) > 0 or (rows or 0) > MOST_QUERIES
        is_open = rows is None and facts.named is None and len(facts.labels) == 1
        if (
            columns != COLUMNS
            or is_grid
            or is_open
            or facts.named not in (None, "yolo26", "yolov8")
        ):
            return None
        classes = facts.classes_or(COCO_CLASSES)
        return Recognition(classes, facts.unnamed(classes))

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        return self._select(outputs, frame)[0]

    def _select(
        self, outputs: Sequence[Floats], frame: PhotoFrame
    ) -> tuple[Detections, Floats, Floats]:
        """Return the detections, their values after the class, and the factors of x and y.

        The values are float32 [n, extra], the factors are [2].
        """
        self._check([output.shape for output in outputs])
        rows = outputs[0].reshape(-1, COLUMNS + self._extra)
        rows = rows[rows[:, 4] > self._output.score_threshold]
        unit = boxes.input_unit(rows[:, :4], frame)
        classes = np.rint(rows[:, 5])
        if not np.all(np.abs(rows[:, 5] - classes) <= _ROUNDING):
            raise ConfigError(
                "the sixth column should hold class numbers, and they are not whole: quantised "
                "with one scale for boxes and classes? "
                "Export end-to-end models in float, or without the end-to-end head (family yolov8)"
            )
        corners, scores, kinds = (
            rows[:, :4] * np.tile(unit, 2),
            rows[:, 4],
            classes.astype(np.int32),
        )
        survivors = boxes.surviving(corners, scores, kinds, self._output)
        detections = Detections(
            boxes.to_photo(corners[survivors], frame), scores[survivors], kinds[survivors]
        )
        return detections, rows[survivors, COLUMNS:], unit

    def _check(self, shapes: Sequence[Shape]) -> None:
        shape = shapes[0]
        columns = COLUMNS + self._extra
        fits = (
            len(shapes) == 1
            and len(shape) in (2, 3)
            and shape[-1] in (columns, None)
            and (len(shape) == 2 or shape[0] in (1, None))
        )
        if not fits:
            raise ConfigError(
                f"family {self._family} needs one output of shape [1, n, {columns}], the model "
                f"gives {[list(shape) for shape in shapes]}: one with [1, 4 + classes, anchors] is "
                "of family yolov8; correct `family` in its card"
            )

"""YOLOv8, YOLO11, YOLOv5u: [1, 4 + classes, anchors], no objectness.

Boxes are centre x, centre y, width, height, in pixels of the input in ONNX and TorchScript files,
0..1 in TFLite files. Every class of an anchor above the threshold is a candidate of its own, as in
Ultralytics' validation.
Source: ultralytics `utils/nms.py` (`non_max_suppression`, multi_label), `engine/exporter.py`
(TFLite divides by the size).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes, tamed
from edgemeter.agent.vision.decoders.family import (
    COCO_CLASSES,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.grids import anchors_per_cell


class YoloV8(Family):
    """Decodes one [1, 4 + classes, anchors] tensor; [1, anchors, 4 + classes] too."""

    NAME = r"yolo(v8|v9|v?11|v?12|v?13)|yolov5\w*u(?![a-z])"
    PICTURES = Pictures(nms_iou=0.7)
    takes_invalid = True
    # The number of values after the classes, in heads for other tasks.
    _extra = 0

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Recognise models whose anchors are the cells of their grids.

        Name or classes distinguish exchanged axes from YOLOX.
        """
        rows, columns = facts.table
        labels, is_named = len(facts.labels), facts.named == "yolov8"
        is_classes_first = columns is None and (4 + labels == rows if labels else is_named)
        if (
            rows is not None
            and rows > 4
            and (anchors_per_cell(columns, facts.size) == 1 or is_classes_first)
        ):
            return facts.one_of_heads(
                "yolov8", rows - 4, *(() if rows - 4 == COCO_CLASSES else facts.unnamed(rows - 4))
            )
        if (
            columns is None
            or columns <= 5
            or (rows is not None and anchors_per_cell(rows, facts.size) != 1)
        ):
            return None
        if is_named or (
            rows is not None and facts.named is None and columns == 4 + (labels or COCO_CLASSES)
        ):
            doubt = (
                f"YOLOv8's head with its axes exchanged, since {columns} is 4 + COCO's 80 "
                "classes; set `family`"
            )
            return facts.one_of_heads(
                "yolov8", columns - 4, *(() if is_named or labels else (doubt,))
            )
        return None

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        return self._select(outputs[0], frame)[0]

    def _select(self, tensor: Floats, frame: PhotoFrame) -> tuple[Detections, Floats, Floats]:
        """Return the detections, their values after the classes, and the factors of x and y.

        The values are float32 [n, extra], the factors are [2].
        """
        rows = tensor[0] if self._check([tensor.shape]) else tensor[0].T
        end = len(rows) - self._extra
        classes, anchors = boxes.above(rows[4:end], self._output.score_threshold)
        parts = [
            rows[:4, anchors],
            rows[4 + classes, anchors][None],
            *([rows[end:, anchors]] if self._extra else ()),
        ]
        values = tamed(np.concatenate(parts))
        centred, scores, extra = values[:4].T, values[4], values[5:].T
        unit = np.ones(2, np.float32)
        if np.fmax.reduce(rows[0], initial=0.0) <= boxes.LARGEST_NORMALISED:
            unit = np.array([frame.input_width, frame.input_height], np.float32)
            centred = centred * np.tile(unit, 2)
        corners, kinds = boxes.corners(centred), classes.astype(np.int32)
        survivors = boxes.surviving(corners, scores, kinds, self._output)
        detections = Detections(
            boxes.to_photo(corners[survivors], frame), scores[survivors], kinds[survivors]
        )
        return detections, extra[survivors], unit

    def _check(self, shapes: Sequence[Shape]) -> bool:
        """Return whether the last axis is that of anchors.

        It is by the card's number of classes, or else because it is the longer one.
        """
        shape, classes, other_values = shapes[0], self._output.classes, 4 + self._extra
        if (
            len(shapes) == 1
            and len(shape) == 3
            and shape[0] == 1
            and min(size or 0 for size in shape[1:]) > other_values
        ):
            if classes is None:
                return (shape[2] or 0) > (shape[1] or 0)
            if other_values + classes in shape[1:]:
                return shape[1] == other_values + classes
        raise boxes.mismatch(
            self._family,
            f"one output of shape [1, {boxes.count_in_words(other_values, classes)}, anchors]",
            [list(shape) for shape in shapes],
            "`classes` or `family`",
        )

"""jetson-inference's SSD, YOLO-NAS, others: boxes [1, n, 4] and scores [1, n, classes].

A row is an anchor or a cell. With a background, scores are [1, n, 1 + classes]. The values show
what the boxes are (corners or centres, 0..1 or pixels) and what the scores are (background first,
last or none; probabilities or logits): see `conventions.py`. If n is the number of cells of a
YOLO's grid, there is no background, and photographs are prepared as YOLO-NAS's (RGB 0..1,
letterbox). Otherwise they are prepared as jetson-inference's ((pixel - 127) / 128, stretched), and
one score is the background's, unless labels or annotations contradict.
Source: dusty-nv/pytorch-ssd `vision/ssd/ssd.py`, `vision/ssd/config/mobilenetv1_ssd_config.py`;
Deci-AI/super-gradients `training/models/detection_models/pp_yolo_e/pp_yolo_head.py`,
`training/processing/processing.py`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.conventions import (
    TwoTables,
    boxes_in_pixels,
    class_scores,
    two_tables,
)
from edgemeter.agent.vision.decoders.family import Family, Pictures, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.grids import strides_of

_GRID = Pictures(nms_iou=0.7)
_PRIORS = Pictures(
    resize="stretch",
    mean=(127.0,) * 3,
    sd=(128.0,) * 3,
    side=300,
    nms_iou=0.45,
    doubt=(
        "(pixel - 127) / 128, jetson-inference's: a wrong guess costs accuracy; set input.mean "
        "and input.sd"
    ),
)


class BoxesScores(Family):
    """Decodes the two tensors; if both may be boxes, they come first."""

    NAME = r"yolo[-_]?nas"

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return the number of classes in the columns of the scores."""
        if (parts := two_tables(facts.shapes)) is None:
            return None
        _, rows, columns = parts
        is_grid, count = bool(strides_of(rows, facts.size)), facts.known_classes
        if facts.labels and facts.labels[0].strip("_ ").lower() == "background":
            count = len(facts.labels) - 1
        if facts.labels and count not in (columns, columns - 1):
            return None
        classes = (
            count
            if count in (columns, columns - 1)
            else columns
            if is_grid
            else max(columns - 1, 1)
        )
        doubt = (
            f"{classes} of its {columns} scores are classes, and the size of a box follows x and "
            "y; set `family` and output.classes"
        )
        return Recognition(
            classes or columns,
            (*(() if facts.labels or is_grid else (doubt,)), *facts.unnamed(classes)),
        )

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return the preparation of YOLO-NAS for a grid, that of jetson-inference otherwise."""
        parts = two_tables(facts.shapes)
        return _GRID if parts is None or strides_of(parts.rows, facts.size) else _PRIORS

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        at, count, _ = self._check([output.shape for output in outputs])
        tensors = (output.reshape(output.shape[1], -1) for output in (outputs[at], outputs[1 - at]))
        rows, values = (tensor if len(tensor) == count else tensor.T for tensor in tensors)
        columns, classes = values.shape[1], self._output.classes
        scores, _ = class_scores(values, columns if classes == columns else None)
        if classes not in (None, scores.shape[1]):
            raise ConfigError(
                f"none of {columns} scores is a background, which would win in most rows: "
                "correct output.classes in the card"
            )
        anchors, kinds = np.nonzero(scores > self._output.score_threshold)
        return boxes.select(
            boxes_in_pixels(rows, anchors, frame, "corners"),
            scores[anchors, kinds],
            kinds.astype(np.int32),
            self._output,
            frame,
        )

    def _check(self, shapes: Sequence[Shape]) -> TwoTables:
        parts, classes = two_tables(shapes), self._output.classes
        if parts is not None and classes in (None, parts.columns, parts.columns - 1):
            return parts
        raise boxes.mismatch(
            "boxes-scores",
            f"boxes [1, n, 4] and scores [1, n, {classes or 'classes'}] or one more",
            [list(shape) for shape in shapes],
            "output.classes or `family`",
        )

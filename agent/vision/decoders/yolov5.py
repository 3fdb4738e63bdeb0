"""YOLOv5, YOLOv7 (three anchors per cell) and YOLOv6 (one): [1, anchors, 5 + classes].

A row is centre x, centre y, width, height, objectness, class scores. Boxes are in pixels of the
input, or 0..1 in TFLite files. The score of a class is objectness x class score. Every class of a
row above the threshold is a candidate of its own.
Source: ultralytics/yolov5 `utils/general.py` (`non_max_suppression`, multi_label), `export.py`
(TFLite divides by the size).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import Family, Pictures, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.grids import anchors_per_cell


class YoloV5(Family):
    """Decodes the first output."""

    NAME = r"yolov?[3567]"
    PICTURES = Pictures(nms_iou=0.6)

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return models with three anchors per cell, or with this family's name."""
        rows, columns = facts.table
        count = anchors_per_cell(rows, facts.size)
        if columns is None or columns <= 5 or (rows is not None and not count):
            return None
        is_open = rows is None and facts.named is None and columns == 5 + len(facts.labels)
        return (
            facts.one_of_heads("yolov5", columns - 5)
            if count == 3 or facts.named == "yolov5" or is_open
            else None
        )

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        tensor = outputs[0]
        self._check([tensor.shape])
        rows, threshold = tensor[0], self._output.score_threshold
        is_normalised = rows[:, 0].max(initial=0.0) <= boxes.LARGEST_NORMALISED
        # A class score never exceeds 1, so rows with an objectness below the threshold, most of
        # all, have no candidate.
        rows = rows[rows[:, 4] > threshold]
        scores = rows[:, 5:] * rows[:, 4:5]
        anchors, classes = np.nonzero(scores > threshold)
        centred = rows[anchors, :4]
        if is_normalised:
            centred = centred * np.array([frame.input_width, frame.input_height] * 2, np.float32)
        return boxes.select(
            boxes.corners(centred),
            scores[anchors, classes],
            classes.astype(np.int32),
            self._output,
            frame,
        )

    def _check(self, shapes: Sequence[Shape]) -> None:
        shape, classes = shapes[0], self._output.classes
        fits = (
            len(shape) == 3
            and shape[0] == 1
            and (shape[2] or 0) > 5
            and classes in (None, (shape[2] or 0) - 5)
        )
        if not fits:
            raise boxes.mismatch(
                "yolov5",
                f"an output of shape [1, anchors, {boxes.count_in_words(5, classes)}]",
                list(shape),
                "`classes` or `family`",
            )

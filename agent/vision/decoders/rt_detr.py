"""RT-DETR as Ultralytics exports it: [1, queries, 4 + classes], since 2026 [1, n, 6].

Rows of six end with score and class. Boxes are centre x, centre y, width, height in 0..1. Each
class of a query above the threshold is a candidate of its own.
Source: ultralytics `nn/modules/head.py` (`RTDETRDecoder`).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import (
    COCO_CLASSES,
    MOST_QUERIES,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.grids import anchors_per_cell


class RtDetr(Family):
    """Decodes the one tensor."""

    NAME = r"rt-?_?detr"
    PICTURES = Pictures("stretch")

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return models whose rows are no grid, by their name, or by the number of columns."""
        (rows, columns), labels = facts.table, len(facts.labels)
        is_named = facts.named in ("detr", "rt-detr")
        if (
            columns is None
            or columns <= 5
            or (rows or 0) > MOST_QUERIES
            or anchors_per_cell(rows, facts.size)
        ):
            return None
        if columns == 6 and is_named:
            classes = facts.classes_or(COCO_CLASSES)
            return Recognition(classes, facts.unnamed(classes))
        is_counted = facts.named is None and columns - 4 in (labels, COCO_CLASSES)
        if rows is None or rows < columns or not (is_named or is_counted):
            return None
        doubt = (
            "RT-DETR's head, boxes as 0..1 beside scores: its rows are not a grid; "
            "set `family` and [input]"
        )
        return Recognition(
            columns - 4, (*(() if is_named else (doubt,)), *facts.unnamed(columns - 4))
        )

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections, suppressed only if the card asks for it."""
        self._check([output.shape for output in outputs])
        rows, classes = outputs[0][0], self._output.classes
        corners = boxes.corners(boxes.in_pixels(rows[:, :4], frame))
        # With two classes there are 6 columns in both forms, and whole numbers decide.
        if rows.shape[1] == 6 and (classes != 2 or np.array_equal(rows[:, 5], np.rint(rows[:, 5]))):
            queries = np.nonzero(rows[:, 4] > self._output.score_threshold)[0]
            kinds = np.rint(rows[queries, 5]).astype(np.int32)
            return boxes.select(corners[queries], rows[queries, 4], kinds, self._output, frame)
        scores = boxes.sigmoid(rows[:, 4:])
        queries, kinds = np.nonzero(scores > self._output.score_threshold)
        return boxes.select(
            corners[queries], scores[queries, kinds], kinds.astype(np.int32), self._output, frame
        )

    def _check(self, shapes: Sequence[Shape]) -> None:
        shape, classes = shapes[0], self._output.classes
        columns = shape[2] or 0 if len(shape) == 3 else 0
        fits = (
            len(shapes) == 1
            and shape[0] == 1
            and columns > 4
            and (classes in (None, columns - 4) or columns == 6)
        )
        if not fits:
            raise boxes.mismatch(
                "rt-detr",
                f"one output [1, queries, {boxes.count_in_words(4, classes)}] (two are of family "
                "detr)",
                [list(shape) for shape in shapes],
                "output.classes or `family`",
            )

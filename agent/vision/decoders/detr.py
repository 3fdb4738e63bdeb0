"""DETR, RT-DETR, D-FINE, RF-DETR, YOLOS: boxes [1, queries, 4], scores [1, queries, classes].

Deformable DETR has them too. The outputs come in any order. Boxes are centre x, centre y, width,
height in 0..1. With classes + 1 scores, the last one is "no object" and a softmax chooses one class
per query (DETR, YOLOS). Otherwise each class stands for itself (sigmoid). If the values contradict
this, the values decide (`conventions.py`). Further outputs are ignored.
Source: huggingface/transformers `image_processing_detr.py`, `image_processing_rt_detr.py`
(`post_process_object_detection`).
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.conventions import boxes_in_pixels, class_scores, two_tables
from edgemeter.agent.vision.decoders.family import (
    COCO_CLASSES,
    COCO_LAST_ID,
    MOST_QUERIES,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.grids import strides_of

# Successors of DETR that score each class by itself, without one for "no object".
_SIGMOID = re.compile(
    r"rt-?_?detr|d-?_?fine|deim|rf-?_?detr|deformable|conditional|dab-?_?detr|dino|lw-?_?detr"
)
# Those of them that use pixels as 0..1, without ImageNet's mean.
_ON_UNIT = re.compile(r"rt-?_?detr|d-?_?fine|deim")
_DOUBT = (
    "ImageNet's mean and sd, the usual for PyTorch: a wrong guess costs accuracy; set input.mean "
    "and input.sd"
)


class Detr(Family):
    """Decodes boxes and scores."""

    NAME = r"detr|d-?_?fine|deim|yolos(?![a-z0-9])"
    PICTURES = Pictures("stretch", mean=(123.675, 116.28, 103.53), sd=(58.395, 57.12, 57.375))

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Recognise a set with few rows that are no grid.

        The number of classes comes from labels, columns, name or annotations.
        """
        _, rows, columns = two_tables(facts.shapes) or (0, 0, 0)
        if columns < 2 or (rows or 0) > MOST_QUERIES or strides_of(rows, facts.size):
            return None
        # DETR was trained on COCO's ids 0..90, of which 0 is unused, and "no object".
        is_sigmoid = (
            columns in (COCO_LAST_ID + 1, COCO_CLASSES)
            or _SIGMOID.search(facts.name.lower()) is not None
        )
        is_usual = is_sigmoid or columns in (COCO_LAST_ID + 2, COCO_CLASSES + 1)
        if len(facts.labels) in (columns, columns - 1):
            return Recognition(len(facts.labels))
        if not is_usual and facts.categories in (columns, columns - 1):
            return Recognition(
                facts.categories or columns, facts.unnamed(facts.categories or columns)
            )
        classes = columns if is_sigmoid else columns - 1
        doubt = (
            f"the last of {columns} scores is taken for 'no object', as DETR's; if each is a "
            f"class, set output.classes = {columns}"
        )
        return Recognition(classes, (*(() if is_usual else (doubt,)), *facts.unnamed(classes)))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return pixels as 0..1 for RT-DETR and its successors, ImageNet's mean for others."""
        if _ON_UNIT.search(facts.name.lower()) or facts.named == "rt-detr":
            return Pictures("stretch")
        return cls.PICTURES if facts.named == "detr" else replace(cls.PICTURES, doubt=_DOUBT)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections, suppressed only if the card asks for it."""
        boxes_at, scores_at = self._check([output.shape for output in outputs])
        values = outputs[scores_at][0]
        scores, has_background = class_scores(
            values, self._output.classes or values.shape[1], "last"
        )
        if has_background:
            queries, classes = np.arange(len(scores)), scores.argmax(axis=1)
            are_above = scores[queries, classes] > self._output.score_threshold
            queries, classes = queries[are_above], classes[are_above]
        else:
            queries, classes = np.nonzero(scores > self._output.score_threshold)
        return boxes.select(
            boxes_in_pixels(outputs[boxes_at][0], queries, frame, "centres"),
            scores[queries, classes],
            classes.astype(np.int32),
            self._output,
            frame,
        )

    def _check(self, shapes: Sequence[Shape]) -> tuple[int, int]:
        classes, sets = (
            self._output.classes,
            [index for index, shape in enumerate(shapes) if len(shape) == 3 and shape[0] == 1],
        )
        for at, index in permutations(sets, 2):
            (_, rows, sides), (_, count, columns) = shapes[at], shapes[index]
            if (
                sides == 4
                and rows == count
                and (columns or 0) > 1
                and classes in (None, columns, (columns or 0) - 1)
            ):
                return at, index
        raise boxes.mismatch(
            "detr",
            "boxes [1, queries, 4] and scores [1, queries, "
            f"{'n' if classes is None else f'{classes} or {classes + 1}'}]",
            [list(shape) for shape in shapes],
            "output.classes or `family`",
        )

"""DETR and its kin (RT-DETR, D-FINE, RF-DETR, Deformable DETR, YOLOS): a fixed set of queries, each a box and class scores.

Two outputs, in any order: boxes [1, queries, 4] as centre x, centre y, width, height in 0..1, and scores [1, queries, n]. Or one, as
Ultralytics exports RT-DETR: [1, queries, 4 + classes], since 2026 [1, n, 6] with the score and the class of each.
With n = classes + 1 the last column is "no object" and a softmax chooses one class per query (DETR, YOLOS); with n = classes each
stands for itself (sigmoid). Scores that are 0..1 have been through it in the graph.
Source: huggingface/transformers `image_processing_detr.py`, `image_processing_rt_detr.py` (`post_process_object_detection`);
ultralytics `nn/modules/head.py` (`RTDETRDecoder`).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import (
    COCO_CLASSES,
    MOST_QUERIES,
    Detections,
    Family,
    Floats,
    PhotoFrame,
    Pictures,
    Recognition,
    UnknownModel,
    blanks,
    boxes,
)
from edgemeter.agent.vision.decoders.boxes import mismatch
from edgemeter.agent.vision.decoders.conventions import boxes_in_pixels, class_scores, two_tables
from edgemeter.agent.vision.decoders.grids import strides_of

# DETR was trained on COCO's ids 0..90, of which 0 means nothing, and "no object" besides.
_DETR_CLASSES = 91
# What scores each class by itself, without one for "no object", as others do that came after DETR.
_SIGMOID = re.compile(r"rt-?_?detr|d-?_?fine|deim|rf-?_?detr|deformable|conditional|dab-?_?detr|dino|lw-?_?detr")
# Of these, what takes pixels as 0..1, without ImageNet's mean.
_ON_UNIT = re.compile(r"rt-?_?detr|d-?_?fine|deim")
_IMAGENET = Pictures(resize="stretch", mean=(123.675, 116.28, 103.53), sd=(58.395, 57.12, 57.375))


class Detr(Family):
    """Decodes boxes and scores; further outputs (encoder states, masks) are left alone."""

    NAME = r"detr|d-?_?fine|deim|yolos(?![a-z0-9])"

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return how many classes the scores of a set are."""
        parts = two_tables(facts.shapes)
        if parts is None or (parts[1] or 0) > MOST_QUERIES or strides_of(parts[1], facts.size) or parts[2] < 2:
            return None
        columns = parts[2]
        if len(facts.labels) in (columns, columns - 1):
            return Recognition(len(facts.labels))
        if columns in (_DETR_CLASSES + 1, COCO_CLASSES + 1):
            return Recognition(columns - 1, facts.unnamed(columns - 1))
        if columns in (_DETR_CLASSES, COCO_CLASSES) or _SIGMOID.search(facts.name.lower()):
            return Recognition(columns, facts.unnamed(columns))
        if facts.categories in (columns, columns - 1):
            return Recognition(facts.categories or columns, facts.unnamed(facts.categories or columns))
        doubt = f"the last of {columns} scores is taken for 'no object', as DETR's; if each is a class, set output.classes = {columns}"
        return Recognition(columns - 1, (doubt, *facts.unnamed(columns - 1)))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return pixels as 0..1 for what came after RT-DETR, ImageNet's mean for others."""
        if _ON_UNIT.search(facts.name.lower()) or facts.head == "RTDETRDecoder":
            return Pictures(resize="stretch")
        doubt = "ImageNet's mean and sd, the usual for PyTorch: a wrong guess costs accuracy; set input.mean and input.sd"
        return _IMAGENET if facts.named == "detr" else replace(_IMAGENET, doubt=doubt)

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        if declared := blanks(loaded):
            self._parts(declared)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; nothing is suppressed but what the card asks for."""
        centred, values = self._parts(outputs)
        if _is_list(outputs, self._output.classes):
            scores, classes = values[:, :1], np.rint(values[:, 1])
            queries = np.nonzero(scores[:, 0] > self._output.score_threshold)[0]
            corners = boxes.corners(boxes.in_pixels(centred, frame))[queries]
            return boxes.select(corners, scores[queries, 0], classes[queries].astype(np.int32), self._output, frame)
        scores, has_background = class_scores(values, self._output.classes or values.shape[1])
        if has_background:
            queries, classes = np.arange(len(scores)), scores.argmax(axis=1)
            above = scores[queries, classes] > self._output.score_threshold
            queries, classes = queries[above], classes[above]
        else:
            queries, classes = np.nonzero(scores > self._output.score_threshold)
        corners = boxes_in_pixels(centred, queries, frame, "centres")
        return boxes.select(corners, scores[queries, classes], classes.astype(np.int32), self._output, frame)

    def _parts(self, outputs: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return boxes [queries, 4] and scores [queries, n]."""
        classes, sets = self._output.classes, [output[0] for output in outputs if output.ndim == 3 and output.shape[0] == 1]
        if len(outputs) == 1 and sets and sets[0].shape[1] > 4 and (classes in (None, sets[0].shape[1] - 4) or _is_list(outputs, classes)):
            return sets[0][:, :4], sets[0][:, 4:]
        centred = next((part for part in sets if part.shape[1] == 4), None)
        if centred is not None:
            for part in sets:
                is_right = part.shape[1] > 1 if classes is None else part.shape[1] in (classes, classes + 1)
                if part is not centred and len(part) == len(centred) and is_right:
                    return centred, part
        columns = "n" if classes is None else f"{classes} or {classes + 1}"
        needs = f"boxes [1, queries, 4] and scores [1, queries, {columns}]"
        raise mismatch("detr", needs, [list(output.shape) for output in outputs], "output.classes or `family`")


def _is_list(outputs: Sequence[Floats], classes: int | None) -> bool:
    """Return whether the one output is [1, n, 6], a score and a class in each row; with two classes, whole numbers decide."""
    if len(outputs) != 1 or outputs[0].ndim != 3 or outputs[0].shape[2] != 6:
        return False
    last = outputs[0][0, :, 5]
    return classes != 2 or bool(np.all(last == np.rint(last)))

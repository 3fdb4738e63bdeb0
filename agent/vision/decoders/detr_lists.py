"""RT-DETR, D-FINE, DEIM, EfficientNMS: labels, boxes [1, n, 4], scores, after suppression.

RT-DETR, D-FINE and DEIM are those of their own exporters, EfficientNMS is TensorRT's. Labels are
[1, n], from 0, scores [1, n]. The exporters of RT-DETR and its kin have a second input,
`orig_target_sizes`; EfficientNMS also gives the number of detections, [1, 1] or [1]. Boxes are x1,
y1, x2, y2 in pixels of the input or 0..1.
Source: lyuwenyu/RT-DETR `rtdetr_postprocessor.py`; NVIDIA/TensorRT
`plugin/efficientNMSPlugin/README.md`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import (
    COCO_CLASSES,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.lists import labelled_lists, labels_and_scores, whole_outputs
from edgemeter.agent.vision.decoders.size_inputs import size_input_names


class DetrLists(Family):
    """Decodes the lists; a label below 0 fills up a list of fixed length."""

    PICTURES = Pictures("stretch")

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Recognise models with an input for a size, or an integer count.

        TensorFlow's graphs, in which y comes first, are not recognised.
        """
        if (lists := _lists(facts.shapes)) is None:
            return None
        classes = facts.classes_or(COCO_CLASSES)
        if lists[2] is None:
            return (
                Recognition(classes, facts.unnamed(classes))
                if size_input_names(facts.inputs)
                else None
            )
        if lists[2] not in whole_outputs(facts.outputs) or any(
            info.name.lower().startswith("detection_") for info in facts.outputs
        ):
            return None
        doubt = (
            "boxes are x1, y1, x2, y2, as YOLO's; if y comes first, as in TensorFlow's "
            "detectors, set `family` = tflite-postprocess"
        )
        return Recognition(classes, (doubt, *facts.unnamed(classes)))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return a letterbox for models that end in EfficientNMS, as YOLO's do."""
        return Pictures() if len(facts.outputs) == 4 else cls.PICTURES

    def __init__(self, model: Card, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        self._whole = whole_outputs(loaded.outputs)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        at, lists, count = self._check([output.shape for output in outputs])
        labels, scores = labels_and_scores(outputs, lists, self._whole)
        are_rows = (scores > self._output.score_threshold) & (labels >= 0)
        if count is not None:
            are_rows &= np.arange(len(scores)) < outputs[count].ravel()[0]
        return boxes.select(
            boxes.in_pixels(outputs[at].reshape(-1, 4)[are_rows], frame),
            scores[are_rows],
            labels[are_rows].astype(np.int32),
            self._output,
            frame,
        )

    def _check(self, shapes: Sequence[Shape]) -> tuple[int, tuple[int, int], int | None]:
        if (lists := _lists(shapes)) is None:
            raise boxes.mismatch(
                "detr-lists",
                "labels [1, n], boxes [1, n, 4] and scores [1, n], and perhaps their number",
                [list(shape) for shape in shapes],
            )
        return lists


def _lists(shapes: Sequence[Shape]) -> tuple[int, tuple[int, int], int | None] | None:
    """Return the indices of the outputs with boxes, the two lists, and the count.

    The count is present if there is one; the result is None for other outputs.
    """
    count = (
        next((index for index, shape in enumerate(shapes) if set(shape) == {1}), None)
        if len(shapes) == 4
        else None
    )
    lists = labelled_lists([shape if index != count else () for index, shape in enumerate(shapes)])
    return (*lists, count) if lists and len(shapes) == (3 if count is None else 4) else None

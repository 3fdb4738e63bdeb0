"""Lists of boxes, labels and scores, suppressed inside the model, with labels from 0.

RT-DETR, D-FINE and DEIM by their own exporters: labels [1, n], boxes [1, n, 4] and scores [1, n], and a second input, `orig_target_sizes`.
TensorRT's EfficientNMS and what gives the same: a fourth list, [1, 1] or [1], with the number of detections; rows from there on hold
anything. Boxes are x1, y1, x2, y2 in pixels of the input or 0..1.
Source: lyuwenyu/RT-DETR `rtdetr_postprocessor.py`; NVIDIA/TensorRT `plugin/efficientNMSPlugin/README.md`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision.decoders import (
    COCO_CLASSES,
    Detections,
    Family,
    Floats,
    PhotoFrame,
    Pictures,
    Recognition,
    Shape,
    UnknownModel,
    boxes,
)
from edgemeter.agent.vision.decoders.size_inputs import size_input_names


class DetrLists(Family):
    """Decodes the lists; a label below 0 fills up a list of fixed length."""

    PICTURES = Pictures(resize="stretch")

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return what asks for a size, or comes with an integer count and integer labels."""
        if _lists(facts.shapes) is None:
            return None
        classes = facts.known_classes or COCO_CLASSES
        if len(facts.outputs) == 3:
            return Recognition(classes, facts.unnamed(classes)) if size_input_names(facts.inputs) else None
        if sum(_is_whole(info) for info in facts.outputs) != 2:
            return None
        doubt = "boxes are x1, y1, x2, y2, as YOLO's; if y comes first, as in TensorFlow's detectors, set `family` = tflite-postprocess"
        return Recognition(classes, (doubt, *facts.unnamed(classes)))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return a letterbox for what ends in EfficientNMS, as YOLO's do."""
        return Pictures() if len(facts.outputs) == 4 else cls.PICTURES

    def __init__(self, model: Card, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        # Of two lists of one length, the labels are those that the file declares as integers.
        self._whole = [index for index, info in enumerate(loaded.outputs) if _is_whole(info)]

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` are the lists, float32."""
        at, lists, count = self._check([output.shape for output in outputs])
        # Where the file declares nothing, whole numbers are labels; where both are whole, labels come first, as exported.
        are_whole = [index for index in lists if np.array_equal(outputs[index], np.rint(outputs[index]))]
        labels_at = next((index for index in lists if index in self._whole), (are_whole or lists)[0])
        labels = outputs[labels_at].ravel()
        scores = outputs[lists[0] if labels_at == lists[1] else lists[1]].ravel()
        are_rows = (scores > self._output.score_threshold) & (labels >= 0)
        if count is not None:
            are_rows &= np.arange(len(scores)) < outputs[count].ravel()[0]
        corners = boxes.in_pixels(outputs[at].reshape(-1, 4)[are_rows], frame)
        return boxes.select(corners, scores[are_rows], labels[are_rows].astype(np.int32), self._output, frame)

    def _check(self, shapes: Sequence[Shape]) -> tuple[int, list[int], int | None]:
        if (lists := _lists(shapes)) is None:
            raise boxes.mismatch("detr-lists", "labels [1, n], boxes [1, n, 4] and scores [1, n]", [list(shape) for shape in shapes])
        return lists


def _is_whole(info: TensorInfo) -> bool:
    return info.dtype.startswith(("int", "uint")) and info.scale is None


def _lists(shapes: Sequence[Shape]) -> tuple[int, list[int], int | None] | None:
    """Return which outputs are the boxes, the two lists, and the count, if there is one; None where these are other outputs."""
    at = next((index for index, shape in enumerate(shapes) if len(shape) in (2, 3) and shape[-1] == 4), None)
    if at is None or len(shapes) not in (3, 4):
        return None
    rest_at = [index for index in range(len(shapes)) if index != at]
    count = next((index for index in rest_at if len(shapes) == 4 and set(shapes[index]) == {1}), None)
    lists = [
        index for index in rest_at if index != count and len(shapes[index]) == len(shapes[at]) - 1 and shapes[index][-1] == shapes[at][-2]
    ]
    return (at, lists, count) if len(lists) == 2 and (count is None) == (len(shapes) == 3) else None

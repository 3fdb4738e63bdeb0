"""Detectors that end in TFLite_Detection_PostProcess: boxes, classes, scores and count.

They suppress by themselves. Boxes are ymin, xmin, ymax, xmax, 0..1 of the input. The operator gives
boxes, classes, scores, count in this order, but exporters shuffle them, and before the first call
their shapes read []. So the roles are found from names, shapes and values of the real tensors.
Boxes beyond the edge of the photograph are scored as the operator gives them, as for the published
AP of these models (clipped, SSD gains 0.0017).
Source: tensorflow/lite/kernels/detection_postprocess.cc (outputs 0..3); names of Object Detection
API and Model Maker exports.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import (
    COCO_LAST_ID,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)

# By role, the names by the operator, by a saved model, and by other exporters.
_NAMES: Mapping[str, str] = {
    "boxes": r"tflite_detection_postprocess(:0)?|statefulpartitionedcall:3|.*(box|location).*",
    "classes": r"tflite_detection_postprocess:1|statefulpartitionedcall:2|.*(class|categor).*",
    "scores": r"tflite_detection_postprocess:2|statefulpartitionedcall:1|.*score.*",
    "count": r"tflite_detection_postprocess:3|statefulpartitionedcall(:0)?|.*(num|count).*",
}
_NEEDS = "four outputs: boxes, classes, scores and count"


class TflitePostprocess(Family):
    """Decodes the four tensors of the operator, in any order."""

    PICTURES = Pictures("stretch", mean=None)

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Recognise models with the four outputs, which no others have.

        TensorFlow's own graphs number classes from 1.
        """
        ranks = sorted(map(len, facts.shapes))
        if ranks != [0] * 4 and (
            ranks[1:] != [2, 2, 3]
            or ranks[0] > 1
            or all(shape[2:] != (4,) for shape in facts.shapes)
        ):
            return None
        are_tensorflows = any(
            info.name.lower().startswith("detection_classes") for info in facts.outputs
        )
        if are_tensorflows and not facts.name.lower().endswith(".tflite"):
            doubt = (
                "classes count from 1, as in TensorFlow's graphs, and are COCO's ids; set "
                "output.classes and output.labels"
            )
            return Recognition(facts.classes_or(COCO_LAST_ID) + 1, (doubt,))
        classes = facts.foreground or facts.classes_or(COCO_LAST_ID)
        return Recognition(
            classes, facts.unnamed(classes, "COCO's ids" if classes == COCO_LAST_ID else "")
        )

    def __init__(self, model: Card, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        self._roles = [
            next(
                (role for role, words in _NAMES.items() if re.fullmatch(words, info.name.lower())),
                "",
            )
            for info in loaded.outputs
        ]

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        tensors = dict(zip(self._roles, outputs, strict=False))
        if not _fit(tensors):
            # Boxes are the largest output; the count is the smallest, or the last if all have one
            # element; classes come before scores.
            tensors = dict(zip(_NAMES, sorted(outputs, key=np.size, reverse=True), strict=False))
        if not _fit(tensors):
            raise boxes.mismatch(self._family, _NEEDS, [list(output.shape) for output in outputs])
        classes, scores = tensors["classes"].ravel(), tensors["scores"].ravel()
        # A score may exceed 1 by a step of its quantisation.
        if scores.max(initial=0.0) >= 2 or np.any((classes < 1) & (classes != np.rint(classes))):
            classes, scores = scores, classes
        # The count is unreliable (some exports pad it), but a padded row has score 0, below the
        # threshold.
        are_above = scores > self._output.score_threshold
        size = np.array([frame.input_width, frame.input_height] * 2, np.float32)
        corners = tensors["boxes"].reshape(-1, 4)[are_above][:, [1, 0, 3, 2]] * size
        scores, kinds = scores[are_above], classes[are_above].astype(np.int32)
        survivors = boxes.surviving(corners, scores, kinds, self._output)
        return Detections(
            boxes.unplaced(corners[survivors], frame), scores[survivors], kinds[survivors]
        )

    def _check(self, shapes: Sequence[Shape]) -> None:
        if len(shapes) != len(_NAMES):
            raise boxes.mismatch(self._family, _NEEDS, [list(shape) for shape in shapes])


def _fit(tensors: Mapping[str, Floats]) -> bool:
    sizes = [tensors[role].size for role in _NAMES if role in tensors]
    return (
        len(sizes) == len(_NAMES)
        and tensors["boxes"].shape[-1:] == (4,)
        and sizes == [4 * sizes[1], sizes[1], sizes[1], 1]
    )

"""Detectors that end in TFLite_Detection_PostProcess: boxes, classes, scores and count, suppressed inside the model.

Boxes are ymin, xmin, ymax, xmax, 0..1 of the input. The operator gives boxes, classes, scores, count in this order, but exporters
shuffle them, and before the first call their shapes read []: the roles are found from names, shapes and values of the real tensors.
Boxes that leave the photograph are scored as the operator gives them: the published AP of these models was (clipped, SSD gains 0.0017).
Source: tensorflow/lite/kernels/detection_postprocess.cc (outputs 0..3); names of Object Detection API and Model Maker exports.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes

ROLES = ("boxes", "classes", "scores", "count")
# The role by the number that follows the name; no number is 0.
_NUMBERED: Mapping[str, tuple[str, ...]] = {
    "tflite_detection_postprocess": ROLES,
    "statefulpartitionedcall": ("count", "scores", "classes", "boxes"),
}
# A score may exceed 1 by a step of its quantisation; from here it is the number of a class.
_NO_SCORE = 2.0
_WORDS: Mapping[str, tuple[str, ...]] = {
    "boxes": ("box", "location"),
    "classes": ("class", "category", "categories"),
    "scores": ("score",),
    "count": ("num", "count"),
}


class TflitePostprocess:
    """Decodes the four tensors of the operator, in whatever order the model gives them."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        if len(loaded.outputs) != 4:
            raise ConfigError(
                f"model {model.name!r}: family tflite-postprocess has four outputs (boxes, classes, scores, count), "
                f"this model has {len(loaded.outputs)}: choose another family in its card"
            )
        self._output = model.output
        self._roles = roles_by_name([info.name for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` are the four tensors, float32."""
        part = self._assign(outputs)
        # The count is not always trustworthy (some exports pad it); a padded row has score 0 and falls to the threshold.
        above = part["scores"] > self._output.score_threshold
        ymin, xmin, ymax, xmax = part["boxes"][above].T
        size = np.array([frame.input_width, frame.input_height] * 2, np.float32)
        corners = np.stack([xmin, ymin, xmax, ymax], axis=1) * size
        scores, classes = part["scores"][above], part["classes"][above].astype(np.int32)
        survivors = boxes.surviving(corners, scores, classes, self._output)
        return Detections(boxes.unplaced(corners[survivors], frame), scores[survivors], classes[survivors])

    def _assign(self, outputs: Sequence[Floats]) -> dict[str, Floats]:
        """Return the tensors by role: boxes [n, 4], classes [n], scores [n]."""
        roles = self._roles
        if roles is None or not _may_be(dict(zip(roles, outputs, strict=True))):
            roles = roles_by_shape(outputs)
        part = dict(zip(roles, outputs, strict=True))
        tensors = {"boxes": part["boxes"].reshape(-1, 4), "classes": part["classes"].ravel(), "scores": part["scores"].ravel()}
        if (_is_scores(tensors["classes"]) and not _is_scores(tensors["scores"])) or tensors["scores"].max(initial=0.0) >= _NO_SCORE:
            tensors["classes"], tensors["scores"] = tensors["scores"], tensors["classes"]
        if not len(tensors["boxes"]) == len(tensors["classes"]) == len(tensors["scores"]):
            raise ConfigError(
                f"the outputs' shapes {[list(o.shape) for o in outputs]} are not those of boxes, classes, scores and count: check `family`"
            )
        return tensors


def roles_by_name(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the role of each output by its name, None unless the four names give four roles."""
    roles = tuple(_role(name.lower()) for name in names)
    return roles if sorted(roles) == sorted(ROLES) else None


def roles_by_shape(outputs: Sequence[Floats]) -> tuple[str, ...]:
    """Return the roles by the shapes: boxes end in 4, the count is the smallest, classes come before scores.

    Raises:
        ConfigError: no tensor has the shape of boxes.
    """
    at = next((i for i, output in enumerate(outputs) if _is_boxes(output)), None)
    if at is None:
        raise ConfigError(
            f"no output of shape [1, n, 4] among {[list(o.shape) for o in outputs]}: these are not detections; check `family` in the card"
        )
    remaining = [i for i in range(len(outputs)) if i != at]
    # Where all hold one element, the operator's order decides: the count comes last.
    count = min(reversed(remaining), key=lambda i: outputs[i].size)
    classes, scores = (i for i in remaining if i != count)
    by_index = {at: "boxes", count: "count", classes: "classes", scores: "scores"}
    return tuple(by_index[i] for i in range(len(outputs)))


def _role(name: str) -> str:
    for stem, roles in _NUMBERED.items():
        if match := re.fullmatch(rf"{stem}(?::(\d))?", name):
            number = int(match[1] or 0)
            return roles[number] if number < len(roles) else ""
    return next((role for role, words in _WORDS.items() if any(word in name for word in words)), "")


def _is_boxes(output: Floats) -> bool:
    return output.ndim >= 2 and output.shape[-1] == 4 and output.size >= 4 and (output.ndim == 3 or output.shape[0] != 1)


def _may_be(part: Mapping[str, Floats]) -> bool:
    """Return whether the sizes are those of boxes, classes, scores and count; names may be on the wrong tensors."""
    number = part["scores"].size
    return _is_boxes(part["boxes"]) and part["classes"].size == number == part["boxes"].size // 4 and part["count"].size == 1


def _is_scores(values: Floats) -> bool:
    """Return whether these are scores and no class numbers: nothing beyond 1, and not all whole."""
    return bool(np.all(values <= 1) and np.any(values != np.floor(values)))

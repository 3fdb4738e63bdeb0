"""Detectors that end in TensorRT's EfficientNMS, or in lists like its: how many, boxes, scores, classes; suppressed inside the model.

Boxes [1, n, 4] as x1, y1, x2, y2 of the input, in pixels or 0..1; scores [1, n]; classes [1, n], integers that count from 0; the number of
detections [1, 1] or [1], an integer: rows from there on hold anything. The lists of torchvision have no count, and 0 is their background;
TFLite's four tensors are all floats, with y before x. YOLO-NAS with suppression inside (super-gradients, format `batch`) gives the same.
Source: NVIDIA/TensorRT `plugin/efficientNMSPlugin/README.md`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes

# The plug-in's own order.
ROLES = ("count", "boxes", "scores", "classes")
_WORDS = {"count": ("num",), "boxes": ("box",), "scores": ("score",), "classes": ("class", "label")}
# As the exporters of YOLOv7 and of YOLO-NAS call their outputs.
_NAMES = ({"num_dets", "det_boxes", "det_scores", "det_classes"}, {"num_predictions", "pred_boxes", "pred_scores", "pred_classes"})


def is_efficient_nms(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether these are the four outputs: by the names that exporters give them, or by an integer count and integer classes."""
    roles = roles_of(outputs)
    if roles is None:
        return False
    if has_exporters_names(outputs):
        return True
    of = dict(zip(roles, outputs, strict=True))
    return all(info.dtype.startswith(("int", "uint")) and info.scale is None for info in (of["count"], of["classes"]))


def has_exporters_names(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether the outputs are called as the exporters of YOLOv7 or YOLO-NAS call them, which settles the order of coordinates."""
    return {info.name for info in outputs} in _NAMES


def roles_of(outputs: Sequence[TensorInfo]) -> tuple[str, ...] | None:
    """Return the role of each output: by its name where all four names tell, else by shape and dtype; None where they fit no roles."""
    if len(outputs) != len(ROLES):
        return None
    for roles in (tuple(_named(info.name) for info in outputs), tuple(_shaped(info) for info in outputs)):
        if sorted(roles) == sorted(ROLES) and _fits(dict(zip(roles, outputs, strict=True))):
            return roles
    return None


class EfficientNms:
    """Decodes the four tensors; without declared outputs they are in the plug-in's order."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        self._roles = roles_of(loaded.outputs) if loaded.outputs else ROLES
        if self._roles is None:
            raise _mismatch([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` are the four tensors, float32."""
        part = dict(zip(self._roles or ROLES, outputs, strict=False))
        if len(outputs) != len(ROLES) or part["count"].size != 1 or part["boxes"].shape[-1:] != (4,):
            raise _mismatch([output.shape for output in outputs])
        corners, scores, classes = part["boxes"].reshape(-1, 4), part["scores"].ravel(), part["classes"].ravel()
        if not len(corners) == len(scores) == len(classes):
            raise _mismatch([output.shape for output in outputs])
        are_candidates = np.arange(len(scores)) < part["count"].ravel()[0]
        are_candidates &= scores > self._output.score_threshold
        corners = boxes.in_pixels(corners[are_candidates], frame)
        return boxes.select(corners, scores[are_candidates], classes[are_candidates].astype(np.int32), self._output, frame)


def _named(name: str) -> str:
    return next((role for role, words in _WORDS.items() if any(word in name.lower() for word in words)), "")


def _shaped(info: TensorInfo) -> str:
    """Return the role of a tensor by its shape, and by its dtype where two have the same."""
    shape, is_whole = info.shape, info.dtype.startswith(("int", "uint"))
    if len(shape) == 3 and shape[2] == 4:
        return "boxes"
    if is_whole and len(shape) <= 2 and all(size in (1, None) for size in shape[:1]) and shape[1:] in ((), (1,)):
        return "count"
    return ("classes" if is_whole else "scores") if len(shape) == 2 else ""


def _fits(of: dict[str, TensorInfo]) -> bool:
    """Return whether shapes are those of the roles."""
    count, box_shape = of["count"].shape, of["boxes"].shape
    lists = [of["scores"].shape, of["classes"].shape]
    is_count = len(count) <= 2 and count[1:] in ((), (1,), (None,))
    are_boxes = len(box_shape) == 3 and box_shape[2] in (4, None)
    # A size that is open fits any other.
    return is_count and are_boxes and all(len(shape) == 2 and len({shape[1], box_shape[1]} - {None}) <= 1 for shape in lists)


def _mismatch(shapes: Sequence[tuple[int | None, ...]]) -> ConfigError:
    needs = "a count [1, 1], boxes [1, n, 4], scores [1, n] and classes [1, n]"
    return boxes.mismatch("efficient-nms", needs, [list(shape) for shape in shapes])

"""The family of a vision model without a card: from the shapes of its input and outputs, and where they say nothing, its file name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.recognition.self_description import SelfDescription
from edgemeter.agent.runtimes import TensorInfo

Shape = tuple[int | None, ...]

_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
_IMAGENET = (1000, 1001)
_COCO_CLASSES = 80
_TENSORFLOW_COCO_CLASSES = 90


@dataclass(frozen=True, slots=True)
class Family:
    """What the model seems to be: `why` says from what, `doubt` what else had to be assumed (None where nothing)."""

    name: str
    task: str
    classes: int
    why: str
    doubt: str | None = None


class UnknownFamilyError(ValueError):
    """The model is of no family that can be told without a card; the message says why."""


def find(outputs: Sequence[TensorInfo], size: tuple[int, int], file_name: str, said: SelfDescription) -> Family:
    """Return the family of a model with these outputs on an input of this height and width.

    Raises:
        UnknownFamilyError: none fits, or more than one.
    """
    shapes = [info.shape for info in outputs]
    listed = ", ".join(str([size if size is not None else "?" for size in shape]) for shape in shapes)
    if not outputs:
        return _by_name(file_name, said)
    if len(outputs) == 4 and _is_postprocess(outputs):
        return _postprocess(said)
    if len(outputs) == 1 and _is_scores(shapes[0]):
        return _classifier(shapes[0], said)
    if len(shapes[0]) == 3 and all(len(shape) == 5 for shape in shapes[1:]):
        found = _yolo(shapes[0], size, file_name.lower(), said)
        if found is not None:
            return _checked(found, said)
    message = f"its outputs {listed} on an input of {size[0]} x {size[1]} are those of no known family"
    raise UnknownFamilyError(message)


def _by_name(file_name: str, said: SelfDescription) -> Family:
    """Return the family that the name of a TorchScript file tells, which declares no shapes."""
    if said.task in (None, "detect"):
        for family, pattern in (("yolox", r"yolox"), ("yolov5", r"yolov?[57](?!.*u\b)"), ("yolov8", r"yolo(v8|v9|v?11|v?12)")):
            if re.search(pattern, file_name.lower()):
                doubt = None if said.labels else f"{_COCO_CLASSES} classes, those of COCO: the file names none"
                return Family(family, "detection", len(said.labels) or _COCO_CLASSES, "the file name", doubt)
    message = "it declares no outputs, and its file name tells no family"
    raise UnknownFamilyError(message)


def _is_postprocess(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether these are boxes, classes, scores and count; their shapes may read [] before the first call."""
    shapes = sorted((info.shape for info in outputs), key=len)
    if all(shape == () for shape in shapes):
        return all("postprocess" in info.name.lower() or "partitionedcall" in info.name.lower() for info in outputs)
    boxes = shapes[-1]
    return len(boxes) == 3 and boxes[2] == 4 and len(shapes[0]) <= 1 and [len(shape) for shape in shapes[1:3]] == [2, 2]


def _postprocess(said: SelfDescription) -> Family:
    count = len(said.labels)
    doubt = None if count else f"{_TENSORFLOW_COCO_CLASSES} classes, numbered as COCO's ids are: the file names none"
    # Some label files begin with the background, which the operator does not count.
    classes = count - 1 if count == _TENSORFLOW_COCO_CLASSES + 1 else count
    return Family("tflite-postprocess", "detection", classes or _TENSORFLOW_COCO_CLASSES, "its four outputs", doubt)


def _is_scores(shape: Shape) -> bool:
    """Return whether the shape is one row of scores: [1, n], or [1, 1, 1, n] and [1, n, 1, 1]."""
    return len(shape) >= 2 and shape[0] in (1, None) and None not in shape[1:] and sum(size != 1 for size in shape[1:]) == 1


def _classifier(shape: Shape, said: SelfDescription) -> Family:
    classes = max(size or 0 for size in shape)
    if classes in _IMAGENET or classes == len(said.labels):
        return Family("classifier", "classification", classes, f"its {classes} scores")
    message = f"its one output has {classes} values, which may be scores or features"
    raise UnknownFamilyError(message)


def _yolo(shape: Shape, size: tuple[int, int], name: str, said: SelfDescription) -> Family | None:
    """Return the YOLO family of a three-dimensional output, None where it is none."""
    _, rows, columns = shape
    cells = [sum((size[0] // stride) * (size[1] // stride) for stride in strides) for strides in _STRIDES]
    why = f"its output {list(shape)}"
    labels = len(said.labels)
    is_four = labels > 0 and 4 + labels in (rows, columns)
    is_named_8 = re.search(r"yolo(v8|v9|v?11|v?12)", name) is not None
    if rows is not None and rows > 4 and (columns in cells or (columns is None and (is_four or is_named_8))):
        return Family("yolov8", "detection", rows - 4, why)
    if columns is None or columns <= 5:
        return None
    if rows in [3 * count for count in cells] or (rows is None and 5 + labels == columns):
        return Family("yolov5", "detection", columns - 5, why)
    if rows in cells and (is_four or is_named_8):
        return Family("yolov8", "detection", columns - 4, why)
    if rows == cells[0] and ("yolo" not in name or "yolox" in name):
        doubt = None if "yolox" in name else "YOLOX's raw grid: other models decode theirs inside and have the same shape"
        return Family("yolox", "detection", columns - 5, why, doubt)
    return None


def _checked(found: Family, said: SelfDescription) -> Family:
    """Return the family, unless what the file says of itself contradicts it."""
    if said.task not in (None, "detect"):
        message = f"it says that its task is {said.task!r}, {found.name} detects"
        raise UnknownFamilyError(message)
    if said.labels and len(said.labels) != found.classes:
        message = f"{found.why} would be {found.name} with {found.classes} classes, but it names {len(said.labels)}"
        raise UnknownFamilyError(message)
    return found

"""The facts in a vision model's metadata and file name: family, task, size, labels, normalisation."""

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.vision.decoders import Pictures

Triple = tuple[float, float, float]
Shape = tuple[int | None, ...]
COCO_CLASSES = 80
# COCO's ids run to 90 with gaps; TensorFlow and torchvision number their classes like them.
COCO_LAST_ID = 90
# In this order: the first that is found in the name counts.
_PATTERNS: Mapping[str, str] = {
    "yolox": r"yolox",
    "boxes-scores": r"yolo[-_]?nas",
    "detr": r"detr|d-?_?fine|deim|yolos(?![a-z0-9])",
    "yolo26": r"yolo(v?10|v?26)",
    # YOLOv5u has YOLOv8's head; YOLOv6 and v7 have v5's outputs.
    "yolov8": r"yolo(v8|v9|v?11|v?12|v?13)|yolov5\w*u(?![a-z])",
    "yolov5": r"yolov?[3567]",
    "torchvision": r"faster_?-?rcnn|mask_?-?rcnn|retinanet|fcos|ssd300|ssdlite320",
}
_CLASSIFIERS = re.compile(
    r"mobilenet|resne[xt]|efficientnet|squeezenet|shufflenet|densenet|inception|googlenet|vgg|alexnet|convnext|regnet|mnasnet|ghostnet"
    r"|mobilevit|deit|vit_|swin"
)
# RT-DETR and its kin score each class by itself, without one for "no object", as others do that came after DETR; some of them take pixels
# as 0..1, without ImageNet's mean.
SIGMOID_DETR = re.compile(r"rt-?_?detr|d-?_?fine|deim|rf-?_?detr|deformable|conditional|dab-?_?detr|dino|lw-?_?detr")
UNIT_DETR = re.compile(r"rt-?_?detr|d-?_?fine|deim")
_MASKS = re.compile(r"mask_?-?rcnn")
# What Ultralytics appends to the name of a model for another task, whose first columns look like a detector's.
_OTHER_TASK = re.compile(r"yolo[a-z0-9]*[-_](seg|pose|obb)(?![a-z])")
_IMAGENET_CLASSES = 1000
# As Ultralytics calls the last layer of RT-DETR in its metadata.
RT_DETR_HEAD = "RTDETRDecoder"


@dataclass(frozen=True, slots=True)
class SelfDescription:
    """`size` is height and width in pixels; `mean` and `sd` are in pixel values; each None (labels: empty) if the file does not state it.

    `head` is the class of an Ultralytics model's last layer, `is_end_to_end` whether it suppresses by itself.
    """

    labels: tuple[str, ...]
    size: tuple[int, int] | None
    task: str | None
    mean: Triple | None
    sd: Triple | None
    head: str | None = None
    is_end_to_end: bool | None = None


def read_self_description(metadata: Mapping[str, str]) -> SelfDescription:
    """Return what the texts state; what cannot be read is left out, never an error."""
    words: dict[str, Any] = dict(metadata)
    for name, text in metadata.items():
        if "." in name and isinstance(document := _literal(text), dict):
            words.update({key: value for key, value in document.items() if isinstance(key, str)})
    task, head = words.get("task"), words.get("head")
    return SelfDescription(
        labels=_names(_literal(words.get("names"))) or _label_file(metadata),
        size=_size(_literal(words.get("imgsz")), _literal(words.get("shape"))),
        task=task if isinstance(task, str) else None,
        mean=_triple(words.get("input_mean")),
        sd=_triple(words.get("input_sd")),
        head=head if isinstance(head, str) else None,
        is_end_to_end={"true": True, "false": False}.get(str(words.get("end2end")).lower()),
    )


def _literal(text: Any) -> Any:
    """Return the value of a JSON text or a Python literal; anything else as it is."""
    if not isinstance(text, str):
        return text
    with suppress(msgspec.DecodeError):
        return decode_json(text, Any)
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _names(names: Any) -> tuple[str, ...]:
    """Return class names given as a list, or by number."""
    if isinstance(names, list):
        return tuple(str(name) for name in names)
    if not isinstance(names, dict) or not all(str(key).isdigit() for key in names):
        return ()
    return _in_order({int(key): str(name) for key, name in names.items()})


def _label_file(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of the label file; a line may begin with its number, as in Coral's."""
    texts = {name: text for name, text in metadata.items() if name.endswith(".txt") and not text.lstrip().startswith("{")}
    label_text = next((text for name, text in texts.items() if "label" in name.lower()), None)
    if label_text is None:
        return ()
    lines = [line.strip() for line in label_text.strip().splitlines()]
    numbered = [re.fullmatch(r"(\d+)[ :,\t]+(\S.*)", line) for line in lines]
    if all(numbered):
        return _in_order({int(match[1]): match[2] for match in numbered if match})
    return tuple(lines)


def _in_order(by_number: Mapping[int, str]) -> tuple[str, ...]:
    """Return the names in order of their numbers, gaps as empty names; none where the numbers cannot be class numbers."""
    if not by_number or max(by_number) >= 10 * len(by_number) + 100:
        return ()
    return tuple(by_number.get(number, "") for number in range(max(by_number) + 1))


def _size(imgsz: Any, shape: Any) -> tuple[int, int] | None:
    if isinstance(shape, list) and len(shape) == 4 and imgsz is None:
        imgsz = shape[2:]
    if isinstance(imgsz, int):
        imgsz = [imgsz, imgsz]
    if not isinstance(imgsz, list | tuple) or len(imgsz) != 2 or not all(isinstance(side, int) and side > 0 for side in imgsz):
        return None
    return imgsz[0], imgsz[1]


def _triple(text: Any) -> Triple | None:
    """Return `127.5` or `123.7, 116.3, 103.5` as three numbers."""
    try:
        values = [float(part) for part in str(text).split(",")]
    except ValueError:
        return None
    if len(values) == 1:
        values *= 3
    return (values[0], values[1], values[2]) if len(values) == 3 else None


@dataclass(frozen=True, slots=True)
class OutputFamily:
    """The family that the model seems to be of.

    `why` is what shows it; `doubts` are assumptions that the file does not confirm, each with the keys of a card that settle it.
    `strides` are those of its grid, where the card must name them. `family_doubt` is why it may be another family or task, or None.
    """

    name: str
    task: str
    classes: int
    why: str
    doubts: tuple[str, ...] = ()
    strides: tuple[int, ...] = ()
    family_doubt: str | None = None
    pictures: Pictures | None = None


class UnknownFamilyError(ValueError):
    """The model's family is unknown without a card; the message holds the reason."""


def unnamed(classes: int, taken_as: str = "those of COCO") -> str:
    """Return the doubt about classes that the file does not name, with what they are taken as, if that is anything."""
    assumption = f", and are taken as {taken_as}" if taken_as else ""
    return f"its {classes} classes have no names{assumption}; set output.classes and output.labels"


def shapes_in_words(shapes: list[Shape]) -> str:
    """Return shapes as `[1, 84, ?], [1, 4]`."""
    return ", ".join("[" + ", ".join("?" if size is None else str(size) for size in shape) + "]" for shape in shapes)


def family_in(name: str) -> str | None:
    """Return the family of detectors in a file name, None if there is none."""
    return next((family for family, pattern in _PATTERNS.items() if re.search(pattern, name.lower())), None)


def stated_family(name: str, description: SelfDescription) -> str | None:
    """Return the family in a file name, unless the metadata's head contradicts it."""
    if description.head == RT_DETR_HEAD:
        return "detr"
    if description.is_end_to_end:
        return "yolo26"
    family = family_in(name)
    # Ultralytics exports YOLO26 and YOLOv10 without their end-to-end head too.
    return "yolov8" if family == "yolo26" and description.is_end_to_end is False else family


def other_task(name: str) -> str | None:
    """Return the task other than detection in the name of a YOLO, None if there is none."""
    match = _OTHER_TASK.search(name.lower())
    return match[1] if match else None


def is_classifier_name(name: str) -> bool:
    """Return whether the name is that of a network that classifies, and of no detector built on one."""
    return (
        _CLASSIFIERS.search(name.lower()) is not None
        and re.search(r"ssd|rcnn|detr|yolo|seg|pose|deeplab|feature|embed", name.lower()) is None
    )


def is_any_picture(shape: Shape) -> bool:
    """Return whether an input takes pictures of any size without a batch axis, as torchvision's detectors do, which resize them."""
    return shape == (3, None, None)


def family_by_name_alone(name: str, description: SelfDescription, *, takes_any_picture: bool = False) -> OutputFamily:
    """Return the family in the name of a file that declares no outputs, or that its input shows; raises UnknownFamilyError without one."""
    family, labels = stated_family(name, description), len(description.labels)
    why = "the file name" if family else "its input, pictures of any size without a batch axis"
    if takes_any_picture:
        family = family or "torchvision"
    if description.task is None and (other := other_task(name)):
        raise UnknownFamilyError(f"it declares no outputs, and its file name contains {other!r}, which no known family does")
    if family is not None and description.task in (None, "detect"):
        usual = COCO_LAST_ID if family == "torchvision" else COCO_CLASSES
        doubts = () if labels else (unnamed(usual),)
        task = "segmentation" if family == "torchvision" and _MASKS.search(name.lower()) else "detection"
        return OutputFamily(family, task, labels or usual, why, doubts)
    if family is None and description.task in (None, "classify") and (is_classifier_name(name) or description.task == "classify"):
        doubts = () if labels else (unnamed(_IMAGENET_CLASSES, "those of ImageNet"),)
        return OutputFamily("classifier", "classification", labels or _IMAGENET_CLASSES, "the file name", doubts)
    raise UnknownFamilyError("it declares no outputs, and its file name contains no known family")

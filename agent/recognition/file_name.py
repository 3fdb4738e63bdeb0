"""What the name of a model file says: the only thing there is of a TorchScript file, and what decides between look-alikes."""

import re
from collections.abc import Mapping

from edgemeter.agent.recognition.family import COCO_CLASSES, COCO_LAST_ID, Family, UnknownFamilyError, unnamed
from edgemeter.agent.recognition.self_description import SelfDescription

# In this order: the first that is found in the name counts.
_PATTERNS: Mapping[str, str] = {
    "yolox": r"yolox",
    "nanodet": r"nanodet",
    "detr": r"detr|d-?_?fine|deim|yolos(?![a-z0-9])",
    "yolo26": r"yolo(v?10|v?26)",
    # YOLOv5u has YOLOv8's head; YOLOv6 and v7 answer as v5 does.
    "yolov8": r"yolo(v8|v9|v?11|v?12|v?13)|yolov5\w*u(?![a-z])",
    "yolov5": r"yolov?[3567]",
    "torchvision": r"faster_?-?rcnn|mask_?-?rcnn|retinanet|fcos|ssd300|ssdlite320",
}
_CLASSIFIERS = re.compile(
    r"mobilenet|resne[xt]|efficientnet|squeezenet|shufflenet|densenet|inception|googlenet|vgg|alexnet|convnext|regnet|mnasnet|ghostnet"
    r"|mobilevit|deit|vit_|swin"
)
# RT-DETR and its kin score each class by itself, as others do that came after DETR; some of them take pixels as 0..1.
_SIGMOID_DETR = re.compile(r"rt-?_?detr|d-?_?fine|deim|rf-?_?detr|deformable|conditional|dab-?_?detr|dino|lw-?_?detr")
_UNIT_DETR = re.compile(r"rt-?_?detr|d-?_?fine|deim")
# What Ultralytics appends to the name of a model for another task, whose first columns look like a detector's.
_OTHER_TASK = re.compile(r"yolo[a-z0-9]*[-_](seg|pose|obb)(?![a-z])")
_IMAGENET_CLASSES = 1000
# As Ultralytics calls the last layer of RT-DETR in what a file says of itself.
RT_DETR_HEAD = "RTDETRDecoder"


def family_in(name: str) -> str | None:
    """Return the family of detectors that a file name tells, None where it tells none."""
    return next((family for family, pattern in _PATTERNS.items() if re.search(pattern, name.lower())), None)


def said_family(name: str, said: SelfDescription) -> str | None:
    """Return the family that a file name tells, as far as what the file says of its head does not contradict it."""
    if said.head == RT_DETR_HEAD:
        return "detr"
    if said.is_end_to_end:
        return "yolo26"
    known = family_in(name)
    # Ultralytics exports YOLO26 and YOLOv10 without their end-to-end head too.
    return "yolov8" if known == "yolo26" and said.is_end_to_end is False else known


def other_task(name: str) -> str | None:
    """Return the task other than detection that the name of a YOLO tells, None where it tells none."""
    found = _OTHER_TASK.search(name.lower())
    return found[1] if found else None


def is_classifier(name: str) -> bool:
    """Return whether the name is that of a network that classifies, and of no detector built on one."""
    return (
        _CLASSIFIERS.search(name.lower()) is not None
        and re.search(r"ssd|rcnn|detr|yolo|seg|pose|deeplab|feature|embed", name.lower()) is None
    )


def has_sigmoid_scores(name: str) -> bool:
    """Return whether a DETR of this name scores each class by itself, without one for "no object"."""
    return _SIGMOID_DETR.search(name.lower()) is not None


def takes_zero_to_one(name: str) -> bool:
    """Return whether a DETR of this name takes pixels as 0..1, without ImageNet's mean."""
    return _UNIT_DETR.search(name.lower()) is not None


def alone(name: str, said: SelfDescription) -> Family:
    """Return the family that the name of a file tells which declares no outputs.

    Raises:
        UnknownFamilyError: it tells none.
    """
    family, labels = said_family(name, said), len(said.labels)
    if family is not None and said.task in (None, "detect"):
        usual = COCO_LAST_ID if family == "torchvision" else COCO_CLASSES
        doubts = () if labels else (unnamed(usual),)
        return Family(family, "detection", labels or usual, "the file name", doubts)
    if family is None and said.task in (None, "classify") and (is_classifier(name) or said.task == "classify"):
        doubts = () if labels else (unnamed(_IMAGENET_CLASSES, "those of ImageNet"),)
        return Family("classifier", "classification", labels or _IMAGENET_CLASSES, "the file name", doubts)
    message = "it declares no outputs, and its file name tells no family"
    raise UnknownFamilyError(message)

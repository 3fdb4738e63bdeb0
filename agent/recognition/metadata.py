"""The facts in a vision model's metadata and file name.

They are family, task, size, labels and normalisation.
"""

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.vision.decoders import DECODERS, family_of
from edgemeter.agent.vision.decoders.family import Triple

# Ultralytics' suffixes of models for other tasks, whose first output columns look like a
# detector's.
_OTHER_TASK = re.compile(r"yolo[a-z0-9]*[-_](seg|pose|obb)(?![a-z])")
# Ultralytics' names of tasks, in metadata and file names, and ours.
_TASKS = {
    "detect": "detection",
    "segment": "segmentation",
    "seg": "segmentation",
    "classify": "classification",
}
# RT-DETR's last layer in Ultralytics' metadata.
_RT_DETR_HEAD = "RTDETRDecoder"
# The path of the training data follows.
_ARCHITECTURE = re.compile(r"Ultralytics (\S+) model")


@dataclass(frozen=True, slots=True)
class SelfDescription:
    """The facts that a file states about its model; None or empty if it does not.

    size: height and width in pixels
    mean, sd: in pixel values
    head: the class of an Ultralytics model's last layer
    is_end_to_end: whether the model applies non-maximum suppression itself
    """

    labels: tuple[str, ...]
    size: tuple[int, int] | None
    task: str | None
    mean: Triple | None
    sd: Triple | None
    head: str | None = None
    is_end_to_end: bool | None = None
    architecture: str = ""


def read_self_description(metadata: Mapping[str, str]) -> SelfDescription:
    """Return the facts in the metadata; unreadable entries are left out, never an error."""
    words: dict[str, Any] = dict(metadata)
    for name, text in metadata.items():
        if "." in name and isinstance(document := _literal(text), dict):
            words.update({key: value for key, value in document.items() if isinstance(key, str)})
    task, head = words.get("task"), words.get("head")
    architecture = _ARCHITECTURE.match(str(words.get("description")))
    arguments = _literal(words.get("args"))
    suppresses = isinstance(arguments, dict) and arguments.get("nms") is True
    return SelfDescription(
        labels=_names(_literal(words.get("names"))) or _label_file(metadata),
        size=_size(_literal(words.get("imgsz")), _literal(words.get("shape"))),
        task=task if isinstance(task, str) else None,
        mean=_triple(words.get("input_mean")),
        sd=_triple(words.get("input_sd")),
        head=head if isinstance(head, str) else None,
        is_end_to_end=suppresses
        or {"true": True, "false": False}.get(str(words.get("end2end")).lower()),
        architecture=architecture[1] if architecture else "",
    )


def _literal(text: Any) -> Any:
    """Return the value of a JSON text or a Python literal; anything else unchanged."""
    if not isinstance(text, str):
        return text
    with suppress(msgspec.DecodeError):
        return decode_json(text, Any)
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _names(names: Any) -> tuple[str, ...]:
    if isinstance(names, list):
        return tuple(str(name) for name in names)
    if not isinstance(names, dict) or not all(str(key).isdigit() for key in names):
        return ()
    return _in_order({int(key): str(name) for key, name in names.items()})


def _label_file(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of the label file.

    Lines may begin with their number, as in Coral's files.
    """
    texts = {
        name: text
        for name, text in metadata.items()
        if name.endswith(".txt") and not text.lstrip().startswith("{")
    }
    label_text = next((text for name, text in texts.items() if "label" in name.lower()), None)
    if label_text is None:
        return ()
    lines = [line.strip() for line in label_text.strip().splitlines()]
    numbered = [re.fullmatch(r"(\d+)[ :,\t]+(\S.*)", line) for line in lines]
    if all(numbered):
        return _in_order({int(match[1]): match[2] for match in numbered if match})
    return tuple(lines)


def _in_order(by_number: Mapping[int, str]) -> tuple[str, ...]:
    """Return the names in order of their numbers, with empty names for gaps.

    There are none if the numbers are too large for class numbers.
    """
    if not by_number or max(by_number) >= 10 * len(by_number) + 100:
        return ()
    return tuple(by_number.get(number, "") for number in range(max(by_number) + 1))


def _size(imgsz: Any, shape: Any) -> tuple[int, int] | None:
    if isinstance(shape, list) and len(shape) == 4 and imgsz is None:
        imgsz = shape[2:]
    if isinstance(imgsz, int):
        imgsz = [imgsz, imgsz]
    if (
        not isinstance(imgsz, list | tuple)
        or len(imgsz) != 2
        or not all(isinstance(side, int) and side > 0 for side in imgsz)
    ):
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


def family_in(name: str, description: SelfDescription) -> str | None:
    """Return the first family of the table that the metadata, or else the file name, names.

    It is None if neither names one.
    """
    if description.head == _RT_DETR_HEAD:
        return "rt-detr"
    if description.is_end_to_end:
        return "yolo26"
    patterns = {
        family: pattern
        for family in DECODERS
        if (pattern := getattr(family_of(family), "NAME", ""))
    }
    texts = (description.architecture.lower(), name.lower())
    named = next(
        (
            family
            for text in texts
            for family, pattern in patterns.items()
            if re.search(pattern, text)
        ),
        None,
    )
    # Ultralytics also exports YOLO26 and YOLOv10 without the end-to-end head; most of its exports
    # without a known name have YOLOv8's head.
    return "yolov8" if named in (None, "yolo26") and description.is_end_to_end is False else named


def task_of(name: str, description: SelfDescription) -> str | None:
    """Return our name of the task in the metadata, or else in the file name of a YOLO.

    It is None if neither names one.
    """
    match = _OTHER_TASK.search(name.lower())
    task = description.task or (match[1] if match else None)
    return _TASKS.get(task, task) if task else None

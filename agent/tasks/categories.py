"""The classes of a model and the categories of COCO annotations: which is which."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card, CardOutput

# By id, 1 to 90; ten ids are not used. Source: COCO's instances_val2017.json, `categories`.
_BY_ID = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light", "fire hydrant", "",
    "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "",
    "backpack", "umbrella", "", "", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle", "", "wine glass", "cup", "fork", "knife",
    "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair",
    "couch", "potted plant", "bed", "", "dining table", "", "", "toilet", "", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "", "book", "clock", "vase", "scissors", "teddy bear",
    "hair drier", "toothbrush",
)  # fmt: skip
# TensorFlow's detectors number classes as COCO's ids do, gaps included: 1..90 for 80 categories.
_COCO_LAST_ID = 90


def coco_class_names(classes: int) -> tuple[str, ...]:
    """Return COCO's class names for a detector with this many classes, "" for an unused one; none where the number is not COCO's.

    80 are COCO's in order, 90 its ids 1 to 90 (TensorFlow), 91 its ids 0 to 90 (DETR).
    """
    if classes == 80:
        return tuple(name for name in _BY_ID if name)
    return {90: _BY_ID, 91: ("", *_BY_ID)}.get(classes, ())


def category_ids(model: Card, categories: Sequence[Mapping[str, Any]]) -> tuple[int | None, ...]:
    """Return the category id of each class of the model; None for a class that the annotations do not know.

    By name where the model's labels name every category (80, 90 or 91 classes without labels are called as COCO's are); else by place,
    where there are as many classes as categories, or where 90 classes stand for COCO's ids 1..90, 91 for 0..90 (DETR). Labels that
    contradict their place are an error, not a guess, and so are ids that are not COCO's.

    Args:
        model: the card; its `output` holds `classes`, `labels` and `label_offset`.
        categories: those of the annotations, each with `id` and `name`.

    Raises:
        ConfigError: the classes cannot be matched; the message holds both counts.
    """
    labels = _labels(model.output)
    count = model.output.classes if model.output.classes is not None else len(labels)
    names = Counter(_plain(category["name"]) for category in categories)
    by_name = {_plain(category["name"]): int(category["id"]) for category in categories if names[_plain(category["name"])] == 1}
    named = _by_name(labels, count, by_name)
    for candidate in (named, _by_name(coco_class_names(count), count, by_name) if not any(labels) else ()):
        if len(by_name) == len(categories) and set(by_name.values()) <= set(candidate):
            return candidate
    placed = _by_place(count, categories)
    if placed is None or any(name not in (None, place) for name, place in zip(named, placed, strict=True)):
        raise ConfigError(_mismatch(model, count, len(categories), sum(name is not None for name in named)))
    return placed


def _by_name(labels: Sequence[str], count: int, by_name: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(by_name.get(labels[k]) if k < len(labels) else None for k in range(count))


def _labels(output: CardOutput) -> list[str]:
    """Return the label of each class, in class order."""
    start = max(output.label_offset, 0)
    missing = max(-output.label_offset, 0)
    return [""] * missing + [_plain(label) for label in output.labels[start:]]


def _plain(name: str) -> str:
    return name.strip().lower()


def _by_place(count: int, categories: Sequence[Mapping[str, Any]]) -> tuple[int | None, ...] | None:
    ids = sorted(int(category["id"]) for category in categories)
    if count == len(ids):
        return tuple(ids)
    first_id = {_COCO_LAST_ID: 1, _COCO_LAST_ID + 1: 0}.get(count)
    if first_id is not None and _has_cocos_ids(categories):
        return tuple(k + first_id if k + first_id in ids else None for k in range(count))
    return None


def _has_cocos_ids(categories: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the categories are numbered as COCO's: most have its name for their id, since some call a couch a sofa."""
    names = coco_class_names(_COCO_LAST_ID + 1)
    agreed: int = sum(0 < category["id"] < len(names) and names[category["id"]] == _plain(category["name"]) for category in categories)
    return agreed > len(categories) / 2


def _mismatch(model: Card, count: int, categories: int, matched: int) -> str:
    return (
        f"model {model.name!r} has {count or 'an unknown number of'} classes, the annotations have {categories} categories, and "
        f"{matched} of the model's labels name one of them: give annotations for this model's classes, "
        "or set output.classes and output.labels in its card"
    )

"""Matching the classes of a model with those of the ground truth, by name or by index.

The error if they do not fit is made here too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision.decoders import DECODERS, create, family_of

# The most names that an error shows.
_SHOWN = 3
# A class axis may also have a background, boxes, boxes and objectness, coefficients of masks,
# keypoints, or distances.
_FURTHER = (0, 1, 4, 5, 36, 55, 64)
# By id, 1 to 90; ten ids are not used. Source: COCO's instances_val2017.json, `categories`.
_BY_ID = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "", "stop sign", "parking meter", "bench", "bird", "cat",
    "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "", "backpack",
    "umbrella", "", "", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball",
    "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich",
    "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "", "dining table", "", "", "toilet", "", "tv", "laptop", "mouse",
    "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "",
    "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
# TensorFlow's detectors number classes as COCO's ids do, gaps included: 1..90 for 80 categories.
_COCO_LAST_ID = 90


def coco_class_names(classes: int) -> tuple[str, ...]:
    """Return COCO's class names for a detector with this number of classes.

    Unused classes are ""; the result is empty if the number is not COCO's. 80 classes are COCO's in
    order, 90 its ids 1 to 90 (TensorFlow), 91 its ids 0 to 90 (DETR).
    """
    if classes == 80:
        return tuple(name for name in _BY_ID if name)
    return {90: _BY_ID, 91: ("", *_BY_ID)}.get(classes, ())


def category_ids(
    model: Card,
    categories: Sequence[Mapping[str, Any]],
    outputs: Sequence[TensorInfo] = (),
    groupings: Sequence[Mapping[str, Any]] = (),
) -> tuple[int | None, ...]:
    """Return the category id of each class of the model.

    It is None for a class without a category in the annotations. `outputs` are those of the model,
    for the error; `groupings` are categories that only group others.

    Classes are matched by name if the model's labels name every category; 80, 90 or 91 classes
    without labels get COCO's names. Otherwise they are matched by index, if there are as many
    classes as categories, or if 90 classes have COCO's ids 1..90, or 91 have 0..90 (DETR). Labels
    that contradict the index are an error, and so are ids that are not COCO's.

    Raises:
        ConfigError: the classes cannot be matched; the message holds both counts.
    """
    offset = model.output.label_offset
    labels = [""] * -offset + [_plain(label) for label in model.output.labels[max(offset, 0) :]]
    count = model.output.classes if model.output.classes is not None else len(labels)
    names = Counter(_plain(category["name"]) for category in categories)
    by_name = {
        _plain(category["name"]): int(category["id"])
        for category in categories
        if names[_plain(category["name"])] == 1
    }
    named = _by_name(labels, count, by_name)
    for candidate in (
        named,
        _by_name(coco_class_names(count), count, by_name) if not any(labels) else (),
    ):
        if len(by_name) == len(categories) and set(by_name.values()) <= set(candidate):
            return candidate
    placed = _by_place(count, categories)
    if placed is None and groupings and (placed := _by_place(count, [*categories, *groupings])):
        # The model may have been trained with a class for the grouping category.
        placed = tuple(
            None if number in {category["id"] for category in groupings} else number
            for number in placed
        )
    if placed is None or any(
        name not in (None, placed_id) for name, placed_id in zip(named, placed, strict=True)
    ):
        raise ConfigError(_misfit(model, outputs, count, named, categories))
    return placed


def class_output(outputs: Sequence[TensorInfo], count: int) -> str:
    """Return the output with `count` classes, in words; empty if there is none."""
    for further in _FURTHER:
        for output in outputs:
            if count + further in output.shape[1:]:
                shape = ", ".join("?" if side is None else str(side) for side in output.shape)
                return f" (by output {output.name} [{shape}])"
    return ""


def _misfit(
    model: Card,
    outputs: Sequence[TensorInfo],
    count: int,
    named: Sequence[int | None],
    categories: Sequence[Mapping[str, Any]],
) -> str:
    """Return the error about classes that do not fit.

    It has the source of their number, and three lines of a card that repair it.
    """
    names = [str(category["name"]) for category in categories]
    first_names = ", ".join(f'"{name}"' for name in names[:_SHOWN]) + ", ..." * (
        len(names) > _SHOWN
    )
    families = " or ".join(f'"{family}"' for family in _families(model, outputs, len(names)))
    lines = (
        f"family = {families}, and under [output] classes = {len(names)} and labels = "
        f"[{first_names}] in the order of its classes"
    )
    if not families:
        # No family reads these outputs with that number of classes, so the card can only name the
        # model's own classes.
        lines = (
            f'family = "{model.family}", and under [output] classes = {count} and labels = [a '
            f"name for each, {first_names} among them]"
        )
    matched = [number for number in named if number is not None]
    unmatched = [category["name"] for category in categories if category["id"] not in matched]
    return (
        f"model {model.name!r} is read as family {model.family} with "
        f"{count or 'an unknown number of'} classes"
        f"{class_output(outputs, count)}, and {len(matched)} of its labels name one of the "
        f"{len(names)} categories of the annotations"
        f"{f' (none names {unmatched[0]!r})' if unmatched else ''}. Give annotations for its "
        "classes, or correct three lines of its card, "
        f"which `edgemeter models add` writes: {lines}"
    )


def _families(model: Card, outputs: Sequence[TensorInfo], classes: int) -> Iterator[str]:
    """Yield the families that can decode these outputs with `classes` classes.

    If sizes are open, only the model's family is yielded.
    """
    loaded = Loaded("", "", "", (), tuple(outputs), {}, 0, 0)
    output = msgspec.structs.replace(model.output, classes=classes, labels=())
    for family in (
        [model.family]
        if any(None in info.shape for info in outputs)
        else [name for name in DECODERS if model.task == family_of(name).TASK]
    ):
        with suppress(EdgemeterError):
            create(msgspec.structs.replace(model, family=family, output=output), loaded)
            yield family


def _by_name(
    labels: Sequence[str], count: int, by_name: Mapping[str, int]
) -> tuple[int | None, ...]:
    return tuple(by_name.get(labels[k]) if k < len(labels) else None for k in range(count))


def _plain(name: str) -> str:
    return name.strip().lower()


def _by_place(count: int, categories: Sequence[Mapping[str, Any]]) -> tuple[int | None, ...] | None:
    ids = sorted(int(category["id"]) for category in categories)
    if count == len(ids):
        return tuple(ids)
    first_id, names = (
        {_COCO_LAST_ID: 1, _COCO_LAST_ID + 1: 0}.get(count),
        coco_class_names(_COCO_LAST_ID + 1),
    )
    # The ids are COCO's if most categories have COCO's names; some call a couch a sofa.
    agreed = sum(
        0 < category["id"] < len(names) and names[category["id"]] == _plain(category["name"])
        for category in categories
    )
    if first_id is not None and agreed > len(categories) / 2:
        return tuple(k + first_id if k + first_id in ids else None for k in range(count))
    return None

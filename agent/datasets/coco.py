"""COCO's annotation document, the ground truth of detection.

The module also has an index from file name to class.
"""

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.datasets.foreign_names import (
    LARGEST_ID,
    TEXT_ID,
    AnnotatedImage,
    Id,
    match_image_ids,
)
from edgemeter.agent.datasets.items import read_bytes

Boxes = NDArray[np.float64]

BOX_FORM = "bbox is x, y, width, height in pixels"
# The fewest boxes from which their form is judged.
_ENOUGH_BOXES = 20
# Boxes given as ratios stay below; no photograph is this small, in pixels.
_LARGEST_RATIO = 2.0
# Boxes may reach this far outside the photograph: not every decoder clips.
_SLACK_PX = 2.0
Side = Annotated[float, msgspec.Meta(ge=0)]
JsonClassIndex = Annotated[int, msgspec.Meta(ge=0)]
# Python's json module writes these words, which are not JSON.
_NO_NUMBER = re.compile(rb"[-+]?(NaN|Infinity)")
# Whole numbers that some exporters write as 1.0.
_WHOLE = ("id", "image_id", "category_id", "width", "height", "iscrowd")
# At least three points.
_Polygon = Annotated[list[float], msgspec.Meta(min_length=6)]


class Rle(msgspec.Struct, frozen=True):
    """A run-length encoded mask.

    `size` is height and width, `counts` the runs, as a list or compressed to a text.
    """

    size: tuple[int, int]
    counts: str | list[Id]


Outline = list[_Polygon] | Rle
# The form, and its description, of the shapes besides boxes in annotations and results.
SHAPES: Mapping[str, tuple[Any, str]] = {
    "segmentation": (Outline, "polygons [[x1, y1, x2, y2, x3, y3, ...]], or a run-length code"),
    "keypoints": (list[float], "x, y, visibility of each keypoint"),
}


def _box_form_problem(boxes: Boxes, sizes: Boxes) -> str | None:
    """Return why these boxes (float64 [n, 4]) can hardly be x, y, width, height in pixels.

    None if they can.

    `sizes` are the width and height of each box's photograph, float64 [n, 2]; NaN if unknown.
    """
    if len(boxes) >= _ENOUGH_BOXES and boxes.max() <= _LARGEST_RATIO:
        return f"the boxes of all {len(boxes)} annotations are 0..1: {BOX_FORM}"
    have_size = np.isfinite(sizes).all(axis=1)
    boxes, sizes = boxes[have_size], sizes[have_size] + _SLACK_PX
    if len(boxes) < _ENOUGH_BOXES:
        return None
    leaves = (boxes[:, :2] + boxes[:, 2:] > sizes).any(axis=1)
    # Most leave the photograph as x, y, width, height, and none as corners.
    if leaves.mean() > 0.5 and ((boxes[:, 2:] >= boxes[:, :2]) & (boxes[:, 2:] <= sizes)).all():
        return (
            f"{int(leaves.sum())} of {len(boxes)} boxes leave their photograph, "
            f"and none would if they were two corners (x1, y1, x2, y2): {BOX_FORM}"
        )
    return None


class Category(msgspec.Struct, frozen=True, omit_defaults=True):
    """One class of objects."""

    id: Id
    name: str
    supercategory: Any = None


class CocoAnnotation(msgspec.Struct, frozen=True):
    """One annotated object.

    `bbox` is x, y, width, height in pixels; `area` is its outline's or, without one, its box's.

    A box of width or height 0 or less stays an object, which no detection matches, as in COCO's
    evaluation.
    """

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, float, float]
    area: Side | None = None
    iscrowd: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    # Decoded only by the tasks that need them: outlines are most of a document.
    segmentation: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    keypoints: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _WithTextId(msgspec.Struct):
    id: str


class _OfImage(msgspec.Struct):
    image_id: int | str


class CocoDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """COCO's annotation document, without the fields that no task needs.

    `groupings` are categories that only group others; `notes` say what was read leniently.
    """

    images: Sequence[AnnotatedImage]
    annotations: Sequence[CocoAnnotation]
    categories: Sequence[Category]
    groupings: Sequence[Category] = msgspec.field(default=(), name="categories that group")
    notes: Sequence[str] = msgspec.field(default=(), name="notes of reading")


def read_annotations(path: Path) -> CocoDocument | dict[str, int]:
    """Return the document in `path`, or its index from file name to class.

    Raises:
        ConfigError: it cannot be read, is neither of the two, or contradicts itself; the message
            holds the place and the remedy.
    """
    content = read_bytes(path, "the annotations").removeprefix(BOM_UTF8)
    try:
        parts = decode_json(content, dict[str, msgspec.Raw])
        if "images" not in parts and "annotations" not in parts:
            return decode_json(content, dict[str, JsonClassIndex])
        document = _decode_document(content, f"the annotations {str(path)!r}")
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the annotations {str(path)!r} are neither COCO's (images, annotations, categories; "
            "bbox is x, y, width, height) "
            f'nor an index {{"file": class}}: {decode_problem(content, error)}'
        ) from error
    if problem := _contradiction(document):
        raise ConfigError(
            f"the annotations {str(path)!r} contradict themselves: {problem}; correct them"
        )
    groupings = _groupings(document)
    if not groupings:
        return document
    names = ", ".join(repr(category.name) for category in groupings)
    categories = [category for category in document.categories if category not in groupings]
    note = (
        f"{names}: left out of the categories, since it owns no object and is only the "
        "supercategory of others"
    )
    return msgspec.structs.replace(
        document, categories=categories, groupings=groupings, notes=(*document.notes, note)
    )


class CocoResult(msgspec.Struct, frozen=True):
    """A prediction in COCO's results; some tools add the file name."""

    image_id: int | float | str
    category_id: int | float
    score: float
    bbox: tuple[float, float, float, float] | None = None
    segmentation: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    keypoints: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    file_name: str | None = None


def read_results(path: Path) -> list[CocoResult]:
    """Return the predictions in a file of COCO's results.

    Raises:
        ConfigError: it cannot be read or is another file.
    """
    content = read_bytes(path, "the predictions").removeprefix(BOM_UTF8)
    try:
        return decode_json(content, list[CocoResult])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the predictions {str(path)!r} are not COCO's results, a list of {{image_id, "
            f"category_id, bbox, score}}: "
            f"{decode_problem(content, error)}"
        ) from error


def _groupings(document: CocoDocument) -> list[Category]:
    """Return the categories without objects that are the supercategory of others.

    Roboflow writes one.
    """
    owners = {annotation.category_id for annotation in document.annotations}
    members = {
        (category.supercategory, category.name)
        for category in document.categories
        if isinstance(category.supercategory, str)
    }
    parents = {parent for parent, name in members if parent != name}
    return [
        category
        for category in document.categories
        if category.id not in owners and category.name in parents
    ]


def _decode_document(content: bytes, noun: str) -> CocoDocument:
    try:
        return decode_json(content, CocoDocument)
    except msgspec.ValidationError:
        parts = decode_json(content, dict[str, Any])
        for name in ("images", "annotations", "categories"):
            entries = parts.get(name)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict):
                    entry.update({key: _whole(key, entry[key]) for key in _WHOLE if key in entry})
                    entry.update(
                        {
                            key: msgspec.Raw(msgspec.json.encode(entry[key]))
                            for key in SHAPES
                            if key in entry
                        }
                    )
        notes = _number_images(parts, noun)
        return msgspec.structs.replace(msgspec.convert(parts, CocoDocument), notes=notes)


def _number_images(parts: dict[str, Any], noun: str) -> tuple[str, ...]:
    """Replace ids of images that are text by numbers, also in the annotations."""
    images, annotations = parts.get("images", []), parts.get("annotations", [])
    # The caller reports other errors.
    with suppress(msgspec.ValidationError):
        texts = [image.id for image in msgspec.convert(images, list[_WithTextId])]
        for number, (image, text) in enumerate(zip(images, texts, strict=True)):
            image.update({"id": number, TEXT_ID: text})
    with suppress(msgspec.ValidationError):
        named = msgspec.convert(images, list[AnnotatedImage])
        referred = [
            annotation.image_id for annotation in msgspec.convert(annotations, list[_OfImage])
        ]
        if any(image.text_id is not None for image in named) or any(
            isinstance(value, str) for value in referred
        ):
            ids, notes = match_image_ids(referred, named, noun)
            for annotation, value in zip(annotations, referred, strict=True):
                annotation["image_id"] = ids[value]
            return notes
    return ()


def _whole(key: str, value: Any) -> Any:
    """Return 1 for 1.0 and for a `true` of iscrowd; anything else unchanged."""
    is_whole = isinstance(value, float) and value.is_integer() and value < LARGEST_ID
    return int(value) if is_whole or (key == "iscrowd" and isinstance(value, bool)) else value


def decode_problem(content: bytes, error: Exception) -> str:
    """Return the error and its remedy; a word such as NaN is quoted."""
    at = re.search(r"\(byte (\d+)\)", str(error))
    word = _NO_NUMBER.match(content, int(at[1])) if at else None
    if word:
        return (
            f"{word[0].decode()} at byte {word.start()} is not a number: find where it comes from"
        )
    is_cut = "truncated" in str(error)
    return f"{error}: {'it ends too early, fetch or export it again' if is_cut else 'correct it'}"


def plain_document(document: CocoDocument, image_ids: set[int] | None = None) -> dict[str, Any]:
    """Return the document as plain data, for these images (None: all).

    An annotation without an area gets its box's.
    """
    return {
        "images": [
            msgspec.structs.asdict(image)
            for image in document.images
            if image_ids is None or image.id in image_ids
        ],
        "annotations": [
            _plain_annotation(annotation)
            for annotation in document.annotations
            if image_ids is None or annotation.image_id in image_ids
        ],
        "categories": msgspec.to_builtins(document.categories),
        "groupings": msgspec.to_builtins(document.groupings),
    }


def _plain_annotation(annotation: CocoAnnotation) -> dict[str, Any]:
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(annotation).items()
        if value is not msgspec.UNSET
    }
    area = (
        max(annotation.bbox[2], 0.0) * max(annotation.bbox[3], 0.0)
        if annotation.area is None
        else annotation.area
    )
    return {**fields, "bbox": list(annotation.bbox), "area": area}


def shape_of(owner: str, shape: msgspec.Raw | msgspec.UnsetType, key: str) -> Any:
    """Return the outline or the keypoints of an annotation or a result in the form of `SHAPES`.

    `owner` names it in messages.

    Raises:
        ConfigError: they are absent or garbled.
    """
    form, words = SHAPES[key]
    if isinstance(shape, msgspec.UnsetType):
        raise ConfigError(f"{owner} has no {key} ({words}): give files for this task")
    try:
        return decode_json(shape, form)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{owner}: its {key} is not {words}: {decode_problem(shape, error)}"
        ) from error


def _contradiction(document: CocoDocument) -> str | None:
    images = {image.id for image in document.images}
    categories = {category.id for category in document.categories}
    listed: dict[str, Sequence[int | str]] = {
        "image id": [image.written_id for image in document.images],
        "file name": [image.file_name for image in document.images],
        "category id": [category.id for category in document.categories],
        "annotation id": [annotation.id for annotation in document.annotations],
    }
    for noun, values in listed.items():
        repeated = next((value for value, count in Counter(values).items() if count > 1), None)
        if repeated is not None:
            return f"{noun} {repeated!r} is listed twice"
    for annotation in document.annotations:
        if annotation.image_id not in images:
            return (
                f"annotation {annotation.id} is of image {annotation.image_id}, which is not "
                "among the images"
            )
        if annotation.category_id not in categories:
            return (
                f"annotation {annotation.id} is of category {annotation.category_id}, which is "
                "not among the categories"
            )
    sizes = {image.id: (image.width or np.nan, image.height or np.nan) for image in document.images}
    boxes = np.array([annotation.bbox for annotation in document.annotations], np.float64).reshape(
        -1, 4
    )
    of_each = np.array(
        [sizes[annotation.image_id] for annotation in document.annotations], np.float64
    ).reshape(-1, 2)
    return _box_form_problem(boxes, of_each)

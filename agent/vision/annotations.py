"""Ground truth as files hold it: COCO's annotation document (detection), or an index from file name to class (classification)."""

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.vision import box_form

Side = Annotated[float, msgspec.Meta(ge=0)]
# Ids travel to the metric in a column of float64, which is exact up to here.
Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
ClassIndex = Annotated[int, msgspec.Meta(ge=0)]
# What a group may be called; COCO has no such key, people add it to images or to annotations.
Group = str | int | float | bool | None
# Python's json module writes these words, which JSON does not know.
_NO_NUMBER = re.compile(rb"[-+]?(NaN|Infinity)")


class Image(msgspec.Struct, frozen=True):
    """One photograph as COCO names it; `width` and `height` in pixels, where given. Scoring detections needs no `file_name`."""

    id: Id
    file_name: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    width: int | None = None
    height: int | None = None
    group: Group = None


class Category(msgspec.Struct, frozen=True):
    """One class of objects."""

    id: Id
    name: str


class Annotation(msgspec.Struct, frozen=True):
    """One object: `bbox` is x, y, width, height in pixels; `area` is that of its outline, of its box where none is given.

    A box without extent (width or height 0 or less) stays: it counts as an object that nothing finds, as it does for COCO.
    """

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, float, float]
    area: Side | None = None
    iscrowd: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    group: Group = None

    @property
    def has_extent(self) -> bool:
        """Return whether the box has width and height."""
        return self.bbox[2] > 0 and self.bbox[3] > 0

    @property
    def size_px(self) -> float:
        """Return `area`, or that of the box."""
        return max(self.bbox[2], 0.0) * max(self.bbox[3], 0.0) if self.area is None else self.area


class Document(msgspec.Struct, frozen=True):
    """COCO's annotation document; what is not needed for boxes is not read."""

    images: Sequence[Image]
    annotations: Sequence[Annotation]
    categories: Sequence[Category]


def read(path: Path) -> Document | dict[str, int]:
    """Return the document in `path`, or its index from file name to class.

    Raises:
        ConfigError: it cannot be read, is neither of the two, or contradicts itself; says where and what to do.
    """
    try:
        content = path.read_bytes().removeprefix(BOM_UTF8)
        found = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        if "images" not in found and "annotations" not in found:
            return msgspec.json.decode(content, type=dict[str, ClassIndex])
        document = msgspec.json.decode(content, type=Document)
    except OSError as error:
        message = f"cannot read the annotations {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = (
            f"the annotations {str(path)!r} are neither COCO's (images, annotations, categories; bbox is x, y, width, height) "
            f'nor an index {{"file": class}}: {what_is_wrong(content, error)}'
        )
        raise ConfigError(message) from error
    if problem := _contradiction(document):
        message = f"the annotations {str(path)!r} contradict themselves: {problem}; correct them"
        raise ConfigError(message)
    return document


def what_is_wrong(content: bytes, error: Exception) -> str:
    """Return what the JSON error says, and where it stands on a word that Python writes and JSON does not know: which."""
    at = re.search(r"\(byte (\d+)\)", str(error))
    word = _NO_NUMBER.match(content, int(at[1])) if at else None
    return f"{word[0].decode()} at byte {word.start()} is no number: find where it comes from" if word else str(error)


def oddities(document: Document) -> tuple[str, ...]:
    """Return what in the document is odd and yet has a meaning, counted, each with how it is taken."""
    flat = [annotation.id for annotation in document.annotations if not annotation.has_extent]
    sizes = {image.id: (image.width, image.height) for image in document.images}
    outside = [
        annotation.id
        for annotation in document.annotations
        if annotation.has_extent and _is_outside(annotation.bbox, *sizes[annotation.image_id])
    ]
    unsized = sum(annotation.area is None for annotation in document.annotations)
    found = []
    if flat:
        found.append(
            f"{len(flat)} of {len(document.annotations)} annotations have a box whose width or height is not above 0 "
            f"(first: id {flat[0]}): each counts as an object that was not found, as in the COCO API"
        )
    if outside:
        found.append(
            f"{len(outside)} of {len(document.annotations)} annotations lie outside their photograph (first: id {outside[0]}): "
            "each counts as an object that was not found"
        )
    if unsized:
        found.append(f"{unsized} of {len(document.annotations)} annotations have no area: that of the box tells small from large")
    return tuple(found)


def _is_outside(bbox: tuple[float, float, float, float], width: int | None, height: int | None) -> bool:
    x, y, wide, high = bbox
    return x + wide <= 0 or y + high <= 0 or (width is not None and x >= width) or (height is not None and y >= height)


def plain(document: Document, image_ids: set[int] | None = None) -> dict[str, Any]:
    """Return the document as plain data, for these images only (None: all); an annotation without area gets that of its box."""
    return {
        "images": [msgspec.to_builtins(image) for image in document.images if image_ids is None or image.id in image_ids],
        "annotations": [
            {**msgspec.to_builtins(annotation), "bbox": list(annotation.bbox), "area": annotation.size_px}
            for annotation in document.annotations
            if image_ids is None or annotation.image_id in image_ids
        ],
        "categories": msgspec.to_builtins(document.categories),
    }


def _contradiction(document: Document) -> str | None:
    """Return what is wrong with the document as a whole, None when nothing is."""
    images = {image.id for image in document.images}
    categories = {category.id for category in document.categories}
    names = [image.file_name for image in document.images if image.file_name is not None]
    outside = next((name for name in names if Path(name).is_absolute() or ".." in Path(name).parts), None)
    if outside is not None:
        return f"the file name {outside!r} leads out of the image folder"
    for what, values in (
        ("image id", [image.id for image in document.images]),
        ("file name", names),
        ("category id", [category.id for category in document.categories]),
        ("annotation id", [annotation.id for annotation in document.annotations]),
    ):
        if (twice := _twice(values)) is not None:
            return f"{what} {twice!r} stands there twice"
    for annotation in document.annotations:
        if annotation.image_id not in images:
            return f"annotation {annotation.id} is of image {annotation.image_id}, which is not among the images"
        if annotation.category_id not in categories:
            return f"annotation {annotation.id} is of category {annotation.category_id}, which is not among the categories"
    return _misread(document)


def _misread(document: Document) -> str | None:
    """Return what speaks against boxes as x, y, width, height in pixels, None when nothing does."""
    sizes = {image.id: (image.width or np.nan, image.height or np.nan) for image in document.images}
    boxes = np.array([annotation.bbox for annotation in document.annotations], np.float64).reshape(-1, 4)
    return box_form.problem(
        "annotations", boxes, np.array([sizes[one.image_id] for one in document.annotations], np.float64).reshape(-1, 2)
    )


def _twice(values: Iterable[int | str]) -> int | str | None:
    return next((value for value, count in Counter(values).items() if count > 1), None)

"""Oddities in COCO's annotations that have a meaning all the same: counted, with how they are taken."""

from collections.abc import Sequence

import msgspec

from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.datasets.coco import CocoAnnotation, CocoDocument, Outline, Rle

# Areas from which an object is medium and large. Source: cocoapi `cocoeval.py`, `areaRng`.
_SIZES = (32**2, 96**2)
# An outline fills at most its box and hardly ever less than this; as drawn and as stated it differs by less than that factor.
_LEAST_FILLED, _MOST_FILLED, _DRAWN = 0.05, 1.02, 1.25


def annotation_oddities(document: CocoDocument) -> tuple[str, ...]:
    """Return what in the document is odd and yet has a meaning, counted, each with how it is taken."""
    flat = [annotation.id for annotation in document.annotations if not annotation.has_extent]
    sizes = {image.id: (image.width, image.height) for image in document.images}

    def is_outside(annotation: CocoAnnotation) -> bool:
        (x, y, wide, high), (width, height) = annotation.bbox, sizes[annotation.image_id]
        return x + wide <= 0 or y + high <= 0 or (width is not None and x >= width) or (height is not None and y >= height)

    outside = [annotation.id for annotation in document.annotations if annotation.has_extent and is_outside(annotation)]
    unsized = sum(annotation.area is None for annotation in document.annotations)
    oddities = []
    if flat:
        oddities.append(
            f"{len(flat)} of {len(document.annotations)} annotations have a box whose width or height is not above 0 "
            f"(first: id {flat[0]}): each counts as an object that was not found, as in the COCO API"
        )
    if outside:
        oddities.append(
            f"{len(outside)} of {len(document.annotations)} annotations lie outside their photograph (first: id {outside[0]}): "
            "each counts as an object that was not found"
        )
    if any(annotation.id == 0 for annotation in document.annotations):
        oddities.append(
            "an annotation has id 0: the COCO API counts the detection that finds it as a false one, here it counts as found, so that "
            "pycocotools may report a lower AP; number annotations from 1 to compare"
        )
    if unsized:
        oddities.append(
            f"{unsized} of {len(document.annotations)} annotations have no area: the box's area decides which objects are small"
        )
    return (*oddities, *_odd_areas(document))


def _odd_areas(document: CocoDocument) -> list[str]:
    """Return what is odd about the areas, which decide what is small, medium and large."""
    count, oddities = len(document.annotations), []
    zero = [annotation.id for annotation in document.annotations if annotation.area == 0 and annotation.has_extent]
    if zero:
        oddities.append(
            f"{len(zero)} of {count} annotations have area 0 (first: id {zero[0]}): each counts as a small object, as in the COCO API"
        )
    wrong = [(annotation, measured) for annotation in document.annotations if (measured := _contradicted(annotation)) is not None]
    if wrong:
        first, (noun, area) = wrong[0]
        oddities.append(
            f"{len(wrong)} of {count} annotations have an area that contradicts their outline or box, and count as of another size "
            f"(first: id {first.id}, area {first.area:g}, {noun} {area:g}): AP by size goes by the area, as in the COCO API; correct it"
        )
    return oddities


def _contradicted(annotation: CocoAnnotation) -> tuple[str, float] | None:
    """Return what contradicts the stated area, and its own; None where nothing does, or the object is as small or large all the same."""
    stated_area = annotation.area
    if not stated_area or annotation.iscrowd or not annotation.has_extent:
        return None
    outlined = _outlined_area(annotation)
    noun, area = ("box", annotation.bbox[2] * annotation.bbox[3]) if outlined is None else ("outline", outlined)
    lowest, highest = (_LEAST_FILLED * area, _MOST_FILLED * area) if outlined is None else (area / _DRAWN, area * _DRAWN)
    is_same_size = _size(stated_area) == _size(area)
    return None if is_same_size or lowest <= stated_area <= highest else (noun, area)


def _size(area: float) -> int:
    return sum(area >= limit for limit in _SIZES)


def _outlined_area(annotation: CocoAnnotation) -> float | None:
    """Return the area of the polygons, or of a code whose runs are not compressed; None without."""
    if annotation.segmentation is msgspec.UNSET:
        return None
    try:
        outline = decode_json(annotation.segmentation, Outline)
    except msgspec.MsgspecError:
        return None
    if isinstance(outline, Rle):
        return None if isinstance(outline.counts, str) else float(sum(outline.counts[1::2]))
    return sum(map(_polygon_area, outline)) if outline else None


def _polygon_area(polygon: Sequence[float]) -> float:
    x, y = polygon[::2], polygon[1::2]
    pairs = zip(x, y, (*x[1:], x[0]), (*y[1:], y[0]), strict=False)
    return abs(sum(x1 * y2 - x2 * y1 for x1, y1, x2, y2 in pairs)) / 2

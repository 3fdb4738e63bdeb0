"""COCO's results: a list of {image_id, category_id, score} with a bbox [x, y, width, height], a segmentation or keypoints."""

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.datasets.coco import BOX_FORM, SHAPES, CocoDocument, box_form_problem, decode_problem
from edgemeter.agent.datasets.items import read_bytes

Rows = NDArray[np.float64]
Box = tuple[float, float, float, float]
# Of so many scores some differ.
_ENOUGH = 20
IMAGE, X, Y, WIDTH, HEIGHT, SCORE, CATEGORY = range(7)
# Factors of the columns, so that rows that differ have sums that differ.
_UNLIKE = np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0]).tolist()


# What an object of a task's results holds, and its form.
PARTS = {"detection": "bbox", "segmentation": "segmentation", "pose": "keypoints"}
_EMPTY = (b"[]", b"null")


class _Detection(msgspec.Struct, frozen=True, gc=False):
    """One detection; other keys (id, area) are passed over. Ids may be written 42.0."""

    image_id: float
    category_id: float
    score: float
    bbox: tuple[float, float, float, float] | msgspec.UnsetType = msgspec.UNSET
    segmentation: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    keypoints: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    def has(self, part: str) -> bool:
        """Return whether it holds a box, an outline or keypoints."""
        value = getattr(self, part)
        return value is not msgspec.UNSET and (part == "bbox" or bytes(value) not in _EMPTY)


class _Wrapped(msgspec.Struct, frozen=True):
    """The list inside a document, as some tools write it."""

    annotations: Sequence[_Detection]


@dataclass(frozen=True, slots=True)
class CocoResults:
    """The results of a file for a task. `rows` is float64 [n, 7]: image id, x, y, width, height, score, category id.

    `shapes` are the outlines or keypoints in the order of the rows, whose boxes are then 0 but for x, in which equal shapes are equal;
    empty of boxes.
    """

    task: str
    rows: Rows
    shapes: tuple[Any, ...] = ()


def read_results(path: Path, truth: CocoDocument, task: str | None = None) -> CocoResults:
    """Return the results of a file, as those of the task that they are clearly of, else of the one named.

    Raises:
        ConfigError: it cannot be read, or what it holds cannot be scored against this ground truth; the message holds the first.
    """
    detections = _decode(path)
    task = task or _task_of(detections, path)
    part = PARTS[task]
    if bare := next((f" (first: number {number})" for number, d in enumerate(detections) if not d.has(part)), ""):
        raise ConfigError(f"the results {str(path)!r} hold no {part} in some detections{bare}: give results of the task {task}")
    if task == "detection":
        flat = chain.from_iterable((d.image_id, *cast("Box", d.bbox), d.score, d.category_id) for d in detections)
    else:
        raw = [bytes(getattr(d, part)) for d in detections]
        flat = chain.from_iterable(
            (d.image_id, crc32(shape), 0.0, 0.0, 0.0, d.score, d.category_id) for d, shape in zip(detections, raw, strict=True)
        )
    rows = np.fromiter(flat, np.float64, 7 * len(detections)).reshape(-1, 7)
    if problem := _problem(rows, truth, has_boxes=task == "detection"):
        raise ConfigError(f"the detections {str(path)!r} cannot be scored: {problem}")
    return CocoResults(
        task, rows, () if task == "detection" else tuple(_shape(path, number, shape, part) for number, shape in enumerate(raw))
    )


def _task_of(detections: Sequence[_Detection], path: Path) -> str:
    """Return the task that the results are of: of masks and keypoints beside boxes it is unknown which of them are meant."""
    possible = [task for task, part in PARTS.items() if any(detection.has(part) for detection in detections)]
    if len(possible) > 1:
        raise ConfigError(
            f"the results {str(path)!r} hold {' and '.join(PARTS[task] for task in possible)}: choose with --task {possible[-1]}"
        )
    if detections and not possible:
        raise ConfigError(f"the results {str(path)!r} are not a list of COCO results: they hold no bbox, segmentation or keypoints")
    return possible[0] if possible else "detection"


def _shape(path: Path, number: int, content: bytes, part: str) -> Any:
    form, words = SHAPES[part]
    try:
        return decode_json(content, form)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the results {str(path)!r}: the {part} of number {number} is not {words}: {decode_problem(content, error)}"
        ) from error


def result_oddities(rows: Rows) -> tuple[str, ...]:
    """Return what in the detections is odd and yet has a meaning, counted, with how it is taken."""
    # Rows that are alike have the same sum of anything: only those few need a closer look, of half a million too.
    sums = np.zeros(len(rows))
    for column, factor in enumerate(_UNLIKE):
        sums += rows[:, column] * factor
    ordered = np.sort(sums)
    alike = rows[np.isin(sums, ordered[1:][ordered[1:] == ordered[:-1]])]
    repeats = len(alike) - len(np.unique(alike, axis=0))
    repeated = (
        f"{repeats} of {len(rows)} detections are repeated, with the same box and score: each counts as a false one, as in the COCO API"
    )
    oddities, scores = [repeated] if repeats else [], rows[:, SCORE]
    if len(scores) >= _ENOUGH and scores.min() == scores.max():
        oddities.append(f"all {len(scores)} scores are {scores[0]:g}: the order in the file decides which come first")
    elif len(scores) and (scores.min() < 0 or scores.max() > 1):
        oddities.append(f"scores go from {scores.min():.3g} to {scores.max():.3g}, and COCO's are 0..1: only their order counts here")
    return tuple(oddities)


def _decode(path: Path) -> Sequence[_Detection]:
    content = read_bytes(path, "the detections").removeprefix(BOM_UTF8)
    try:
        if content.lstrip()[:1] == b"{":
            return decode_json(content, _Wrapped).annotations
        return decode_json(content, list[_Detection])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the detections {str(path)!r} are not a list of COCO results (image_id, category_id, bbox, score; {BOX_FORM}): "
            f"{decode_problem(content, error)}"
        ) from error


def _problem(rows: Rows, truth: CocoDocument, *, has_boxes: bool) -> str | None:
    """Return why the rows cannot be scored, None when they can."""
    images = np.array(sorted(image.id for image in truth.images), np.float64)
    categories = np.array(sorted(category.id for category in truth.categories), np.float64)
    bad = np.asarray(~np.isfinite(rows).all(axis=1), np.bool_)
    if bad.any():
        return f"{_count(bad)} hold a number that is not finite{_first(rows, bad)}"
    if (bad := ~np.isin(rows[:, IMAGE], images)).any():
        return f"{_count(bad)} are of images that the annotations do not have{_first(rows, bad)}: give the annotations they were made for"
    if (bad := ~np.isin(rows[:, CATEGORY], categories)).any():
        named = ", ".join(f"{number:g}" for number in np.unique(rows[bad, CATEGORY])[:5])
        return (
            f"{_count(bad)} are of categories that the annotations do not have ({named}){_first(rows, bad)}: "
            "write COCO's category ids, not class indices"
        )
    if not has_boxes:
        return None
    bad = np.asarray((rows[:, [WIDTH, HEIGHT]] < 0).any(axis=1), np.bool_)
    if bad.any():
        return f"{_count(bad)} have a negative width or height{_first(rows, bad)}: {BOX_FORM}"
    sizes = {image.id: (image.width or np.nan, image.height or np.nan) for image in truth.images}
    of_each = np.array([sizes[int(number)] for number in rows[:, IMAGE]], np.float64).reshape(-1, 2)
    return box_form_problem("detections", rows[:, X : HEIGHT + 1], of_each)


def _count(bad: NDArray[np.bool_]) -> str:
    return f"{int(bad.sum())} of {len(bad)} detections"


def _first(rows: Rows, bad: NDArray[np.bool_]) -> str:
    index = int(np.argmax(bad))
    row = rows[index]
    return f" (first: number {index}, image {row[IMAGE]:.15g}, category {row[CATEGORY]:g}, bbox {row[X : HEIGHT + 1].tolist()})"

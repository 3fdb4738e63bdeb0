"""COCO's detection results: a list of {image_id, category_id, bbox: [x, y, width, height], score}."""

from codecs import BOM_UTF8
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import BOX_FORM, CocoDocument, box_form_problem, decode_problem
from edgemeter.agent.datasets.items import read_bytes

Rows = NDArray[np.float64]
# Of so many scores some differ.
_ENOUGH = 20
IMAGE, X, Y, WIDTH, HEIGHT, SCORE, CATEGORY = range(7)
# Factors of the columns, so that rows that differ have sums that differ.
_UNLIKE = np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0]).tolist()


class _Detection(msgspec.Struct, frozen=True, gc=False):
    """One detection; other keys (id, area, segmentation) are passed over. Ids may be written 42.0."""

    image_id: float
    category_id: float
    bbox: tuple[float, float, float, float]
    score: float


class _Wrapped(msgspec.Struct, frozen=True):
    """The list inside a document, as some tools write it."""

    annotations: Sequence[_Detection]


def read_results(path: Path, truth: CocoDocument) -> Rows:
    """Return the detections of a file: float64 [n, 7]: image id, x, y, width, height, score, category id.

    Raises:
        ConfigError: it cannot be read, or what it holds cannot be scored against this ground truth; the message holds the first.
    """
    detections = _decode(path)
    flat = chain.from_iterable((d.image_id, *d.bbox, d.score, d.category_id) for d in detections)
    rows = np.fromiter(flat, np.float64, 7 * len(detections)).reshape(-1, 7)
    if problem := _problem(rows, truth):
        raise ConfigError(f"the detections {str(path)!r} cannot be scored: {problem}")
    return rows


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
            return msgspec.json.decode(content, type=_Wrapped).annotations
        return msgspec.json.decode(content, type=list[_Detection])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"the detections {str(path)!r} are not a list of COCO results (image_id, category_id, bbox, score; {BOX_FORM}): "
            f"{decode_problem(content, error)}"
        ) from error


def _problem(rows: Rows, truth: CocoDocument) -> str | None:
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

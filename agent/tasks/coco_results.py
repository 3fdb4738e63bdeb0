"""Scoring predictions of other tools, as COCO results, without a model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Raw

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.coco import (
    CocoAnnotation,
    CocoResult,
    plain_document,
    read_annotations,
    read_results,
    shape_of,
)
from edgemeter.agent.datasets.foreign_names import ImageKey, match_image_ids
from edgemeter.agent.tasks.coco_accuracy import ENOUGH, agreement, coco_accuracy
from edgemeter.agent.tasks.coco_matches import BOXES, KEYPOINTS, MASKS, CocoAp, ObjectKind
from edgemeter.agent.tasks.shapes import scored_shapes, with_shapes
from edgemeter.agent.tasks.similarity import Annotations, Compared, Floats

# Some tools write an empty outline for boxes.
_EMPTY = Raw(b"[]")


@dataclass(frozen=True, slots=True)
class ScoredResults:
    """The accuracy of predictions, None if the annotations have no objects.

    `notes` name the corrections.
    """

    accuracy: Accuracy | None
    images: int
    objects: int
    predictions: int
    notes: tuple[str, ...]


def score_results(predictions: Path, annotations: Path) -> ScoredResults:
    """Return the accuracy of keypoints, masks or boxes, the first that both files have.

    As in pycocotools, images without predictions count, and the area of a mask or pose with a box
    is that of the box.

    Raises:
        ConfigError: a file cannot be read or is garbled, or images or categories cannot be matched.
    """
    document = read_annotations(annotations)
    if isinstance(document, dict):
        raise ConfigError(
            f"{str(annotations)!r} is an index of classes: give COCO's annotations (images, "
            "annotations, categories)"
        )
    results, noun = read_results(predictions), f"the predictions {str(predictions)!r}"
    kind, kind_notes = _kind(results, document.annotations)
    files = {_image_key(result): result.file_name for result in results}
    ids, image_notes = match_image_ids(files, document.images, noun, files)
    truth = with_shapes(kind, plain_document(document))
    rows = np.array(
        [_row(number, result, ids, kind) for number, result in enumerate(results, 1)], np.float64
    ).reshape(-1, 7)
    shapes: Sequence[Any] = ()
    if kind is not BOXES:
        owners = [
            f"prediction {number} of {predictions.name!r}" for number in range(1, len(results) + 1)
        ]
        forms = (
            shape_of(owner, getattr(result, kind.key), kind.key)
            for owner, result in zip(owners, results, strict=True)
        )
        shapes = scored_shapes(
            kind, truth, zip(owners, rows[:, 0].astype(int).tolist(), forms, strict=True)
        )
        kind = _with_area_of_box(kind) if rows[:, 3:5].any() else kind
    scored, category_notes = _categorised(CocoAp(truth, rows, kind, shapes), shapes, noun)
    image_ids = [image.id for image in document.images]
    accuracy = coco_accuracy(scored, image_ids, sha256_of(annotations))
    return ScoredResults(
        accuracy,
        len(image_ids),
        len(document.annotations),
        len(results),
        (*document.notes, *kind_notes, *image_notes, *category_notes),
    )


def _kind(
    results: Sequence[CocoResult], annotations: Sequence[CocoAnnotation]
) -> tuple[ObjectKind, tuple[str, ...]]:
    """Return the kind to score, and a note if predictions have shapes that the annotations lack."""
    for kind in (KEYPOINTS, MASKS):
        if results and getattr(results[0], kind.key) is not UNSET:
            if any(
                getattr(annotation, kind.key) not in (UNSET, _EMPTY) for annotation in annotations
            ):
                return kind, ()
            return BOXES, (f"boxes are scored, because the annotations have no {kind.key}",)
    return BOXES, ()


def _image_key(result: CocoResult) -> ImageKey:
    """Return the id of the image; some tools write 1.0 for 1."""
    is_whole = isinstance(result.image_id, float) and result.image_id.is_integer()
    return (
        int(result.image_id)
        if is_whole
        else str(result.image_id)
        if isinstance(result.image_id, float)
        else result.image_id
    )


def _row(
    number: int, result: CocoResult, ids: Mapping[ImageKey, int], kind: ObjectKind
) -> tuple[float, ...]:
    if result.bbox is None and kind is BOXES:
        raise ConfigError(
            f"prediction {number} has no bbox (x, y, width, height in pixels), and none has "
            "another shape: add it"
        )
    return (
        ids[_image_key(result)],
        *(result.bbox or (0.0, 0.0, 0.0, 0.0)),
        result.score,
        result.category_id,
    )


def _with_area_of_box(kind: ObjectKind) -> ObjectKind:
    def compared(rows: Floats, shapes: Sequence[Any], annotations: Annotations) -> Compared:
        return replace(kind.compared(rows, shapes, annotations), area=rows[:, 3] * rows[:, 4])

    return replace(kind, compared=compared)


def _categorised(
    scored: CocoAp, shapes: Sequence[Any], noun: str
) -> tuple[CocoAp, tuple[str, ...]]:
    """Return the predictions with the category ids of the annotations.

    A note is returned too if ids were translated. Predictions with unknown ids may number the
    categories from 0 or 1, in the order of their ids. The detected objects decide; if they leave a
    doubt, an error is raised.
    """
    names = {category["id"]: category["name"] for category in scored.truth["categories"]}
    ids, predicted = sorted(names), sorted(set(scored.rows[:, 6].tolist()))
    absent = [number for number in predicted if number not in names]
    if not absent:
        return scored, ()
    readings = {f"counted from {first}": dict(enumerate(ids, first)) for first in (0, 1)}
    fitting = {
        reading: meaning
        for reading, meaning in readings.items()
        if meaning.keys() >= set(predicted)
    }
    if len(absent) < len(predicted):
        fitting["ids of the annotations"] = {number: number for number in ids}
    if [*fitting] == ["ids of the annotations"]:
        count = int(np.isin(scored.rows[:, 6], absent).sum())
        return scored, (
            (
                f"{count} predictions of {len(absent)} categories that the annotations lack "
                f"(first {absent[0]:g}) do not count"
            ),
        )
    votes = scored.votes()
    confirmed = [reading for reading, meaning in fitting.items() if _is_confirmed(votes, meaning)]
    if len(confirmed) != 1:
        counts = [(reading, *agreement(votes, meaning)) for reading, meaning in fitting.items()]
        tried = ", ".join(
            f"{reading}: {agreed} of {total} detected objects agree"
            for reading, agreed, total in counts
        )
        those_of_truth = f"{ids[0]} to {ids[-1]}" if ids else "none"
        raise ConfigError(
            f"the category ids in {noun} are {predicted[0]:g} to {predicted[-1]:g}, and those of "
            f"the annotations {those_of_truth}. "
            f"Their meaning is in doubt ({tried or 'there are too many to count from 0 or 1'}): "
            "write the ids of the annotations"
        )
    meaning = fitting[confirmed[0]]
    agreed, total = agreement(votes, meaning)
    rows = np.column_stack(
        [scored.rows[:, :6], [meaning.get(int(number), -1) for number in scored.rows[:, 6]]]
    )
    first = f"{predicted[0]:g} is {names.get(meaning.get(int(predicted[0]), -1), 'none')!r}"
    return CocoAp(scored.truth, rows, scored.kind, shapes), (
        (
            f"the category ids in {noun} are {confirmed[0]} ({first}), as {agreed} of {total} "
            "detected objects confirm"
        ),
    )


def _is_confirmed(votes: Mapping[int, Counter[int]], meaning: Mapping[int, int]) -> bool:
    """Return whether the detected objects confirm this meaning of the categories.

    Most objects must be detected as their category, and no category mostly on objects of another.
    """
    agreed, total = agreement(votes, meaning)
    opposed = (
        objects.most_common(1)[0][0] != meaning.get(number)
        for number, objects in votes.items()
        if objects.total() >= ENOUGH
    )
    return 2 * agreed > total and not any(opposed)

"""Matches the objects found in a photograph with the annotated ones, as COCO's evaluation does, and what is left by place alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.kept_predictions import KeptObject, KeptPhotograph, KeptPredictions

IOU = 0.5
# In place of the index of an annotated object: nothing is there, or something that is not asked for (a crowd).
FALSE, IGNORED = -1, -2


@dataclass(frozen=True, slots=True)
class MatchedObjects:
    """By found object the index of the annotated one, FALSE or IGNORED; by annotated object the index of the found one, None if missed.

    A found object may have another label than the annotated one.
    """

    truth_of: tuple[int, ...]
    found_of: tuple[int | None, ...]


def photographs_of(predictions: KeptPredictions) -> tuple[KeptPhotograph, ...]:
    """Return the photographs of a detector; of a classifier each item as one, which its annotated class and its best class fill."""
    of_answers = (
        KeptPhotograph(
            name=answer.name,
            width=1,
            height=1,
            truth=(KeptObject(answer.truth, 0, 0, 1, 1),),
            found=tuple(KeptObject(label, 0, 0, 1, 1, score) for label, score in answer.best[:1]),
            group=answer.group,
        )
        for answer in predictions.answers
    )
    return (*predictions.photographs, *of_answers)


def overlaps(objects: Sequence[KeptObject], other_objects: Sequence[KeptObject]) -> NDArray[np.float64]:
    """Return intersection over union of each box with each other one, float64 [objects, other_objects]; with a crowd over its own area."""
    boxes, other_boxes = _corners(objects), _corners(other_objects)
    low, high = np.maximum(boxes[:, None, :2], other_boxes[None, :, :2]), np.minimum(boxes[:, None, 2:], other_boxes[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    areas, other_areas = _areas(objects), _areas(other_objects)
    is_crowd = np.array([thing.ignored for thing in other_objects], bool)
    union = areas[:, None] + np.where(is_crowd, 0, other_areas - shared)
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def match_labels(photograph: KeptPhotograph, ious: NDArray[np.float64], iou: float = IOU) -> list[int]:
    """Return for each found object the annotated one of its label, FALSE or IGNORED; best score first, each takes the best that is left.

    It depends on better scores only, so it holds at every threshold. `ious` are [found, annotated].

    Source: cocoapi, `cocoeval.py`, `evaluateImg`.
    """
    labels = np.array([thing.label for thing in photograph.truth], int)
    is_ignored = np.array([thing.ignored for thing in photograph.truth], bool)
    is_free = np.ones(len(labels), bool)
    matches = []
    for index, thing in enumerate(photograph.found):
        of_label = np.where((labels == thing.label) & is_free, ious[index], -1.0)
        match = _last_best(np.where(is_ignored, -1.0, of_label), iou)
        if match is not None:
            is_free[match] = False
        elif _last_best(np.where(is_ignored, of_label, -1.0), iou) is not None:
            match = IGNORED
        matches.append(FALSE if match is None else match)
    return matches


def match_all(photograph: KeptPhotograph, score: float, iou: float = IOU) -> MatchedObjects:
    """Return the matches of the objects with at least this score: those of their label, then of any, the largest overlap first.

    The found objects are those of `photograph.found` from the first; none below the score has a match.
    """
    ious = overlaps(photograph.found, photograph.truth)
    count = sum((thing.score or 0.0) >= score for thing in photograph.found)
    truth_of = match_labels(photograph, ious, iou)[:count]
    found_of: list[int | None] = [None] * len(photograph.truth)
    for index, match in enumerate(truth_of):
        if match >= 0:
            found_of[match] = index
    free = np.array([found_of[index] is None and not thing.ignored for index, thing in enumerate(photograph.truth)], bool)
    spare = np.array([match == FALSE for match in truth_of], bool)
    between = np.where(spare[:, None] & free, ious[:count], 0.0)
    while between.size and between.max() >= iou:
        index, match = map(int, np.unravel_index(between.argmax(), between.shape))
        truth_of[index], found_of[match] = match, index
        between[index], between[:, match] = 0.0, 0.0
    return MatchedObjects(tuple(truth_of), tuple(found_of))


def _last_best(ious: NDArray[np.float64], iou: float) -> int | None:
    """Return the index of the largest, of equal ones the last; None if it is below `iou`."""
    if not ious.size or ious.max() < iou:
        return None
    return int(len(ious) - 1 - ious[::-1].argmax())


def _corners(objects: Sequence[KeptObject]) -> NDArray[np.float64]:
    return np.array([[thing.x, thing.y, thing.x + thing.width, thing.y + thing.height] for thing in objects], float).reshape(-1, 4)


def _areas(objects: Sequence[KeptObject]) -> NDArray[np.float64]:
    return np.array([thing.width * thing.height for thing in objects], float)

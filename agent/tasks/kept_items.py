"""Detections and classes as they are kept with a run: the best of each item beside its annotations."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.kept_predictions import FARTHEST_PX, KeptAnswer, KeptObject, KeptPhotograph, KeptPredictions
from edgemeter.agent.contract.model_card import CardOutput
from edgemeter.agent.datasets.dataset import Dataset

LEAST_SCORE = 0.05
# COCO counts no more of a photograph and category.
MOST_OBJECTS = 100
# How far from 1 probabilities add up that were rounded to 8 bits, each of a thousand.
_COARSE = 0.2


def kept_objects(truth: Mapping[str, Any], photographs: Sequence[tuple[int, str, int, int]], rows: NDArray[np.float64]) -> KeptPredictions:
    """Return the best 100 objects of each photograph with a score of at least 0.05, and the annotated ones.

    `truth` is a COCO document, `photographs` are image ids with names, widths and heights in pixels; `rows` are as those of
    `CocoAp` takes, float64 [n, 7].
    """
    label_of = {category["id"]: index for index, category in enumerate(truth["categories"])}
    annotations: defaultdict[int, list[KeptObject]] = defaultdict(list)
    for annotation in truth["annotations"]:
        x, y, width, height = _sides(annotation["bbox"])
        group = None if annotation.get("group") is None else str(annotation["group"])
        label, is_crowd = label_of[annotation["category_id"]], bool(annotation["iscrowd"])
        annotations[annotation["image_id"]].append(KeptObject(label, x, y, width, height, ignored=is_crowd, group=group))
    groups = {image["id"]: str(image["group"]) for image in truth["images"] if image.get("group") is not None}
    rows = rows[(rows[:, 5] >= LEAST_SCORE) & np.isfinite(rows).all(axis=1)]
    rows = rows[np.lexsort((-rows[:, 5], rows[:, 0]))]
    detected: defaultdict[int, list[KeptObject]] = defaultdict(list)
    for image_id, *box, score, category in rows.tolist():
        if len(detected[image_id]) < MOST_OBJECTS:
            x, y, width, height = _sides(box)
            detected[image_id].append(KeptObject(label_of[category], x, y, width, height, min(score, 1.0)))
    return KeptPredictions(
        labels=tuple(category["name"] for category in truth["categories"]),
        least_score=LEAST_SCORE,
        photographs=tuple(
            KeptPhotograph(
                name=name,
                width=width,
                height=height,
                truth=tuple(annotations[number]),
                found=tuple(detected[number]),
                group=groups.get(number),
            )
            for number, name, width, height in photographs
        ),
    )


def _sides(box: Sequence[float]) -> list[float]:
    sides: list[float] = np.clip(box, [-FARTHEST_PX, -FARTHEST_PX, 0, 0], FARTHEST_PX).tolist()
    return sides


def kept_answers(
    data: Dataset, truth: Sequence[int], best: Mapping[int, Sequence[tuple[int, float]]], output: CardOutput
) -> KeptPredictions:
    """Return the best classes of items, by index, with their scores, best first; classes as the card's labels count them."""
    # A class before the first label is the model's background.
    before = max(-output.label_offset, 0)
    answers = tuple(
        KeptAnswer(
            name=data.items[index].name,
            truth=before + truth[index],
            best=tuple((before + label, score) for label, score in best[index]),
            group=(data.groups or {}).get(data.items[index].name),
        )
        for index in sorted(best)
    )
    count = 1 + max(max(answer.truth, *(label for label, _ in answer.best)) for answer in answers)
    labels = output.labels if before + len(output.labels) >= count else tuple(map(str, range(count - before)))
    return KeptPredictions(labels=("background",) * before + tuple(labels), least_score=0.0, answers=answers)


def probabilities(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return scores [classes] that are probabilities (8 bits coarse or not) as they are, of others the softmax; 0 where not finite."""
    if scores.size and scores.min() >= 0 and abs(scores.sum() - 1) <= _COARSE:
        return np.minimum(scores, 1)
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(initial=-np.inf))
        return np.asarray(np.nan_to_num(weights / weights.sum(), nan=0.0))

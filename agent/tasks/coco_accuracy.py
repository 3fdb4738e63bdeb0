"""COCO's average precision over a data set, with bounds and by class.

It is that of boxes, masks or keypoints.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.coco_matches import CocoAp
from edgemeter.agent.tasks.parts import NO_COPIES, Bounded, Copies, numbered

# Below this AP, classes may be exchanged.
_DOUBTFUL = 0.5
# The fewest objects that show whether categories are exchanged.
ENOUGH = 5
# With more detections, bounds would take longer than seconds on a Raspberry Pi.
MOST_DETECTIONS = 300_000


def coco_accuracy(
    scored: CocoAp,
    image_ids: Sequence[int],
    sha256: str,
    parts: Parts = "all",
    copies: Copies = NO_COPIES,
) -> Accuracy | None:
    """Return the accuracy over these images; None if they have no objects.

    `sha256` is that of the data set; `copies` are by image id.
    """
    figures = scored.figures(image_ids)
    value = figures.overall.pop("ap")
    if value is None:
        return None
    accuracy = Accuracy(
        metric=scored.kind.metric,
        value=value,
        images=len(image_ids),
        dataset_sha256=sha256,
        detail=figures.overall,
    )
    if parts == "value":
        return accuracy
    is_small = len(scored.rows) <= MOST_DETECTIONS
    bounded = (
        scored.ap.bounded(image_ids, copies=copies)
        if is_small
        else Bounded(reason=f"more than {MOST_DETECTIONS:,} detections")
    )
    categories = scored.truth["categories"]
    names, objects = (
        numbered(category["name"] for category in categories),
        _objects(scored.truth, set(image_ids)),
    )
    return msgspec.structs.replace(
        accuracy,
        **bounded.in_record(),
        warnings=_confused(scored) if is_small and value < _DOUBTFUL else (),
        per_class={
            name: figures.by_category[category["id"]]
            for name, category in zip(names, categories, strict=True)
        },
        per_class_objects={
            name: objects[category["id"]] for name, category in zip(names, categories, strict=True)
        },
    )


def _objects(truth: Mapping[str, Any], images: set[int]) -> Counter[int]:
    """Return the number of objects of each category in these images, without crowds."""
    return Counter(
        entry["category_id"]
        for entry in truth["annotations"]
        if not entry["iscrowd"] and entry["image_id"] in images
    )


def _confused(scored: CocoAp) -> tuple[str, ...]:
    """Return the warning that most objects are detected as another category."""
    votes = scored.votes()
    names = {category["id"]: category["name"] for category in scored.truth["categories"]}
    agreed, total = agreement(votes, {number: number for number in votes})
    if total < ENOUGH or 2 * agreed > total:
        return ()
    mistaken = {
        (real, number): count
        for number, objects in votes.items()
        for real, count in objects.items()
        if real != number
    }
    real, number = max(mistaken, key=mistaken.__getitem__)
    return (
        (
            f"{total - agreed} of {total} detected objects got another class (mostly "
            f"{names[real]!r} as {names.get(number, number)!r}): check the order of the labels, or "
            "the category ids"
        ),
    )


def agreement(votes: Mapping[int, Counter[int]], meaning: Mapping[int, int]) -> tuple[int, int]:
    """Return how many objects have a detection of their category, and the number of all.

    `meaning` maps the detections' categories to those of the objects.
    """
    return sum(objects[meaning.get(number, -1)] for number, objects in votes.items()), sum(
        objects.total() for objects in votes.values()
    )

"""COCO's average precision of boxes, masks or keypoints over a whole data set; with bounds, and by class."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.coco_matches import CocoAp
from edgemeter.agent.tasks.parts import NO_COPIES, Bounded, Copies, numbered

# Up to so many detections bounds are computed: seconds on a Raspberry Pi.
MOST_DETECTIONS = 300_000


def coco_accuracy(
    scored: CocoAp, image_ids: Sequence[int], sha256: str, parts: Parts = "all", copies: Copies = NO_COPIES
) -> Accuracy | None:
    """Return the accuracy over these images, with and without detections; None where the truth holds nothing to find in them.

    `sha256` is that of the data set; `copies` are by image id. Bounds are computed where there are few enough detections for a small board.
    """
    figures = scored.figures(image_ids)
    value = figures.overall.pop("ap")
    if value is None:
        return None
    accuracy = Accuracy(metric=scored.kind.metric, value=value, images=len(image_ids), dataset_sha256=sha256, detail=figures.overall)
    if parts == "value":
        return accuracy
    bounded = Bounded(reason=f"more than {MOST_DETECTIONS:,} detections")
    if len(scored.rows) <= MOST_DETECTIONS:
        bounded = scored.ap.bounded(image_ids, copies=copies)
    categories = scored.truth["categories"]
    names, objects = numbered(category["name"] for category in categories), _objects(scored.truth, set(image_ids))
    return msgspec.structs.replace(
        accuracy,
        **bounded.in_record(),
        per_class={name: figures.by_category[category["id"]] for name, category in zip(names, categories, strict=True)},
        per_class_objects={name: objects[category["id"]] for name, category in zip(names, categories, strict=True)},
    )


def _objects(truth: Mapping[str, Any], images: set[int]) -> Counter[int]:
    """Return the number of objects of each category in these images, crowds not counted."""
    annotations = truth["annotations"]
    return Counter(entry["category_id"] for entry in annotations if not entry["iscrowd"] and entry["image_id"] in images)

"""COCO's average precision of boxes, masks or keypoints over a whole data set; with bounds, by class and by group."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.coco_matches import KEYPOINTS, CocoAp
from edgemeter.agent.tasks.item_accuracy import ScoredGroup, largest_gap, scored_group, scored_groups
from edgemeter.agent.tasks.parts import Bounded

RECALL = "coco_ar_100"
# Images by how many objects they show (crowds not counted): name, from, to.
OBJECTS = (("1", 1, 1), ("2-4", 2, 4), ("5-9", 5, 9), ("10+", 10, None))
# Up to so many detections bounds are computed: seconds on a Raspberry Pi.
MOST_DETECTIONS = 300_000


def coco_accuracy(scored: CocoAp, image_ids: Sequence[int], sha256: str, parts: Parts = "all") -> Accuracy | None:
    """Return the accuracy over these images, with and without detections; None where the truth holds nothing to find in them.

    `group` of images or annotations in the document names the group; `sha256` is that of the data set. Bounds are computed
    where there are few enough detections for a small board.
    """
    figures = scored.figures(image_ids)
    value = figures.overall.pop("ap")
    if value is None:
        return None
    accuracy = Accuracy(metric=scored.kind.metric, value=value, images=len(image_ids), dataset_sha256=sha256, detail=figures.overall)
    if parts == "value":
        return accuracy
    is_bounded = len(scored.rows) <= MOST_DETECTIONS
    bounded = scored.ap.bounded(image_ids) if is_bounded else Bounded(reason=f"more than {MOST_DETECTIONS:,} detections")
    metric, groups = _groups(scored, image_ids, is_bounded=is_bounded)
    return msgspec.structs.replace(
        accuracy,
        **bounded.in_record(),
        per_class=_per_class(scored.truth, figures.by_category, set(image_ids)),
        by_objects=_by_objects(scored, image_ids),
        group_metric=metric,
        groups=tuple(group.part for group in groups),
        group_gap=largest_gap(groups),
    )


def _per_class(truth: Mapping[str, Any], by_category: Mapping[int, float | None], images: set[int]) -> tuple[PartAccuracy, ...]:
    """Return AP of every category in the order of the document, with its objects (crowds not counted) and the images that show it."""
    objects: Counter[int] = Counter()
    shown_in: defaultdict[int, set[int]] = defaultdict(set)
    for annotation in _objects(truth, images):
        objects[annotation["category_id"]] += 1
        shown_in[annotation["category_id"]].add(annotation["image_id"])
    return tuple(
        PartAccuracy(
            name=category["name"], value=by_category[category["id"]], images=len(shown_in[category["id"]]), objects=objects[category["id"]]
        )
        for category in truth["categories"]
    )


def _by_objects(scored: CocoAp, image_ids: Sequence[int]) -> tuple[PartAccuracy, ...]:
    count = Counter(annotation["image_id"] for annotation in _objects(scored.truth, set(image_ids)))
    parts = []
    for name, first, last in OBJECTS:
        inside = [number for number in image_ids if first <= count[number] and (last is None or count[number] <= last)]
        value = scored.figures(inside).overall["ap"] if inside else None
        objects = sum(count[number] for number in inside)
        parts.append(PartAccuracy(name=name, value=value, images=len(inside), objects=objects))
    return tuple(parts)


def _objects(truth: Mapping[str, Any], images: set[int]) -> Iterable[Mapping[str, Any]]:
    return (annotation for annotation in truth["annotations"] if not annotation["iscrowd"] and annotation["image_id"] in images)


def _groups(scored: CocoAp, image_ids: Sequence[int], *, is_bounded: bool) -> tuple[str | None, tuple[ScoredGroup, ...]]:
    """Return what was computed for each group, and the groups by name: AP for groups of images, recall for groups of annotations.

    False finds belong to no group of annotations, so AP would make the rare group the worse one; recall has no such bias.
    """
    truth, kind = scored.truth, scored.kind
    group_of = {image["id"]: image.get("group") for image in truth["images"]}
    named = {number: str(group_of[number]) for number in image_ids if group_of[number] is not None}
    if named:
        count = lambda ids: sum(1 for _ in _objects(truth, set(ids)))  # noqa: E731 - it has one use
        return kind.metric, tuple(scored_groups(named, scored.ap, count, is_bounded=is_bounded))
    names = {str(annotation["group"]) for annotation in _objects(truth, set(image_ids)) if annotation.get("group") is not None}
    # The area, which picks the members of a group, is part of the similarity of keypoints.
    if names and kind is not KEYPOINTS:
        return RECALL, tuple(_of_annotations(scored, name, image_ids, is_bounded=is_bounded) for name in sorted(names))
    return None, ()


def _of_annotations(scored: CocoAp, name: str, image_ids: Sequence[int], *, is_bounded: bool) -> ScoredGroup:
    def is_member(annotation: Mapping[str, Any]) -> bool:
        return annotation.get("group") is not None and str(annotation["group"]) == name

    members = [annotation for annotation in _objects(scored.truth, set(image_ids)) if is_member(annotation)]
    recall = scored.recall([is_member(annotation) for annotation in scored.truth["annotations"]])
    images = len({annotation["image_id"] for annotation in members})
    part = PartAccuracy(name=name, value=None, images=images, objects=len(members))
    return scored_group(part, recall, image_ids, "images" if is_bounded else None, size=len(members))

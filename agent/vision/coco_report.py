"""Detections of a whole data set become an accuracy: COCO's figures, with bounds, by class, by number of objects and by group."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records
from edgemeter.agent.vision import groups as groups_of
from edgemeter.agent.vision.coco_ap import PARTS, CocoAp
from edgemeter.agent.vision.groups import Group

METRIC = "coco_ap"
RECALL = "coco_ar_100"
# Images by how many objects they show (crowds not counted): name, from, to.
OBJECTS = (("1", 1, 1), ("2-4", 2, 4), ("5-9", 5, 9), ("10+", 10, None))
# Up to so many detections bounds are computed without being asked for: seconds on a Raspberry Pi.
MOST_DETECTIONS = 100_000
FREEDOM = PARTS - 1
INTERVAL = f"95 %, Student's t, standard error by jackknife over {PARTS} parts of the images"

Bounds = Literal["auto", "always", "never"]


def report(
    truth: Mapping[str, Any], rows: NDArray[np.float64], image_ids: Sequence[int], sha256: str, bounds: Bounds = "auto"
) -> records.Accuracy | None:
    """Return the accuracy over these images; None where the truth holds nothing to find in them.

    Args:
        truth: the COCO annotation document as plain data; `group` of images or annotations names the group.
        rows: float64 [n, 7]: image id, x, y, width, height, score, category id.
        image_ids: the images that count, with and without detections.
        sha256: of the data set.
        bounds: whether to compute them; auto: where there are few enough detections for a small board.
    """
    scored = CocoAp(truth, rows)
    found = scored.figures(image_ids)
    value = found.overall["ap"]
    if value is None:
        return None
    is_bounded = bounds == "always" or (bounds == "auto" and len(rows) <= MOST_DETECTIONS)
    error = scored.standard_error(image_ids) if is_bounded else None
    low, high = groups_of.between(value, error, FREEDOM)
    metric, groups = _groups(scored, truth, image_ids, is_bounded=is_bounded)
    return records.Accuracy(
        metric=METRIC,
        value=value,
        images=len(image_ids),
        dataset_sha256=sha256,
        detail={name: figure for name, figure in found.overall.items() if name != "ap"},
        low=low,
        high=high,
        interval=None if error is None else INTERVAL,
        per_class=_per_class(truth, found.by_category, set(image_ids)),
        by_objects=_by_objects(scored, truth, image_ids),
        group_metric=metric,
        groups=tuple(group.part for group in groups),
        group_gap=groups_of.largest_gap(groups, FREEDOM),
    )


def value_only(truth: Mapping[str, Any], rows: NDArray[np.float64], image_ids: Sequence[int], sha256: str) -> records.Accuracy | None:
    """Return COCO's figures alone, as `report` takes its arguments."""
    figures = CocoAp(truth, rows).figures(image_ids).overall
    value = figures.pop("ap")
    return (
        None
        if value is None
        else records.Accuracy(metric=METRIC, value=value, images=len(image_ids), dataset_sha256=sha256, detail=figures)
    )


def _per_class(truth: Mapping[str, Any], by_category: Mapping[int, float | None], images: set[int]) -> tuple[records.PartAccuracy, ...]:
    """Return AP of every category in the order of the document, with its objects (crowds not counted) and the images that show it."""
    objects: Counter[int] = Counter()
    shown: defaultdict[int, set[int]] = defaultdict(set)
    for annotation in _objects(truth, images):
        objects[annotation["category_id"]] += 1
        shown[annotation["category_id"]].add(annotation["image_id"])
    return tuple(
        records.PartAccuracy(
            name=category["name"], value=by_category[category["id"]], images=len(shown[category["id"]]), objects=objects[category["id"]]
        )
        for category in truth["categories"]
    )


def _by_objects(scored: CocoAp, truth: Mapping[str, Any], image_ids: Sequence[int]) -> tuple[records.PartAccuracy, ...]:
    count = Counter(annotation["image_id"] for annotation in _objects(truth, set(image_ids)))
    parts = []
    for name, first, last in OBJECTS:
        inside = [number for number in image_ids if first <= count[number] and (last is None or count[number] <= last)]
        value = scored.figures(inside).overall["ap"] if inside else None
        objects = sum(count[number] for number in inside)
        parts.append(records.PartAccuracy(name=name, value=value, images=len(inside), objects=objects))
    return tuple(parts)


def _objects(truth: Mapping[str, Any], images: set[int]) -> Iterable[Mapping[str, Any]]:
    return (one for one in truth["annotations"] if not one["iscrowd"] and one["image_id"] in images)


def _groups(
    scored: CocoAp, truth: Mapping[str, Any], image_ids: Sequence[int], *, is_bounded: bool
) -> tuple[str | None, tuple[Group, ...]]:
    """Return what was computed for each group, and the groups by name: AP for groups of images, recall for groups of annotations.

    False finds belong to no group of annotations, so AP would make the rare group the worse one; recall has no such bias.
    """
    group_of = {image["id"]: image.get("group") for image in truth["images"]}
    images = [(number, str(group_of[number])) for number in image_ids if group_of[number] is not None]
    if images:
        named = sorted({name for _, name in images})
        return METRIC, tuple(
            _of_images(scored, truth, name, [number for number, its in images if its == name], is_bounded=is_bounded) for name in named
        )
    asked = {str(one["group"]) for one in _objects(truth, set(image_ids)) if one.get("group") is not None}
    if asked:
        return RECALL, tuple(_of_annotations(scored, truth, name, image_ids) for name in sorted(asked))
    return None, ()


def _of_images(scored: CocoAp, truth: Mapping[str, Any], name: str, image_ids: Sequence[int], *, is_bounded: bool) -> Group:
    objects = sum(1 for _ in _objects(truth, set(image_ids)))
    value = scored.figures(image_ids).overall["ap"] if len(image_ids) >= groups_of.SMALLEST_GROUP else None
    error = scored.standard_error(image_ids) if value is not None and is_bounded else None
    return groups_of.group(name, value, error, len(image_ids), objects, FREEDOM)


def _of_annotations(scored: CocoAp, truth: Mapping[str, Any], name: str, image_ids: Sequence[int]) -> Group:
    is_asked = [one.get("group") is not None and str(one["group"]) == name for one in truth["annotations"]]
    inside = set(image_ids)
    members = [one for one, asked in zip(truth["annotations"], is_asked, strict=True) if asked and one["image_id"] in inside]
    members = [one for one in members if not one["iscrowd"]]
    value, error = scored.recall(is_asked, image_ids) if len(members) >= groups_of.SMALLEST_GROUP else (None, None)
    return groups_of.group(name, value, error, len({one["image_id"] for one in members}), len(members), FREEDOM)

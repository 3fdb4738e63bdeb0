"""Detections of a whole data set become an accuracy: COCO's average precision, computed by hotcoco, with bounds, by class and by group."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.statistics import jackknife_error
from edgemeter.agent.contract.record_figures import Accuracy, PartAccuracy
from edgemeter.agent.tasks import groups as groups_of
from edgemeter.agent.tasks.groups import ScoredGroup
from edgemeter.agent.tasks.parts import FREEDOM, PARTS, without_parts

# Our names by hotcoco's.
METRICS: Mapping[str, str] = {
    "AP": "ap",
    "AP50": "ap50",
    "AP75": "ap75",
    "APs": "ap_small",
    "APm": "ap_medium",
    "APl": "ap_large",
    "AR1": "ar_1",
    "AR10": "ar_10",
    "AR100": "ar_100",
    "ARs": "ar_small",
    "ARm": "ar_medium",
    "ARl": "ar_large",
}
# COCO's own sizes have these places in the arrays of an evaluation: all, small, medium, large; the last of 1, 10, 100 detections.
_ALL, _SMALL, _MOST = 0, 1, 2
# Ranges of area that pick annotations by the number in its place. hotcoco keeps ranges apart by their values: all four must differ.
_ASKED = ((0.0, 1e10), (0.5, 1.5), (2.5, 3.5), (3.5, 4.5))


@dataclass(frozen=True, slots=True)
class Figures:
    """COCO's twelve figures by our names, 0..1, and AP by category id; None where there is no object to find."""

    overall: dict[str, float | None]
    by_category: dict[int, float | None]


class CocoAp:
    """Scores the detections of one set of images, whole or in part."""

    def __init__(self, truth: Mapping[str, Any], rows: NDArray[np.float64]) -> None:
        """Take the COCO annotation document and the detections.

        Args:
            truth: the document as plain data; `area` must be there, keys other than COCO's are ignored.
            rows: float64 [n, 7]: image id, x, y, width, height, score, category id of every detection.
        """
        self._hotcoco = _hotcoco()
        self._truth, self._rows = truth, rows
        self._wanted = self._document([annotation["area"] for annotation in truth["annotations"]])
        self._found = self._wanted.load_res(rows)

    def figures(self, image_ids: Sequence[int]) -> Figures:
        """Return the figures over these images; those without detections or without annotations count too."""
        evaluation = self._evaluate(self._wanted, self._found, image_ids)
        # The figures exist only after `summarize`, which prints them; our standard output is the result and nothing else.
        with redirect_stdout(StringIO()):
            evaluation.summarize()
        results = evaluation.get_results()
        precision = evaluation.eval["precision"][:, :, :, _ALL, _MOST]
        by_category = {int(number): _mean(precision[:, :, place]) for place, number in enumerate(evaluation.params.cat_ids)}
        return Figures({ours: _figure(results[theirs]) for theirs, ours in METRICS.items()}, by_category)

    def without_parts(self, image_ids: Sequence[int]) -> tuple[float, ...]:
        """Return AP without one of twenty parts of these images after the other; empty where they are too few to bound it."""
        return without_parts(image_ids, lambda ids: self.figures(ids).overall["ap"])

    def standard_error(self, image_ids: Sequence[int]) -> float | None:
        """Return the standard error of AP over these images, None where they are too few to bound it."""
        return _error(self.without_parts(image_ids))

    def recall(self, annotations: Sequence[bool], image_ids: Sequence[int]) -> tuple[float | None, float | None]:
        """Return AR (100 detections) of the annotations marked, and its standard error; the others are there and not asked for.

        As COCO takes small, medium and large: what is not asked for is ignored, and so is what finds it.
        """
        # The area is replaced by whether it is asked for: the range of "small" then picks these.
        wanted = self._document([1.0 if is_asked else 2.0 for is_asked in annotations])
        found = wanted.load_res(self._rows)

        def recall(ids: Sequence[int]) -> float | None:
            return _mean(self._evaluate(wanted, found, ids, _ASKED).eval["recall"][:, :, _SMALL, _MOST])

        return recall(image_ids), _error(without_parts(image_ids, recall))

    def _document(self, areas: Sequence[float]) -> Any:
        keys = ("image_id", "category_id", "bbox", "iscrowd")
        # Renumbered from 1: an annotation id of 0 reads as "not matched" in COCO's own bookkeeping.
        annotations = [
            {"id": number, "area": area, **{key: annotation[key] for key in keys}}
            for number, (annotation, area) in enumerate(zip(self._truth["annotations"], areas, strict=True), 1)
        ]
        # Only ids: the size of an image takes no part in AP, and where the document leaves it out hotcoco would refuse the image.
        images = [{"id": image["id"]} for image in self._truth["images"]]
        return self._hotcoco.COCO({"images": images, "categories": self._truth["categories"], "annotations": annotations})

    def _evaluate(self, wanted: Any, found: Any, image_ids: Sequence[int], areas: Sequence[tuple[float, float]] = ()) -> Any:
        evaluation = self._hotcoco.COCOeval(wanted, found, "bbox")
        evaluation.params.img_ids = list(image_ids)
        if areas:
            evaluation.params.area_rng = [list(area) for area in areas]
        evaluation.evaluate()
        evaluation.accumulate()
        return evaluation


def _error(values: Sequence[float]) -> float | None:
    """Return the standard error of a figure from its values without one part of the images after the other, None without any.

    Not the bootstrap: images that it draws twice match themselves, which narrows AP's spread, and it takes five times as long. Over 200
    made-up sets of 100 images AP spread by 0.0100: hotcoco's bootstrap gave 0.0073 (84 % of its bounds held), this gives 0.0097 (90 %);
    of 30 images 95 % held.
    """
    return jackknife_error(values) if values else None


def _figure(value: float) -> float | None:
    return None if value < 0 else float(value)


def _mean(values: NDArray[np.float64]) -> float | None:
    """Return the mean of what is defined: COCO marks the rest with -1."""
    defined = values[values > -1]
    return float(defined.mean()) if defined.size else None


def _hotcoco() -> Any:
    try:
        return import_module("hotcoco")
    except ImportError as error:
        raise UnavailableError("COCO average precision needs hotcoco, which is not installed: pip install 'edgemeter[vision]'") from error


METRIC = "coco_ap"
RECALL = "coco_ar_100"
# Images by how many objects they show (crowds not counted): name, from, to.
OBJECTS = (("1", 1, 1), ("2-4", 2, 4), ("5-9", 5, 9), ("10+", 10, None))
# Up to so many detections bounds are computed without being asked for: seconds on a Raspberry Pi.
MOST_DETECTIONS = 100_000
INTERVAL = f"95 %, Student's t, standard error by jackknife over {PARTS} parts of the images"

Bounds = Literal["auto", "always", "never"]


def coco_accuracy(
    truth: Mapping[str, Any], rows: NDArray[np.float64], image_ids: Sequence[int], sha256: str, bounds: Bounds = "auto"
) -> Accuracy | None:
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
    values = scored.without_parts(image_ids) if is_bounded else ()
    error = _error(values)
    low, high = groups_of.between(value, error, FREEDOM)
    metric, groups = _groups(scored, truth, image_ids, is_bounded=is_bounded)
    return Accuracy(
        metric=METRIC,
        value=value,
        images=len(image_ids),
        dataset_sha256=sha256,
        detail={name: figure for name, figure in found.overall.items() if name != "ap"},
        low=low,
        high=high,
        interval=None if error is None else INTERVAL,
        without_parts=values,
        per_class=_per_class(truth, found.by_category, set(image_ids)),
        by_objects=_by_objects(scored, truth, image_ids),
        group_metric=metric,
        groups=tuple(group.part for group in groups),
        group_gap=groups_of.largest_gap(groups, FREEDOM),
    )


def value_only(truth: Mapping[str, Any], rows: NDArray[np.float64], image_ids: Sequence[int], sha256: str) -> Accuracy | None:
    """Return COCO's figures alone, as `report` takes its arguments."""
    figures = CocoAp(truth, rows).figures(image_ids).overall
    value = figures.pop("ap")
    return None if value is None else Accuracy(metric=METRIC, value=value, images=len(image_ids), dataset_sha256=sha256, detail=figures)


def _per_class(truth: Mapping[str, Any], by_category: Mapping[int, float | None], images: set[int]) -> tuple[PartAccuracy, ...]:
    """Return AP of every category in the order of the document, with its objects (crowds not counted) and the images that show it."""
    objects: Counter[int] = Counter()
    shown: defaultdict[int, set[int]] = defaultdict(set)
    for annotation in _objects(truth, images):
        objects[annotation["category_id"]] += 1
        shown[annotation["category_id"]].add(annotation["image_id"])
    return tuple(
        PartAccuracy(
            name=category["name"], value=by_category[category["id"]], images=len(shown[category["id"]]), objects=objects[category["id"]]
        )
        for category in truth["categories"]
    )


def _by_objects(scored: CocoAp, truth: Mapping[str, Any], image_ids: Sequence[int]) -> tuple[PartAccuracy, ...]:
    count = Counter(annotation["image_id"] for annotation in _objects(truth, set(image_ids)))
    parts = []
    for name, first, last in OBJECTS:
        inside = [number for number in image_ids if first <= count[number] and (last is None or count[number] <= last)]
        value = scored.figures(inside).overall["ap"] if inside else None
        objects = sum(count[number] for number in inside)
        parts.append(PartAccuracy(name=name, value=value, images=len(inside), objects=objects))
    return tuple(parts)


def _objects(truth: Mapping[str, Any], images: set[int]) -> Iterable[Mapping[str, Any]]:
    return (one for one in truth["annotations"] if not one["iscrowd"] and one["image_id"] in images)


def _groups(
    scored: CocoAp, truth: Mapping[str, Any], image_ids: Sequence[int], *, is_bounded: bool
) -> tuple[str | None, tuple[ScoredGroup, ...]]:
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


def _of_images(scored: CocoAp, truth: Mapping[str, Any], name: str, image_ids: Sequence[int], *, is_bounded: bool) -> ScoredGroup:
    objects = sum(1 for _ in _objects(truth, set(image_ids)))
    value = scored.figures(image_ids).overall["ap"] if len(image_ids) >= groups_of.SMALLEST_GROUP else None
    error = scored.standard_error(image_ids) if value is not None and is_bounded else None
    return groups_of.scored_group(name, value, error, len(image_ids), objects, FREEDOM)


def _of_annotations(scored: CocoAp, truth: Mapping[str, Any], name: str, image_ids: Sequence[int]) -> ScoredGroup:
    is_asked = [one.get("group") is not None and str(one["group"]) == name for one in truth["annotations"]]
    inside = set(image_ids)
    members = [one for one, asked in zip(truth["annotations"], is_asked, strict=True) if asked and one["image_id"] in inside]
    members = [one for one in members if not one["iscrowd"]]
    value, error = scored.recall(is_asked, image_ids) if len(members) >= groups_of.SMALLEST_GROUP else (None, None)
    return groups_of.scored_group(name, value, error, len({one["image_id"] for one in members}), len(members), FREEDOM)

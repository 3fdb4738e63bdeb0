"""COCO's average precision of boxes, or by hotcoco of masks and keypoints, over a whole data set; with bounds, by class and by group."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.box_matches import BoxMatches
from edgemeter.agent.tasks.item_accuracy import ScoredGroup, largest_gap, scored_group, scored_groups
from edgemeter.agent.tasks.parts import INDEPENDENT, NOT_ASKED, Bounded, Jackknifed, Units

# Our names by hotcoco's.
METRICS: Mapping[str, str] = {
    "AP": "ap", "AP50": "ap50", "AP75": "ap75", "APs": "ap_small", "APm": "ap_medium", "APl": "ap_large",
    "AR1": "ar_1", "AR10": "ar_10", "AR100": "ar_100", "ARs": "ar_small", "ARm": "ar_medium", "ARl": "ar_large",
}  # fmt: skip
# Of keypoints there are no small objects, and 20 detections an image at most.
KEYPOINT_METRICS: Mapping[str, str] = {
    "AP": "ap", "AP50": "ap50", "AP75": "ap75", "APm": "ap_medium", "APl": "ap_large",
    "AR": "ar", "AR50": "ar50", "AR75": "ar75", "ARm": "ar_medium", "ARl": "ar_large",
}  # fmt: skip
METRIC = "coco_ap"
# Boxes as float64 [n, 7]: image id, x, y, width, height, score, category id. Masks and keypoints as COCO's results.
Found = NDArray[np.float64] | Sequence[Mapping[str, Any]]
# Ranges of area that pick annotations by the number in its place. hotcoco keeps ranges apart by their values: all four must differ.
_ASKED = ((0.0, 1e10), (0.5, 1.5), (2.5, 3.5), (3.5, 4.5))
RECALL = "coco_ar_100"
# Images by how many objects they show (crowds not counted): name, from, to.
OBJECTS = (("1", 1, 1), ("2-4", 2, 4), ("5-9", 5, 9), ("10+", 10, None))
# Up to so many detections bounds are computed without being asked for: seconds on a Raspberry Pi.
MOST_DETECTIONS = 300_000
Bounds = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """The compared aspect of an object: our metric, hotcoco's name of it, its figures, and the annotation keys that it needs."""

    metric: str
    of: Literal["bbox", "segm", "keypoints"]
    figures: Mapping[str, str]
    keys: tuple[str, ...] = ()


BOXES = ObjectKind(METRIC, "bbox", METRICS)
MASKS = ObjectKind("coco_mask_ap", "segm", METRICS, ("segmentation",))
KEYPOINTS = ObjectKind("coco_keypoint_ap", "keypoints", KEYPOINT_METRICS, ("keypoints", "num_keypoints"))
# The places of small objects, and of the most detections, in the arrays of an evaluation.
_SMALL, _MOST = 1, -1


@dataclass(frozen=True, slots=True)
class Figures:
    """COCO's twelve figures by our names, 0..1, and AP by category id; None where there is no object to find."""

    overall: dict[str, float | None]
    by_category: dict[int, float | None]


class CocoAp:
    """Scores the detections of one set of images, whole or in part."""

    def __init__(self, truth: Mapping[str, Any], results: Found, kind: ObjectKind = BOXES) -> None:
        """Take the COCO annotation document as plain data, with `area` (keys other than COCO's are ignored), and what was found."""
        self._truth, self._rows, self._kind = truth, results, kind
        if kind is BOXES:
            self._boxes = BoxMatches(truth, np.asarray(results, np.float64).reshape(-1, 7))
            return
        self._hotcoco = _hotcoco()
        self._wanted = self._document([annotation["area"] for annotation in truth["annotations"]])
        self._found = self._load(self._wanted)

    def figures(self, image_ids: Sequence[int]) -> Figures:
        """Return the figures over these images; those without detections or without annotations count too."""
        if self._kind is BOXES:
            overall, by_category = self._boxes.figures(image_ids)
            return Figures(dict(zip(METRICS.values(), overall, strict=True)), by_category)
        evaluation = self._evaluate(self._wanted, self._found, image_ids)
        # The figures exist only after `summarize`, which prints them; our standard output is the result and nothing else.
        with redirect_stdout(StringIO()):
            evaluation.summarize()
        # Not from `eval`, whose arrays take a tenth of the time of the whole evaluation to be handed over.
        results = evaluation.get_results(per_class=True)
        by_category = {number: _figure(results.get(f"AP/{number}", -1.0)) for number in evaluation.params.cat_ids}
        return Figures({name: _figure(results[hotcoco_name]) for hotcoco_name, name in self._kind.figures.items()}, by_category)

    @property
    def ap(self) -> Jackknifed:
        """AP of any of these images."""
        return Jackknifed(lambda image_ids: self.figures(image_ids).overall["ap"])

    def recall(self, annotations: Sequence[bool]) -> Jackknifed:
        """Return AR (100 detections) of the annotations marked, for any of the images; the others are there and not asked for.

        As COCO takes small, medium and large: what is not asked for is ignored, and so is what finds it.
        """
        if self._kind is BOXES:
            return Jackknifed(BoxMatches(self._truth, np.asarray(self._rows, np.float64).reshape(-1, 7), annotations).recall)
        # The area is replaced by whether it is asked for: the range of "small" then picks these.
        truth = self._document([1.0 if is_asked else 2.0 for is_asked in annotations])
        results = self._load(truth)

        def recall(ids: Sequence[int]) -> float | None:
            values = self._evaluate(truth, results, ids, _ASKED).eval["recall"][:, :, _SMALL, _MOST]
            # COCO marks what is not defined with -1.
            defined = values[values > -1]
            return float(defined.mean()) if defined.size else None

        return Jackknifed(recall)

    def _load(self, truth: Any) -> Any:
        # An empty list has no kind, so hotcoco refuses it; no rows of boxes are a list of it without any object.
        return truth.load_res(np.zeros((0, 7)) if len(self._rows) == 0 else self._rows)

    def _document(self, areas: Sequence[float]) -> Any:
        keys = ("image_id", "category_id", "bbox", "iscrowd", *self._kind.keys)
        # Renumbered from 1: an annotation id of 0 reads as "not matched" in COCO's own bookkeeping.
        annotations = [
            {"id": number, "area": area, **{key: annotation[key] for key in keys}}
            for number, (annotation, area) in enumerate(zip(self._truth["annotations"], areas, strict=True), 1)
        ]
        # Only ids: the size of an image takes part in masks alone, and where the document leaves it out hotcoco would refuse the image.
        sides = ("height", "width") if self._kind is MASKS else ()
        images = [{"id": image["id"], **{side: image[side] for side in sides}} for image in self._truth["images"]]
        # Named by their ids, by which the figures of each class are found again: two may have one name.
        categories = [{"id": category["id"], "name": str(category["id"])} for category in self._truth["categories"]]
        return self._hotcoco.COCO({"images": images, "categories": categories, "annotations": annotations})

    def _evaluate(self, truth: Any, results: Any, image_ids: Sequence[int], areas: Sequence[tuple[float, float]] = ()) -> Any:
        evaluation = self._hotcoco.COCOeval(truth, results, self._kind.of)
        evaluation.params.img_ids = list(image_ids)
        if areas:
            evaluation.params.area_rng = [list(area) for area in areas]
        evaluation.evaluate()
        evaluation.accumulate()
        return evaluation


def _figure(value: float) -> float | None:
    return None if value < 0 else float(value)


def mask_code(mask: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the run-length code of a mask, uint8 [height, width], as COCO's results have it."""
    code: dict[str, Any] = _hotcoco().mask.encode(np.asfortranarray(mask))
    return code


def outline_code(outline: Sequence[Sequence[float]] | Mapping[str, Any], height: int, width: int) -> dict[str, Any]:
    """Return the run-length code of an outline: of polygons (pixels of the image), or of a code, whose runs may be a list or a text.

    Raises:
        ValueError: the code does not fill the image.
    """
    hotcoco_mask = _hotcoco().mask
    if isinstance(outline, Mapping) and isinstance(outline["counts"], str):
        return dict(hotcoco_mask.rle_from_string(outline["counts"], height, width))
    code = hotcoco_mask.fr_py_objects(outline, height, width)
    return dict(hotcoco_mask.merge(code) if isinstance(code, list) else code)


def _hotcoco() -> Any:
    return import_extra("hotcoco", "vision", "the average precision of masks and keypoints needs hotcoco, which is not installed")


def coco_accuracy(
    truth: Mapping[str, Any],
    results: Found,
    image_ids: Sequence[int],
    sha256: str,
    bounds: Bounds = "auto",
    kind: ObjectKind = BOXES,
    units: Units = INDEPENDENT,
    parts: Parts = "all",
) -> Accuracy | None:
    """Return the accuracy over these images, with and without detections; None where the truth holds nothing to find in them.

    `truth` is the COCO annotation document as plain data, in which `group` of images or annotations names the group; `sha256` is that of
    the data set. `bounds` are computed by `auto` where there are few enough detections for a small board; `units` by image id.
    """
    scored = CocoAp(truth, results, kind)
    figures = scored.figures(image_ids)
    value = figures.overall.pop("ap")
    if value is None:
        return None
    accuracy = Accuracy(metric=kind.metric, value=value, images=len(image_ids), dataset_sha256=sha256, detail=figures.overall)
    if parts == "value":
        return accuracy
    is_bounded = bounds == "always" or (bounds == "auto" and len(results) <= MOST_DETECTIONS)
    why_none = NOT_ASKED if bounds == "never" else f"more than {MOST_DETECTIONS:,} detections"
    bounded = scored.ap.bounded(image_ids, units) if is_bounded else Bounded(reason=why_none)
    metric, groups = _groups(scored, truth, image_ids, kind, units, is_bounded=is_bounded)
    return msgspec.structs.replace(
        accuracy,
        **bounded.in_record(),
        clusters=units.counted(image_ids),
        per_class=_per_class(truth, figures.by_category, set(image_ids)),
        by_objects=_by_objects(scored, truth, image_ids),
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
    return (annotation for annotation in truth["annotations"] if not annotation["iscrowd"] and annotation["image_id"] in images)


def _groups(
    scored: CocoAp, truth: Mapping[str, Any], image_ids: Sequence[int], kind: ObjectKind, units: Units, *, is_bounded: bool
) -> tuple[str | None, tuple[ScoredGroup, ...]]:
    """Return what was computed for each group, and the groups by name: AP for groups of images, recall for groups of annotations.

    False finds belong to no group of annotations, so AP would make the rare group the worse one; recall has no such bias.
    """
    group_of = {image["id"]: image.get("group") for image in truth["images"]}
    named = {number: str(group_of[number]) for number in image_ids if group_of[number] is not None}
    if named:
        count = lambda ids: sum(1 for _ in _objects(truth, set(ids)))  # noqa: E731 - it has one use
        return kind.metric, tuple(scored_groups(named, scored.ap, count, units=units, is_bounded=is_bounded))
    names = {str(annotation["group"]) for annotation in _objects(truth, set(image_ids)) if annotation.get("group") is not None}
    # The area, which picks the members of a group, is part of the similarity of keypoints.
    if names and kind is not KEYPOINTS:
        return RECALL, tuple(_of_annotations(scored, truth, name, image_ids, units if is_bounded else None) for name in sorted(names))
    return None, ()


def _of_annotations(scored: CocoAp, truth: Mapping[str, Any], name: str, image_ids: Sequence[int], units: Units | None) -> ScoredGroup:
    def is_member(annotation: Mapping[str, Any]) -> bool:
        return annotation.get("group") is not None and str(annotation["group"]) == name

    members = [annotation for annotation in _objects(truth, set(image_ids)) if is_member(annotation)]
    recall = scored.recall([is_member(annotation) for annotation in truth["annotations"]])
    images = len({annotation["image_id"] for annotation in members})
    part = PartAccuracy(name=name, value=None, images=images, objects=len(members))
    return scored_group(part, recall, image_ids, units, size=len(members))

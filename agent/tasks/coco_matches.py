"""COCO's average precision: detections are matched with the objects once.

The figures over any of the images are then counts of matches. The figures equal those of
pycocotools, which matches anew for every threshold, range of area and set of images. Here one
integer holds a bit for each of the ten thresholds in each range of area, so that one pass over the
candidates matches at all of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.tasks import similarity
from edgemeter.agent.tasks.average_precision import (
    ALL,
    IOU_THRESHOLDS,
    LOOSE,
    STEPS,
    STRICT,
    AnnotatedObjects,
    AreaRange,
    Bits,
    CountedDetections,
    Matches,
)
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.tasks.similarity import Annotations, Compared, Flags, Floats, Integers, spread

# Source: pycocotools' `Params`.
AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
# By the number of thresholds that an overlap passes, their bits.
_PASSED = np.array([(1 << count) - 1 for count in range(STEPS + 1)], np.uint64)
# Ids further apart are looked up by binary search, not in a table.
_LARGEST_TABLE = 1 << 22


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """The compared aspect of an object.

    It has our metric, its key in COCO's documents, and the figures in COCO's order. Each of the
    `recalls` has the most detections of a class in an image that count, and its thresholds; `areas`
    are ranges in pixels.
    """

    metric: str
    key: str
    compared: Callable[[Floats, Sequence[Any], Annotations], Compared]
    figures: Sequence[str]
    recalls: Sequence[tuple[int, slice]] = ((1, ALL), (10, ALL), (100, ALL))
    areas: Sequence[tuple[float, float]] = AREAS


METRICS = (
    "ap",
    "ap50",
    "ap75",
    "ap_small",
    "ap_medium",
    "ap_large",
    "ar_1",
    "ar_10",
    "ar_100",
    "ar_small",
    "ar_medium",
    "ar_large",
)
KEYPOINT_METRICS = (
    "ap",
    "ap50",
    "ap75",
    "ap_medium",
    "ap_large",
    "ar",
    "ar50",
    "ar75",
    "ar_medium",
    "ar_large",
)
BOXES = ObjectKind("coco_ap", "bbox", similarity.compared_boxes, METRICS)
MASKS = ObjectKind("coco_mask_ap", "segmentation", similarity.compared_masks, METRICS)
# COCO has no keypoints of small objects.
_RECALLS_OF_20, _LARGER = ((20, ALL), (20, LOOSE), (20, STRICT)), (AREAS[0], *AREAS[2:])
KEYPOINTS = ObjectKind(
    "coco_keypoint_ap",
    "keypoints",
    similarity.compared_keypoints,
    KEYPOINT_METRICS,
    _RECALLS_OF_20,
    _LARGER,
)


@dataclass(frozen=True, slots=True)
class Figures:
    """COCO's figures by our names, 0..1, and AP by category id; None without objects."""

    overall: dict[str, float | None]
    by_category: dict[int, float | None]


@dataclass(frozen=True, slots=True)
class _Overlaps:
    """Candidate matches: detections, and the objects that they overlap.

    A detection is given by its position in the counting order and its rank in the pair.
    """

    position: Integers
    rank: Integers
    target: Integers
    iou: Floats


class CocoAp:
    """Scores the detections of one set of images, whole or in part."""

    def __init__(
        self,
        truth: Mapping[str, Any],
        rows: Floats,
        kind: ObjectKind = BOXES,
        shapes: Sequence[Any] = (),
    ) -> None:
        """Take COCO's annotation document as plain data, with `area`.

        `rows` and `shapes` are the detections, as in `compared_boxes`.
        """
        self.truth, self.rows, self.kind, self._shapes, self._most = (
            truth,
            rows,
            kind,
            shapes,
            kind.recalls[-1][0],
        )
        compared = kind.compared(rows, shapes, truth["annotations"])
        self._images = np.unique(np.array([image["id"] for image in truth["images"]], np.int64))
        self._categories = np.unique(
            np.array([category["id"] for category in truth["categories"]], np.int64)
        )
        self._objects = self._read(truth["annotations"], compared.is_ignored)
        image, category = (
            _positions(self._images, rows[:, 0]),
            _positions(self._categories, rows[:, 6]),
        )
        order = _counting_order(image, category, rows[:, 5])
        is_inside = (image < len(self._images)) & (category < len(self._categories))
        if not is_inside.all():
            order = order[is_inside[order]]
        by_pair, pair = self._by_pair(image[order], category[order])
        is_beyond = pair[self._most :] == pair[: -self._most]
        if is_beyond.any():
            order = np.delete(order, by_pair[self._most :][is_beyond])
            by_pair, pair = self._by_pair(image[order], category[order])
        self._detections = CountedDetections(
            image[order].astype(np.intp), category[order], self._in_areas(compared.area[order])
        )
        self._order, self._overlaps = (
            order,
            _overlapping(self._objects, compared, order, by_pair, pair),
        )
        self._matches = self._matched(self._overlaps)

    def figures(self, image_ids: Sequence[int]) -> Figures:
        """Return the figures over these images.

        Images without detections or annotations are included.
        """
        is_inside = self._inside(image_ids)
        all_sizes = self._all_sizes.counted(is_inside)
        sizes = [
            self._in_range(number).counted(is_inside) for number in range(1, len(self.kind.areas))
        ]
        overall = [
            *(all_sizes.ap(threshold) for threshold in (ALL, LOOSE, STRICT)),
            *(size.ap() for size in sizes),
        ]
        overall += [
            *(all_sizes.ar(*recall) for recall in self.kind.recalls),
            *(size.ar(self._most) for size in sizes),
        ]
        by_category = (
            np.ascontiguousarray(all_sizes.precision.swapaxes(1, 2))
            .mean(axis=-1)
            .mean(axis=0)
            .tolist()
        )
        numbers = self._categories.tolist(), self._categories[all_sizes.objects > 0].tolist()
        values = dict.fromkeys(numbers[0]) | dict(zip(numbers[1], by_category, strict=True))
        return Figures(dict(zip(self.kind.figures, overall, strict=True)), values)

    @property
    def ap(self) -> Jackknifed:
        """AP of any of these images."""
        return Jackknifed(lambda image_ids: self._all_sizes.counted(self._inside(image_ids)).ap())

    def votes(self) -> dict[int, Counter[int]]:
        """Return how often each category is detected as each other.

        The keys are the category of the best detection on an object, then that of the object. The
        overlap is at least a half. Detections are matched whatever their category, so that
        exchanged categories show.
        """
        truth = {
            **self.truth,
            "categories": [{"id": 0}],
            "annotations": [{**each, "category_id": 0} for each in self.truth["annotations"]],
        }
        kind = BOXES if self.rows[:, 3:5].any() else self.kind
        classless = CocoAp(
            truth, np.column_stack([self.rows[:, :6], np.zeros(len(self.rows))]), kind, self._shapes
        )
        overlaps, objects = classless._overlaps, classless._objects
        by_object = np.lexsort((overlaps.position, overlaps.target))
        targets, first = np.unique(overlaps.target[by_object], return_index=True)
        detected = (
            self.rows[classless._order[overlaps.position[by_object][first]], 6].astype(int).tolist()
        )
        votes: dict[int, Counter[int]] = {}
        for category, index, is_crowd in zip(
            detected, objects.index[targets].tolist(), objects.is_crowd[targets], strict=True
        ):
            if not is_crowd:
                votes.setdefault(category, Counter())[
                    self.truth["annotations"][index]["category_id"]
                ] += 1
        return votes

    def _read(self, annotations: Annotations, is_ignored: Flags) -> AnnotatedObjects:
        image, category, area, is_crowd = (
            np.fromiter(map(itemgetter(key), annotations), dtype, len(annotations))
            for key, dtype in (
                ("image_id", np.int64),
                ("category_id", np.int64),
                ("area", np.float64),
                ("iscrowd", bool),
            )
        )
        image, category = _positions(self._images, image), _positions(self._categories, category)
        counts = self._in_areas(area) & ~is_ignored
        order = np.lexsort((category, image))
        order = order[
            (image[order] < len(self._images)) & (category[order] < len(self._categories))
        ]
        image, category = image[order], category[order]
        return AnnotatedObjects(
            order, image, category, self._pair(image, category), is_crowd[order], counts[:, order]
        )

    def _in_areas(self, area: Floats) -> Flags:
        return np.stack([~((area < low) | (area > high)) for low, high in self.kind.areas])

    def _pair(self, image: Integers, category: Integers) -> Integers:
        return image.astype(np.int64) * len(self._categories) + category

    def _by_pair(self, image: Integers, category: Integers) -> tuple[Integers, Integers]:
        """Return the detections sorted by pair, and their pairs.

        The detections are given by their positions in the counting order.
        """
        by_pair = np.argsort(image, kind="stable")
        return by_pair, self._pair(image[by_pair], category[by_pair])

    def _matched(self, overlaps: _Overlaps) -> Matches:
        """Match detections with objects as COCO does.

        The best detection of each pair of image and category comes first. A detection takes the
        object that it overlaps most, of equal ones the later. It takes an ignored object only if no
        other is left. A crowd matches any number of detections.
        """
        objects, ranges = self._objects, len(self.kind.areas)
        detection = np.cumsum(np.diff(overlaps.position, prepend=-1) != 0) - 1
        target, position = overlaps.target, overlaps.position
        passed = _repeated(
            _PASSED[np.searchsorted(IOU_THRESHOLDS, overlaps.iou, side="right")],
            np.ones((ranges, 1), bool),
        )
        counting = _repeated(_PASSED[-1:], objects.counts)[target]
        is_several = np.bincount(detection)[detection] > 1
        only, several = np.flatnonzero(~is_several), np.flatnonzero(is_several)
        several = several[
            np.lexsort((-target[several], -overlaps.iou[several], detection[several]))
        ]
        # A detection on several objects comes twice, first for the objects that count, then for the
        # ignored ones.
        edge = np.concatenate([only, several, several])
        allowed = np.concatenate(
            [
                passed[only],
                passed[several] & counting[several],
                passed[several] & ~counting[several],
            ]
        )
        by_detection = np.argsort(detection[edge], kind="stable")
        edge, allowed = edge[by_detection], allowed[by_detection]
        matched = _match_greedily(
            detection[edge], target[edge], objects.pair[target[edge]], allowed, objects.is_crowd
        )
        edge, matched = edge[matched > 0], matched[matched > 0]
        by_position = np.argsort(position[edge])
        edge, matched = edge[by_position], matched[by_position]
        hits, ignored = matched & counting[edge], matched & ~counting[edge]
        in_range = _repeated(_PASSED[-1:], self._detections.counts[:, position[edge]])
        return Matches(
            position[edge], overlaps.rank[edge], hits, hits & ~in_range, ignored & in_range
        )

    @cached_property
    def _all_sizes(self) -> AreaRange:
        return self._in_range(0)

    def _in_range(self, number: int) -> AreaRange:
        return AreaRange(
            self._objects, self._detections, self._matches, len(self._categories), number
        )

    def _inside(self, image_ids: Sequence[int]) -> Flags:
        return np.isin(self._images, np.asarray(image_ids))


def _positions(ids: Integers, values: NDArray[Any]) -> Integers:
    """Return the position of each value among ascending ids.

    It is the number of ids if the value is none of them. A small type sorts faster.
    """
    positions = np.arange(len(ids), dtype=np.min_scalar_type(len(ids)))
    if not len(ids) or ids[-1] - ids[0] >= _LARGEST_TABLE:
        nearest = np.searchsorted(ids, values)
        is_id = np.append(ids, -1)[nearest] == values
        return np.where(is_id, nearest, len(ids)).astype(positions.dtype)
    span = int(ids[-1] - ids[0]) + 1
    table = np.full(span + 1, len(ids), positions.dtype)
    table[ids - ids[0]] = positions
    return np.asarray(table[np.clip(values - ids[0], -1, span).astype(np.intp)])


def _counting_order(image: Integers, category: Integers, score: Floats) -> Integers:
    """Return COCO's counting order: by category, score (highest first), image and row.

    Stable sorts by 16 bits, the least significant first, take half the time of a sort by scores.
    """
    descending = 0.0 - score
    descending[np.isnan(descending)] = np.inf
    bits = descending.view(np.int64)
    # The bits of negative numbers descend.
    ascending = (
        (bits ^ ((bits >> 63) | np.iinfo(np.int64).min)).astype("<i8").view("<u2").reshape(-1, 4)
    )
    order = np.argsort(image, kind="stable")
    for values in (*np.ascontiguousarray(ascending.T), category):
        order = order[np.argsort(values[order], kind="stable")]
    return order


def _overlapping(
    objects: AnnotatedObjects,
    compared: Compared,
    order: Integers,
    by_pair: Integers,
    pair: Integers,
) -> _Overlaps:
    """Return the overlaps of at least the lowest threshold, in the order of `by_pair`."""
    pairs, first_object, object_counts = np.unique(
        objects.pair, return_index=True, return_counts=True
    )
    first, end = np.searchsorted(pair, pairs), np.searchsorted(pair, pairs, side="right")
    counts = end - first
    rank = spread(np.zeros_like(counts), counts)
    position = by_pair[rank + np.repeat(first, counts)]
    first_object, object_counts = np.repeat(first_object, counts), np.repeat(object_counts, counts)
    batch = np.cumsum(object_counts) // compared.batch
    bounds = [0, *(np.flatnonzero(np.diff(batch)) + 1).tolist(), len(position)]
    edges = []
    for begin, stop in pairwise(bounds):
        target = spread(first_object[begin:stop], object_counts[begin:stop])
        detection = np.repeat(np.arange(begin, stop), object_counts[begin:stop])
        iou = compared.similarity(order[position[detection]], objects.index[target])
        enough = np.flatnonzero(iou >= IOU_THRESHOLDS[0])
        edges.append((detection[enough], target[enough], iou[enough]))
    detection, target, iou = (np.concatenate(parts) for parts in zip(*edges, strict=True))
    return _Overlaps(position[detection], rank[detection], target, iou)


def _match_greedily(
    detection: Integers, target: Integers, pair: Integers, allowed: Bits, is_crowd: Flags
) -> Bits:
    """Return the bits at which each candidate becomes a match.

    They are those allowed at which neither its detection nor its object is used yet. Detections A
    and B (A has the higher score) overlap one object; the bits are the thresholds 0.60, 0.55 and
    0.50:

        candidate   overlap  allowed  object used  match
        A - object    0.52     001        000       001
        B - object    0.63     111        001       110

    B gets the object at 0.55 and 0.60, because A has it at 0.50. Pairs of image and category do not
    affect each other: so the first candidates of all pairs are decided together, as arrays, in the
    next round all second ones, and so on.
    """
    candidates = np.arange(len(pair))
    first_of_pair = np.maximum.accumulate(np.where(np.diff(pair, prepend=-1) != 0, candidates, 0))
    round_of_match = candidates - first_of_pair
    by_round = np.argsort(round_of_match.astype(np.min_scalar_type(len(pair))), kind="stable")
    detection, target, allowed = detection[by_round], target[by_round], allowed[by_round]
    object_used = np.zeros(len(is_crowd), np.uint64)
    detection_used = np.zeros(len(pair), np.uint64)
    # A crowd is never used up.
    exclusive = np.where(is_crowd, np.uint64(0), ~np.uint64(0))[target]
    matched = np.zeros(len(pair), np.uint64)
    begin = 0
    for end in np.cumsum(np.bincount(round_of_match)).tolist():
        objects, detections = target[begin:end], detection[begin:end]
        bits = allowed[begin:end] & ~(object_used[objects] | detection_used[detections])
        object_used[objects] |= bits & exclusive[begin:end]
        detection_used[detections] |= bits
        matched[by_round[begin:end]] = bits
        begin = end
    return matched


def _repeated(bits: Bits, ranges: Flags) -> Bits:
    """Return `bits`, repeated in each range of area in which they hold, `ranges` [range, n]."""
    repeated = np.zeros(np.broadcast_shapes(bits.shape, ranges.shape[1:]), np.uint64)
    for number, is_in_range in enumerate(ranges):
        repeated |= np.where(is_in_range, bits << np.uint64(number * STEPS), np.uint64(0))
    return repeated

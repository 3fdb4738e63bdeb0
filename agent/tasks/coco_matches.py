"""COCO's average precision: detections are matched with the objects once; the figures over any of the images are then counts of matches.

The figures equal those of pycocotools, which matches anew for every threshold, range of area and set of images. Here one integer holds a
bit for each of the ten thresholds in each range of area, so that one pass over the candidates matches at all of them. Precision is computed
only at matches, because it is highest there.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.tasks import similarity
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.tasks.similarity import Annotations, Compared, Flags, Floats, Integers, spread

# Source: pycocotools' `Params`.
IOU_THRESHOLDS, RECALL_THRESHOLDS = np.linspace(0.5, 0.95, 10), np.linspace(0.0, 1.0, 101)
AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
ALL, LOOSE, STRICT = slice(None), slice(0, 1), slice(5, 6)
_STEPS = len(IOU_THRESHOLDS)
# By the number of thresholds that an overlap passes, their bits.
_PASSED = np.array([(1 << count) - 1 for count in range(_STEPS + 1)], np.uint64)
# Ids further apart are looked up by binary search, not in a table.
_LARGEST_TABLE = 1 << 22

Bits = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """The compared aspect of an object: our metric, its key in COCO's documents, and the figures in COCO's order.

    Each of the `recalls` has the most detections of a class in an image that count, and its thresholds; `areas` are ranges in pixels.
    """

    metric: str
    key: str
    compared: Callable[[Floats, Sequence[Any], Annotations], Compared]
    figures: Sequence[str]
    recalls: Sequence[tuple[int, slice]] = ((1, ALL), (10, ALL), (100, ALL))
    areas: Sequence[tuple[float, float]] = AREAS


METRICS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar_1", "ar_10", "ar_100", "ar_small", "ar_medium", "ar_large")
KEYPOINT_METRICS = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar", "ar50", "ar75", "ar_medium", "ar_large")
BOXES = ObjectKind("coco_ap", "bbox", similarity.compared_boxes, METRICS)
MASKS = ObjectKind("coco_mask_ap", "segmentation", similarity.compared_masks, METRICS)
# COCO has no keypoints of small objects.
_RECALLS_OF_20, _LARGER = ((20, ALL), (20, LOOSE), (20, STRICT)), (AREAS[0], *AREAS[2:])
KEYPOINTS = ObjectKind("coco_keypoint_ap", "keypoints", similarity.compared_keypoints, KEYPOINT_METRICS, _RECALLS_OF_20, _LARGER)


@dataclass(frozen=True, slots=True)
class Figures:
    """COCO's figures by our names, 0..1, and AP by category id; None without objects."""

    overall: dict[str, float | None]
    by_category: dict[int, float | None]


@dataclass(frozen=True, slots=True)
class _Objects:
    """The annotations, sorted by image and category; `index` is their index in the document.

    `counts` [range, object] is false where COCO ignores the object.
    """

    index: Integers
    image: Integers
    category: Integers
    pair: Integers
    is_crowd: Flags
    counts: Flags


@dataclass(frozen=True, slots=True)
class _Overlaps:
    """Candidate matches: detections, by their position in the counting order and their rank in the pair, and the objects they overlap."""

    position: Integers
    rank: Integers
    target: Integers
    iou: Floats


@dataclass(frozen=True, slots=True)
class _Matches:
    """Matches in the counting order. A detection counts in the ranges of its area, unless its match says otherwise.

    `hits` are the bits at which it matches an object that counts. At bits of `added` it counts because of a hit, although its area lies
    outside the range; at bits of `removed` it does not count, because its object is ignored.
    """

    position: Integers
    rank: Integers
    hits: Bits
    added: Bits
    removed: Bits

    def at(self, indices: Integers) -> "_Matches":
        """Return these matches alone."""
        return _Matches(self.position[indices], self.rank[indices], self.hits[indices], self.added[indices], self.removed[indices])


@dataclass(frozen=True, slots=True)
class _Counts:
    """In a range of area: objects [category], hits [threshold, category] by the most detections that count, and precision.

    Precision is [threshold, category, recall].
    """

    objects: Integers
    hits: Mapping[int, Integers]
    precision: Floats

    def ap(self, threshold: slice = ALL) -> float | None:
        """Return AP over the categories with objects, summed in the order of pycocotools: the same to the last digit."""
        return _mean(self.precision[threshold, self.objects > 0].swapaxes(1, 2).ravel())

    def ar(self, cut: int, threshold: slice = ALL) -> float | None:
        """Return the recall over the categories with objects, where `cut` detections count at most."""
        return _mean(self.hits[cut][threshold, self.objects > 0] / self.objects[self.objects > 0])


class CocoAp:
    """Scores the detections of one set of images, whole or in part."""

    def __init__(
        self,
        truth: Mapping[str, Any],
        rows: Floats,
        kind: ObjectKind = BOXES,
        shapes: Sequence[Any] = (),
    ) -> None:
        """Take COCO's annotation document as plain data, with `area`; `rows` and `shapes` are the detections, as in `compared_boxes`."""
        self.truth, self.rows, self.kind, self._shapes, self._most = truth, rows, kind, shapes, kind.recalls[-1][0]
        compared = kind.compared(rows, shapes, truth["annotations"])
        self._images = np.unique(np.array([image["id"] for image in truth["images"]], np.int64))
        self._categories = np.unique(np.array([category["id"] for category in truth["categories"]], np.int64))
        self._objects = self._read(truth["annotations"], compared.is_ignored)
        image, category = _positions(self._images, rows[:, 0]), _positions(self._categories, rows[:, 6])
        order = _counting_order(image, category, rows[:, 5])
        is_inside = (image < len(self._images)) & (category < len(self._categories))
        if not is_inside.all():
            order = order[is_inside[order]]
        by_pair, pair = self._by_pair(image[order], category[order])
        is_beyond = pair[self._most :] == pair[: -self._most]
        if is_beyond.any():
            order = np.delete(order, by_pair[self._most :][is_beyond])
            by_pair, pair = self._by_pair(image[order], category[order])
        self._image, self._category = image[order], category[order]
        self._counts = self._in_areas(compared.area[order])
        self._order, self._overlaps = order, _overlapping(self._objects, compared, order, by_pair, pair)
        self._matches = self._matched(self._overlaps)

    def figures(self, image_ids: Sequence[int]) -> Figures:
        """Return the figures over these images, including images without detections or annotations."""
        all_sizes, *sizes = self._counted(image_ids)
        overall = [*(all_sizes.ap(threshold) for threshold in (ALL, LOOSE, STRICT)), *(size.ap() for size in sizes)]
        overall += [*(all_sizes.ar(*recall) for recall in self.kind.recalls), *(size.ar(self._most) for size in sizes)]
        by_category = zip(
            self._categories.tolist(), all_sizes.precision.mean(axis=-1).mean(axis=0).tolist(), all_sizes.objects.tolist(), strict=True
        )
        values = {number: value if objects else None for number, value, objects in by_category}
        return Figures(dict(zip(self.kind.figures, overall, strict=True)), values)

    @property
    def ap(self) -> Jackknifed:
        """AP of any of these images."""
        return Jackknifed(lambda image_ids: self.figures(image_ids).overall["ap"])

    def votes(self) -> dict[int, Counter[int]]:
        """Return how often each category is detected as each other: by the category of the best detection on an object, that of the object.

        The overlap is at least a half. Detections are matched whatever their category, so that exchanged categories show.
        """
        truth = {**self.truth, "categories": [{"id": 0}], "annotations": [{**each, "category_id": 0} for each in self.truth["annotations"]]}
        kind = BOXES if self.rows[:, 3:5].any() else self.kind
        classless = CocoAp(truth, np.column_stack([self.rows[:, :6], np.zeros(len(self.rows))]), kind, self._shapes)
        overlaps, objects = classless._overlaps, classless._objects
        by_object = np.lexsort((overlaps.position, overlaps.target))
        targets, first = np.unique(overlaps.target[by_object], return_index=True)
        detected = self.rows[classless._order[overlaps.position[by_object][first]], 6].astype(int).tolist()
        votes: dict[int, Counter[int]] = {}
        for category, index, is_crowd in zip(detected, objects.index[targets].tolist(), objects.is_crowd[targets], strict=True):
            if not is_crowd:
                votes.setdefault(category, Counter())[self.truth["annotations"][index]["category_id"]] += 1
        return votes

    def _read(self, annotations: Annotations, is_ignored: Flags) -> _Objects:
        image, category, area, is_crowd = (
            np.fromiter(map(itemgetter(key), annotations), dtype, len(annotations))
            for key, dtype in (("image_id", np.int64), ("category_id", np.int64), ("area", np.float64), ("iscrowd", bool))
        )
        image, category = _positions(self._images, image), _positions(self._categories, category)
        counts = self._in_areas(area) & ~is_ignored
        order = np.lexsort((category, image))
        order = order[(image[order] < len(self._images)) & (category[order] < len(self._categories))]
        image, category = image[order], category[order]
        return _Objects(order, image, category, self._pair(image, category), is_crowd[order], counts[:, order])

    def _in_areas(self, area: Floats) -> Flags:
        return np.stack([~((area < low) | (area > high)) for low, high in self.kind.areas])

    def _pair(self, image: Integers, category: Integers) -> Integers:
        return image.astype(np.int64) * len(self._categories) + category

    def _by_pair(self, image: Integers, category: Integers) -> tuple[Integers, Integers]:
        """Return the positions in the counting order of the detections sorted by pair, and their pairs."""
        by_pair = np.argsort(image, kind="stable")
        return by_pair, self._pair(image[by_pair], category[by_pair])

    def _matched(self, overlaps: _Overlaps) -> _Matches:
        """Match detections with objects as COCO does, the best detection of each pair of image and category first.

        A detection takes the object that it overlaps most, of equal ones the later. It takes an ignored object only if no other is left.
        A crowd matches any number of detections.
        """
        objects, ranges = self._objects, len(self._counts)
        detection = np.cumsum(np.diff(overlaps.position, prepend=-1) != 0) - 1
        target, position = overlaps.target, overlaps.position
        passed = _repeated(_PASSED[np.searchsorted(IOU_THRESHOLDS, overlaps.iou, side="right")], np.ones((ranges, 1), bool))
        counting = _repeated(_PASSED[-1:], objects.counts)[target]
        is_several = np.bincount(detection)[detection] > 1
        only, several = np.flatnonzero(~is_several), np.flatnonzero(is_several)
        several = several[np.lexsort((-target[several], -overlaps.iou[several], detection[several]))]
        # A detection on several objects comes twice, first for the objects that count, then for the ignored ones.
        edge = np.concatenate([only, several, several])
        allowed = np.concatenate([passed[only], passed[several] & counting[several], passed[several] & ~counting[several]])
        by_detection = np.argsort(detection[edge], kind="stable")
        edge, allowed = edge[by_detection], allowed[by_detection]
        matched = _match_greedily(detection[edge], target[edge], objects.pair[target[edge]], allowed, objects.is_crowd)
        edge, matched = edge[matched > 0], matched[matched > 0]
        by_position = np.argsort(position[edge])
        edge, matched = edge[by_position], matched[by_position]
        hits, ignored = matched & counting[edge], matched & ~counting[edge]
        in_range = _repeated(_PASSED[-1:], self._counts[:, position[edge]])
        return _Matches(position[edge], overlaps.rank[edge], hits, hits & ~in_range, ignored & in_range)

    def _counted(self, image_ids: Sequence[int]) -> list[_Counts]:
        is_inside = np.isin(self._images, np.asarray(image_ids))
        is_object, is_detection = is_inside[self._objects.image], is_inside[self._image]
        matches = self._matches.at(np.flatnonzero(is_detection[self._matches.position]))
        return [
            self._in_range(matches, number, self._objects.category[is_object & objects], is_detection & detections)
            for number, (objects, detections) in enumerate(zip(self._objects.counts, self._counts, strict=True))
        ]

    def _in_range(self, matches: _Matches, number: int, objects: Integers, is_counted: Flags) -> _Counts:
        """Return the counts in range `number` of area; `objects` are the categories of its objects, `is_counted` looks at areas only."""
        position, categories = matches.position, np.arange(len(self._categories))
        hits, added, removed = (_unpacked(bits, number) for bits in (matches.hits, matches.added, matches.removed))
        # The number of detections up to each that count by their area, and its change up to each match.
        by_area = np.zeros(len(is_counted) + 1, np.int32)
        np.cumsum(is_counted, out=by_area[1:])
        by_match = np.zeros((_STEPS, len(position) + 1), np.int32)
        np.cumsum(added - removed, axis=1, dtype=np.int32, out=by_match[:, 1:])
        threshold, match = np.divmod(np.flatnonzero(hits), max(len(position), 1))
        category = self._category[position]
        before = by_area[np.searchsorted(self._category, categories)] + by_match[:, np.searchsorted(category, categories)]
        segment = threshold * len(categories) + category[match]
        counted = by_area[position[match] + 1] + by_match[threshold, match + 1] - before.ravel()[segment]
        hit_counts = {
            cut: np.bincount(segment[matches.rank[match] < cut], minlength=before.size).reshape(before.shape)
            for cut in {cut for cut, _ in self.kind.recalls}
        }
        object_counts = np.bincount(objects, minlength=len(categories))
        return _Counts(object_counts, hit_counts, _precision(segment, counted, hit_counts[self._most], object_counts))


def _positions(ids: Integers, values: NDArray[Any]) -> Integers:
    """Return the position of each value among ascending ids, or the number of ids if it is none; a small type sorts faster."""
    positions = np.arange(len(ids), dtype=np.min_scalar_type(len(ids)))
    if not len(ids) or ids[-1] - ids[0] >= _LARGEST_TABLE:
        nearest = np.searchsorted(ids, values)
        is_id = np.append(ids, -1)[nearest] == values
        return np.where(is_id, nearest, len(ids)).astype(positions.dtype)
    span = int(ids[-1] - ids[0]) + 1
    table = np.full(span + 1, len(ids), positions.dtype)
    table[ids - ids[0]] = positions
    nearby: Integers = table[np.clip(values - ids[0], -1, span).astype(np.intp)]
    return nearby


def _counting_order(image: Integers, category: Integers, score: Floats) -> Integers:
    """Return COCO's counting order: by category, score (highest first), image and row."""
    negative = -score
    order = np.argsort(negative)
    negative = negative[order]
    is_tied = negative[1:] == negative[:-1]
    tied = np.flatnonzero(np.append(is_tied, False) | np.append(False, is_tied))
    if len(tied):
        run = np.cumsum(np.append(False, ~is_tied))[tied]
        order[tied] = order[tied][np.lexsort((order[tied], image[order[tied]], run))]
    return order[np.argsort(category[order], kind="stable")]


def _overlapping(objects: _Objects, compared: Compared, order: Integers, by_pair: Integers, pair: Integers) -> _Overlaps:
    """Return the overlaps of at least the lowest threshold, in the order of `by_pair`."""
    pairs, first_object, object_counts = np.unique(objects.pair, return_index=True, return_counts=True)
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


def _match_greedily(detection: Integers, target: Integers, pair: Integers, allowed: Bits, is_crowd: Flags) -> Bits:
    """Return the bits at which each candidate becomes a match: those allowed at which neither its detection nor its object is used yet.

    Detections A and B (A has the higher score) overlap one object; the bits are the thresholds 0.60, 0.55 and 0.50:

        candidate   overlap  allowed  object used  match
        A - object    0.52     001        000       001
        B - object    0.63     111        001       110

    B gets the object at 0.55 and 0.60, because A has it at 0.50. Pairs of image and category do not affect each other: so the first
    candidates of all pairs are decided together, as arrays, in the next round all second ones, and so on.
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


def _precision(segment: Integers, counted: Integers, hits: Integers, objects: Integers) -> Floats:
    """Return precision [threshold, category, recall]: the best at this recall or a higher one, 0 if the recall is not reached."""
    ends = np.cumsum(hits).reshape(hits.shape)
    starts = ends - hits
    precision = (np.arange(1, len(segment) + 1) - starts.ravel()[segment]) / (counted + np.spacing(1))
    count = np.maximum(objects, 1)[:, np.newaxis].astype(np.float64)
    # The fewest hits that reach each recall. COCO divides; a product may be off by one, so it is corrected.
    least = np.ceil(RECALL_THRESHOLDS * count)
    least -= (least - 1) / count >= RECALL_THRESHOLDS
    least += least / count < RECALL_THRESHOLDS
    least = np.maximum(least, 1).astype(np.intp)
    # If a recall is not reached, its hit is the first of the next category, and its precision 0.
    hit = np.minimum((starts - 1)[..., np.newaxis] + least, ends[..., np.newaxis])
    interpolated = np.maximum.reduceat(np.append(precision, 0.0), hit.ravel()).reshape(hit.shape) * (hit < ends[..., np.newaxis])
    best: Floats = np.maximum.accumulate(interpolated[..., ::-1], axis=-1)[..., ::-1]
    return best


def _repeated(bits: Bits, ranges: Flags) -> Bits:
    """Return `bits`, repeated in each range of area in which they hold, `ranges` [range, n]."""
    repeated = np.zeros(np.broadcast_shapes(bits.shape, ranges.shape[1:]), np.uint64)
    for number, is_in_range in enumerate(ranges):
        repeated |= np.where(is_in_range, bits << np.uint64(number * _STEPS), np.uint64(0))
    return repeated


def _unpacked(bits: Bits, number: int) -> NDArray[np.int8]:
    """Return the bits of range `number` as 0 and 1 [threshold, n]."""
    of_range = (bits >> np.uint64(number * _STEPS)).astype("<u2").view(np.uint8).reshape(-1, 2)
    return np.ascontiguousarray(np.unpackbits(of_range, axis=1, count=_STEPS, bitorder="little").T).view(np.int8)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None

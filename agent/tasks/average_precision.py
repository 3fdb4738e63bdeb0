"""COCO's figures over any of the images, in one range of area.

Precision and recall are counts of the matches there. Precision is computed only at hits (matches
with an object that counts), because it is highest there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.tasks.similarity import Flags, Floats, Integers

# Source: pycocotools' `Params`.
IOU_THRESHOLDS, RECALL_THRESHOLDS = np.linspace(0.5, 0.95, 10), np.linspace(0.0, 1.0, 101)
ALL, LOOSE, STRICT = slice(None), slice(0, 1), slice(5, 6)
STEPS = len(IOU_THRESHOLDS)
_ALL_STEPS = np.uint64((1 << STEPS) - 1)

Bits = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class AnnotatedObjects:
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
class CountedDetections:
    """The detections in the counting order.

    `counts` [range, detection] is whether their area is in the range.
    """

    image: Integers
    category: Integers
    counts: Flags


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches in the counting order.

    A detection counts in the ranges of its area, unless its match says otherwise.

    `hits` are the bits at which it matches an object that counts. At bits of `added` it counts
    because of a hit, although its area lies outside the range; at bits of `removed` it does not
    count, because its object is ignored.
    """

    position: Integers
    rank: Integers
    hits: Bits
    added: Bits
    removed: Bits


class AreaRange:
    """The hits in a range of area, ready for counts over any of the images.

    They are sorted by segment (threshold and category) and in the counting order. Detections,
    objects and hits have the number of their image. Detections count by their area; besides,
    `changes` (1 or -1) count because of matches. A hit has the number of the detections and changes
    up to it, and a segment that of the changes before it.
    """

    def __init__(
        self,
        objects: AnnotatedObjects,
        detections: CountedDetections,
        matches: Matches,
        categories: int,
        number: int,
    ) -> None:
        """Take the range of this number, and how many categories there are."""
        hits, added, removed = (
            bits >> np.uint64(number * STEPS) & _ALL_STEPS
            for bits in (matches.hits, matches.added, matches.removed)
        )
        (threshold, match), (threshold_changed, match_changed) = (
            _set_bits(hits),
            _set_bits(added | removed),
        )
        is_added = (added[match_changed] >> threshold_changed.astype(np.uint64)) & np.uint64(1)
        self._detection_image, self._is_counted, category = (
            detections.image,
            detections.counts[number],
            detections.category,
        )
        self._category_starts = np.searchsorted(category, np.arange(categories))
        image, category = (
            self._detection_image[matches.position],
            category[matches.position].astype(np.intp),
        )
        self.segment, segment_changed = (
            threshold * categories + category[match],
            threshold_changed * categories + category[match_changed],
        )
        self.rank, self._detected, self._image = (
            matches.rank[match],
            matches.position[match] + 1,
            image[match],
        )
        self._segment_ends = np.searchsorted(
            self.segment, np.arange(STEPS * categories), side="right"
        )
        self._change_image, self._change = image[match_changed], np.where(is_added, 1, -1)
        # A change counts from the first hit at its threshold that does not come before it.
        first_hit = np.searchsorted(
            threshold * len(image) + match, threshold_changed * len(image) + match_changed
        )
        self._changed = np.cumsum(np.bincount(first_hit, minlength=len(match) + 1))[:-1]
        self._segment_changed = np.searchsorted(segment_changed, np.arange(STEPS * categories))
        counts = objects.counts[number]
        self._object_image, self._object_category = (
            objects.image[counts].astype(np.intp),
            objects.category[counts].astype(np.intp),
        )

    def counted(self, is_inside: Flags) -> "Counts":
        """Return the counts over the images that are inside."""
        objects = np.bincount(
            self._object_category[is_inside.take(self._object_image)],
            minlength=len(self._category_starts),
        )
        by_area = np.zeros(len(self._is_counted) + 1, np.int32)
        np.cumsum(is_inside.take(self._detection_image) & self._is_counted, out=by_area[1:])
        by_match = np.zeros(len(self._change) + 1, np.int32)
        np.cumsum(self._change * is_inside.take(self._change_image), out=by_match[1:])
        before = np.tile(by_area.take(self._category_starts), STEPS) + by_match.take(
            self._segment_changed
        )
        hits = np.flatnonzero(is_inside.take(self._image))
        ends = np.searchsorted(hits, self._segment_ends)
        counted = by_area.take(self._detected) + by_match.take(self._changed)
        return Counts(
            self,
            hits,
            objects,
            _precision(
                ends, counted.take(hits) - np.repeat(before, np.diff(ends, prepend=0)), objects
            ),
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts in a range of area: indices of hits, numbers of objects, and precision.

    The objects are [category], the precision is [threshold, recall, category with objects].
    """

    range: AreaRange
    hits: Integers
    objects: Integers
    precision: Floats

    def ap(self, threshold: slice = ALL) -> float | None:
        """Return AP over the categories with objects.

        It is summed in the order of pycocotools, so that it is the same to the last digit.
        """
        return _mean(self.precision[threshold].ravel())

    def ar(self, cut: int, threshold: slice = ALL) -> float | None:
        """Return the recall over the categories with objects.

        At most `cut` detections count.
        """
        segment = self.range.segment[self.hits[self.range.rank[self.hits] < cut]]
        hits = np.bincount(segment, minlength=STEPS * len(self.objects)).reshape(STEPS, -1)
        return _mean(hits[threshold, self.objects > 0] / self.objects[self.objects > 0])


def _precision(ends: Integers, counted: Integers, objects: Integers) -> Floats:
    """Return precision [threshold, recall, category with objects].

    It is the best at this recall or a higher one, 0 if the recall is not reached. `ends` are the
    hits up to the end of each segment, `counted` the counted detections up to each hit.
    """
    hits = np.diff(ends, prepend=0)
    rank = np.arange(1.0, len(counted) + 1)
    rank -= np.repeat((ends - hits).astype(np.float64), hits)
    # Complex numbers are compared by their real part first: so a maximum does not reach beyond its
    # segment.
    keyed = np.zeros(len(counted) + 1, np.complex128)
    keyed.real[:-1] = np.repeat(np.arange(len(hits), 0.0, -1.0), hits)
    np.divide(rank, counted + np.spacing(1), out=keyed.imag[:-1])
    best: Floats = np.maximum.accumulate(keyed[::-1])[::-1].imag
    categories = np.flatnonzero(objects)
    count = objects[categories].astype(np.float64)
    # The fewest hits that reach each recall. COCO divides; a product may be off by one, so it is
    # corrected.
    recalls = RECALL_THRESHOLDS[:, np.newaxis]
    least = np.ceil(recalls * count)
    least -= (least - 1) / count >= recalls
    least += least / count < recalls
    least = np.maximum(least, 1).astype(np.intp)
    starts, ends = (
        values.reshape(STEPS, 1, -1).take(categories, axis=2) for values in (ends - hits, ends)
    )
    hit = starts - 1 + least
    return best.take(np.where(hit < ends, hit, len(counted)))


def _set_bits(bits: Bits) -> tuple[Integers, Integers]:
    """Return threshold and index of each bit that is set, by threshold."""
    set_in = np.flatnonzero(bits)
    flags = np.unpackbits(
        bits[set_in].astype("<u2").view(np.uint8).reshape(-1, 2),
        axis=1,
        count=STEPS,
        bitorder="little",
    )
    threshold, index = np.divmod(
        np.flatnonzero(np.ascontiguousarray(flags.T).view(np.bool_)), max(len(set_in), 1)
    )
    return threshold, set_in[index]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None

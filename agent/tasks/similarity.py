"""The similarity of detections and annotated objects by COCO's rules.

It is the overlap of boxes and of masks, and OKS of keypoints.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Annotations = Sequence[Mapping[str, Any]]

# The scatter of annotators for each keypoint, relative to a person's size. Source: cocoapi
# `cocoeval.py`, `kpt_oks_sigmas`.
SIGMAS = np.array([26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89]) / 1000


@dataclass(frozen=True, slots=True)
class Compared:
    """Detections [n] and annotations [m], of which COCO ignores some.

    `similarity` takes indices of both. `batch` is the number of pairs to compare at a time: all
    pairs of a crowd would not fit into memory.
    """

    area: Floats
    is_ignored: Flags
    similarity: Callable[[Integers, Integers], Floats]
    batch: int


def compared_boxes(rows: Floats, _: Sequence[Any], annotations: Annotations) -> Compared:
    """Compare boxes; `rows` are detections, float64 [n, 7].

    A row is image id, x, y, width, height, score and category id.
    """
    x, y, width, height = np.ascontiguousarray(rows[:, 1:5].T)
    object_x, object_y, object_width, object_height = np.ascontiguousarray(_boxes(annotations).T)
    right, bottom, area, is_crowd = x + width, y + height, width * height, _crowds(annotations)
    object_right, object_bottom, object_area = (
        object_x + object_width,
        object_y + object_height,
        object_width * object_height,
    )

    def similarity(detections: Integers, objects: Integers) -> Floats:
        iou = np.zeros(len(detections))
        across = np.minimum(right.take(detections), object_right.take(objects)) - np.maximum(
            x.take(detections), object_x.take(objects)
        )
        # Most pairs are apart.
        near = np.flatnonzero(across > 0)
        across, detections, objects = across.take(near), detections.take(near), objects.take(near)
        down = np.minimum(bottom.take(detections), object_bottom.take(objects)) - np.maximum(
            y.take(detections), object_y.take(objects)
        )
        shared, detection_area = across * down, area.take(detections)
        union = np.where(
            is_crowd.take(objects),
            detection_area,
            detection_area + object_area.take(objects) - shared,
        )
        iou[near] = np.divide(shared, union, out=np.zeros_like(shared), where=down > 0)
        return iou

    return Compared(area, is_crowd, similarity, 1 << 14)


def compared_masks(_: Floats, shapes: Sequence[Any], annotations: Annotations) -> Compared:
    """Compare masks, which `shapes` and annotations have as edges.

    The edges of all objects lie on one line, each object on a stretch of its own. The number of
    object pixels before any point of the line is interpolated, so the pixels that a detection
    shares with an object are sums of differences at the detection's edges.
    """
    is_crowd = _crowds(annotations)
    edges, counts, areas = _edges(shapes)
    first = np.cumsum(counts) - counts
    object_edges, object_counts, object_areas = _edges(
        [annotation["segmentation"] for annotation in annotations]
    )
    stretch = max(edges.max(initial=0), object_edges.max(initial=0)) + 1
    line = np.append(
        -1.0, object_edges + stretch * np.repeat(np.arange(len(annotations)), object_counts)
    )
    pixels = np.append(0.0, np.cumsum(np.diff(line) * np.resize([0, 1], len(object_edges))))

    def similarity(detections: Integers, objects: Integers) -> Floats:
        places = spread(first[detections], counts[detections])
        before = np.interp(
            edges[places] + stretch * np.repeat(objects, counts[detections]), line, pixels
        )
        inside = np.append(0, np.cumsum(before[1::2] - before[::2]))
        shared = np.diff(inside[np.append(0, np.cumsum(counts[detections]) // 2)])
        union = np.where(
            is_crowd[objects], areas[detections], areas[detections] + object_areas[objects] - shared
        )
        return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0))

    return Compared(areas, is_crowd, similarity, 1 << 8)


def compared_keypoints(_: Floats, shapes: Sequence[Any], annotations: Annotations) -> Compared:
    """Compare keypoints (x, y, visibility of each).

    For an object without labelled ones, their distance from its box counts.
    """
    points = np.array(shapes, np.float64).reshape(-1, len(SIGMAS), 3)[..., :2]
    annotated = np.array(
        [annotation["keypoints"] for annotation in annotations], np.float64
    ).reshape(-1, len(SIGMAS), 3)
    object_points, is_labelled = annotated[..., :2], annotated[..., 2] > 0
    corner, sides = np.split(_boxes(annotations)[:, np.newaxis], 2, axis=-1)
    low, high = corner - sides, corner + 2 * sides
    areas = np.array([annotation["area"] for annotation in annotations], np.float64)[
        :, np.newaxis
    ] + np.spacing(1)
    is_bare: Flags = np.logical_not(is_labelled.any(axis=1))
    is_compared = is_labelled | is_bare[:, np.newaxis]

    def similarity(detections: Integers, objects: Integers) -> Floats:
        its = points[detections]
        beyond = np.maximum(low[objects] - its, 0) + np.maximum(its - high[objects], 0)
        apart = np.where(
            is_bare[objects, np.newaxis, np.newaxis], beyond, its - object_points[objects]
        )
        error = np.square(apart).sum(axis=-1) / np.square(2 * SIGMAS) / areas[objects] / 2
        oks: Floats = np.exp(-error).sum(axis=1, where=is_compared[objects]) / is_compared[
            objects
        ].sum(axis=1)
        return oks

    return Compared(
        np.ptp(points, axis=1).prod(axis=1), is_bare | _crowds(annotations), similarity, 1 << 12
    )


def spread(starts: Integers, counts: Integers) -> Integers:
    """Return consecutive numbers from each start, as many as in `counts`, in one array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - starts, counts)


def _boxes(annotations: Annotations) -> Floats:
    return np.fromiter(
        chain.from_iterable(annotation["bbox"] for annotation in annotations), np.float64
    ).reshape(-1, 4)


def _crowds(annotations: Annotations) -> Flags:
    return np.fromiter(
        (annotation["iscrowd"] for annotation in annotations), bool, len(annotations)
    )


def _edges(parts: Sequence[Integers]) -> tuple[Integers, Integers, Floats]:
    """Return the edges of all masks in one array, and each mask's number of edges and area.

    The area is in pixels.
    """
    edges = np.concatenate([np.zeros(0, np.int64), *parts])
    counts = np.array([len(part) for part in parts], np.int64)
    areas = np.array([(part[1::2] - part[::2]).sum() for part in parts], np.float64)
    return edges, counts, areas

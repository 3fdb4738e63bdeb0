"""Non-maximum suppression against a plain loop."""

import numpy as np
import pytest

from edgemeter.agent.vision import nms


def naive(boxes, scores, classes, iou, limit):
    """Return what the definition says, one pair at a time."""
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if len(kept) < limit and not any(classes[i] == classes[j] and overlap(boxes[i], boxes[j]) > iou for j in kept):
            kept.append(i)
    return kept


def overlap(a, b):
    """Return intersection over union of two boxes with integer corners."""
    ax1, ay1, ax2, ay2 = map(int, a)
    bx1, by1, bx2, by2 = map(int, b)
    shared = max(min(ax2, bx2) - max(ax1, bx1), 0) * max(min(ay2, by2) - max(ay1, by1), 0)
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared
    return shared / union if union else 0.0


def scene(seed, count, classes):
    """Return `count` clustered boxes with integer corners, coarse scores (so that some are equal) and classes."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 40, (count, 2))
    size = rng.integers(0, 30, (count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    scores = (rng.integers(1, 200, count) / 200).astype(np.float32)
    return boxes, scores, rng.integers(0, classes, count).astype(np.int32)


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 700])
@pytest.mark.parametrize("iou", [0.0, 0.45, 0.7])
def test_blocks_keep_what_a_plain_loop_keeps(count, iou):
    """Whatever the number of candidates, the kept indices and their order are those of the definition."""
    for seed in range(3):
        boxes, scores, classes = scene(seed, count, 3)
        assert nms.class_wise(boxes, scores, classes, iou, 10_000).tolist() == naive(boxes, scores, classes, iou, 10_000)


@pytest.mark.parametrize("limit", [0, 1, 50, 300])
def test_the_limit_takes_the_best_over_all_classes(limit):
    """A limit cuts the full answer short, it does not change it."""
    boxes, scores, classes = scene(7, 1000, 20)
    everything = nms.class_wise(boxes, scores, classes, 0.6, 10_000)
    assert len(everything) > 300
    assert nms.class_wise(boxes, scores, classes, 0.6, limit).tolist() == everything[:limit].tolist()


def test_an_overlap_of_exactly_the_threshold_stays():
    """Two halves of one box overlap it by 1/2: at 0.5 both stay, a little below it they fall."""
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 2]], np.float32)
    scores, classes = np.array([0.9, 0.8], np.float32), np.zeros(2, np.int32)
    assert nms.class_wise(boxes, scores, classes, 0.5, 10).tolist() == [0, 1]
    assert nms.class_wise(boxes, scores, classes, 0.49, 10).tolist() == [0]


def test_classes_do_not_suppress_each_other():
    """The same box in two classes is two objects."""
    boxes = np.array([[0, 0, 4, 4]] * 3, np.float32)
    scores, classes = np.array([0.5, 0.9, 0.8], np.float32), np.array([0, 1, 0], np.int32)
    kept = nms.class_wise(boxes, scores, classes, 0.5, 10)
    assert kept.tolist() == [1, 2]
    assert kept.dtype == np.int64


def test_boxes_without_area_neither_fall_nor_suppress():
    """A zero-area box divides nothing by zero, even at threshold 0."""
    boxes = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 4, 4]], np.float32)
    scores, classes = np.array([0.9, 0.8, 0.7], np.float32), np.zeros(3, np.int32)
    assert nms.class_wise(boxes, scores, classes, 0.0, 10).tolist() == [0, 1, 2]

"""Grids, non-maximum suppression, and what decoders do with candidates."""

from itertools import product

import numpy as np
import pytest

from edgemeter.agent.contract import model_card
from edgemeter.agent.vision.decoders import boxes as decoders_boxes
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import same_size


def test_the_sigmoid_is_applied_once():
    """Logits become probabilities, probabilities stay, and far logits neither overflow nor warn."""
    assert decoders_boxes.sigmoid(np.array([0, -1000, 1000], np.float32)).round(6).tolist() == [
        0.5,
        0,
        1,
    ]
    assert decoders_boxes.sigmoid(np.array([0, 0.25, 1], np.float32)).tolist() == [0, 0.25, 1]
    assert decoders_boxes.sigmoid(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_every_score_above_the_threshold_is_found_also_beside_one_that_is_no_number():
    """The result equals, class by class, NumPy's own search over both axes."""
    for shape, order in product([(0, 5), (3, 0), (1, 1), (7, 40)], ["C", "F"]):
        with table_row(shape, order):
            rng = np.random.default_rng(3)
            for threshold in (0.0, 0.3, 0.97):
                scores = np.asarray(rng.random(shape), np.float32, order=order)
                scores[rng.random(shape) < 0.1] = np.nan
                pairs = decoders_boxes.above(scores, threshold)
                assert [places.tolist() for places in pairs] == [
                    places.tolist() for places in np.nonzero(scores > threshold)
                ]


def naive(boxes, scores, classes, iou, limit):
    """Return what the definition says, one pair at a time."""
    survivors = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if len(survivors) < limit and not any(
            classes[i] == classes[j] and overlap(boxes[i], boxes[j]) > iou for j in survivors
        ):
            survivors.append(i)
    return survivors


def overlap(a, b):
    """Return intersection over union of two boxes with integer corners."""
    ax1, ay1, ax2, ay2 = map(int, a)
    bx1, by1, bx2, by2 = map(int, b)
    shared = max(min(ax2, bx2) - max(ax1, bx1), 0) * max(min(ay2, by2) - max(ay1, by1), 0)
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared
    return shared / union if union else 0.0


def scene(seed, count, classes):
    """Return `count` clustered boxes with integer corners, coarse scores and classes.

    Some scores are equal because they are coarse.
    """
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 40, (count, 2))
    size = rng.integers(0, 30, (count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    scores = (rng.integers(1, 200, count) / 200).astype(np.float32)
    return boxes, scores, rng.integers(0, classes, count).astype(np.int32)


def test_blocks_keep_what_a_plain_loop_keeps():
    """The kept indices and their order follow the definition for any number of candidates."""
    for iou, count in [(0.0, 2), (0.45, 1), (0.7, 191), (0.45, 192), (0.7, 193), (0.45, 260)]:
        boxes, scores, classes = scene(count, count, 3)
        surviving = decoders_boxes.suppress_class_wise(boxes, scores, classes, iou, 10_000).tolist()
        assert surviving == naive(boxes, scores, classes, iou, 10_000), (iou, count)


def test_the_limit_takes_the_best_over_all_classes():
    """A limit cuts the full answer short and does not change it."""
    for limit in [0, 1, 50, 300]:
        boxes, scores, classes = scene(7, 1000, 20)
        everything = decoders_boxes.suppress_class_wise(boxes, scores, classes, 0.6, 10_000)
        assert len(everything) > 300, f"{limit!r}"
        assert (
            decoders_boxes.suppress_class_wise(boxes, scores, classes, 0.6, limit).tolist()
            == everything[:limit].tolist()
        ), f"{limit!r}"


def test_an_overlap_of_exactly_the_threshold_stays():
    """Two halves of one box overlap it by 1/2: at 0.5 both stay, a little below it they fall."""
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 2]], np.float32)
    scores, classes = np.array([0.9, 0.8], np.float32), np.zeros(2, np.int32)
    assert decoders_boxes.suppress_class_wise(boxes, scores, classes, 0.5, 10).tolist() == [0, 1]
    assert decoders_boxes.suppress_class_wise(boxes, scores, classes, 0.49, 10).tolist() == [0]


@pytest.mark.parametrize(
    ("boxes", "threshold"),
    [
        ([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 4, 4]], 0.0),
        ([[90, 10, 10, 90], [10, 90, 90, 10], [0, 0, 4, 4]], 0.7),
    ],
    ids=["without area", "inside out"],
)
def test_boxes_without_area_or_turned_inside_out_neither_fall_nor_suppress(boxes, threshold):
    """A zero-area box divides nothing by zero, even at threshold 0.

    A box with sizes below 0 has no negative area and costs no other box. YOLO26's head gives such
    sizes on what it never saw.
    """
    scores, classes = np.array([0.9, 0.8, 0.7], np.float32), np.zeros(3, np.int32)
    assert decoders_boxes.suppress_class_wise(
        np.array(boxes, np.float32), scores, classes, threshold, 10
    ).tolist() == [0, 1, 2]


def test_suppression_is_by_class_and_best_comes_first():
    """The weaker of two similar boxes falls, and another class stays."""
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 10]], np.float32)
    scores, classes = np.array([0.3, 0.9, 0.5], np.float32), np.array([1, 1, 2], np.int32)
    detections = decoders_boxes.select(
        boxes, scores, classes, model_card.CardOutput(nms_iou=0.5), same_size()
    )
    assert detections.scores.tolist() == np.array([0.9, 0.5], np.float32).tolist()
    assert detections.classes.tolist() == [1, 2]


def test_the_weakest_of_too_many_are_dropped_first():
    """Only the best MOST_CANDIDATES are looked at, and their order does not change."""
    count = decoders_boxes.MOST_CANDIDATES + 500
    scores = (np.arange(count) % 1000 / 1000).astype(np.float32)
    corner = np.arange(count, dtype=np.float32)[:, None] * 2
    detections = decoders_boxes.select(
        np.concatenate([corner, corner, corner + 1, corner + 1], axis=1),
        scores,
        np.zeros(count, np.int32),
        model_card.CardOutput(nms_iou=0.5, max_detections=40),
        same_size(10**6, 10**6),
    )
    expected = np.argsort(-scores, kind="stable")[:40]
    assert detections.boxes[:, 0].tolist() == (expected * 2).tolist()


def test_normalised_boxes_are_distinguished_from_pixels():
    """Boxes with nothing beyond 2 are 0..1, since a box may leave the picture.

    Without boxes nothing needs to be determined.
    """
    frame = same_size(64, 32)
    assert decoders_boxes.in_pixels(np.array([[0, 0.5, 1.25, 1]], np.float32), frame).tolist() == [
        [0, 16, 80, 32]
    ]
    assert decoders_boxes.in_pixels(np.array([[0, 0.5, 3, 1]], np.float32), frame).tolist() == [
        [0, 0.5, 3, 1]
    ]
    assert decoders_boxes.in_pixels(np.zeros((0, 4), np.float32), frame).shape == (0, 4)

"""What all decoders do with their candidates."""

import numpy as np

from edgemeter.agent.recognition import card
from edgemeter.agent.vision import boxes
from edgemeter.agent.vision.decoder import Frame
from tests.fixtures.vision_factory import same_size


def test_centre_and_size_become_corners():
    """x, y, w, h of the centre become x1, y1, x2, y2."""
    assert boxes.corners(np.array([[10, 20, 4, 6]], np.float32)).tolist() == [[8, 17, 12, 23]]


def test_boxes_go_back_to_the_photograph_and_stay_inside():
    """The letterbox is taken off, the scale undone, what lies outside is cut."""
    frame = Frame(100, 50, 50, 50, 0.5, 0.5, 0.0, 12.5)
    found = boxes.to_photo(np.array([[5, 15, 10, 20], [-3, 0, 60, 50]], np.float32), frame)
    assert found.tolist() == [[10, 5, 20, 15], [0, 0, 100, 50]]


def candidates():
    """Return three candidates: two of one class on the same place, one of another."""
    return (
        np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 10]], np.float32),
        np.array([0.3, 0.9, 0.5], np.float32),
        np.array([1, 1, 2], np.int32),
    )


def test_suppression_is_by_class_and_best_comes_first():
    """The weaker of two alike falls; another class stays."""
    found = boxes.select(*candidates(), card.Output(nms_iou=0.5), same_size())
    assert found.scores.tolist() == np.array([0.9, 0.5], np.float32).tolist()
    assert found.classes.tolist() == [1, 2]


def test_without_a_threshold_nothing_is_suppressed():
    """A model that suppressed inside keeps all its boxes, up to the limit."""
    assert boxes.select(*candidates(), card.Output(), same_size()).classes.tolist() == [1, 2, 1]
    assert boxes.select(*candidates(), card.Output(max_detections=1), same_size()).classes.tolist() == [1]


def test_no_candidates_are_no_detections():
    """Empty in, empty out, with the right shapes and types."""
    none = (np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))
    for output in (card.Output(), card.Output(nms_iou=0.5)):
        found = boxes.select(*none, output, same_size())
        assert (found.boxes.shape, found.scores.dtype, found.classes.dtype) == ((0, 4), np.float32, np.int32)


def test_the_weakest_of_too_many_are_dropped_first():
    """Beyond MOST_CANDIDATES only the best are looked at, and their order does not change."""
    count = boxes.MOST_CANDIDATES + 500
    scores = (np.arange(count) % 1000 / 1000).astype(np.float32)
    corner = np.arange(count, dtype=np.float32)[:, None] * 2
    found = boxes.select(
        np.concatenate([corner, corner, corner + 1, corner + 1], axis=1),
        scores,
        np.zeros(count, np.int32),
        card.Output(nms_iou=0.5, max_detections=40),
        same_size(10**6, 10**6),
    )
    expected = np.argsort(-scores, kind="stable")[:40]
    assert found.boxes[:, 0].tolist() == (expected * 2).tolist()


def test_a_box_that_is_no_number_is_nowhere():
    """It falls, whatever its score; the others stay."""
    found, scores, classes = candidates()
    found[1, 2] = np.nan
    kept = boxes.select(found, scores, classes, card.Output(), same_size())
    assert kept.scores.tolist() == [np.float32(0.5), np.float32(0.3)]


def test_normalised_boxes_are_told_from_pixels():
    """Nothing beyond 2 is 0..1, of which a box may leave the picture; of no boxes nothing needs to be told."""
    frame = same_size(64, 32)
    assert boxes.in_pixels(np.array([[0, 0.5, 1.25, 1]], np.float32), frame).tolist() == [[0, 16, 80, 32]]
    assert boxes.in_pixels(np.array([[0, 0.5, 3, 1]], np.float32), frame).tolist() == [[0, 0.5, 3, 1]]
    assert boxes.in_pixels(np.zeros((0, 4), np.float32), frame).shape == (0, 4)

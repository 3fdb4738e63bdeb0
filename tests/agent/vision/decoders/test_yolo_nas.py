"""The decoder of YOLO-NAS: corners and scores of every cell."""

import numpy as np

from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

BOXES, SCORES = np.zeros((1, 84, 4), np.float32), np.zeros((1, 84, 3), np.float32)
BOXES[0, 10], SCORES[0, 10, 2] = (4, 5, 60, 30), 0.75
BOXES[0, 11], SCORES[0, 11, 2] = (5, 5, 60, 30), 0.5
BOXES[0, 12], SCORES[0, 12, 0] = (5, 5, 60, 30), 0.25


def decode(*outputs, declared=((1, 84, 4), (1, 84, 3))):
    """Return the detections of a model with 3 classes."""
    decoder = decoders.create(make_card("yolo-nas", classes=3, nms_iou=0.7), make_loaded(tensors(*declared)))
    return decoder.decode(outputs, same_size(64, 32))


def test_corners_are_taken_as_they_are_and_suppressed_by_class():
    """In pixels of the input, in either order; the weaker of two alike falls, one of another class does not."""
    for outputs in [(BOXES, SCORES), (SCORES, BOXES)]:
        detections = decode(*outputs)
        assert detections.boxes.tolist() == [[4, 5, 60, 30], [5, 5, 60, 30]], f"{outputs[0].shape} first"
        assert (detections.classes.tolist(), detections.scores.tolist()) == ([2, 0], [0.75, 0.25]), f"{outputs[0].shape} first"


def test_four_classes_leave_the_boxes_first():
    """Both tensors end in 4 then."""
    four = np.zeros((1, 84, 4), np.float32)
    four[0, 10, 3] = 0.5
    decoder = decoders.create(make_card("yolo-nas", classes=4), make_loaded(tensors((1, 84, 4), (1, 84, 4))))
    assert decoder.decode([BOXES, four], same_size()).classes.tolist() == [3]

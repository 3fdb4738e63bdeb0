"""The decoder of YOLOv5 heads, on tensors made by hand."""

import numpy as np
import pytest

from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size


def head(*rows):
    """Return [1, 252, 5 + 3] in which only the first rows say something; the last centre is far right."""
    tensor = np.zeros((1, 252, 8), np.float32)
    tensor[0, -1, 0] = 60
    for i, row in enumerate(rows):
        tensor[0, i] = row
    return tensor


def decode(*outputs, **output):
    """Return the detections."""
    made = decoders.create(make_card("yolov5", **{"classes": 3, "nms_iou": 0.6, **output}), make_loaded())
    return made.decode(outputs, same_size())


def test_the_score_is_objectness_times_class():
    """0.5 x 0.8 and 0.5 x 0.4, each a detection of its own."""
    found = decode(head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.4]))
    assert found.boxes.tolist() == [[15, 20, 25, 40]] * 2
    assert found.classes.tolist() == [1, 2]
    assert found.scores.tolist() == pytest.approx([0.4, 0.2])


def test_a_row_without_objectness_is_nothing():
    """High class scores alone do not count."""
    assert len(decode(head([20, 30, 10, 20, 0.0005, 1.0, 1.0, 1.0])).scores) == 0


def test_boxes_of_zero_to_one_are_recognised():
    """TFLite files divide by the size, also when no centre with objectness lies far right."""
    tensor = head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.0])
    tensor[..., :4] /= 64
    assert decode(tensor).boxes.tolist() == [[15, 20, 25, 40]]


def test_further_outputs_are_left_alone():
    """TorchScript files give the raw maps too."""
    maps = [np.zeros((1, 3, 8, 8, 8), np.float32)] * 3
    assert decode(head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.0]), *maps).classes.tolist() == [1]

"""The decoder of YOLOv5, on tensors made by hand."""

import numpy as np
import pytest

from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size


def head(*rows):
    """Return [1, 252, 5 + 3] in which only the first rows find something.

    The last centre is far right.
    """
    tensor = np.zeros((1, 252, 8), np.float32)
    tensor[0, -1, 0] = 60
    for i, row in enumerate(rows):
        tensor[0, i] = row
    return tensor


def decode(*outputs, **output):
    decoder = decoders.create(
        make_card("yolov5", **{"classes": 3, "nms_iou": 0.6, **output}), make_loaded()
    )
    return decoder.decode(outputs, same_size())


def test_the_score_is_objectness_times_class():
    """0.5 x 0.8 and 0.5 x 0.4 are a detection each.

    TorchScript files also give the raw maps, which are left alone.
    """
    maps = [np.zeros((1, 3, 8, 8, 8), np.float32)] * 3
    detections = decode(
        head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.4], [20, 30, 10, 20, 0.0005, 1.0, 1.0, 1.0]), *maps
    )
    assert detections.boxes.tolist() == [[15, 20, 25, 40]] * 2
    assert detections.classes.tolist() == [1, 2]
    assert detections.scores.tolist() == pytest.approx([0.4, 0.2])


def test_boxes_of_zero_to_one_are_recognised():
    """TFLite files divide by the size, also when no centre with objectness lies far right."""
    tensor = head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.0])
    tensor[..., :4] /= 64
    assert decode(tensor).boxes.tolist() == [[15, 20, 25, 40]]

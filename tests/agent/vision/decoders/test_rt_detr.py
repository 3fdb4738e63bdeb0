"""The decoder of RT-DETR as one tensor, on sets made by hand."""

import numpy as np

from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

# Two queries on 64 x 32 pixels: the left half, and a quarter in the middle.
BOXES = np.array([[[0.25, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]]], np.float32)
LEFT, MIDDLE = [0, 0, 32, 32], [16, 8, 48, 24]


def decode(tensor, classes):
    return decoders.create(
        make_card("rt-detr", classes=classes), make_loaded(tensors(tensor.shape))
    ).decode([tensor], same_size(64, 32))


def test_boxes_and_scores_may_be_one_tensor():
    """Ultralytics exports RT-DETR as [1, queries, 4 + classes]."""
    tensor = np.concatenate([BOXES, np.array([[[0, 0.5, 0], [0.25, 0, 0]]], np.float32)], axis=2)
    detections = decode(tensor, classes=3)
    assert (detections.boxes.tolist(), detections.classes.tolist()) == ([LEFT, MIDDLE], [1, 0])


def test_a_list_has_score_and_class_in_each_row():
    """Since 2026 Ultralytics exports RT-DETR as a list, the best first.

    The boxes are the same, but there is no column for each class.
    """
    for classes in [2, 3, 80]:
        tensor = np.concatenate([BOXES, np.array([[[0.5, 1], [0.75, 0]]], np.float32)], axis=2)
        detections = decode(tensor, classes=classes)
        assert (
            detections.boxes.tolist(),
            detections.classes.tolist(),
            detections.scores.tolist(),
        ) == (
            [MIDDLE, LEFT],
            [0, 1],
            [0.75, 0.5],
        ), f"{classes!r}"
    # Scores of two classes are not whole numbers.
    tensor = np.concatenate([BOXES, np.array([[[0.5, 0.25], [0, 0]]], np.float32)], axis=2)
    assert decode(tensor, classes=2).scores.tolist() == [0.5, 0.25]

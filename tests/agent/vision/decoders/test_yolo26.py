"""The decoder of end-to-end YOLOs, on rows made by hand."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors


def decode(rows, shape=None):
    tensor = np.array(rows, np.float32).reshape(shape or (1, -1, 6))
    decoder = decoders.create(make_card("yolo26", classes=3), make_loaded(tensors(tensor.shape)))
    return decoder.decode([tensor], same_size(64, 32))


def test_rows_are_corners_score_and_class():
    """The best row comes first, and the rows that fill up to 300 have score 0."""
    detections = decode([[1, 2, 11, 12, 0.5, 2], [4, 5, 60, 30, 0.75, 0], [0, 0, 0, 0, 0, 0]])
    assert detections.boxes.tolist() == [[4, 5, 60, 30], [1, 2, 11, 12]]
    assert (detections.scores.tolist(), detections.classes.tolist()) == ([0.75, 0.5], [0, 2])


def test_nothing_is_suppressed_and_normalised_boxes_become_pixels():
    """Two boxes on one place are two objects, as the model said so.

    TFLite exports give 0..1, a little beyond at the edge.
    """
    assert len(decode([[1, 2, 11, 12, 0.5, 2]] * 2).scores) == 2
    assert decode([[0.25, 0.5, 1.01, 1, 0.5, 2]]).boxes.tolist() == [[16, 16, 64, 32]]


def test_class_numbers_that_are_not_whole_are_an_error():
    """One int8 scale for boxes and classes shifts the class and would silently give a wrong AP."""
    with pytest.raises(ConfigError, match="not whole: quantised with one scale"):
        decode([[1, 2, 11, 12, 0.5, 1.6]])
    assert decode([[1, 2, 11, 12, 0.5, 1.999]]).classes.tolist() == [2]


def test_one_stray_row_does_not_make_pixels_of_the_others():
    """A row that found little or nothing may lie anywhere, so most rows decide."""
    rows = [
        [0.25, 0.5, 1, 1, 0.5, 2],
        [0, 0, 0.5, 1, 0.4, 0],
        [0.1, 0.2, 2.6, 2.5, 0.3, 0],
        [9, 9, 9, 9, 0, 0],
    ]
    assert decode(rows).boxes[:2].tolist() == [[16, 16, 64, 32], [0, 0, 32, 32]]

"""The decoder of DETR and its kin, on sets made by hand."""

import numpy as np
import pytest

from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

# Two queries on 64 x 32 pixels: the left half, and a quarter in the middle.
BOXES = np.array([[[0.25, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]]], np.float32)
LEFT, MIDDLE = [0, 0, 32, 32], [16, 8, 48, 24]


def decode(*outputs, classes):
    """Return the detections."""
    decoder = decoders.create(make_card("detr", classes=classes), make_loaded(tensors(*(output.shape for output in outputs))))
    return decoder.decode(list(outputs), same_size(64, 32))


def logits(*rows):
    """Return what a softmax (up to a constant for each row) or a list of probabilities came from."""
    return np.log(np.array([rows], np.float32))


def test_softmax_with_no_object_gives_one_class_a_query():
    """The last of three columns is nothing; of the others the best is the query's only answer, with its share of all three."""
    values = logits([0.5, 0.25, 0.25], [0.1, 0.3, 0.6]) + np.float32(5)
    for outputs in ((BOXES, values), (values, BOXES)):
        detections = decode(*outputs, classes=2)
        assert detections.boxes.tolist() == [LEFT, MIDDLE]
        assert (detections.scores.tolist(), detections.classes.tolist()) == (pytest.approx([0.5, 0.3]), [0, 1])


def test_sigmoid_scores_stand_each_for_itself():
    """Where there is no column for nothing a query may be of two classes: -ln 3 is a quarter, ln 3 three."""
    values = np.array([[[np.log(3), -np.log(3)], [-20, -20]]], np.float32)
    detections = decode(BOXES, values, classes=2)
    assert detections.boxes.tolist() == [LEFT, LEFT]
    assert (detections.scores.tolist(), detections.classes.tolist()) == (pytest.approx([0.75, 0.25]), [0, 1])


def test_probabilities_are_left_as_they_are():
    """An export may hold the sigmoid or the softmax: 0.75 stays 0.75."""
    assert decode(BOXES, np.array([[[0.75, 0], [0, 0]]], np.float32), classes=2).scores.tolist() == [0.75]
    assert decode(BOXES, np.array([[[0.75, 0, 0.25], [0, 0, 1]]], np.float32), classes=2).scores.tolist() == [0.75]


def test_pixels_are_left_as_they_are():
    """An export that scaled its boxes itself."""
    pixels = BOXES * np.array([64, 32, 64, 32], np.float32)
    assert decode(pixels, np.array([[[0.75, 0], [0, 0]]], np.float32), classes=2).boxes.tolist() == [LEFT]

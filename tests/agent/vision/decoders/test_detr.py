"""The decoder of DETR and its kin, on sets made by hand."""

import numpy as np
import pytest

from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

# Two queries on 64 x 32 pixels: the left half, and a quarter in the middle.
BOXES = np.array([[[0.25, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]]], np.float32)
LEFT, MIDDLE = [0, 0, 32, 32], [16, 8, 48, 24]


def decode(*outputs, classes):
    decoder = decoders.create(
        make_card("detr", classes=classes),
        make_loaded(tensors(*(output.shape for output in outputs))),
    )
    return decoder.decode(list(outputs), same_size(64, 32))


def logits(*rows):
    """Return the logits of probabilities, of a softmax or one by one.

    Those of a softmax are given up to a constant for each row.
    """
    return np.log(np.array([rows], np.float32))


def test_softmax_with_no_object_gives_one_class_a_query():
    """The last of three columns is nothing, and the best other one is the query's answer.

    Its score is its share of all three.
    """
    values = logits([0.5, 0.25, 0.25], [0.1, 0.3, 0.6]) + np.float32(5)
    for outputs in ((BOXES, values), (values, BOXES)):
        detections = decode(*outputs, classes=2)
        assert detections.boxes.tolist() == [LEFT, MIDDLE]
        assert (detections.scores.tolist(), detections.classes.tolist()) == (
            pytest.approx([0.5, 0.3]),
            [0, 1],
        )


def test_sigmoid_scores_stand_each_for_itself():
    """Without a column for nothing, a query may have two classes.

    -ln 3 is a probability of a quarter, ln 3 one of three quarters.
    """
    values = np.array([[[np.log(3), -np.log(3)], [-20, -20]]], np.float32)
    detections = decode(BOXES, values, classes=2)
    assert detections.boxes.tolist() == [LEFT, LEFT]
    assert (detections.scores.tolist(), detections.classes.tolist()) == (
        pytest.approx([0.75, 0.25]),
        [0, 1],
    )


def test_probabilities_are_left_as_they_are():
    """An export may contain the sigmoid or the softmax, so 0.75 stays 0.75."""
    assert decode(
        BOXES, np.array([[[0.75, 0], [0, 0]]], np.float32), classes=2
    ).scores.tolist() == [0.75]
    assert decode(
        BOXES, np.array([[[0.75, 0, 0.25], [0, 0, 1]]], np.float32), classes=2
    ).scores.tolist() == [0.75]


def test_pixels_are_left_as_they_are():
    """The export scaled its boxes itself."""
    pixels = BOXES * np.array([64, 32, 64, 32], np.float32)
    assert decode(
        pixels, np.array([[[0.75, 0], [0, 0]]], np.float32), classes=2
    ).boxes.tolist() == [LEFT]


def test_boxes_beyond_the_picture_are_still_centres_and_the_last_score_is_no_object():
    """Early in a model's training most boxes leave the picture.

    In most rows neither the first nor the last score wins.
    """
    draw = np.random.default_rng(2)
    boxes = np.concatenate(
        [draw.uniform(0.6, 1, (1, 50, 2)), draw.uniform(0.5, 0.9, (1, 50, 2))], axis=2
    ).astype(np.float32)
    values = draw.normal(0, 5, (1, 50, 4)).astype(np.float32)
    values[0, :, 0] += 3
    detections = decode(boxes, values, classes=3)
    best = values[0, :, :3].max(axis=1) - np.log(np.exp(values[0]).sum(axis=1))
    assert detections.scores[0] == pytest.approx(np.exp(best.max()))
    assert detections.classes[0] == values[0, best.argmax(), :3].argmax()
    x, _, width, _ = boxes[0, best.argmax()] * 64
    assert detections.boxes[0, 0] == pytest.approx(x - width / 2, abs=1e-4)


def test_a_set_may_have_the_background_first_and_corners():
    """Nearly all rows show both."""
    boxes = np.tile(np.array([0.7, 0.7, 0.95, 0.95], np.float32), (1, 40, 1))
    boxes[0, 3] = [0.5, 0.25, 0.75, 1]
    scores = np.tile(np.array([0.98, 0.01, 0.01], np.float32), (1, 40, 1))
    scores[0, 3] = [0.1, 0.1, 0.8]
    detections = decode(boxes, scores, classes=2)
    assert (detections.boxes[0].tolist(), detections.classes[0]) == ([32, 8, 48, 32], 1)

"""The decoder of the shipped family, on tensors made by hand."""

import numpy as np

from edgemeter.agent.vision.decoders import PhotoFrame, create
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size, tensors

# 32 x 16 pixels: a grid of 2 x 4 cells, then one of 1 x 2.
CELLS, CLASSES = 10, 3
FRAME = same_size(32, 16)
OUTPUT = {"classes": CLASSES, "score_threshold": 0.1, "nms_iou": 0.5}


def decode(*cells, frame=FRAME, **output):
    """Return the detections where each (cell, distances, class, score) answers.

    All other cells are background.
    """
    boxes, scores = np.zeros((1, CELLS, 4), np.float32), np.zeros((1, CELLS, CLASSES), np.float32)
    for cell, distances, label, score in cells:
        boxes[0, cell], scores[0, cell, label] = distances, score
    card = make_card("edgemeter", image_input=make_input(height=16, width=32), **(OUTPUT | output))
    return create(card, make_loaded(tensors(boxes.shape, scores.shape))).decode(
        [boxes, scores], frame
    )


def test_a_cell_predicts_from_its_centre_in_units_of_its_stride():
    """Cell 6 is the third of the second row, with its centre at (20, 12).

    Cell 9 is the second of the coarse grid, with its centre at (24, 8).
    """
    detections = decode((6, (0.5, 1, 0.25, 0.5), 1, 0.5), (9, (1, 0.5, 0.25, 0.25), 2, 0.75))
    np.testing.assert_array_equal(detections.boxes, [[8, 0, 28, 12], [16, 4, 22, 16]])
    np.testing.assert_array_equal(detections.classes, [2, 1])
    np.testing.assert_array_equal(detections.scores, np.float32([0.75, 0.5]))


def test_boxes_are_given_in_pixels_of_the_photograph_and_clipped_to_it():
    """A photograph of 20 x 40 lies at a third of the way in the input.

    It is stretched in x and shrunk in y.
    """
    frame = PhotoFrame(20, 40, 32, 16, 1.0, 0.25, 2.0, 3.0)
    np.testing.assert_array_equal(
        decode((1, (0.5, 0, 0.5, 1), 0, 0.9), frame=frame).boxes, [[6, 4, 14, 36]]
    )
    np.testing.assert_array_equal(
        decode((1, (9, 9, 9, 9), 0, 0.9), frame=frame).boxes, [[0, 0, 20, 40]]
    )


def test_scores_below_the_threshold_are_background_and_the_best_are_kept():
    """The card gives the threshold and the limit."""
    cells = [(cell, (0.1, 0.1, 0.1, 0.1), 1, 0.05 + 0.05 * cell) for cell in range(8)]
    assert len(decode(*cells, score_threshold=0.1499).scores) == 6
    np.testing.assert_allclose(decode(*cells, max_detections=2).scores, [0.40, 0.35], rtol=1e-6)

"""Where cells lie, and what a sigmoid leaves alone."""

import numpy as np

from edgemeter.agent.vision import grid


def test_a_started_cell_counts():
    """416 pixels are 6.5 strides of 64: seven cells a side, 3598 in all, as NanoDet-Plus gives; YOLO's 640 has 8400."""
    assert grid.count(416, 416, (8, 16, 32, 64)) == 3598
    assert grid.count(640, 640, (8, 16, 32)) == 8400


def test_cells_run_row_by_row_over_the_strides():
    """X runs first; sizes tell the stride."""
    corners, strides = grid.cells(16, 24, (8, 16))
    assert corners.tolist() == [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [0, 0], [1, 0]]
    assert strides.ravel().tolist() == [8] * 6 + [16] * 2


def test_the_sigmoid_is_applied_once():
    """Logits become probabilities, probabilities stay, and far logits neither overflow nor warn."""
    assert grid.sigmoid(np.array([0, -1000, 1000], np.float32)).round(6).tolist() == [0.5, 0, 1]
    assert grid.sigmoid(np.array([0, 0.25, 1], np.float32)).tolist() == [0, 0.25, 1]
    assert grid.sigmoid(np.zeros((0, 3), np.float32)).shape == (0, 3)

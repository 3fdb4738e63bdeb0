"""The decoder of YOLOX's raw grid, on tensors made by hand."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size

# 64 x 32 pixels: 4 x 8 cells of 8 pixels, then 2 x 4 of 16, then 1 x 2 of 32.
CELLS = 32 + 8 + 2
WANTED = make_input(height=32, width=64)


def head(**rows):
    """Return [1, cells, 5 + 2]; `cell_7=[...]` fills row 7."""
    tensor = np.zeros((1, CELLS, 7), np.float32)
    for name, row in rows.items():
        tensor[0, int(name.removeprefix("cell_"))] = row
    return tensor


def decode(tensor, **output):
    decoder = decoders.create(
        make_card("yolox", image_input=WANTED, **{"classes": 2, "nms_iou": 0.65, **output}),
        make_loaded(),
    )
    return decoder.decode([tensor], same_size(64, 32))


def test_cells_run_row_by_row_over_the_strides():
    """Cell 9 is x 1, y 1 at stride 8; cell 33 is x 1, y 0 at 16; cell 41 is x 1, y 0 at 32."""
    size = [np.log(1), np.log(0.5)]
    detections = decode(
        head(
            cell_9=[0.5, 0.25, *size, 0.9, 1, 0],
            cell_33=[0.5, 0.5, *size, 0.8, 0, 1],
            cell_41=[0.5, 0.5, *size, 0.7, 1, 0],
        )
    )
    assert detections.boxes.tolist() == [[8, 8, 16, 12], [16, 4, 32, 12], [32, 8, 64, 24]]
    assert detections.classes.tolist() == [0, 1, 0]
    assert detections.scores.tolist() == pytest.approx([0.9, 0.8, 0.7])


def test_a_cell_finds_its_best_class_only():
    """YOLOX's own post-processing does the same.

    Objectness and class may be above the threshold where their product is not.
    """
    assert decode(head(cell_0=[0, 0, 1, 1, 0.9, 0.4, 0.5])).classes.tolist() == [1]
    assert len(decode(head(cell_0=[0, 0, 1, 1, 0.5, 0.5, 0]), score_threshold=0.3).scores) == 0


def test_the_strides_follow_from_the_number_of_cells():
    """A fourth grid of stride 64 adds a cell, and no usual grids have one less."""
    tensor = np.zeros((1, CELLS + 1, 7), np.float32)
    tensor[0, -1] = [0.5, 0.25, 0, np.log(0.5), 0.9, 1, 0]
    assert decode(tensor).boxes.tolist() == [[0, 0, 64, 32]]
    with pytest.raises(ConfigError, match="cells of 32 x 64"):
        decode(tensor[:, 2:])


def test_boxes_decoded_inside_are_left_as_they_are():
    """With `--decode_in_inference` the centres are pixels.

    They are far beyond what an offset from a cell can be.
    """
    decoded = head(cell_9=[40, 20, 10, 8, 0.9, 1, 0], cell_41=[60, 30, 4, 4, 0.7, 1, 0])
    assert decode(decoded).boxes.tolist() == [[35, 16, 45, 24], [58, 28, 62, 32]]

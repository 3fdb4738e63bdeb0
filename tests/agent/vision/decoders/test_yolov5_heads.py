"""The decoder of YOLOv5's raw maps, on maps made from boxes that are known."""

from itertools import permutations

import numpy as np
import pytest

from edgemeter.agent.contract import model_card
from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_input, make_loaded, same_size, tensors

WIDTH, HEIGHT, DEPTH = 96, 64, 7
SIDES = {8: (8, 12), 16: (4, 6), 32: (2, 3)}


def maps(rest=0.0):
    """Return the maps [1, 3, rows, columns, 7] of two objects, after the sigmoid; everywhere else `rest`."""
    made = {stride: np.full((1, 3, *sides, DEPTH), rest, np.float32) for stride, sides in SIDES.items()}
    # Anchor 2 of stride 8 is 33 x 23: 0.5 doubled and squared is 1; the centre is (2 x 0.75 - 0.5 + cell) x stride.
    made[8][0, 2, 3, 5] = [0.75, 0.5, 0.5, 0.5, 0.9, 0.8, 0.1]
    # Anchor 0 of stride 32 is 116 x 90: 0.25 gives a quarter of it.
    made[32][0, 0, 1, 1] = [0.5, 0.5, 0.25, 0.25, 0.5, 0.1, 0.8]
    return made


WANTED = [[48 - 16.5, 28 - 11.5, 48 + 16.5, 28 + 11.5], [48 - 14.5, 48 - 11.25, 48 + 14.5, 48 + 11.25]]


def decode(outputs, name="yolov5n"):
    """Return the detections."""
    wanted = make_input(height=HEIGHT, width=WIDTH)
    known = model_card.Card(
        name=name,
        task="detection",
        family="yolov5-heads",
        precision="fp32",
        input=wanted,
        output=model_card.CardOutput(classes=2, nms_iou=0.6, score_threshold=0.2),
    )
    return decoders.create(known, make_loaded(tensors(*(one.shape for one in outputs)))).decode(outputs, same_size(WIDTH, HEIGHT))


def check(found):
    """Two objects, each with its best class."""
    assert found.boxes == pytest.approx(np.array(WANTED), abs=1e-3)
    assert (found.classes.tolist(), found.scores.tolist()) == ([0, 1], pytest.approx([0.72, 0.4]))


def test_maps_are_found_by_their_sides():
    """In any order of strides."""
    for order in permutations((8, 16, 32)):
        with table_row(order):
            check(decode([maps()[stride] for stride in order]))


def test_raw_maps_go_through_the_sigmoid():
    """The same boxes from the logits of the same values."""
    with np.errstate(divide="ignore"):
        raw = [np.log(one / (1 - one)).clip(-20, 20) for one in maps(1e-4).values()]
    check(decode([one.astype(np.float32) for one in raw]))


def test_channels_may_hold_the_anchors():
    """[1, 21, rows, columns] as in ONNX, [1, rows, columns, 21] as in TFLite."""
    first = [one.transpose(0, 1, 4, 2, 3).reshape(1, 21, *one.shape[2:4]) for one in maps().values()]
    check(decode(first))
    check(decode([np.ascontiguousarray(one.transpose(0, 2, 3, 1)) for one in first]))


def test_yolov7_has_anchors_of_its_own():
    """Told by the name: the third of stride 8 is 40 x 28."""
    found = decode(list(maps().values()), "yolov7-tiny")
    assert found.boxes[0] == pytest.approx([48 - 20, 28 - 14, 48 + 20, 28 + 14], abs=1e-3)

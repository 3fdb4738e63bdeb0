"""The decoders of YOLOv5 heads, on tensors made by hand, and of its raw maps, made from boxes that are known."""

from itertools import permutations

import msgspec
import numpy as np
import pytest

from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size, tensors

WIDTH, HEIGHT, DEPTH = 96, 64, 7
SIDES = {8: (8, 12), 16: (4, 6), 32: (2, 3)}
WANTED = [[48 - 16.5, 28 - 11.5, 48 + 16.5, 28 + 11.5], [48 - 14.5, 48 - 11.25, 48 + 14.5, 48 + 11.25]]


def head(*rows):
    """Return [1, 252, 5 + 3] in which only the first rows say something; the last centre is far right."""
    tensor = np.zeros((1, 252, 8), np.float32)
    tensor[0, -1, 0] = 60
    for i, row in enumerate(rows):
        tensor[0, i] = row
    return tensor


def decode(*outputs, **output):
    """Return the detections."""
    decoder = decoders.create(make_card("yolov5", **{"classes": 3, "nms_iou": 0.6, **output}), make_loaded())
    return decoder.decode(outputs, same_size())


def test_the_score_is_objectness_times_class():
    """0.5 x 0.8 and 0.5 x 0.4, each a detection of its own; TorchScript files give the raw maps too, which are left alone."""
    maps = [np.zeros((1, 3, 8, 8, 8), np.float32)] * 3
    detections = decode(head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.4], [20, 30, 10, 20, 0.0005, 1.0, 1.0, 1.0]), *maps)
    assert detections.boxes.tolist() == [[15, 20, 25, 40]] * 2
    assert detections.classes.tolist() == [1, 2]
    assert detections.scores.tolist() == pytest.approx([0.4, 0.2])


def test_boxes_of_zero_to_one_are_recognised():
    """TFLite files divide by the size, also when no centre with objectness lies far right."""
    tensor = head([20, 30, 10, 20, 0.5, 0.0, 0.8, 0.0])
    tensor[..., :4] /= 64
    assert decode(tensor).boxes.tolist() == [[15, 20, 25, 40]]


def head_maps(elsewhere=0.0):
    """Return the maps [1, 3, rows, columns, 7] of two objects, after the sigmoid; everywhere else `elsewhere`."""
    maps = {stride: np.full((1, 3, *sides, DEPTH), elsewhere, np.float32) for stride, sides in SIDES.items()}
    # Anchor 2 of stride 8 is 33 x 23: 0.5 doubled and squared is 1; the centre is (2 x 0.75 - 0.5 + cell) x stride.
    maps[8][0, 2, 3, 5] = [0.75, 0.5, 0.5, 0.5, 0.9, 0.8, 0.1]
    # Anchor 0 of stride 32 is 116 x 90: 0.25 gives a quarter of it.
    maps[32][0, 0, 1, 1] = [0.5, 0.5, 0.25, 0.25, 0.5, 0.1, 0.8]
    return maps


def decode_heads(outputs, name="yolov5n"):
    """Return the detections."""
    card = msgspec.structs.replace(
        make_card("yolov5-heads", image_input=make_input(height=HEIGHT, width=WIDTH), classes=2, nms_iou=0.6, score_threshold=0.2),
        name=name,
    )
    return decoders.create(card, make_loaded(tensors(*(output.shape for output in outputs)))).decode(outputs, same_size(WIDTH, HEIGHT))


def check_heads(detections):
    """Two objects, each with its best class."""
    assert detections.boxes == pytest.approx(np.array(WANTED), abs=1e-3)
    assert (detections.classes.tolist(), detections.scores.tolist()) == ([0, 1], pytest.approx([0.72, 0.4]))


def test_maps_are_found_by_their_sides():
    """In any order of strides."""
    for order in permutations((8, 16, 32)):
        with table_row(order):
            check_heads(decode_heads([head_maps()[stride] for stride in order]))
    # Raw maps go through the sigmoid: the same boxes from the logits of the same values.
    with np.errstate(divide="ignore"):
        raw = [np.log(level / (1 - level)).clip(-20, 20) for level in head_maps(1e-4).values()]
    check_heads(decode_heads([level.astype(np.float32) for level in raw]))


def test_channels_may_hold_the_anchors():
    """[1, 21, rows, columns] as in ONNX, [1, rows, columns, 21] as in TFLite."""
    first = [level.transpose(0, 1, 4, 2, 3).reshape(1, 21, *level.shape[2:4]) for level in head_maps().values()]
    check_heads(decode_heads(first))
    check_heads(decode_heads([np.ascontiguousarray(level.transpose(0, 2, 3, 1)) for level in first]))


def test_yolov7_has_anchors_of_its_own():
    """Told by the name: the third of stride 8 is 40 x 28."""
    detections = decode_heads(list(head_maps().values()), "yolov7-tiny")
    assert detections.boxes[0] == pytest.approx([48 - 20, 28 - 14, 48 + 20, 28 + 14], abs=1e-3)

"""Facts about every decoder in the table, whatever a broken model gives it."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size, tensors

# The outputs of each family for 3 classes on 64 x 64 pixels.
SHAPES = {
    "detr": [(1, 100, 4), (1, 100, 4)],
    "edgemeter": [(1, 84, 4), (1, 84, 3)],
    "efficient-nms": [(1, 1), (1, 100, 4), (1, 100), (1, 100)],
    "nanodet": [(1, 85, 35)],
    "tflite-postprocess": [(1, 10, 4), (1, 10), (1, 10), (1,)],
    "torchvision": [(10, 4), (10,), (10,)],
    "yolo-nas": [(1, 84, 4), (1, 84, 3)],
    "yolo26": [(1, 300, 6)],
    "yolov5": [(1, 252, 8)],
    "yolov5-heads": [(1, 3, 8, 8, 8), (1, 3, 4, 4, 8), (1, 3, 2, 2, 8)],
    "yolov8": [(1, 7, 84)],
    "yolox": [(1, 84, 8)],
}


def made(family, shapes):
    """Return the decoder of a family for 3 classes on 64 x 64 pixels."""
    strides = (8, 16, 32) if family == "edgemeter" else ()
    card = make_card(family, wanted=make_input(), classes=3, strides=strides, nms_iou=0.5)
    # Where dtypes tell, a family names its outputs.
    names = ("num_dets", "det_boxes", "det_scores", "det_classes") if family == "efficient-nms" and len(shapes) == 4 else ()
    return decoders.create(card, make_loaded(tensors(*shapes, names=names)))


def test_every_family_stands_here():
    """A new decoder is held to the same."""
    assert set(SHAPES) == set(decoders.DECODERS)


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_a_broken_model_gives_no_box_that_is_no_number(family, value):
    """Dead, overflown or exploded outputs end in nothing, in finite boxes, or in one line: no crash and no warning."""
    outputs = [np.full(shape, value, np.float32) for shape in SHAPES[family]]
    try:
        found = made(family, SHAPES[family]).decode(outputs, same_size())
    except ConfigError:
        return
    assert np.isfinite(found.boxes).all()
    assert found.boxes.dtype == found.scores.dtype == np.float32
    assert found.classes.dtype == np.int32
    assert not np.isnan(found.scores).any()


@pytest.mark.parametrize("family", SHAPES)
def test_open_shapes_wait_for_the_first_answer(family):
    """A dynamic model is taken as it comes; what does not fit is said at the first query."""
    waiting = made(family, [(None,) * len(shape) for shape in SHAPES[family]])
    assert len(waiting.decode([np.zeros(shape, np.float32) for shape in SHAPES[family]], same_size()).scores) >= 0
    with pytest.raises(ConfigError):
        waiting.decode([np.zeros((1, 5, 5), np.float32)], same_size())

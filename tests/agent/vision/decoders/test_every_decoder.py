"""Facts about every decoder in the table, whatever a broken model gives it."""

import numpy as np
import pytest

from edgemeter.agent.conformance.decoders import CHECKS, DecoderCase
from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size, tensors

# The outputs of each family for 3 classes on 64 x 64 pixels.
SHAPES = {
    "detr": [(1, 100, 4), (1, 100, 4)],
    "edgemeter": [(1, 84, 4), (1, 84, 3)],
    "efficient-nms": [(1, 1), (1, 100, 4), (1, 100), (1, 100)],
    "movenet": [(1, 1, 17, 3)],
    "nanodet": [(1, 85, 35)],
    "tflite-postprocess": [(1, 10, 4), (1, 10), (1, 10), (1,)],
    "torchvision": [(10, 4), (10,), (10,)],
    "yolo-nas": [(1, 84, 4), (1, 84, 3)],
    "yolo-obb": [(1, 8, 84)],
    "yolo-pose": [(1, 58, 84)],
    "yolo-seg": [(1, 39, 84), (1, 32, 16, 16)],
    "yolo26": [(1, 300, 6)],
    "yolo26-seg": [(1, 300, 38), (1, 32, 16, 16)],
    "yolov5": [(1, 252, 8)],
    "yolov5-heads": [(1, 3, 8, 8, 8), (1, 3, 4, 4, 8), (1, 3, 2, 2, 8)],
    "yolov8": [(1, 7, 84)],
    "yolox": [(1, 84, 8)],
}


def case_of(family):
    """Return a decoder for 3 classes on 64 x 64 pixels, and outputs of nothing."""
    strides = (8, 16, 32) if family == "edgemeter" else ()
    card = make_card(family, image_input=make_input(), classes=3, strides=strides, nms_iou=0.5)
    # Where dtypes tell, a family names its outputs.
    names = ("num_dets", "det_boxes", "det_scores", "det_classes") if family == "efficient-nms" else ()
    outputs = tuple(np.zeros(shape, np.float32) for shape in SHAPES[family])
    return DecoderCase(card, make_loaded(tensors(*SHAPES[family], names=names)), outputs, same_size())


def test_every_family_stands_here():
    """A new decoder is held to the same."""
    assert set(SHAPES) == set(decoders.DECODERS)


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_decoder_keeps_the_contract(check, family, tmp_path):
    """The checks that ship, over every family; that each finds known objects is in the tests of its own."""
    check(case_of(family), tmp_path)

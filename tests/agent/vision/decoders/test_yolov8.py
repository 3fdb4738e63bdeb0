"""The decoder of YOLOv8 heads, on tensors made by hand."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

ANCHORS, CLASSES = 84, 3


def head(boxes, scores):
    """Return an output [1, 4 + classes, anchors] in which only the first anchors find.

    The last centre is far right.
    """
    tensor = np.zeros((1, 4 + CLASSES, ANCHORS), np.float32)
    tensor[0, 0, -1] = 60
    tensor[0, :4, : len(boxes)] = np.transpose(boxes)
    tensor[0, 4:, : len(scores)] = np.transpose(scores)
    return tensor


def decode(tensor, **output):
    decoder = decoders.create(
        make_card("yolov8", **{"classes": CLASSES, "nms_iou": 0.7, **output}), make_loaded()
    )
    return decoder.decode([tensor], same_size())


def test_boxes_are_centres_and_sizes_in_pixels():
    """An ONNX file's boxes are pixels of the input."""
    tensor = head([[20, 30, 10, 20]], [[0, 0.8, 0]])
    detections = decode(tensor)
    assert detections.boxes.tolist() == [[15, 20, 25, 40]]
    assert (detections.classes.tolist(), detections.scores.tolist()) == ([1], [np.float32(0.8)])
    # A TFLite file's are parts of the input.
    tensor[:, :4] /= 64
    assert decode(tensor).boxes.tolist() == [[15, 20, 25, 40]]


def test_an_anchor_may_find_several_classes():
    """Every class above the card's threshold is a detection of its own, best first."""
    assert decode(head([[20, 30, 10, 20]], [[0.2, 0.8, 0.0005]])).classes.tolist() == [1, 0]
    assert decode(
        head([[20, 30, 10, 20]], [[0.2, 0.8, 0.5]]), score_threshold=0.5
    ).classes.tolist() == [1]


def test_the_transposed_head_is_recognised_by_the_class_count():
    """[1, anchors, 4 + classes] is the same answer."""
    tensor = head([[20, 30, 10, 20]], [[0, 0.8, 0]])
    assert decode(np.ascontiguousarray(tensor.transpose(0, 2, 1))).boxes.tolist() == [
        [15, 20, 25, 40]
    ]
    assert decode(tensor, classes=None).boxes.tolist() == [[15, 20, 25, 40]]


def test_a_second_output_is_refused():
    """A segmentation model's masks are not left out silently."""
    with pytest.raises(ConfigError, match="needs one output"):
        decoders.create(
            make_card("yolov8", classes=3), make_loaded(tensors((1, 39, 84), (1, 32, 16, 16)))
        )


def test_invalid_values_are_read_as_in_a_tensor_without_them():
    """NaN is read as 0 and infinity as 1e9, in scores and boxes.

    It does not matter whether few anchors or most lie above the threshold.
    """
    for threshold in [0.001, 0.6, 0.97]:
        with table_row(threshold):
            draw = np.random.default_rng(1)
            tensor = draw.random((1, 4 + CLASSES, ANCHORS), np.float32)
            tensor[0, :4] *= 60
            for value in (np.nan, np.inf, -np.inf, 3e38):
                tensor.ravel()[draw.integers(0, tensor.size, 12)] = value
            detections = decode(tensor, score_threshold=threshold)
            expected = decode(
                np.clip(np.nan_to_num(tensor, nan=0.0), -1e9, 1e9), score_threshold=threshold
            )
            assert len(detections.scores) > 0
            for part in ("boxes", "scores", "classes"):
                np.testing.assert_array_equal(getattr(detections, part), getattr(expected, part))

"""The decoder of EfficientNMS: a count, boxes, scores and classes, in whatever order and under whatever names."""

from itertools import permutations, product

import numpy as np
import pytest

from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size

# Two detections; the third row is what the plug-in left there.
PARTS = {
    "num_dets": np.array([[2]], np.float32),
    "det_boxes": np.array([[[4, 5, 60, 30], [1, 2, 11, 12], [9, 9, 20, 20]]], np.float32),
    "det_scores": np.array([[0.75, 0.5, 0.9]], np.float32),
    "det_classes": np.array([[79, 0, 3]], np.float32),
}
WHOLE = ("num_dets", "det_classes")


def decode(order=tuple(PARTS), *, are_named=True, is_declared=True, parts=PARTS):
    """Return the detections of a model with 80 classes."""
    infos = [
        TensorInfo(name if are_named else f"out{k}", parts[name].shape, "int32" if name in WHOLE else "float32")
        for k, name in enumerate(order)
    ]
    decoder = decoders.create(make_card("efficient-nms", classes=80), make_loaded(infos if is_declared else ()))
    return decoder.decode([parts[name] for name in order], same_size(64, 32))


def test_every_order_is_understood_by_names_or_dtypes():
    """Class 0 is the first class, and rows beyond the count are none."""
    for are_named, order in product([True, False], permutations(PARTS)):
        detections = decode(order, are_named=are_named)
        assert detections.boxes.tolist() == [[4, 5, 60, 30], [1, 2, 11, 12]], f"{order!r}, {are_named!r}"
        assert (detections.classes.tolist(), detections.scores.tolist()) == ([79, 0], [0.75, 0.5]), f"{order!r}, {are_named!r}"


def test_other_forms_are_understood():
    """Without a declaration the order is the plug-in's; of a count of 0 the rows hold anything; some exporters leave 0..1."""
    assert decode(is_declared=False).classes.tolist() == [79, 0]
    assert decode(parts={**PARTS, "num_dets": np.zeros((1, 1), np.float32)}).scores.tolist() == []
    parts = {**PARTS, "det_boxes": PARTS["det_boxes"] / np.float32([64, 32, 64, 32])}
    assert decode(parts=parts).boxes == pytest.approx(PARTS["det_boxes"][0, :2])

"""The decoder of TFLite_Detection_PostProcess reads its four tensors in any order.

Their names do not matter either.
"""

from itertools import permutations

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

PARTS = {
    "boxes": np.array([[[0.25, 0.5, 0.75, 1.0], [0, 0, 0.5, 0.25], [0, 0, 0, 0]]], np.float32),
    "classes": np.array([[2, 0, 0]], np.float32),
    "scores": np.array([[0.75, 0.5, 0]], np.float32),
    "count": np.array([3], np.float32),
}
OPERATOR = {
    role: "TFLite_Detection_PostProcess" + suffix
    for role, suffix in zip(PARTS, ("", ":1", ":2", ":3"), strict=True)
}
SAVED_MODEL = {
    "boxes": "StatefulPartitionedCall:3",
    "classes": "StatefulPartitionedCall:2",
    "scores": "StatefulPartitionedCall:1",
    "count": "StatefulPartitionedCall:0",
}
WORDS = {
    "boxes": "detection_boxes",
    "classes": "detection_classes",
    "scores": "detection_scores",
    "count": "num_detections",
}
SILENT = dict.fromkeys(PARTS, "output")


def decode(order, names, shapes=None):
    """Return the detections of a model that gives its tensors in this order under these names."""
    infos = tensors(
        *(shapes or [PARTS[role].shape for role in order]), names=[names[role] for role in order]
    )
    decoder = decoders.create(make_card("tflite-postprocess", classes=90), make_loaded(infos))
    return decoder.decode([PARTS[role] for role in order], same_size(64, 32))


def check(detections):
    """Check for two detections without padding, x and y in place, scaled to the photograph."""
    assert detections.boxes.tolist() == [[32, 8, 64, 24], [0, 0, 16, 16]]
    assert (detections.classes.tolist(), detections.scores.tolist()) == ([2, 0], [0.75, 0.5])


def test_names_determine_the_roles_in_any_order():
    """All 24 orders are read, also before the first call, when every shape is []."""
    for names in [OPERATOR, SAVED_MODEL, WORDS]:
        with table_row(names):
            for order in permutations(PARTS):
                check(decode(order, names))
                check(decode(order, names, shapes=[()] * 4))


def test_without_names_shapes_and_values_determine_the_roles():
    """Boxes end in 4, the count is the smallest, and scores have fractions while classes do not."""
    for order in permutations(PARTS):
        check(decode(order, SILENT))
    # So where names lie: `boxes` is not of the shape of boxes, or `classes` has fractions.
    swapped = {
        "boxes": OPERATOR["count"],
        "count": OPERATOR["boxes"],
        "classes": OPERATOR["scores"],
        "scores": OPERATOR["classes"],
    }
    check(decode(tuple(PARTS), swapped))


def test_a_single_detection_is_read():
    """With one row only boxes have four values, and the operator's order tells the rest."""
    parts = [part[:, :1] if part.ndim > 1 else part for part in PARTS.values()]
    decoder = decoders.create(
        make_card("tflite-postprocess"),
        make_loaded(tensors((), (), (), (), names=list(OPERATOR.values()))),
    )
    assert decoder.decode(parts, same_size(64, 32)).boxes.tolist() == [[32, 8, 64, 24]]


def test_class_numbers_are_no_scores_though_nothing_was_found():
    """If all scores are 0, the class numbers must not be taken for scores of 2 and more."""
    nothing = {**PARTS, "scores": np.zeros((1, 3), np.float32)}
    decoder = decoders.create(
        make_card("tflite-postprocess", classes=90), make_loaded(tensors(*[()] * 4))
    )
    for order in permutations(nothing):
        assert len(decoder.decode([nothing[role] for role in order], same_size(64, 32)).scores) == 0


def test_boxes_that_leave_the_photograph_are_scored_as_given():
    """The published AP was computed so; clipping to the photograph would raise SSD's AP."""
    beyond = {
        **PARTS,
        "boxes": np.array([[[-0.25, 0.5, 0.75, 1.5], [0, 0, 0.5, 0.25], [0, 0, 0, 0]]], np.float32),
    }
    decoder = decoders.create(
        make_card("tflite-postprocess", classes=90),
        make_loaded(tensors(*[()] * 4, names=list(OPERATOR.values()))),
    )
    assert decoder.decode([beyond[role] for role in PARTS], same_size(64, 32)).boxes[
        0
    ].tolist() == [32, -8, 96, 24]


def test_tensors_that_are_no_detections_are_refused():
    """There are no boxes at all, or not as many classes as boxes."""
    for shapes in [[(1, 3)] * 4, [(1, 3, 4), (1, 2), (1, 3), (1,)]]:
        decoder = decoders.create(
            make_card("tflite-postprocess"), make_loaded(tensors((), (), (), ()))
        )
        with table_row(shapes), pytest.raises(ConfigError, match="family"):
            decoder.decode([np.zeros(shape, np.float32) for shape in shapes], same_size())

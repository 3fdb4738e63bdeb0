"""Facts about every decoder in the table, whatever a broken model gives it."""

from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size, tensors

# The outputs of each family for 3 classes on 64 x 64 pixels.
SHAPES = {
    "boxes-scores": [(1, 84, 4), (1, 84, 3)],
    "detr": [(1, 100, 4), (1, 100, 4)],
    "detr-lists": [(1, 100), (1, 100, 4), (1, 100)],
    "edgemeter": [(1, 80, 4), (1, 80, 3)],
    "rt-detr": [(1, 100, 7)],
    "tflite-postprocess": [(1, 10, 4), (1, 10), (1, 10), (1,)],
    "torchvision": [(10, 4), (10,), (10,)],
    "yolo-pose": [(1, 58, 84)],
    "yolo-seg": [(1, 39, 84), (1, 32, 16, 16)],
    "yolo26": [(1, 300, 6)],
    "yolo26-pose": [(1, 300, 57)],
    "yolo26-seg": [(1, 300, 38), (1, 32, 16, 16)],
    "yolov5": [(1, 252, 8)],
    "yolov8": [(1, 7, 84)],
    "yolov8-heads": [(1, channels, side, side) for side in (8, 4, 2) for channels in (64, 3)],
    "yolox": [(1, 84, 8)],
}


# Settings of a card, what the message holds, and outputs that do not fit: wrong in number, rank,
# size or classes.
REFUSED = {
    "boxes-scores": (
        {"classes": 3},
        r"family boxes-scores needs boxes \[1, n, 4\] and scores \[1, n, 3\]",
        [[(1, 84, 4), (1, 80, 3)], [(1, 84, 4), (1, 84, 5)], [(1, 84, 7)]],
    ),
    "detr": (
        {"classes": 3},
        r"scores \[1, queries, 3 or 4\]",
        [
            [(1, 100, 92), (1, 100, 5)],
            [(1, 100, 4), (1, 99, 3)],
            [(1, 100, 4), (1, 100, 80)],
            [(1, 300, 8)],
            [(1, 100, 4)],
        ],
    ),
    "detr-lists": (
        {"classes": 3},
        r"labels \[1, n\], boxes \[1, n, 4\]",
        [[(1, 100, 4), (1, 100)], [(1, 100, 4), (1, 100), (1, 99)]],
    ),
    "edgemeter": (
        {"classes": 3},
        r"boxes \[1, 80, 4\] and scores \[1, 80, 3\].*card",
        [
            [(1, 80, 4)],
            [(1, 80, 3), (1, 80, 4)],
            [(1, 84, 4), (1, 84, 3)],
            [(1, 80, 4), (1, 80, 4)],
            [(80, 4), (80, 3)],
        ],
    ),
    "tflite-postprocess": ({}, "four outputs|family", [[(1, 1917, 4), (1, 1917, 91)]]),
    "torchvision": ({"classes": 90}, r"needs boxes \[n, 4\]", [[(1, 84, 8400)]]),
    "yolo26": (
        {"classes": 3},
        "family yolov8",
        [[(1, 84, 8400)], [(1, 300, 7)], [(1, 300, 6), (1, 32, 160, 160)], [(2, 300, 6)]],
    ),
    "yolov5": (
        {"classes": 3},
        r"shape \[1, anchors, 8\]",
        [[(1, 252, 85)], [(2, 252, 8)], [(252, 8)], [(1, 252, 5)]],
    ),
    "yolov8": (
        {"classes": 3},
        r"shape \[1, 7, anchors\]",
        [[(1, 9, 84)], [(2, 7, 84)], [(7, 84)], [(1, 300, 6)], [()]],
    ),
    "yolov8-heads": (
        {"classes": 3},
        "maps of 64 distances and 3 scores on 64 x 64",
        [
            [(1, 64, 8, 8), (1, 3, 8, 8)],
            [(1, 64, 8, 8), (1, 4, 8, 8), (1, 64, 4, 4), (1, 4, 4, 4)],
            [(1, 7, 84)],
        ],
    ),
    "yolox": (
        {"classes": 2},
        r"shape \[1, cells of 64 x 64, 7\]",
        [[(1, 84, 8)], [(1, 83, 7)], [(1, 7, 84)], [(84, 7)]],
    ),
}


def case_of(family):
    """Return a decoder's card, the loaded model and outputs of nothing.

    The model has 3 classes on 64 x 64 pixels.
    """
    card = make_card(family, image_input=make_input(), classes=3, nms_iou=0.5)
    return (
        card,
        make_loaded(tensors(*SHAPES[family])),
        [np.zeros(shape, np.float32) for shape in SHAPES[family]],
    )


def test_every_family_stands_here():
    """A new decoder has to pass the same tests."""
    assert set(SHAPES) == set(decoders.DECODERS)


def test_a_broken_model_gives_no_box_that_is_no_number():
    """Dead, overflown or exploded outputs end in finite boxes or in one line.

    Decoding keeps nothing and changes nothing.
    """
    for family, value in product(SHAPES, (0.0, np.nan, np.inf, -np.inf, 1e30, -1e30)):
        card, loaded, outputs = case_of(family)
        spoilt = [np.full(output.shape, value, np.float32) for output in outputs]
        with table_row(family, value), suppress(ConfigError):
            decoder = decoders.create(card, loaded)
            detections, repeated = (
                decoder.decode(spoilt, same_size()),
                decoder.decode(spoilt, same_size()),
            )
            assert np.isfinite(detections.boxes).all()
            assert not np.isnan(detections.scores).any()
            assert (detections.boxes.dtype, detections.scores.dtype, detections.classes.dtype) == (
                np.float32,
                np.float32,
                np.int32,
            )
            assert detections.boxes.shape == (len(detections.scores), 4)
            assert np.array_equal(detections.scores, repeated.scores)
        assert all(
            np.array_equal(output, np.full(output.shape, value, np.float32), equal_nan=True)
            for output in spoilt
        )


def test_open_shapes_wait_for_the_first_query():
    """A wrong model is refused when its decoder is made.

    A dynamic one is accepted until its outputs do not fit.
    """
    for family in SHAPES:
        card, loaded, outputs = case_of(family)
        is_open = replace(
            loaded,
            outputs=tuple(
                replace(info, shape=(None,) * len(info.shape)) for info in loaded.outputs
            ),
        )
        with table_row(family):
            with pytest.raises(ConfigError):
                decoders.create(
                    card,
                    replace(
                        loaded,
                        outputs=tuple(
                            replace(info, shape=(1, 5, 5)) for info in loaded.outputs[:1]
                        ),
                    ),
                )
            decoder = decoders.create(card, is_open)
            decoder.decode(outputs, same_size())
            with pytest.raises(ConfigError):
                decoder.decode([np.zeros((1, 5, 5), np.float32)], same_size())


def test_outputs_that_do_not_fit_are_refused():
    """They are refused before measuring if the file declares them, else at the first query.

    Shapes of another rank are refused at the first query.
    """
    for family, (settings, words, outputs) in REFUSED.items():
        card = make_card(family, image_input=make_input(), nms_iou=0.5, **settings)
        for shapes in outputs:
            with table_row(family, shapes):
                if not (family in ("yolov5", "yolov8", "yolox") and len(shapes[0]) != 3):
                    with pytest.raises(ConfigError, match=words):
                        decoders.create(card, make_loaded(tensors(*shapes)))
                with pytest.raises(ConfigError, match=words):
                    decoders.create(card, make_loaded()).decode(
                        [np.zeros(shape, np.float32) for shape in shapes], same_size()
                    )

"""The decoder of torchvision's lists, in whatever order they come."""

from itertools import permutations, product

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision import decoders
from tests.fixtures.vision_factory import make_card, make_loaded, same_size

LISTS = {
    "boxes": np.array([[4, 5, 60, 30], [1, 2, 11, 12]], np.float32),
    "labels": np.array([90, 1], np.float32),
    "scores": np.array([0.75, 0.5], np.float32),
}
DTYPES = {"labels": "int64"}


def decode(lists, order=("boxes", "labels", "scores"), *, is_declared=True):
    """Return the detections; without a declaration the values have to tell, as in TorchScript."""
    infos = [
        TensorInfo(name, (None, 4) if name == "boxes" else (None,), DTYPES.get(name, "float32"))
        for name in order
    ]
    decoder = decoders.create(
        make_card("torchvision", classes=90), make_loaded(infos if is_declared else ())
    )
    return decoder.decode([lists[name] for name in order], same_size(64, 32))


def test_every_order_is_understood():
    """Label 90 is class 89, because the background is not counted."""
    for is_declared, order in product([True, False], permutations(LISTS)):
        detections = decode(LISTS, order, is_declared=is_declared)
        assert detections.boxes.tolist() == LISTS["boxes"].tolist(), f"{order!r}, {is_declared!r}"
        assert (detections.classes.tolist(), detections.scores.tolist()) == (
            [89, 0],
            [0.75, 0.5],
        ), f"{order!r}, {is_declared!r}"


def test_scores_that_are_all_whole_are_still_scores():
    """With a certain model, declared types decide, and without them a label above 1 does."""
    lists = {**LISTS, "scores": np.array([1, 1], np.float32)}
    for is_declared in (True, False):
        assert decode(
            lists, ("scores", "boxes", "labels"), is_declared=is_declared
        ).classes.tolist() == [89, 0]


def test_labels_that_count_from_zero_are_refused():
    """TensorRT's EfficientNMS gives such lists, whose classes would all be off by one.

    Lists of different lengths are refused too.
    """
    with pytest.raises(ConfigError, match="label 0 has a score"):
        decode({**LISTS, "labels": np.array([89, 0], np.float32)})
    with pytest.raises(ConfigError, match=r"the model gives \[\[2, 4\], \[2\], \[3\]\]"):
        decode({**LISTS, "scores": np.zeros(3, np.float32)})


def test_scores_of_keypoints_are_no_list():
    """Keypoint R-CNN gives scores for 17 points, as [n, 17], also where n is 0."""
    order = (*LISTS, "keypoints_scores")
    for count in (2, 0):
        lists = {name: values[:count] for name, values in LISTS.items()} | {
            "keypoints_scores": np.ones((count, 17), np.float32)
        }
        assert decode(lists, order, is_declared=False).classes.tolist() == [89, 0][:count]


def test_a_batch_axis_is_taken_off_and_normalised_boxes_become_pixels():
    """[1, n, 4] and [1, n] are the same lists, and SSD exports give 0..1."""
    assert decode({name: values[None] for name, values in LISTS.items()}).classes.tolist() == [
        89,
        0,
    ]
    assert decode({**LISTS, "boxes": LISTS["boxes"] / [64, 32, 64, 32]}).boxes == pytest.approx(
        LISTS["boxes"]
    )

"""COCO average precision is right on cases computed by hand and the COCO API's fixture."""

import json

import numpy as np
import pytest

from edgemeter.agent.base.statistics import jackknife_error
from edgemeter.agent.tasks import coco_accuracy
from edgemeter.agent.tasks.coco_matches import CocoAp
from tests.fixtures.vision_factory import make_truth, perfect_detections


def evaluate(truth, rows, image_ids):
    return CocoAp(truth, rows).figures(image_ids).overall


def test_an_annotation_with_id_zero_counts_like_any_other():
    """COCO's bookkeeping takes 0 for "not matched"."""
    truth = make_truth()
    rows = perfect_detections(truth)
    for number, annotation in enumerate(truth["annotations"]):
        annotation["id"] = number
    assert evaluate(truth, rows, [100, 101])["ap"] == pytest.approx(1, abs=1e-12)


@pytest.mark.realdata
def test_the_coco_apis_own_fixture_gives_its_published_figures(realdata):
    """AP is 0.5045806987249628 to 1e-9, and the other eleven figures are as printed.

    The fixture has one hundred images, one of them without detections.
    """
    folder = realdata / "annotations" / "cocoapi_val2014_100"
    truth = json.loads((folder / "instances_val2014_100.json").read_text())
    results = json.loads((folder / "instances_val2014_fakebbox100_results.json").read_text())
    rows = np.array([[d["image_id"], *d["bbox"], d["score"], d["category_id"]] for d in results])
    ids = [image["id"] for image in truth["images"]]
    assert len(ids) - len(set(rows[:, 0])) == 1
    figures = evaluate(truth, rows, ids)
    assert figures["ap"] == pytest.approx(0.5045806987249628, abs=1e-9)
    # Source: val2014_fake_eval_res.txt, type=bbox.
    printed = [0.505, 0.697, 0.573, 0.586, 0.519, 0.501, 0.387, 0.594, 0.595, 0.640, 0.566, 0.564]
    assert [round(figure, 3) for figure in figures.values()] == printed


SHA256 = "0" * 64


def ids(truth):
    return [image["id"] for image in truth["images"]]


def test_a_class_without_objects_has_no_figure():
    """It is null and its count says why, while a class that is never found has zero."""
    truth = make_truth(2, ("cat", "dog", "emu"))
    truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] != 9]
    rows = perfect_detections(truth)
    accuracy = coco_accuracy.coco_accuracy(CocoAp(truth, rows[rows[:, 6] == 7]), ids(truth), SHA256)
    assert accuracy.per_class == {"cat": pytest.approx(1), "dog": 0, "emu": None}
    assert accuracy.per_class_objects == {"cat": 2, "dog": 2, "emu": 0}
    assert accuracy.value == pytest.approx(0.5)


def test_bounds_hold_the_value_and_come_again():
    """The bounds are seeded, so the same detections have the same bounds.

    Without detections AP is 0, without objects it is not defined.
    """
    # Every second object of the second half is missed.
    truth = make_truth(60, ("cat",))
    rows = perfect_detections(truth)[[number for number in range(60) if number < 30 or number % 2]]
    accuracy, repeated = (
        coco_accuracy.coco_accuracy(CocoAp(truth, rows), ids(truth), SHA256) for _ in range(2)
    )
    assert accuracy == repeated
    assert accuracy.low < accuracy.value < accuracy.high
    assert evaluate(truth, np.empty((0, 7)), ids(truth))["ap"] == 0
    assert set(evaluate({**truth, "annotations": []}, np.empty((0, 7)), ids(truth)).values()) == {
        None
    }


def test_the_standard_error_is_that_of_repeated_sampling():
    """The standard error equals AP's spread over fresh samples, to sampling accuracy.

    A coin decides whether each image is found.
    """
    draw = np.random.default_rng(1)
    truth = make_truth(60, ("cat",))
    rows = perfect_detections(truth)
    samples = [rows[draw.random(60) < 0.6] for _ in range(100)]
    values = [CocoAp(truth, sample).figures(ids(truth)).overall["ap"] for sample in samples]
    errors = [
        jackknife_error(CocoAp(truth, sample).ap.bounded(ids(truth)).without_parts)
        for sample in samples[:12]
    ]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2)


def test_a_box_without_extent_counts_as_an_object_not_found():
    """As in the COCO API, recall ends at 1/2 whether the width is 0 or negative."""
    for width in (0, -16):
        truth = make_truth(2, ("cat",))
        truth["annotations"][0] |= {"bbox": [20, 20, width, 16], "area": 256}
        rows = perfect_detections(make_truth(2, ("cat",)))[1:]
        assert coco_accuracy.coco_accuracy(
            CocoAp(truth, rows), ids(truth), SHA256
        ).value == pytest.approx(51 / 101)

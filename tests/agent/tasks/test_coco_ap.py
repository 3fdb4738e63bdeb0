"""COCO average precision on cases that can be computed by hand, and on the COCO API's own fixture."""

import json

import numpy as np
import pytest

from edgemeter.agent.tasks import coco_ap
from edgemeter.agent.tasks.coco_matches import CocoAp
from tests.fixtures.vision_factory import make_truth, perfect_detections


def evaluate(truth, rows, image_ids):
    """Return the twelve figures."""
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
    """One hundred images, one of them without detections: AP 0.5045806987249628 to 1e-9, and the other eleven as printed."""
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
    """Return the ids of all images."""
    return [image["id"] for image in truth["images"]]


def half_found(images=60):
    """Return a truth of one class, its images in two groups, and detections that miss every second object of the second group."""
    truth = make_truth(images, ("cat",))
    for index, image in enumerate(truth["images"]):
        image["group"] = "day" if index < images // 2 else "night"
    rows = perfect_detections(truth)
    row_numbers = [number for number in range(images) if number < images // 2 or number % 2]
    return truth, rows[row_numbers]


def test_a_class_without_objects_has_no_figure():
    """Null, and its count says why; a class that is never found has zero."""
    truth = make_truth(2, ("cat", "dog", "emu"))
    truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] != 9]
    rows = perfect_detections(truth)
    accuracy = coco_ap.coco_accuracy(CocoAp(truth, rows[rows[:, 6] == 7]), ids(truth), SHA256)
    assert [(part.name, part.value, part.objects, part.images) for part in accuracy.per_class] == [
        ("cat", pytest.approx(1), 2, 2),
        ("dog", 0, 2, 2),
        ("emu", None, 0, 0),
    ]
    assert accuracy.value == pytest.approx(0.5)


def test_images_are_sorted_by_what_they_show():
    """One, two to four, five to nine, ten and more objects; a crowd is none, and an empty image is in no part."""
    truth = make_truth(5, ("cat",))
    template = truth["annotations"][0]
    truth["annotations"] = []
    for index, count in enumerate([1, 4, 9, 10, 0]):
        for number in range(count):
            box = {**template, "id": len(truth["annotations"]) + 1, "image_id": 100 + index, "bbox": [4 * number, 0, 4, 4], "area": 16}
            truth["annotations"].append(box)
    truth["annotations"].append({**template, "id": 99, "image_id": 100, "bbox": [0, 30, 9, 9], "iscrowd": 1})
    rows = np.array([[a["image_id"], *a["bbox"], 0.9, a["category_id"]] for a in truth["annotations"] if a["image_id"] != 103])
    accuracy = coco_ap.coco_accuracy(CocoAp(truth, rows), ids(truth), SHA256)
    assert [(part.name, part.images, part.objects) for part in accuracy.by_objects] == [
        ("1", 1, 1), ("2-4", 1, 4), ("5-9", 1, 9), ("10+", 1, 10),
    ]  # fmt: skip
    assert [round(part.value, 9) for part in accuracy.by_objects] == [1, 1, 1, 0]


def test_bounds_hold_the_value_and_come_again():
    """They are seeded: the same detections have the same bounds. Without detections AP is 0, without objects not defined."""
    truth, rows = half_found()
    accuracy, repeated = (coco_ap.coco_accuracy(CocoAp(truth, rows), ids(truth), SHA256) for _ in range(2))
    assert accuracy == repeated
    assert accuracy.low < accuracy.value < accuracy.high
    assert "jackknife over 20 parts of the images" in accuracy.interval
    assert evaluate(truth, np.empty((0, 7)), ids(truth))["ap"] == 0
    assert set(evaluate({**truth, "annotations": []}, np.empty((0, 7)), ids(truth)).values()) == {None}


def test_the_standard_error_is_that_of_repeated_sampling():
    """Each image found or not by a coin: AP's spread over fresh samples is the standard error, within what so many samples can tell."""
    draw = np.random.default_rng(1)
    truth = make_truth(60, ("cat",))
    rows = perfect_detections(truth)
    samples = [rows[draw.random(60) < 0.6] for _ in range(100)]
    values = [CocoAp(truth, sample).figures(ids(truth)).overall["ap"] for sample in samples]
    errors = [CocoAp(truth, sample).ap.bounded(ids(truth)).error for sample in samples[:12]]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2)


def test_a_gap_to_a_group_that_no_part_moves_has_no_bounds():
    """By day all, by night half: AP 1 and 51/101 (recall ends at 1/2). How far a perfect 30 images are from perfect does not show."""
    truth, rows = half_found()
    # By day nine of ten: apart for certain.
    some_rows = rows[[number for number in range(len(rows)) if number not in (3, 11, 19)]]
    gap = coco_ap.coco_accuracy(CocoAp(truth, some_rows), ids(truth), SHA256).group_gap
    assert (gap.best, gap.worst, gap.reason) == ("day", "night", None)
    assert 0 < gap.low < gap.value < gap.high
    accuracy = coco_ap.coco_accuracy(CocoAp(truth, rows), ids(truth), SHA256)
    assert accuracy.group_metric == "coco_ap"
    assert [(part.name, round(part.value, 6), part.images) for part in accuracy.groups] == [
        ("day", 1, 30),
        ("night", round(51 / 101, 6), 30),
    ]
    gap = accuracy.group_gap
    assert (gap.best, gap.worst, gap.value) == ("day", "night", pytest.approx(1 - 51 / 101))
    assert (gap.low, gap.high, gap.reason) == (None, None, "day: no one of 20 parts of the images moves the figure")
    assert (accuracy.groups[0].low, accuracy.groups[0].high) == (None, None)
    assert accuracy.groups[1].low < accuracy.groups[1].value < accuracy.groups[1].high


def test_groups_of_annotations_are_compared_by_recall():
    """Of thirty red objects all found, of thirty blue ones twelve; false finds belong to no group."""
    truth = make_truth(60, ("cat",))
    for index, annotation in enumerate(truth["annotations"]):
        annotation["group"] = "red" if index % 2 else "blue"
    rows = perfect_detections(truth)
    row_numbers = [number for number in range(60) if number % 2 or number < 24]
    false = [[100, 40, 40, 8, 8, 0.99, 7]] * 5
    accuracy = coco_ap.coco_accuracy(CocoAp(truth, np.concatenate([rows[row_numbers], false])), ids(truth), SHA256)
    assert accuracy.group_metric == "coco_ar_100"
    assert [(part.name, round(part.value, 6), part.objects) for part in accuracy.groups] == [("blue", 0.4, 30), ("red", 1, 30)]
    assert (accuracy.group_gap.best, accuracy.group_gap.worst, accuracy.group_gap.value) == ("red", "blue", pytest.approx(0.6))


def test_a_box_without_extent_counts_as_an_object_not_found():
    """As in the COCO API: recall ends at 1/2, whether width is 0 or negative."""
    for width in (0, -16):
        truth = make_truth(2, ("cat",))
        truth["annotations"][0] |= {"bbox": [20, 20, width, 16], "area": 256}
        rows = perfect_detections(make_truth(2, ("cat",)))[1:]
        assert coco_ap.coco_accuracy(CocoAp(truth, rows), ids(truth), SHA256).value == pytest.approx(51 / 101)

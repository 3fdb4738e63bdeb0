"""COCO average precision on cases that can be computed by hand, and on the COCO API's own fixture."""

import json
import sys

import numpy as np
import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.tasks import coco_ap
from tests.fixtures.vision_factory import make_truth, perfect_detections


def evaluate(truth, rows, image_ids):
    """Return the twelve figures."""
    return coco_ap.CocoAp(truth, rows).figures(image_ids).overall


def test_the_truth_itself_scores_one():
    """Every object found, nothing else: 1.0; no object is medium or large, so those have no figure."""
    truth = make_truth(3)
    figures = evaluate(truth, perfect_detections(truth), [100, 101, 102])
    assert figures["ap"] == figures["ap50"] == figures["ap_small"] == figures["ar_100"] == pytest.approx(1, abs=1e-12)
    assert figures["ap_medium"] is None
    assert figures["ap_large"] is None
    assert set(figures) == set(coco_ap.METRICS.values())


def test_an_image_without_detections_counts():
    """Half of the objects of each class found: recall ends at 1/2, so precision 1 counts for 51 of 101 points."""
    truth = make_truth(2)
    rows = perfect_detections(truth)
    figures = evaluate(truth, rows[rows[:, 0] == 100], [100, 101])
    assert figures["ap"] == pytest.approx(51 / 101, abs=1e-12)
    assert figures["ar_100"] == pytest.approx(0.5, abs=1e-12)


def test_an_image_without_annotations_counts():
    """A better-scored find where nothing is halves the precision of its class."""
    truth = make_truth(2, ("cat",))
    truth["annotations"] = [a for a in truth["annotations"] if a["image_id"] == 100]
    rows = np.concatenate([perfect_detections(truth), [[101, 0, 0, 16, 16, 0.95, 7]]])
    assert evaluate(truth, rows, [100, 101])["ap"] == pytest.approx(0.5, abs=1e-12)
    assert evaluate(truth, rows, [100])["ap"] == pytest.approx(1, abs=1e-12)


def test_classes_of_one_name_have_figures_of_their_own():
    """A class is told by its number: found, not found, and never shown."""
    truth = make_truth(2)
    first, second = (one["id"] for one in truth["categories"])
    truth["categories"] = [{"id": number, "name": "cat"} for number in (first, second, 99)]
    rows = perfect_detections(truth)
    figures = coco_ap.CocoAp(truth, rows[rows[:, 6] == first]).figures([100, 101])
    assert figures.by_category == {first: pytest.approx(1, abs=1e-12), second: 0, 99: None}


def test_no_detections_score_zero():
    """A model that finds nothing has an AP of 0, not none."""
    assert evaluate(make_truth(), np.empty((0, 7)), [100, 101])["ap"] == 0


def test_no_objects_have_no_figure():
    """Where there is nothing to find, AP is not defined: None, not COCO's -1."""
    truth = make_truth()
    truth["annotations"] = []
    assert set(evaluate(truth, np.empty((0, 7)), [100, 101]).values()) == {None}


def test_an_annotation_with_id_zero_counts_like_any_other():
    """COCO's bookkeeping takes 0 for "not matched"."""
    truth = make_truth()
    rows = perfect_detections(truth)
    for number, annotation in enumerate(truth["annotations"]):
        annotation["id"] = number
    assert evaluate(truth, rows, [100, 101])["ap"] == pytest.approx(1, abs=1e-12)


def test_nothing_is_printed(capfd):
    """Standard output is the command's result."""
    truth = make_truth()
    evaluate(truth, perfect_detections(truth), [100, 101])
    assert capfd.readouterr() == ("", "")


def test_without_hotcoco_the_message_names_what_to_install(monkeypatch):
    """One line with the pip command."""
    monkeypatch.setitem(sys.modules, "hotcoco", None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[vision\]'"):
        evaluate(make_truth(), np.empty((0, 7)), [100])


@pytest.mark.realdata
def test_the_coco_apis_own_fixture_gives_its_published_figures(realdata):
    """One hundred images, one of them without detections: AP 0.5045806987249628 to 1e-9, and the other eleven as printed."""
    folder = realdata / "annotations" / "cocoapi_val2014_100"
    truth = json.loads((folder / "instances_val2014_100.json").read_text())
    found = json.loads((folder / "instances_val2014_fakebbox100_results.json").read_text())
    rows = np.array([[d["image_id"], *d["bbox"], d["score"], d["category_id"]] for d in found])
    ids = [image["id"] for image in truth["images"]]
    assert len(ids) - len(set(rows[:, 0])) == 1
    figures = evaluate(truth, rows, ids)
    assert figures["ap"] == pytest.approx(0.5045806987249628, abs=1e-9)
    # Source: val2014_fake_eval_res.txt, type=bbox.
    printed = [0.505, 0.697, 0.573, 0.586, 0.519, 0.501, 0.387, 0.594, 0.595, 0.640, 0.566, 0.564]
    assert [round(figure, 3) for figure in figures.values()] == printed

"""Facts about the predictions that detectors and classifiers keep: whose they are, in whose pixels, and how many."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.contract.kept_predictions import KeptObject, pack, unpack
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks.kept_items import kept_objects
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_loaded, make_truth, open_with_truth, tensors

HEAD = (1, 6, 84)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two photographs of 64 x 64."""
    images = tmp_path / "images"
    images.mkdir()
    for i in range(2):
        Image.new("RGB", (64, 64), (i, i, i)).save(images / f"photo_{i}.png")
    return images


def test_a_detector_keeps_what_it_found_beside_the_annotations(folder):
    """With the categories' names in their order, crowds and groups; what is too weak is not kept, and AP has it all the same."""
    truth = make_truth()
    truth["images"][1]["group"] = "night"
    truth["annotations"][0]["group"] = "near"
    truth["annotations"][3]["iscrowd"] = 1
    card = make_card("yolov8", classes=2, nms_iou=0.7)
    task = tasks.create(card, make_loaded(tensors(HEAD), [TensorInfo("image", (1, 64, 64, 3), "float32")]), open_with_truth(folder, truth))
    tensor = np.zeros(HEAD, np.float32)
    tensor[0, 0, -1] = 60
    tensor[0, :, 0] = [8, 16, 16, 16, 0.75, 0]
    tensor[0, :, 1] = [24, 16, 16, 16, 0, 0.04]
    for index in range(2):
        task.prepare(index)
        task.predict(index, [[tensor]])
    predictions = task.predictions()
    assert (predictions.labels, predictions.least_score) == (("cat", "dog"), 0.05)
    first, second = predictions.photographs
    assert (first.name, first.width, first.height, first.group) == ("photo_0.png", 64, 64, None)
    assert (second.name, second.group) == ("photo_1.png", "night")
    assert first.truth == (KeptObject(0, 0, 8, 16, 16, group="near"), KeptObject(1, 16, 8, 16, 16))
    assert [item.ignored for item in second.truth] == [False, True]
    assert first.found == second.found == (KeptObject(0, 0, 8, 16, 16, 0.75),)
    assert unpack(pack(predictions)) == predictions
    # The weak one is right too.
    assert task.score().detail["ar_100"] == pytest.approx(1.0)


def test_only_the_best_hundred_of_a_photograph_are_kept_and_sound_ones():
    """Best first, none below 0.05; boxes that are not finite are none, and such as go round the earth end before it."""
    truth = make_truth(images=1)
    draw = np.random.default_rng(3)
    rows = np.array([[100, *draw.uniform(1, 50, 4), score, 7] for score in draw.permutation(np.linspace(0, 0.9, 400))])
    rows = np.vstack([rows, [[100, np.nan, 0, 1, 1, 0.99, 7], [100, 0, 0, 1, 1, np.nan, 7], [100, -1e9, 0, 1e9, -1e-3, 1.0000001, 8]]])
    (photo,) = kept_objects(truth, [(100, "photo_0.png", 64, 64)], rows).photographs
    assert photo.found[0] == KeptObject(1, -1e6, 0, 1e6, 0, 1.0)
    scores = [item.score for item in photo.found]
    assert len(scores) == 100
    assert scores[1:] == sorted(np.linspace(0, 0.9, 400), reverse=True)[:99]
    few = kept_objects(truth, [(100, "photo_0.png", 64, 64)], rows[rows[:, 5] < 0.1])
    assert {item.score >= 0.05 for item in few.photographs[0].found} == {True}


def test_a_classifier_keeps_its_five_best_with_their_probabilities(folder):
    """Coarse probabilities as they are, logits as their softmax; the background is a label, the first."""
    labels = tuple("abcdefghij")
    data = open_with_truth(folder, {f"photo_{i}.png": 4 for i in range(2)})
    logits = np.log(np.array([0.5, 0.05, 0.03, 0.02, 0.1, 0.3, 0, 0, 0, 0, 0]) + 1e-9)
    coarse = np.array([128, 0, 0, 0, 0, 90, 0, 0, 0, 0, 0]) / 256
    for values, expected in ((logits + 5, ((0, 0.5), (5, 0.3), (4, 0.1))), (coarse, ((0, 0.5), (5, 0.352)))):
        with table_row(expected):
            card = make_card("classifier", "classification", classes=11, label_offset=-1, labels=labels)
            inputs = [TensorInfo("image", (1, 64, 64, 3), "float32")]
            task = tasks.create(card, make_loaded([TensorInfo("scores", (1, 11), "float32")], inputs), data)
            for index in range(2):
                task.prepare(index)
                task.predict(index, [[values[None].astype(np.float32)]])
            predictions = unpack(pack(task.predictions()))
            assert predictions.labels == ("background", *labels)
            for answer in predictions.answers:
                assert answer.best[: len(expected)] == expected
                assert (predictions.labels[answer.truth], answer.truth) == ("e", 5)
            assert task.score().value == 0.0


def test_classes_without_labels_are_called_by_their_numbers(folder):
    """As the annotations call them."""
    data = open_with_truth(folder, {"photo_0.png": 2, "photo_1.png": 0})
    inputs = [TensorInfo("image", (1, 64, 64, 3), "float32")]
    task = tasks.create(make_card("classifier", "classification"), make_loaded([TensorInfo("s", (1, 3), "float32")], inputs), data)
    for index in range(2):
        task.prepare(index)
        task.predict(index, [[np.array([[0.2, 0.7, 0.1]], np.float32)]])
    predictions = task.predictions()
    assert (predictions.labels, [answer.truth for answer in predictions.answers]) == (("0", "1", "2"), [2, 0])
    assert [answer.best[0][0] for answer in predictions.answers] == [1, 1]

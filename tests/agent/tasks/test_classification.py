"""The classification task: from photographs and scores to top-1."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.statistics import wilson_interval
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.vision_factory import make_card, make_loaded, make_truth, open_with_truth

CLASSES = 11
INPUT = TensorInfo("image", (1, 64, 64, 3), "uint8", 1 / 128, 128)
OUTPUT = TensorInfo("scores", (1, CLASSES), "uint8", 1 / 256, 0)


@pytest.fixture
def folder(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for i in range(3):
        Image.new("RGB", (32, 32), (i, 0, 0)).save(images / f"photo_{i}.png")
    return images


def make_task(data, **output):
    """Return the task of a classifier whose first class is the background."""
    card = make_card(
        "classifier", "classification", **{"classes": CLASSES, "label_offset": -1, **output}
    )
    return tasks.create(card, make_loaded([OUTPUT], [INPUT]), data)


def scores(*best):
    row = np.zeros((1, CLASSES), np.uint8)
    row[0, list(best)] = np.arange(250, 250 - len(best), -1)
    return [row]


def test_top1_and_top5_are_shares_of_the_photographs(folder):
    """Right at once, right among five and wrong give 1/3 and 2/3, without the background."""
    data = open_with_truth(folder, {f"photo_{i}.png": 4 for i in range(3)})
    task = make_task(data)
    for index, answer in enumerate([scores(5, 1), scores(1, 2, 3, 4, 5), scores(1, 2, 3, 4, 6, 5)]):
        ((tensor,),) = [call.values() for call in task.prepare(index)]
        assert (tensor.shape, tensor.dtype) == ((1, 64, 64, 3), np.uint8)
        task.predict(index, [answer])
    score = task.score()
    assert (score.metric, score.images, score.dataset_sha256) == ("top1", 3, data.sha256)
    assert score.value == pytest.approx(1 / 3)
    assert score.detail["top5"] == pytest.approx(2 / 3)
    assert (score.low, score.high) == pytest.approx(wilson_interval(1, 3))
    assert [task.same_predictions(0, [scores(5)], [scores(other)]) for other in (5, 6)] == [
        1.0,
        0.0,
    ]


def test_copies_of_photographs_make_no_interval_narrower(tmp_path):
    """For 20 photographs, each five times under other names, the bounds are those of 20.

    A note counts the copies.
    """
    scored = []
    for folder, times in in_folders(tmp_path, [1, 5]):
        for i in range(20 * times):
            Image.new("RGB", (32, 32), (i % 20, 0, 0)).save(folder / f"photo_{i:02}.png")
        task = make_task(
            open_with_truth(folder, {f"photo_{i:02}.png": 4 for i in range(20 * times)})
        )
        for index in range(20 * times):
            task.predict(index, [scores(5 if index % 20 < 13 else 1)])
        scored.append(task.score())
    few, many = scored
    assert (many.low, many.high) == pytest.approx((few.low, few.high)) == wilson_interval(13, 20)
    assert (few.warnings, [warning.partition(" (")[0] for warning in many.warnings]) == (
        (),
        ["80 of 100 items are copies of others"],
    )


def test_an_index_that_counts_from_another_class_is_reported(tmp_path):
    """Top-1 is 0 although the model is right throughout, one class further.

    The model is not ruined: one side counts a background.
    """
    for folder, shift, word in in_folders(tmp_path, [(1, "lower"), (-1, "higher"), (0, None)]):
        with table_row(shift):
            for i in range(6):
                Image.new("RGB", (32, 32), (i, 0, 0)).save(folder / f"photo_{i}.png")
            task = make_task(
                open_with_truth(folder, {f"photo_{i}.png": i + 1 + shift for i in range(6)})
            )
            for index in range(6):
                task.predict(index, [scores(index + 2)])
            score = task.score()
            assert score.value == (word is None)
            assert [
                f"one {word}, top-1 would be 1.000" in warning for warning in score.warnings
            ] == ([] if word is None else [True])


def test_of_equal_scores_the_lower_class_is_first(folder):
    """Quantised scores tie often, and the answer must not depend on the sort."""
    task = make_task(open_with_truth(folder, {"photo_0.png": 2}))
    task.predict(0, [[np.full((1, CLASSES), 9, np.uint8)]])
    assert task.score().value == 0
    assert task.score().detail["top5"] == 1


def test_what_does_not_fit_the_model_is_refused(folder):
    """Numbers of scores, classes and labels must be the card's.

    Boxes, and an index that counts the background, are refused too.
    """
    with pytest.raises(ConfigError, match="gives 5 scores, its card has 11"):
        make_task(open_folder(folder)).predict(0, [[np.zeros((1, 5), np.uint8)]])
    for truth, labels, words in [
        ({"photo_0.png": 10}, 10, "has class 10, model 'tested' has 11 classes"),
        (
            {"photo_0.png": 1, "photo_1.png": 10},
            10,
            "seems to count the background as class 0: subtract 1",
        ),
        (make_truth(1), 10, "is a classifier.*give an index"),
        ({"photo_0.png": 1}, 9, r"has 9 labels and 11 classes \(label_offset -1\): give 10 labels"),
        ({"photo_0.png": 1}, 11, "has 11 labels"),
    ]:
        with table_row(truth, labels), pytest.raises(ConfigError, match=words):
            make_task(open_with_truth(folder, truth), labels=tuple(map(str, range(labels))))

"""The detection task: from photographs and raw outputs to COCO AP."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.vision_factory import make_card, make_loaded, make_truth, open_with_truth, tensors

# A YOLOv8 head on 64 x 64 with two classes.
HEAD = (1, 6, 84)
INPUT = TensorInfo("image", (1, 64, 64, 3), "float32")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two photographs of 64 x 64."""
    images = tmp_path / "images"
    images.mkdir()
    for i in range(2):
        Image.new("RGB", (64, 64), (i, i, i)).save(images / f"photo_{i}.png")
    return images


def make_task(data, outputs=None, **output):
    """Return the task of a two-class YOLOv8 model on the data."""
    card = make_card("yolov8", **{"classes": 2, "nms_iou": 0.7, **output})
    return tasks.create(card, make_loaded(outputs or tensors(HEAD), [INPUT]), data)


def perfect(scale=1.0):
    """Return the head's output that finds the cat at 0, 8 and the dog at 16, 8, each of 16 pixels."""
    tensor = np.zeros(HEAD, np.float32)
    tensor[0, 0, -1] = 60
    tensor[0, :, 0] = [8, 16, 16, 16, 0.9, 0]
    tensor[0, :, 1] = [24, 16, 16, 16, 0, 0.8]
    tensor[0, :4] *= scale
    return tensor


def run(made, outputs):
    """Answer every photograph with the same outputs, and return the score."""
    for index in range(2):
        ((tensor,),) = [call.values() for call in made.prepare(index)]
        assert tensor.shape == INPUT.shape
        made.predict(index, [outputs])
    return made.score()


def test_a_perfect_model_scores_one(folder):
    """The metric has its name, the images are counted, the data set's hash travels with it."""
    data = open_with_truth(folder, make_truth())
    score = run(make_task(data), [perfect()])
    assert (score.metric, score.images, score.dataset_sha256) == ("coco_ap", 2, data.sha256)
    assert score.value == pytest.approx(1, abs=1e-9)
    assert score.detail["ap50"] == pytest.approx(1, abs=1e-9)
    assert score.detail["ap_large"] is None
    assert "ap" not in score.detail


def test_quantised_outputs_are_read_by_their_scale(folder):
    """An int8 head of 0..1 gives the same boxes."""
    info = TensorInfo("out", HEAD, "int8", 1 / 255, -128)
    quantised = np.clip(np.rint(perfect(1 / 64) * 255) - 128, -128, 127).astype(np.int8)
    quantised[0, 4:, :2] = [[100, -128], [-128, 90]]
    score = run(make_task(open_with_truth(folder, make_truth()), [info]), [quantised])
    assert score.detail["ap75"] == pytest.approx(1, abs=1e-9)


def test_a_photograph_predicted_twice_counts_once(folder):
    """The last prediction stands: a timed loop may go round the data set."""
    made = make_task(open_with_truth(folder, make_truth()))
    run(made, [np.zeros(HEAD, np.float32)])
    score = run(made, [perfect()])
    assert (score.value, score.images) == (pytest.approx(1, abs=1e-9), 2)


def test_only_what_was_predicted_is_scored(folder):
    """The number of images states on how many."""
    made = make_task(open_with_truth(folder, make_truth()))
    assert made.score() is None
    made.prepare(1)
    made.predict(1, [[perfect()]])
    assert (made.score().images, made.score().value) == (1, pytest.approx(1, abs=1e-9))


def test_classes_that_the_annotations_do_not_know_are_left_out(folder):
    """A model of cats and dogs on annotations of dogs is scored by its dogs."""
    truth = make_truth(categories=("cat", "dog"))
    truth["categories"] = truth["categories"][1:]
    truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] == 8]
    assert run(make_task(open_with_truth(folder, truth), labels=("cat", "dog")), [perfect()]).value == pytest.approx(1, abs=1e-9)


def test_a_class_beyond_the_cards_is_an_error(folder):
    """A PostProcess model does not declare its classes; the card is wrong, and no number is made of it."""
    made = tasks.create(
        make_card("tflite-postprocess", classes=2), make_loaded(tensors((), (), (), ()), [INPUT]), open_with_truth(folder, make_truth())
    )
    made.prepare(0)
    made.predict(0, [[np.array(part, np.float32) for part in ([[[0, 0, 1, 1]]], [[5]], [[0.5]], [1])]])
    with pytest.raises(ConfigError, match="found class 5, its card has 2 classes"):
        made.score()


def test_annotations_for_another_size_are_refused(folder):
    """Boxes of the original do not fit a thumbnail."""
    made = make_task(open_with_truth(folder, make_truth(size_px=640)))
    with pytest.raises(ConfigError, match=r"'photo_0\.png' at 640 x 640, it is 64 x 64"):
        made.prepare(0)


def test_annotations_without_sizes_are_taken(folder):
    """Width and height are optional."""
    truth = make_truth()
    for image in truth["images"]:
        del image["width"]
    assert run(make_task(open_with_truth(folder, truth)), [perfect()]).value == pytest.approx(1, abs=1e-9)


def test_an_index_of_classes_is_refused(folder):
    """A detector needs boxes."""
    with pytest.raises(ConfigError, match=r"finds objects.*give COCO annotations"):
        make_task(open_with_truth(folder, {"photo_0.png": 1}))

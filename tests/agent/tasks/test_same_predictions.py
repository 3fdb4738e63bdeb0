"""Facts about `same_predictions` and what `predict` returns, of both tasks."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.items import item_of_file
from edgemeter.agent.tasks.classification import Classification
from edgemeter.agent.tasks.detection import Detection
from tests.fixtures.vision_factory import make_card, make_loaded, tensors


@pytest.fixture
def data(tmp_path):
    """Return a data set of one grey picture of 64 x 64."""
    path = tmp_path / "grey.png"
    Image.new("RGB", (64, 64), (128, 128, 128)).save(path)
    return Dataset("grey", (item_of_file(tmp_path, path.name),), "0" * 64)


def yolo(*boxes):
    """Return a YOLOv8's output of boxes cx, cy, w, h, score, class: [1, 6, 20], the rest zeros."""
    tensor = np.zeros((1, 6, 20), np.float32)
    for anchor, (*box, score, kind) in enumerate(boxes):
        tensor[0, :4, anchor] = box
        tensor[0, 4 + kind, anchor] = score
    return [tensor]


def test_a_detector_returns_the_scores_found_and_compares_boxes(data):
    """The scores best first; of two answers the share of boxes that both have; comparing keeps nothing for the score."""
    task = Detection(make_card("yolov8", classes=2, nms_iou=0.7), make_loaded(tensors((1, 6, 20))), data)
    task.prepare(0)
    outputs = yolo((20, 20, 16, 16, 0.5, 0), (44, 44, 16, 16, 0.75, 1))
    assert task.predict(0, [outputs]).tolist() == [0.75, 0.5]
    assert task.same_predictions(0, [outputs], [yolo((44, 44, 16, 16, 0.7, 1), (21, 20, 16, 16, 0.5, 0))]) == 1.0
    assert task.same_predictions(0, [outputs], [yolo((44, 44, 16, 16, 0.7, 1))]) == pytest.approx(2 / 3)
    assert task.same_predictions(0, [yolo()], [yolo()]) is None
    assert task._boxes[0].scores.tolist() == [0.75, 0.5]


def test_a_classifier_compares_the_best_class(data):
    """It finds no boxes, so it returns no scores."""
    task = Classification(make_card("classifier", "classification", classes=3), make_loaded(tensors((1, 3))), data)
    outputs, other = [np.array([[0.1, 0.7, 0.2]], np.float32)], [np.array([[0.5, 0.3, 0.2]], np.float32)]
    assert task.predict(0, [outputs]) is None
    assert (task.same_predictions(0, [outputs], [outputs]), task.same_predictions(0, [outputs], [other])) == (1.0, 0.0)

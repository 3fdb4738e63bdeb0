"""The contract of `edgemeter.agent.tasks.Task`, over every name in the table."""

import json

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.conformance.tasks import CHECKS, TaskCase
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.vision_factory import make_card, make_loaded, make_truth, tensors

PICTURE = TensorInfo("image", (1, 64, 64, 3), "float32")


def classification(data):
    """Return a classifier's case: photograph 0 is of class 0, photograph 1 of class 2."""
    outputs = tuple((np.eye(3, dtype=np.float32)[None, index],) for index in (0, 2))
    return TaskCase(make_card("classifier", "classification", classes=3), make_loaded(tensors((1, 3)), [PICTURE]), data, outputs)


def detection(data):
    """Return a detector's case: in both photographs the two boxes that are annotated."""
    boxes = np.zeros((1, 6, 20), np.float32)
    boxes[0, :, 0], boxes[0, :, 1] = (8, 16, 16, 16, 0.9, 0), (24, 16, 16, 16, 0, 0.9)
    return TaskCase(make_card("yolov8", classes=2, nms_iou=0.7), make_loaded(tensors((1, 6, 20)), [PICTURE]), data, ((boxes,), (boxes,)))


CASES = {
    "classification": (classification, {"photo_0.png": 0, "photo_1.png": 2}),
    "detection": (detection, make_truth(2)),
}


def test_every_task_stands_here():
    """A new task is held to the same."""
    assert set(CASES) == set(tasks.TASKS)


@pytest.mark.parametrize("task", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_task_keeps_the_contract(check, task, tmp_path):
    """The checks that ship, over every task with two photographs."""
    make, truth = CASES[task]
    for index in range(2):
        Image.new("RGB", (64, 64), (index, 128, 255)).save(tmp_path / f"photo_{index}.png")
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "empty").mkdir()
    check(make(open_folder(tmp_path, tmp_path / "truth.json")), tmp_path / "empty")

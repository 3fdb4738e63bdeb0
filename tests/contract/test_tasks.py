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


def segmentation(data):
    """Return a segmenter's case: in both photographs the two annotated rectangles, filled."""
    rows, prototypes = np.zeros((1, 38, 84), np.float32), np.zeros((1, 32, 16, 16), np.float32)
    rows[0, :7, 0], rows[0, :7, 1] = (8, 16, 16, 16, 0.9, 0, 1), (24, 16, 16, 16, 0, 0.9, 1)
    prototypes[0, 0] = 1
    card = make_card("yolo-seg", "segmentation", classes=2, nms_iou=0.7)
    return TaskCase(card, make_loaded(tensors((1, 38, 84), (1, 32, 16, 16)), [PICTURE]), data, ((rows, prototypes),) * 2)


def pose(data):
    """Return the case of one that finds poses: in both photographs the one person, of 17 keypoints at one place."""
    points = np.full((1, 1, 17, 3), 0.25, np.float32)
    return TaskCase(make_card("movenet", "pose", classes=1), make_loaded(tensors((1, 1, 17, 3)), [PICTURE]), data, ((points,),) * 2)


def semantic_segmentation(data):
    """Return the case of a model of pixels: all of class 1, as both maps are."""
    scores = np.zeros((1, 3, 16, 16), np.float32)
    scores[0, 1] = 1
    card = make_card("scores", "semantic-segmentation", classes=3)
    return TaskCase(card, make_loaded(tensors(scores.shape), [PICTURE]), data, ((scores,),) * 2)


def depth(data):
    """Return the case of a model of depth: a metre everywhere, as both maps are (1 of 8 bits is 1/256 m)."""
    metres = np.full((1, 16, 16), 1 / 256, np.float32)
    return TaskCase(make_card("depth", "depth"), make_loaded(tensors(metres.shape), [PICTURE]), data, ((metres,),) * 2, value=0.0)


def oriented_boxes(data):
    """Return the case of one that finds oriented boxes: the one that is annotated, turned by a quarter."""
    rows = np.zeros((1, 6, 84), np.float32)
    rows[0, :, 0] = (16, 16, 16, 16, 0.9, np.pi / 2)
    card = make_card("yolo-obb", "oriented-boxes", classes=1, labels=("ship",), nms_iou=0.7)
    return TaskCase(card, make_loaded(tensors(rows.shape), [PICTURE]), data, ((rows,),) * 2)


def with_outlines():
    """Return the annotated boxes as outlines."""
    truth = make_truth(2)
    for annotation in truth["annotations"]:
        x, y, width, height = annotation["bbox"]
        annotation["segmentation"] = [[x, y, x + width, y, x + width, y + height, x, y + height]]
    return truth


def with_keypoints():
    """Return one person a photograph, with all keypoints at 16, 16."""
    truth = make_truth(2, ("person",))
    for annotation in truth["annotations"]:
        annotation |= {"keypoints": [16, 16, 2] * 17, "num_keypoints": 17, "area": 2000}
    return truth


CASES = {
    "classification": (classification, {"photo_0.png": 0, "photo_1.png": 2}),
    "detection": (detection, make_truth(2)),
    "segmentation": (segmentation, with_outlines()),
    "pose": (pose, with_keypoints()),
    "semantic-segmentation": (semantic_segmentation, "maps"),
    "oriented-boxes": (oriented_boxes, "corners"),
    "depth": (depth, "maps"),
}


def test_every_task_stands_here():
    """A new task is held to the same."""
    assert set(CASES) == set(tasks.TASKS)


@pytest.mark.parametrize("task", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_task_keeps_the_contract(check, task, tmp_path):
    """The checks that ship, over every task with two photographs."""
    check(task_case(task, tmp_path), tmp_path / "empty")


def task_case(task, tmp_path):
    """Return the case of a task, its data written to a folder, in which there is an empty one too."""
    make, truth = CASES[task]
    for index in range(2):
        Image.new("RGB", (64, 64), (index, 128, 255)).save(tmp_path / f"photo_{index}.png")
    annotations = tmp_path / "labels" if truth in ("maps", "corners") else tmp_path / "truth.json"
    if truth in ("maps", "corners"):
        annotations.mkdir()
        for index in range(2):
            if truth == "maps":
                Image.new("L", (64, 64), 1).save(annotations / f"photo_{index}.png")
            else:
                (annotations / f"photo_{index}.txt").write_text("8 8 24 8 24 24 8 24 ship 0")
    else:
        annotations.write_text(json.dumps(truth))
    (tmp_path / "empty").mkdir()
    return make(open_folder(tmp_path, annotations))

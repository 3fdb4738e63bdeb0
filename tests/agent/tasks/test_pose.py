"""Facts about poses: AP over OKS as pycocotools computes it, keypoints of YOLO and MoveNet in the photograph, files that are scored."""

import json

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import keypoints_of, plain_document, read_annotations
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.tasks import coco_ap, create
from edgemeter.agent.vision.decoders import PhotoFrame
from edgemeter.agent.vision.decoders import create as create_decoder
from tests.fixtures.onnx_factory import single_pose
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.task_data import CARD, PEOPLE, photographed_people, scored, scored_by_pycocotools
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors

# Two thirds of its size on 64 x 64, with bars of 16 pixels.
LETTERBOXED = PhotoFrame(96, 48, 64, 64, 2 / 3, 2 / 3, 0.0, 16.0)


def people(draw, images=40):
    """Return a document of people with hidden and unlabelled keypoints, and results that miss by some pixels."""
    annotations, results = [], []
    for image in range(1, images + 1):
        for _ in range(int(draw.integers(1, 4))):
            x, y, side = *draw.uniform(0, 200, 2).tolist(), float(draw.uniform(20, 200))
            points = draw.uniform(0, side, (17, 2)) + np.array([x, y])
            visibility = draw.choice([0, 1, 2], 17, p=[0.3, 0.2, 0.5])
            keypoints = np.column_stack([points * (visibility > 0)[:, None], visibility]).ravel().tolist()
            about = {"id": len(annotations) + 1, "image_id": image, "category_id": 1, "iscrowd": 0, "bbox": [x, y, side, side]}
            annotations.append({**about, "area": side * side * 0.6, "keypoints": keypoints, "num_keypoints": int((visibility > 0).sum())})
            if draw.random() < 0.9:
                missed = points + draw.normal(0, side * 0.05, (17, 2))
                keypoints_found = np.column_stack([missed, draw.random(17)]).ravel().tolist()
                results.append({"image_id": image, "category_id": 1, "keypoints": keypoints_found, "score": float(draw.random())})
    sized = [{"id": image, "file_name": f"{image}.png", "width": 400, "height": 400} for image in range(1, images + 1)]
    return {"images": sized, "annotations": annotations, "categories": PEOPLE}, results


def test_keypoint_ap_is_that_of_pycocotools(tmp_path):
    """All ten figures to 1e-9: hidden points count, unlabelled ones do not, people without points are ignored."""
    for seed in range(3):
        with table_row(seed):
            truth, results = people(np.random.default_rng(seed))
            images = [image["id"] for image in truth["images"]]
            (tmp_path / "people.json").write_text(json.dumps(truth))
            read = plain_document(read_annotations(tmp_path / "people.json"))
            document = {
                **read,
                "annotations": [{**annotation, "keypoints": keypoints_of(annotation)} for annotation in read["annotations"]],
            }
            for annotation, original in zip(document["annotations"], truth["annotations"], strict=True):
                annotation["num_keypoints"] = original["num_keypoints"]
            scored_figures = coco_ap.CocoAp(document, results, coco_ap.KEYPOINTS).figures(images)
            figures = scored_figures.overall
            reference = scored_by_pycocotools(truth, results, "keypoints")
            assert list(figures.values()) == pytest.approx(reference.tolist(), abs=1e-9)
            assert 0.1 < figures["ap"] < 0.9
            assert scored_figures.by_category == pytest.approx({1: figures["ap"]}, abs=1e-9)


@pytest.mark.parametrize("is_tflite", [False, True])
def test_yolos_keypoints_lie_where_the_photograph_has_them(is_tflite):
    """Pixels or 0..1, as the boxes are; the scores stay."""
    rows = np.zeros((1, 56, 84), np.float32)
    points = np.stack([np.linspace(4, 60, 17), np.linspace(18, 46, 17), np.linspace(0.1, 0.9, 17)], axis=1)
    rows[0, :5, 3], rows[0, 5:, 3] = (32, 32, 60, 32, 0.8), points.ravel()
    if is_tflite:
        rows[0, :4] /= 64
        rows[0, 5::3] /= 64
        rows[0, 6::3] /= 64
    card = make_card("yolo-pose", "pose", classes=1, nms_iou=0.7)
    detections = create_decoder(card, make_loaded(tensors((1, 56, 84)))).decode([rows], LETTERBOXED)
    np.testing.assert_allclose(detections.boxes, [[3, 0, 93, 48]], atol=1e-3)
    np.testing.assert_allclose(detections.keypoints[0, :, 0], points[:, 0] * 1.5, atol=1e-3)
    np.testing.assert_allclose(detections.keypoints[0, :, 1], (points[:, 1] - 16) * 1.5, atol=1e-3)
    np.testing.assert_allclose(detections.keypoints[0, :, 2], points[:, 2], atol=1e-6)


def test_movenet_finds_one_person_or_six():
    """Y before x, 0..1 of the input; MultiPose has a box and a score of its own."""
    person = np.zeros((1, 1, 17, 3), np.float32)
    person[0, 0] = np.stack([np.linspace(0.25, 0.75, 17), np.linspace(0, 1, 17), np.full(17, 0.5)], axis=1)
    card = make_card("movenet", "pose", classes=1)
    detections = create_decoder(card, make_loaded(tensors(person.shape))).decode([person], LETTERBOXED)
    np.testing.assert_allclose(detections.keypoints[0, [0, 8, 16], :2], [[0, 0], [48, 24], [96, 48]], atol=1e-3)
    np.testing.assert_allclose(detections.boxes, [[0, 0, 96, 48]], atol=1e-3)
    assert detections.scores.tolist() == [0.5]
    several = np.zeros((1, 6, 56), np.float32)
    several[0, 2, :51] = person.ravel()
    several[0, 2, 51:] = (0.25, 0.0, 0.5, 0.5, 0.75)
    several[0, 4, 55] = 0.9
    detections = create_decoder(card, make_loaded(tensors(several.shape))).decode([several], LETTERBOXED)
    assert detections.scores.tolist() == pytest.approx([0.9, 0.75])
    np.testing.assert_allclose(detections.boxes[1], [0, 0, 48, 24], atol=1e-3)


@pytest.mark.slow
def test_a_real_model_is_scored_on_its_keypoints(tmp_path):
    """An ONNX file that points at the brightest pixel: AP 1, whose bounds nothing tells; where everybody is elsewhere, AP 0."""
    truth = photographed_people(tmp_path)
    model = single_pose(tmp_path / "movenet.onnx")
    model.with_name("movenet.onnx.toml").write_text(CARD.format(task="pose", family="movenet", more="").replace('"box"', '"person"'))
    accuracy = scored(model, tmp_path, annotations=str(truth)).accuracy
    assert (accuracy.metric, accuracy.value, accuracy.low, accuracy.images) == ("coco_keypoint_ap", 1.0, None, 24)
    assert accuracy.detail["ap_medium"] == 1.0
    moved = json.loads(truth.read_text())
    for annotation in moved["annotations"]:
        annotation["keypoints"] = [63.0, 63.0, 2] * 17
    truth.write_text(json.dumps(moved))
    assert scored(model, tmp_path, annotations=str(truth)).accuracy.value == 0.0


def test_garbled_keypoints_end_in_one_line(tmp_path):
    """Before anything is run."""
    for folder, keypoints, words in in_folders(
        tmp_path,
        [
            (None, "annotation 1 has no keypoints"),
            ([1, 2], "it has 2 numbers as keypoints"),
            ([1, 2, 2], "it has 1 keypoints, COCO's people have 17"),
            ("many", "its keypoints is not x, y, visibility"),
        ],
    ):
        with table_row(keypoints):
            truth = photographed_people(folder, 1)
            document = json.loads(truth.read_text())
            document["annotations"][0]["keypoints"] = keypoints
            if keypoints is None:
                del document["annotations"][0]["keypoints"]
            truth.write_text(json.dumps(document))
            card = make_card("movenet", "pose", make_input(layout="NCHW"), classes=1, labels=("person",))
            loaded = make_loaded(tensors((1, 1, 17, 3)), tensors((1, 3, 64, 64), names=("images",)))
            with pytest.raises(ConfigError, match=words):
                create(card, loaded, open_folder(folder / "images", truth))

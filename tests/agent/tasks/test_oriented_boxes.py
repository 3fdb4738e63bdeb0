"""Facts about oriented boxes: AP as of DOTA's devkit, polygons as OpenCV cuts them, suppression as Ultralytics', scored files."""

import math

import cv2
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.datasets.dota import OrientedObject
from edgemeter.agent.tasks import create
from edgemeter.agent.tasks.oriented_boxes import average_precisions, match, overlap
from edgemeter.agent.vision.decoders import Detections, PhotoFrame
from edgemeter.agent.vision.decoders import create as create_decoder
from edgemeter.agent.vision.decoders.yolo_obb import corners_of, probabilistic_iou
from tests.fixtures.onnx_factory import oriented
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.task_data import CARD, photographed_ships, scored
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors

NAMES = ("plane", "ship")


def random_boxes(draw, count):
    """Return turned boxes on a photograph of 200 pixels: float64 [n, 5]."""
    return np.column_stack([draw.uniform(20, 180, (count, 2)), draw.uniform(8, 60, (count, 2)), draw.uniform(-2, 2, count)])


def cut_by_opencv(polygon, other):
    """Return intersection over union of two convex polygons."""
    shared, _ = cv2.intersectConvexConvex(polygon.astype(np.float32), other.astype(np.float32))
    union = cv2.contourArea(polygon.astype(np.float32)) + cv2.contourArea(other.astype(np.float32)) - shared
    return shared / union


def test_polygons_overlap_as_opencv_has_them():
    """Turned boxes, either way round; boxes apart, one in another, one and the same."""
    draw = np.random.default_rng(0)
    ones, partners = corners_of(random_boxes(draw, 300)), corners_of(random_boxes(draw, 300))
    for number, (polygon, other) in enumerate(zip(ones, partners, strict=True)):
        partner = other[::-1] if number % 2 else other
        assert overlap(polygon, partner) == pytest.approx(cut_by_opencv(polygon, other), abs=2e-4)
        assert overlap(polygon, polygon) == pytest.approx(1.0)
    small, large = corners_of(np.array([[50, 50, 10, 10, 0.3], [50, 50, 40, 20, 0.3]]))
    assert overlap(small, large) == pytest.approx(100 / 800)


def voc_eval(photographs, name):
    """Return AP of a class as `dota_evaluation_task1.py` computes it: detections of all photographs by score, 11 points."""
    truth = {index: [labelled for labelled in objects if labelled.name == name] for index, (_, objects) in enumerate(photographs)}
    countable = sum(not labelled.is_difficult for objects in truth.values() for labelled in objects)
    rows = []
    for index, (detections, _) in enumerate(photographs):
        rows += [
            (float(s), index, c)
            for s, k, c in zip(detections.scores, detections.classes, detections.corners, strict=True)
            if NAMES[k] == name
        ]
    matched_objects, right, wrong = set(), [], []
    for _, index, corners in sorted(rows, key=lambda row: -row[0]):
        ious = [cut_by_opencv(corners.astype(float), np.array(labelled.corners)) for labelled in truth[index]]
        best = int(np.argmax(ious)) if ious else None
        hit, miss = 0, 0
        if best is not None and ious[best] > 0.5:
            if not truth[index][best].is_difficult:
                hit, miss = (0, 1) if (index, best) in matched_objects else (1, 0)
                matched_objects.add((index, best))
        else:
            miss = 1
        right.append(hit)
        wrong.append(miss)
    right, wrong = np.cumsum(right), np.cumsum(wrong)
    recall, precision = right / countable, right / np.maximum(right + wrong, np.finfo(np.float64).eps)
    total = 0.0
    for threshold in np.arange(0.0, 1.1, 0.1):
        total += (np.max(precision[recall >= threshold]) if np.any(recall >= threshold) else 0) / 11
    return total


@pytest.mark.parametrize("seed", range(3))
def test_ap_is_that_of_dotas_devkit(seed):
    """Its rule written down again: difficult objects ignored, an object found twice is one false find, 11 points."""
    draw, photographs = np.random.default_rng(seed), []
    for _ in range(12):
        boxes = random_boxes(draw, 8)
        objects = tuple(
            OrientedObject(tuple(map(tuple, corners.tolist())), NAMES[int(draw.integers(2))], bool(draw.random() < 0.2))
            for corners in corners_of(boxes)
        )
        missed = np.concatenate([boxes, boxes[:3], random_boxes(draw, 4)]) + draw.normal(0, [1.5, 1.5, 2, 2, 0.05], (15, 5))
        kinds = [NAMES.index(labelled.name) for labelled in (*objects, *objects[:3])] + draw.integers(0, 2, 4).tolist()
        corners = corners_of(missed).astype(np.float32)
        scores = draw.random(15).astype(np.float32)
        photographs.append((Detections(np.zeros((15, 4), np.float32), scores, np.array(kinds, np.int32), corners=corners), objects))
    matched = [match(its.corners, its.scores, [NAMES[number] for number in its.classes], objects) for its, objects in photographs]
    computed = average_precisions(matched, NAMES)
    for name in NAMES:
        assert computed[name] == pytest.approx(voc_eval(photographs, name), abs=1e-9)
        assert 0.2 < computed[name] < 1.0


def test_boxes_are_alike_as_gaussians():
    """By its formula, number for number: one and the same, moved, turned by a quarter."""
    boxes = np.array([[50, 50, 40, 10, 0.0], [55, 50, 40, 10, 0.0], [50, 50, 40, 10, math.pi / 2]])
    alike = probabilistic_iou(boxes, boxes)
    np.testing.assert_allclose(np.diag(alike), 1, atol=1e-3)
    # Moved by 5 along 40: the covariances are equal, so Bhattacharyya's distance is 5^2 / (8 x 40^2 / 12).
    assert alike[0, 1] == pytest.approx(1 - math.sqrt(1 - math.exp(-(25 / (8 * 1600 / 12)))), abs=1e-3)
    a, b = 1600 / 12, 100 / 12
    assert alike[0, 2] == pytest.approx(1 - math.sqrt(1 - math.exp(-0.5 * math.log((a + b) ** 2 / (4 * a * b)))), abs=1e-3)


def test_yolos_boxes_are_turned_unplaced_and_suppressed():
    """In the photograph, letterboxed to two thirds; the second is like the first, the third of another class, the fourth turned."""
    rows = np.zeros((1, 4 + 2 + 1, 84), np.float32)
    for anchor, (angle, plane, ship) in enumerate([(0.5, 0.9, 0), (0.52, 0.8, 0), (0.5, 0, 0.7), (0.5 + math.pi / 2, 0.6, 0)]):
        rows[0, :, anchor] = (32, 32, 24, 6, plane, ship, angle)
    card = make_card("yolo-obb", "oriented-boxes", classes=2, labels=NAMES, nms_iou=0.7)
    frame = PhotoFrame(96, 48, 64, 64, 2 / 3, 2 / 3, 0.0, 16.0)
    detections = create_decoder(card, make_loaded(tensors(rows.shape))).decode([rows], frame)
    assert (detections.scores.tolist(), detections.classes.tolist()) == (pytest.approx([0.9, 0.7, 0.6]), [0, 1, 0])
    expected = cv2.boxPoints(((48.0, 24.0), (36.0, 9.0), math.degrees(0.5)))
    np.testing.assert_allclose(sorted(detections.corners[0].tolist()), sorted(expected.tolist()), atol=0.01)


@pytest.mark.slow
def test_a_real_model_is_scored_on_its_oriented_boxes(tmp_path):
    """An ONNX file that turns a box around the brightest pixel: mAP 1; 0 where all are turned the other way."""
    labels = photographed_ships(tmp_path)
    model = oriented(tmp_path / "tiny-obb.onnx")
    card = CARD.format(task="oriented-boxes", family="yolo-obb", more="nms_iou = 0.7").replace('"box"', '"ship"')
    model.with_name("tiny-obb.onnx.toml").write_text(card)
    result = scored(model, tmp_path, annotations=str(labels))
    accuracy = result.accuracy
    assert (accuracy.metric, accuracy.value, accuracy.low, accuracy.images) == ("dota_map50", pytest.approx(1), None, 24)
    assert [(part.name, part.objects) for part in result.accuracy.per_class] == [("ship", 24)]
    assert result.verdict.state != "invalid"
    for path in labels.iterdir():
        words = path.read_text().split("\n")[2].split()
        x, y = np.array(words[:8], float)[::2].mean(), np.array(words[:8], float)[1::2].mean()
        turned = cv2.boxPoints(((x, y), (24.0, 12.0), 120.0)).ravel()
        path.write_text(f"{' '.join(map(str, turned))} ship 0\n")
    assert scored(model, tmp_path, annotations=str(labels)).accuracy.value == 0.0


def test_garbled_labels_end_in_one_line(tmp_path):
    """With the file and the line; a class that the model does not know with its name."""
    for folder, line, words in in_folders(
        tmp_path,
        [
            ("1 2 3 4 5 6 7 ship 0", "line 1 is '1 2 3 4 5 6 7 ship 0'"),
            ("1 2 3 4 5 6 7 8 ship 2", "line 1 is"),
            ("1 2 3 4 5 6 7 nan ship 0", "line 1 is"),
            ("1 2 3 4 5 6 7 8 whale 0", "the labels of 'images' name 'whale'"),
        ],
    ):
        labels = photographed_ships(folder, 2)
        (labels / "01.txt").write_text(line + "\n")
        card = make_card("yolo-obb", "oriented-boxes", make_input(layout="NCHW"), classes=1, labels=("ship",))
        loaded = make_loaded(tensors((1, 6, 84)), tensors((1, 3, 64, 64), names=("images",)))
        with table_row(line), pytest.raises(ConfigError, match=words):
            create(card, loaded, open_folder(folder / "images", labels))

"""`edgemeter.score`: plain arrays of every task, held against other libraries, or the definition of the metric written out again."""

import math
import statistics

import numpy as np
import pytest
from pycocotools import mask

import edgemeter
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.tasks.coco_matches import METRICS
from tests.fixtures.task_data import people, scored_by_pycocotools

# pycocotools has not heard of numpy 2.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def random_objects(draw, images=15, side=96):
    """Return annotated and predicted objects of each image as arrays: rectangles as boxes and, with a corner cut out, as masks."""

    def of(boxes):
        rounded = np.rint(np.clip(boxes, 0, side)).astype(int)
        masks = np.zeros((len(boxes), side, side), bool)
        for pixels, (x1, y1, x2, y2) in zip(masks, rounded, strict=True):
            pixels[y1:y2, x1:x2] = True
            pixels[y1 : (y1 + y2) // 2, x1 : (x1 + x2) // 2] = False
        return {"boxes": boxes, "masks": masks}

    truth, predictions = [], []
    for _ in range(images):
        count = int(draw.integers(1, 5))
        corner = draw.uniform(0, side / 2, (count, 2))
        boxes = np.concatenate([corner, corner + draw.uniform(10, side / 2, (count, 2))], axis=1)
        labels, crowds = draw.integers(0, 3, count), (draw.random(count) < 0.1).astype(int)
        truth.append({**of(boxes), "labels": labels, "iscrowd": crowds})
        moved = boxes + draw.normal(0, 2, boxes.shape)
        predictions.append({**of(moved), "labels": np.where(draw.random(count) < 0.9, labels, 0), "scores": draw.random(count)})
    return predictions, truth


def by_pycocotools(predictions, truth, kind):
    """Return pycocotools' figures of the same objects."""

    def code(pixels):
        coded = mask.encode(np.asfortranarray(pixels.astype(np.uint8)))
        return {"size": coded["size"], "counts": coded["counts"].decode()}

    annotations, results = [], []
    for image, (predicted, annotated) in enumerate(zip(predictions, truth, strict=True), 1):
        for objects, rows in ((annotated, annotations), (predicted, results)):
            for number, (x1, y1, x2, y2) in enumerate(objects["boxes"].tolist()):
                box = [x1, y1, x2 - x1, y2 - y1]
                row = {"image_id": image, "category_id": int(objects["labels"][number]) + 1}
                row |= {"bbox": box} if kind == "bbox" else {"segmentation": code(objects["masks"][number])}
                if objects is annotated:
                    area = box[2] * box[3] if kind == "bbox" else int(objects["masks"][number].sum())
                    row |= {"id": len(rows) + 1, "area": area, "iscrowd": int(objects["iscrowd"][number]), "bbox": box}
                else:
                    row["score"] = float(objects["scores"][number])
                rows.append(row)
    images = [{"id": image + 1, "width": 96, "height": 96} for image in range(len(truth))]
    categories = [{"id": number, "name": str(number)} for number in (1, 2, 3)]
    return scored_by_pycocotools({"images": images, "annotations": annotations, "categories": categories}, results, kind)


@pytest.mark.parametrize(("task", "kind", "metric"), [("detection", "bbox", "coco_ap"), ("segmentation", "segm", "coco_mask_ap")])
def test_objects_are_scored_as_pycocotools_does(task, kind, metric):
    """Twelve figures of boxes and of masks, crowds among them."""
    predictions, truth = random_objects(np.random.default_rng(1))
    accuracy = edgemeter.score(task, predictions, truth)
    expected = by_pycocotools(predictions, truth, kind).tolist()
    names = METRICS[1:]
    figures = [accuracy.value, *(accuracy.detail[name] for name in names)]
    assert [-1 if value is None else value for value in figures] == pytest.approx(expected, abs=1e-9)
    assert (accuracy.metric, accuracy.better, accuracy.images) == (metric, "higher", 15)
    assert 0.2 < accuracy.value < 1


def test_masks_of_an_image_have_one_size():
    """Masks are compared pixel by pixel, so those of another size are refused, in words."""
    truth = [{"masks": np.ones((1, 8, 8)), "labels": [1]}]
    predictions = [{"masks": np.ones((1, 8, 9)), "labels": [1], "scores": [0.5]}]
    with pytest.raises(ConfigError, match=r"masks of one image differ in size: \[\(8, 8\), \(8, 9\)\]"):
        edgemeter.score("segmentation", predictions, truth)


def test_poses_are_scored_as_pycocotools_does():
    """Keypoints [n, 17, 3] and areas, of people of whom some have no labelled point."""
    document, results = people(np.random.default_rng(2), images=20)
    truth, predictions = [], []
    for image in document["images"]:
        its = [annotation for annotation in document["annotations"] if annotation["image_id"] == image["id"]]
        keypoints = np.array([annotation["keypoints"] for annotation in its]).reshape(-1, 17, 3)
        truth.append({"keypoints": keypoints, "area": [each["area"] for each in its], "labels": [1] * len(its)})
        its = [result for result in results if result["image_id"] == image["id"]]
        keypoints = np.array([result["keypoints"] for result in its]).reshape(-1, 17, 3)
        predictions.append({"keypoints": keypoints, "scores": [each["score"] for each in its], "labels": [1] * len(its)})
    accuracy = edgemeter.score("pose", predictions, truth)
    expected = scored_by_pycocotools(document, results, "keypoints").tolist()
    figures = [accuracy.value, *(accuracy.detail[name] for name in ("ap50", "ap75", "ap_medium", "ap_large", "ar"))]
    assert figures == pytest.approx(expected[:6], abs=1e-9)


def test_oriented_boxes_are_scored_by_11_points():
    """Half of the objects found first: six of eleven points have precision 1; a class by any label."""
    square = np.array([[0, 0], [20, 0], [20, 10], [0, 10]], float)
    truth = [{"corners": [square, square + 50], "labels": ["ship", "ship"]}]
    predictions = [{"corners": [square, square + 200], "labels": ["ship", "ship"], "scores": [0.9, 0.4]}]
    accuracy = edgemeter.score("oriented-boxes", predictions, truth)
    assert (accuracy.metric, accuracy.value) == ("dota_map50", pytest.approx(6 / 11))
    truth[0]["difficult"] = [False, True]
    assert edgemeter.score("oriented-boxes", predictions, truth).value == pytest.approx(1)


def test_classes_are_counted():
    """Labels of any type, or rows of scores; Wilson's bounds by their formula."""
    draw = np.random.default_rng(3)
    truth, scores = draw.integers(0, 7, 200), draw.random((200, 7))
    scores[np.arange(200), truth] += 0.5
    share = np.mean(scores.argmax(axis=1) == truth)
    accuracy = edgemeter.score("classification", scores, truth)
    z, n = statistics.NormalDist().inv_cdf(0.975), 200
    middle, reach = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    assert (accuracy.metric, accuracy.value) == ("top1", pytest.approx(share))
    assert (accuracy.low, accuracy.high) == pytest.approx(((middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)))
    best = np.argsort(-scores, axis=1)[:, :5]
    assert accuracy.detail["top5"] == pytest.approx(np.mean((best == truth[:, None]).any(axis=1)))
    words = np.array(["cat", "dog", "eel", "fox", "gnu", "hen", "ibis"])
    assert edgemeter.score("classification", words[scores.argmax(axis=1)], words[truth]).value == pytest.approx(share)
    by_video = edgemeter.score("classification", scores, truth, clusters=np.repeat(range(20), 10))
    assert by_video.clusters.count == 20


def test_maps_are_counted_pixel_by_pixel():
    """The mIoU over classes and AbsRel over photographs; 255 and 0 do not count; limits and crop as they are named."""
    draw = np.random.default_rng(6)
    truth = draw.integers(0, 3, (4, 20, 30))
    predicted = np.where(draw.random(truth.shape) < 0.8, truth, draw.integers(0, 3, truth.shape))
    truth[:, :2] = 255
    counted = truth != 255
    ious = [((predicted == k) & (truth == k))[counted].sum() / ((predicted == k) | (truth == k))[counted].sum() for k in range(3)]
    accuracy = edgemeter.score("semantic-segmentation", list(predicted), list(truth))
    assert (accuracy.metric, accuracy.value) == ("miou", pytest.approx(np.mean(ious)))
    depths = draw.uniform(1, 120, (3, 40, 50))
    guessed = depths * draw.uniform(0.7, 1.4, depths.shape)
    depths[:, ::3] = 0
    errors = []
    for p, t in zip(guessed, depths, strict=True):
        rows, columns = slice(int(0.40810811 * 40), int(0.99189189 * 40)), slice(int(0.03594771 * 50), int(0.96405229 * 50))
        inside, measured = p[rows, columns], t[rows, columns]
        counts = (measured > 1e-3) & (measured < 80)
        errors.append(np.mean(np.abs(np.clip(inside[counts], 1e-3, 80) - measured[counts]) / measured[counts]))
    accuracy = edgemeter.score("depth", guessed, depths, protocol="kitti")
    assert (accuracy.better, accuracy.value) == ("lower", pytest.approx(np.mean(errors)))
    assert accuracy.normalisation == "kitti: 0.001 to 80 m, crop garg, scaling none"


def test_arrays_that_do_not_fit_end_in_one_line():
    """Another task, other lengths, a keyword of another task, objects without labels, nothing to find."""
    box = {"boxes": [[0, 0, 9, 9]], "labels": [1], "scores": [0.5]}
    for arguments, words in [
        (("detections", [], []), "no task is called 'detections': did you mean"),
        (("classification", [1, 2], [1]), "there are 2 predictions and 1 items of ground truth"),
        (("detection", [{"boxes": [[0, 0, 9, 9]], "scores": [0.5]}], [box]), "the arrays are not those of the task detection: KeyError"),
        (("detection", [box], [{**box, "labels": [1, 2]}]), "the arrays are not those of the task detection: ValueError"),
        (("detection", [box], [{"boxes": [], "labels": []}]), "the ground truth holds nothing to find"),
        (("classification", [0, 1], ["cat", "dog"]), "labels are numbers on one side, and words on the other"),
        (("classification", np.eye(2), [0, 2]), "a class of the ground truth is not among the 2 that have scores"),
        (("semantic-segmentation", [np.zeros((2, 2))], [np.zeros((3, 3))]), "the arrays are not those of the task"),
    ]:
        with pytest.raises(ConfigError) as refusal:
            edgemeter.score(*arguments)
        assert words in str(refusal.value)
        assert "\n" not in str(refusal.value)
    for settings, words in [({"protocol": "mars"}, "no protocol of depth is called 'mars'"), ({"depth_crop": "x"}, "ValidationError")]:
        with pytest.raises(ConfigError, match=words):
            edgemeter.score("depth", [np.ones((2, 2))], [np.ones((2, 2))], **settings)
    with pytest.raises(ConfigError, match="there are 1 clusters and 2 items"):
        edgemeter.score("classification", [0, 1], [0, 1], clusters=[1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'metric' for the task detection"):
        edgemeter.score("detection", [box], [box], metric="f1")

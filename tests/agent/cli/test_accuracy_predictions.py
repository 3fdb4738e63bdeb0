"""`edgemeter accuracy --predictions`: files of every kind, held against other libraries, or rules written out again."""

import json

import numpy as np
import pytest
from pycocotools import mask

from tests.fixtures.command import edgemeter
from tests.fixtures.rows import table_row
from tests.fixtures.task_data import people, scored_by_pycocotools

# pycocotools has not heard of numpy 2.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def run(folder, truth, predictions, *options):
    """Return how the command ended on these files; what is no text is written as JSON, by name."""
    paths = []
    for name, content in (truth, predictions):
        path = folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        paths.append(path)
    return edgemeter("accuracy", "--annotations", paths[0], "--predictions", paths[1], *options)


def scores_of(folder, truth, predictions, *options):
    """Return what `--json` prints."""
    result = run(folder, truth, predictions, "--json", *options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def outlined(draw, images=12):
    """Return a document of polygons and results of polygons that miss them by some pixels, each with its upright box."""

    def triangle(corner, side):
        points = np.array([[0, 0], [side, side / 4], [side / 3, side]]) + corner
        return points.ravel().tolist(), [*corner, side, side]

    annotations, results = [], []
    for image in range(1, images + 1):
        for _ in range(3):
            corner, side = draw.uniform(5, 60, 2).tolist(), float(draw.uniform(20, 60))
            polygon, box = triangle(corner, side)
            about = {"id": len(annotations) + 1, "image_id": image, "category_id": int(draw.integers(1, 3)), "iscrowd": 0}
            annotations.append({**about, "bbox": box, "area": side * side * 0.45, "segmentation": [polygon]})
            near = (np.array(corner) + draw.normal(0, 2, 2)).tolist()
            polygon, box = triangle(near, side * draw.uniform(0.8, 1.2))
            category = about["category_id"] if draw.random() < 0.9 else 3 - about["category_id"]
            score = float(draw.random())
            results.append({"image_id": image, "category_id": category, "bbox": box, "segmentation": [polygon], "score": score})
    document = {
        "images": [{"id": image, "file_name": f"{image}.png", "width": 128, "height": 128} for image in range(1, images + 1)],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }
    return document, results


def as_codes(results, *, compressed):
    """Return the results with masks as run-length codes of their polygons, by pycocotools."""
    coded = []
    for result in results:
        code = mask.merge(mask.frPyObjects(result["segmentation"], 128, 128))
        runs = code["counts"].decode()
        if not compressed:
            pixels = mask.decode(code).ravel(order="F")
            ends = np.flatnonzero(np.diff(np.array([0, *pixels, 2])) != 0)
            runs = np.diff([0, *ends]).tolist()
        coded.append(
            {**{key: value for key, value in result.items() if key != "bbox"}, "segmentation": {"size": [128, 128], "counts": runs}}
        )
    return coded


def test_masks_are_never_scored_as_boxes_in_silence(tmp_path):
    """A file of boxes and masks may mean either: it is refused until one is named, and each is then what pycocotools makes of it."""
    truth, results = outlined(np.random.default_rng(1))
    files = (("truth.json", truth), ("found.json", results))
    refused = run(tmp_path, *files)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "hold bbox and segmentation: choose with --task segmentation" in refused.stderr
    coded = as_codes(results, compressed=True)
    boxes = [{key: value for key, value in result.items() if key != "segmentation"} for result in results]
    expected = {
        "detection": scored_by_pycocotools(truth, boxes, "bbox"),
        "segmentation": scored_by_pycocotools(truth, coded, "segm"),
    }
    assert abs(expected["detection"][0] - expected["segmentation"][0]) > 0.01
    for task, metric in (("detection", "coco_ap"), ("segmentation", "coco_mask_ap")):
        with table_row(task):
            scores = scores_of(tmp_path, *files, "--task", task)
            assert (scores["task"], scores["metric"], scores["better"]) == (task, metric, "higher")
            assert [scores["value"], scores["ap50"], scores["ap75"]] == pytest.approx(expected[task][:3].tolist(), abs=1e-9)


def test_masks_alone_are_scored_as_masks_in_every_form(tmp_path):
    """Polygons, run-length codes, compressed or not: nothing has to be named, and the first line says what was scored."""
    truth, results = outlined(np.random.default_rng(2))
    coded = as_codes(results, compressed=True)
    expected = scored_by_pycocotools(truth, coded, "segm")
    without_boxes = [{key: value for key, value in result.items() if key != "bbox"} for result in results]
    for form in (without_boxes, coded, as_codes(results, compressed=False)):
        scores = scores_of(tmp_path, ("truth.json", truth), ("found.json", form))
        assert scores["task"] == "segmentation"
        assert scores["value"] == pytest.approx(expected[0], abs=1e-9)
        assert scores["ar_100"] == pytest.approx(expected[8], abs=1e-9)
    assert "segmentation: 12 images, 36 detections" in run(tmp_path, ("truth.json", truth), ("found.json", coded)).stdout


def test_keypoints_are_scored_as_pycocotools_does(tmp_path):
    """Ten figures of people's poses; with boxes beside them the task has to be named."""
    truth, results = people(np.random.default_rng(3))
    expected = scored_by_pycocotools(truth, results, "keypoints")
    scores = scores_of(tmp_path, ("truth.json", truth), ("found.json", results))
    assert (scores["task"], scores["metric"]) == ("pose", "coco_keypoint_ap")
    assert [scores[key] for key in ("value", "ap50", "ap75", "ap_medium", "ap_large", "ar")] == pytest.approx(
        expected[:6].tolist(), abs=1e-9
    )
    boxed = [{**result, "bbox": [0, 0, 9, 9]} for result in results]
    assert "hold bbox and keypoints: choose with --task pose" in run(tmp_path, ("truth.json", truth), ("found.json", boxed)).stderr


def test_shapes_that_cannot_be_scored_end_in_one_line(tmp_path):
    """A mask of another size, a polygon of two points, a pose of other joints, truth without outlines."""
    truth, results = outlined(np.random.default_rng(4), images=1)
    bare = [{key: value for key, value in result.items() if key != "bbox"} for result in results]
    for document, changed, words in [
        (truth, {"segmentation": {"size": [64, 128], "counts": "0"}}, "is of [64, 128] pixels, its image of [128, 128]"),
        (truth, {"segmentation": {"size": [128, 128], "counts": [100] * 2000}}, "the mask of result number 0 cannot be read: invalid RLE"),
        (truth, {"segmentation": [[1, 2, 3, 4]]}, "the segmentation of number 0 is not polygons"),
        (truth, {"segmentation": [], "keypoints": [1.0, 2.0, 2.0]}, "hold segmentation and keypoints: choose with --task pose"),
        (
            {**truth, "annotations": [{**truth["annotations"][0], "segmentation": []}]},
            {},
            "the mask of annotation 1 cannot be read: it is empty",
        ),
    ]:
        with table_row(words):
            result = run(tmp_path, ("truth.json", document), ("found.json", [{**bare[0], **changed}, *bare[1:]]))
            assert (result.returncode, result.stdout) == (2, "")
            assert words in result.stderr
            assert len(result.stderr.splitlines()) == 1


def test_classes_are_scored_with_and_without_scores(tmp_path):
    """Top-1 and top-5 counted by hand, from rankings, from scores and from single labels, of JSON lines and of a table."""
    draw = np.random.default_rng(5)
    truth, scores = draw.integers(0, 10, 60), draw.random((60, 10))
    scores[np.arange(60), truth] += 0.4
    order = np.argsort(-scores, axis=1)
    top1, top5 = np.mean(order[:, 0] == truth), np.mean([label in row[:5] for label, row in zip(truth, order, strict=True)])
    index = ("truth.csv", "".join(f"photos/{k}.jpg,{label}\n" for k, label in enumerate(truth)))
    by_score = "".join(json.dumps({"id": f"photos/{k}.jpg", "scores": row.tolist()}) + "\n" for k, row in enumerate(scores))
    ranked = "".join(json.dumps({"file": f"{k}.jpg", "label": row[:5].tolist()}) + "\n" for k, row in enumerate(order))
    mixed = [{"id": f"{k}", "label": row[::-1].tolist(), "scores": scores[k, row[::-1]].tolist()} for k, row in enumerate(order)]
    for predictions in (("p.jsonl", by_score), ("p.jsonl", ranked), ("p.json", mixed)):
        document = scores_of(tmp_path, index, predictions)
        assert (document["task"], document["metric"]) == ("classification", "top1")
        assert (document["value"], document["top5"]) == (pytest.approx(top1), pytest.approx(top5))
    table = ("p.csv", "file,label\n" + "".join(f"{k}.jpg,{row[0]}\n" for k, row in enumerate(order)))
    document = scores_of(tmp_path, index, table, "--task", "classification")
    assert (document["task"], document["value"], "top5" in document) == ("classification", pytest.approx(top1), False)


def test_predictions_that_do_not_belong_to_the_truth_end_in_one_line(tmp_path):
    """Absent and unknown items, another task, a label that is no class, a line that is garbled, an item that stands there twice."""
    truth = ("truth.csv", "a.jpg,0\nb.jpg,1\n")
    for name, content, words in [
        ("p.jsonl", '{"id": "a.jpg", "label": 0}\n', "1 of 2 items have no prediction, first 'b.jpg'"),
        ("p.csv", "id,label\na.jpg,0\nb.jpg,1\nc.jpg,1\n", "1 of 3 predictions are of items that 'truth.csv' does not have, first 'c.jpg'"),
        ("p.csv", "id,label\na.jpg,cat\nb.jpg,dog\n", "the predicted class 'cat' is none of the data's"),
        ("p.csv", "id,label\na.jpg,0\na.jpg,1\n", "hold 'a.jpg' twice"),
        ("p.jsonl", '{"id": "a.jpg", "label": 0}\n{"id": "b.jpg", "lab', "cannot be read"),
        ("p.json", '[{"label": 0}]', "number 1 is not of their form"),
    ]:
        with table_row(words):
            result = run(tmp_path, truth, (name, content))
            assert (result.returncode, result.stdout) == (2, "")
            assert words in result.stderr
            assert len(result.stderr.splitlines()) == 1
    result = run(tmp_path, truth, ("p.csv", "id,label\na.jpg,0\nb.jpg,1\n"), "--task", "pose")
    assert "--task pose: the ground truth is that of classification" in result.stderr

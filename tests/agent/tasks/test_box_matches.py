"""Figures of boxes beside those of pycocotools, on scenes full of what is decided by a rule: ties, crowds, cuts and limits."""

from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from edgemeter.agent.tasks.box_matches import BoxMatches

CATEGORIES = (3, 9, 4)


def scene(seed, images=12, scale=1):
    """Return a document and detections: boxes on a grid (alike overlaps, areas at the limits), scores in tenths, up to 130 of a class."""
    draw = np.random.default_rng(seed)
    ids = draw.permutation(images) * scale + 1
    sides = np.array([0, 8, 16, 32, 32, 64, 96])

    def boxes(count):
        return np.column_stack([draw.integers(0, 12, (count, 2)) * 8, draw.choice(sides, (count, 2))]).astype(float)

    annotations = []
    # The last image has no objects, the last class none but crowds.
    for image in ids[:-1].tolist():
        for box in boxes(int(draw.integers(0, 9))).tolist():
            category = int(draw.choice(CATEGORIES))
            is_crowd = category == CATEGORIES[-1] or draw.random() < 0.15
            area = float(draw.choice([box[2] * box[3], 32**2, 96**2]))
            about = {"id": len(annotations) + 1, "image_id": image, "category_id": category, "iscrowd": int(is_crowd)}
            annotations.append({**about, "bbox": box, "area": area})
    hits = np.array([[a["image_id"], *a["bbox"], 0, a["category_id"]] for a in annotations for _ in range(3)]).reshape(-1, 7)
    hits[:, 1:5] += draw.choice([0, 0, 4, 8], (len(hits), 4))
    crowded = np.column_stack([np.full(130, ids[0]), boxes(130), np.zeros(130), np.full(130, CATEGORIES[0])])
    strays = np.column_stack([draw.choice(ids, 90), boxes(90), np.zeros(90), draw.choice(CATEGORIES, 90)])
    rows = draw.permutation(np.concatenate([hits, crowded, strays]))
    rows[:, 5] = draw.integers(0, 11, len(rows)) / 10
    documents = {"images": [{"id": int(number)} for number in ids], "categories": [{"id": number} for number in CATEGORIES]}
    return {**documents, "annotations": annotations}, rows


def evaluated(truth, rows, image_ids=None, area_ranges=None):
    """Return the evaluation of the reference implementation."""
    with redirect_stdout(StringIO()):
        reference = COCO()
        reference.dataset = {**truth, "annotations": [dict(annotation) for annotation in truth["annotations"]]}
        reference.createIndex()
        evaluation = COCOeval(reference, reference.loadRes(rows), "bbox")
        evaluation.params.imgIds = image_ids or evaluation.params.imgIds
        evaluation.params.areaRng = area_ranges or evaluation.params.areaRng
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


@pytest.mark.parametrize("seed", range(8))
def test_all_twelve_figures_are_those_of_pycocotools(seed):
    """Of all images and of half of them, with small ids and with large ones, and AP of each class."""
    truth, rows = scene(seed, scale=1 if seed % 2 else 10_000_000)
    ids = [image["id"] for image in truth["images"]]
    matches = BoxMatches(truth, rows)
    for part in (ids, ids[::2], ids[-1:]):
        evaluation = evaluated(truth, rows, part)
        overall, by_category = matches.figures(part)
        assert [-1 if value is None else value for value in overall] == pytest.approx(evaluation.stats.tolist(), abs=1e-12)
        precision = evaluation.eval["precision"][:, :, :, 0, -1].mean(axis=(0, 1))
        assert [-1 if by_category[number] is None else by_category[number] for number in sorted(CATEGORIES)] == pytest.approx(precision)


def test_of_two_objects_that_are_overlapped_alike_the_later_is_matched():
    """The next detection, which is the later object, is then left with the earlier one, at the lower thresholds alone."""
    boxes = ([0, 0, 10, 10], [2, 0, 10, 10])
    annotations = [{"id": n, "image_id": 1, "category_id": 3, "iscrowd": 0, "area": 100, "bbox": box} for n, box in enumerate(boxes, 1)]
    truth = {"images": [{"id": 1}], "categories": [{"id": 3}], "annotations": annotations}
    rows = np.array([[1, 1, 0, 10, 10, 0.9, 3], [1, *boxes[1], 0.8, 3]], float)
    expected = evaluated(truth, rows).stats[0]
    assert 0 < expected < 1
    assert BoxMatches(truth, rows).figures([1])[0][0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("objects", [20, 25, 50, 100])
def test_a_recall_is_reached_by_the_hit_that_pycocotools_names(objects):
    """For these numbers of objects the product of number and recall is rounded to above or below the hit that reaches it."""
    numbers = range(1, objects + 1)
    about = {"category_id": 3, "iscrowd": 0, "area": 100, "bbox": [0, 0, 10, 10]}
    annotations = [{**about, "id": number, "image_id": number} for number in numbers]
    truth = {"images": [{"id": number} for number in numbers], "categories": [{"id": 3}], "annotations": annotations}
    # After each hit a false one: every hit has a precision of its own.
    rows = np.array([[n, x, 0, 10, 10, 1 - (n + x / 100) / 200, 3] for n in numbers for x in (0, 50)], float)
    assert BoxMatches(truth, rows).figures(list(numbers))[0][0] == pytest.approx(evaluated(truth, rows).stats[0], abs=1e-12)


def test_the_recall_of_members_ignores_all_other_objects():
    """As pycocotools does of objects outside a range of area, and of what finds them."""
    truth, rows = scene(1)
    members = [number % 3 == 0 for number in range(len(truth["annotations"]))]
    areas = [1.0 if is_member else 2.0 for is_member in members]
    marked = {**truth, "annotations": [{**a, "area": area} for a, area in zip(truth["annotations"], areas, strict=True)]}
    ids = [image["id"] for image in truth["images"]]
    evaluation = evaluated(marked, rows, area_ranges=[[0.0, 1e10], [0.5, 1.5], [2.5, 3.5], [3.5, 4.5]])
    recall = evaluation.eval["recall"][:, :, 1, -1]
    assert BoxMatches(truth, rows, members).recall(ids) == pytest.approx(recall[recall > -1].mean(), abs=1e-12)
    assert BoxMatches(truth, rows, [False] * len(members)).recall(ids) is None


def test_detections_of_images_and_classes_that_the_document_lacks_count_for_nothing():
    """Neither as hits nor as false ones, and a document without images has no figures."""
    truth, rows = scene(2)
    ids = [image["id"] for image in truth["images"]]
    strangers = np.array([[999, 0, 0, 8, 8, 1, 3], [ids[0], 0, 0, 8, 8, 1, 77], [-5, 0, 0, 8, 8, 1, 3]])
    assert BoxMatches(truth, np.concatenate([strangers, rows])).figures(ids) == BoxMatches(truth, rows).figures(ids)
    nothing = {"images": [], "categories": [], "annotations": []}
    assert BoxMatches(nothing, rows).figures([]) == ([None] * 12, {})

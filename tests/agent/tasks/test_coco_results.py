"""Predictions of other tools get pycocotools's figures.

Ids are matched only where they leave no doubt.
"""

import json
import re

import numpy as np
import pytest
from pycocotools.mask import frPyObjects

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.tasks.coco_results import score_results
from tests.fixtures.rows import table_row
from tests.fixtures.task_data import PEOPLE, scored_by_pycocotools
from tests.fixtures.vision_factory import make_truth

NAMES = ("cat", "dog", "cow")


def scored(folder, results, truth):
    for name, content in (("results.json", results), ("truth.json", truth)):
        (folder / name).write_text(json.dumps(content))
    return score_results(folder / "results.json", folder / "truth.json")


def figures(result):
    """Return all figures in COCO's order, -1 where there is nothing to find.

    This is as pycocotools has it.
    """
    return [
        -1 if figure is None else figure
        for figure in (result.accuracy.value, *result.accuracy.detail.values())
    ]


def drawn_truth(images=40, categories=NAMES):
    """Return annotations of boxes with outlines, some of which overlap or are crowds.

    In each photograph two objects may overlap.
    """
    draw = np.random.default_rng(0)
    truth = {**make_truth(images, categories, 200), "annotations": []}
    for number in range(images * 4):
        x, y, width, height = draw.uniform(1, 90, 4).tolist()
        outline = [x, y, x + width, y, x + width, y + height, x, y + height]
        about = {
            "image_id": 100 + number // 4,
            "category_id": 7 + number % len(categories),
            "iscrowd": int(number % 23 == 0),
        }
        mask = {
            "segmentation": {"size": [200, 200], "counts": [40000]}
            if about["iscrowd"]
            else [outline]
        }
        truth["annotations"].append(
            {"id": number, **about, "bbox": [x, y, width, height], "area": width * height, **mask}
        )
    return truth


def drawn_results(truth, **changes):
    """Return results that find most objects more or less exactly.

    A fifth are of another class, some are found twice, and the first photograph has none.
    """
    draw = np.random.default_rng(1)
    results = []
    for annotation in truth["annotations"][4:] * 2:
        x, y, width, height = (np.array(annotation["bbox"]) * draw.uniform(0.85, 1.15, 4)).tolist()
        category = (
            annotation["category_id"]
            if draw.random() < 0.8
            else 7 + int(draw.integers(len(truth["categories"])))
        )
        score, image = round(float(draw.random()), 2), annotation["image_id"]
        results.append(
            {
                "image_id": image,
                "category_id": category,
                "bbox": [x, y, width, height],
                "score": score,
                **changes,
            }
        )
    return results


def as_text(counts):
    """Return a mask of 200 x 200 as pycocotools writes it."""
    mask = frPyObjects({"size": [200, 200], "counts": counts}, 200, 200)
    return {**mask, "counts": mask["counts"].decode()}


def test_the_figures_are_those_of_pycocotools(tmp_path):
    """Figures of boxes and masks agree to 1e-12.

    A mask's area is that of its box where it has one. Images without predictions count.
    """
    truth = drawn_truth()
    boxes = drawn_results(truth)
    masks = []
    for result in boxes:
        x, y, width, height = np.clip(np.array(result["bbox"]).round().astype(int), 1, 90).tolist()
        runs = [x * 200 + y, *[height, 200 - height] * (width - 1), height]
        masks.append({**result, "segmentation": as_text([*runs, 40000 - sum(runs)])})
    bare_masks = [{key: value for key, value in mask.items() if key != "bbox"} for mask in masks]
    for results, kind, metric in [
        (boxes, "bbox", "coco_ap"),
        (masks, "segm", "coco_mask_ap"),
        (bare_masks, "segm", "coco_mask_ap"),
    ]:
        with table_row(kind, len(results[0])):
            result = scored(tmp_path, results, truth)
            assert (result.accuracy.metric, result.images, result.notes) == (metric, 40, ())
            assert figures(result) == pytest.approx(
                scored_by_pycocotools(truth, results, kind), abs=1e-12
            )
            assert 0.1 < result.accuracy.value < 0.9


def test_boxes_are_scored_where_the_annotations_have_no_masks(tmp_path):
    """A detector of masks can be scored on annotations of boxes.

    Some annotations state their lack of a mask by an outline without corners.
    """
    truth = drawn_truth()
    results = drawn_results(truth, segmentation=[[0, 0, 9, 0, 9, 9]])
    for annotation in truth["annotations"]:
        annotation["segmentation"] = []
    result = scored(tmp_path, results, truth)
    assert (result.accuracy.metric, result.notes) == (
        "coco_ap",
        ("boxes are scored, because the annotations have no segmentation",),
    )


def test_poses_are_scored_as_pycocotools_scores_them(tmp_path):
    """The figures agree with boxes, whose area counts, and without."""
    draw = np.random.default_rng(2)
    truth = {**drawn_truth(categories=("person",)), "categories": PEOPLE}
    results = []
    for annotation in truth["annotations"]:
        x, y, width, height = annotation["bbox"]
        points = np.column_stack(
            [draw.uniform(x, x + width, 17), draw.uniform(y, y + height, 17), np.full(17, 2)]
        )
        annotation.update(category_id=1, keypoints=points.ravel().tolist(), num_keypoints=17)
        moved = (points + draw.normal(0, 2, (17, 3))).ravel().tolist()
        common = {
            "image_id": annotation["image_id"],
            "category_id": 1,
            "score": float(draw.random()),
            "keypoints": moved,
        }
        results.append({**common, "bbox": annotation["bbox"]})
    for form in (
        results,
        [{key: value for key, value in result.items() if key != "bbox"} for result in results],
    ):
        result = scored(tmp_path, form, truth)
        assert result.accuracy.metric == "coco_keypoint_ap"
        assert figures(result) == pytest.approx(
            scored_by_pycocotools(truth, form, "keypoints"), abs=1e-12
        )


@pytest.mark.realdata
def test_the_coco_apis_own_fixture_has_its_published_ap(realdata):
    """One of the fixture's images has no predictions."""
    folder = realdata / "annotations" / "cocoapi_val2014_100"
    result = score_results(
        folder / "instances_val2014_fakebbox100_results.json", folder / "instances_val2014_100.json"
    )
    assert (result.accuracy.value, result.images, result.notes) == (
        pytest.approx(0.5045806987249628, abs=1e-12),
        100,
        (),
    )


def renumbered(results, first):
    """Return results whose categories count from `first`."""
    return [{**result, "category_id": result["category_id"] - 7 + first} for result in results]


def test_category_ids_that_count_from_0_or_1_are_read_so_where_the_objects_confirm_it(tmp_path):
    """Ultralytics writes such ids.

    The figures are those of the right ids, and a note says what was decided.
    """
    truth = drawn_truth()
    results = drawn_results(truth)
    expected = scored(tmp_path, results, truth)
    for first in (0, 1):
        result = scored(tmp_path, renumbered(results, first), truth)
        assert result.accuracy.value == expected.accuracy.value
        assert f"are counted from {first} ({first} is 'cat')" in result.notes[0]
    for category in (*truth["annotations"], *truth["categories"]):
        category["id" if "name" in category else "category_id"] -= 6
    result = scored(tmp_path, renumbered(results, 0), truth)
    assert (result.accuracy.value, len(result.notes)) == (expected.accuracy.value, 1)


def test_a_wrong_shift_never_gives_a_figure(tmp_path):
    """The error says which ways of counting were tried.

    The categories are in another order, nothing overlaps, or there are too many to count.
    """
    truth = drawn_truth()
    results = drawn_results(truth)
    swapped = [{**result, "category_id": (result["category_id"] - 6) % 3} for result in results]
    elsewhere = [{**result, "bbox": [0, 0, 1, 1]} for result in renumbered(results, 0)]
    for wrong, words in [
        (
            swapped,
            (
                r"0 to 2, and those of the annotations 7 to 9\. Their meaning is in doubt "
                r"\(counted from 0: \d+ of \d+ detected objects"
            ),
        ),
        (elsewhere, "counted from 0: 0 of 0 detected objects"),
        (
            [{**result, "category_id": 50 + result["category_id"]} for result in results],
            "too many to count from 0 or 1",
        ),
    ]:
        with table_row(words), pytest.raises(ConfigError, match=words):
            scored(tmp_path, wrong, truth)


def test_ids_of_the_annotations_in_another_order_keep_pycocotools_figure_with_a_warning(tmp_path):
    """A bad model cannot be told from exchanged ids, so the figure stands.

    The warning says what the boxes show.
    """
    truth = drawn_truth()
    exchanged = [
        {**result, "category_id": 7 + (result["category_id"] - 6) % 3}
        for result in drawn_results(truth)
    ]
    result = scored(tmp_path, exchanged, truth)
    assert result.accuracy.value == pytest.approx(
        scored_by_pycocotools(truth, exchanged, "bbox")[0], abs=1e-12
    )
    (warning,) = result.accuracy.warnings
    assert re.search(
        r"detected objects got another class \(mostly '(cat' as 'dog|dog' as 'cow|cow' as 'cat)'\)",
        warning,
    )
    assert scored(tmp_path, drawn_results(truth), truth).accuracy.warnings == ()


def test_what_pycocotools_passes_over_does_not_count(tmp_path):
    """A note counts predictions of categories that the annotations lack.

    Those of a category that only groups others count as such too.
    """
    truth = drawn_truth()
    results = drawn_results(truth)
    expected = scored(tmp_path, results, truth).accuracy.value
    result = scored(tmp_path, [*results, {**results[0], "category_id": 50}], truth)
    assert (result.accuracy.value, result.notes) == (
        expected,
        ("1 predictions of 1 categories that the annotations lack (first 50) do not count",),
    )  # fmt: skip


def test_images_are_matched_by_the_names_of_their_files(tmp_path):
    """A `file_name` in the results matches, even if the ids are those of other images.

    A result of no image is an error.
    """
    truth = drawn_truth()
    results = drawn_results(truth)
    expected = scored(tmp_path, results, truth).accuracy.value
    stems = [{**result, "image_id": f"photo_{result['image_id'] - 100}"} for result in results]
    moved = [
        {
            **result,
            "image_id": 239 - result["image_id"],
            "file_name": f"photo_{result['image_id'] - 100}.png",
        }
        for result in results
    ]
    floats = [{**result, "image_id": float(result["image_id"])} for result in results]
    for form, words in [(stems, ["stems of file names"]), (moved, ["file_name"]), (floats, [])]:
        result = scored(tmp_path, form, truth)
        assert result.accuracy.value == expected
        assert [note.split("matched by ")[1].split(" (")[0] for note in result.notes] == words
    with pytest.raises(
        ConfigError,
        match=r"1 of 40 image ids in the predictions .* belong to no image in the "
        r"annotations .* first 999",
    ):
        scored(tmp_path, [*results, {**results[0], "image_id": 999}], truth)


def test_what_is_no_list_of_results_is_refused(tmp_path):
    """Each refusal is one line."""
    truth = drawn_truth()
    for results, words in [
        ({}, r"not COCO's results, a list of \{image_id, category_id, bbox, score\}"),
        (
            [{"image_id": 100, "category_id": 7, "bbox": [1, 2, 3, 4]}],
            "missing required field `score`",
        ),
        ([{"image_id": 100, "category_id": 7, "score": 1}], "prediction 1 has no bbox"),
        (
            [{"image_id": 100, "category_id": 7, "score": 1, "keypoints": [1]}],
            "prediction 1 has no bbox",
        ),
        (
            [{"image_id": 100, "category_id": 7, "score": 1, "segmentation": 3}],
            "prediction 1 of .*: its segmentation is not polygons",
        ),
    ]:
        with table_row(words), pytest.raises(ConfigError, match=words):
            scored(tmp_path, results, truth)
    with pytest.raises(ConfigError, match="those of the annotations none"):
        scored(tmp_path, drawn_results(truth), {**truth, "annotations": [], "categories": []})
    with pytest.raises(ConfigError, match="is an index of classes"):
        scored(tmp_path, [], {"a.jpg": 1})


def test_no_predictions_find_nothing(tmp_path):
    """AP is 0 over all images."""
    result = scored(tmp_path, [], drawn_truth())
    assert (result.accuracy.value, result.images, result.predictions) == (0, 40, 0)

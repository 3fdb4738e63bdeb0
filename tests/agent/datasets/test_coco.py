"""COCO's annotation documents and result files."""

import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import coco
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth


def written(folder, content):
    """Return the path of a file with this content: text, or a document."""
    path = folder / "truth.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_coco_document_is_read(tmp_path):
    """Images, categories and boxes are read, and other keys are passed over."""
    truth = make_truth()
    truth["info"] = {"year": 2017}
    truth["annotations"][0]["segmentation"] = [[0, 0, 1, 1, 2, 2]]
    document = coco.read_annotations(written(tmp_path, truth))
    assert [image.file_name for image in document.images] == ["photo_0.png", "photo_1.png"]
    assert document.annotations[1].bbox == (16, 8, 16, 16)
    assert [category.id for category in document.categories] == [7, 8]


def test_what_is_neither_is_refused(tmp_path):
    """Garbage, lists, names instead of numbers and incomplete documents are refused."""
    for content in [
        "",
        "no json",
        "[]",
        "[1, 2]",
        '"text"',
        '{"a.jpg": "cat"}',
        '{"a.jpg": -1}',
        '{"images": []}',
        "[" * 100_000,
    ]:
        with (
            table_row(content[:20]),
            pytest.raises(ConfigError, match=r"truth\.json.* neither COCO's .* nor an index"),
        ):
            coco.read_annotations(written(tmp_path, content))
    with pytest.raises(ConfigError, match="truncated: it ends too early, fetch or export it again"):
        coco.read_annotations(written(tmp_path, '{"images": [{"id": 1, '))


def test_a_garbled_document_names_the_wrong_value(tmp_path):
    """One wrong value anywhere ends in one line that names it."""
    for where, key, value, words in [
        ("annotations", "bbox", [1, 2, 3], r"annotations\[\d+\].bbox"),
        ("annotations", "area", -1, r"annotations\[\d+\].area"),
        ("annotations", "id", 2, "annotation id 2 is listed twice"),
        ("annotations", "image_id", 5, "annotation 1 is of image 5, which is not among the images"),
        (
            "annotations",
            "category_id",
            5,
            "annotation 1 is of category 5, which is not among the categories",
        ),
        ("images", "id", -1, r"images\[\d+\].id"),
        ("images", "id", 2**53 + 1, r"images\[\d+\].id"),
        ("images", "file_name", "photo_1.png", "file name 'photo_1.png' is listed twice"),
        ("categories", "name", None, r"categories\[\d+\].name"),
        # Fractions and other kinds are no ids; NaN Python writes, and JSON has not.
        ("annotations", "id", 1.5, r"annotations\[\d+\]\.id"),
        ("annotations", "id", True, r"annotations\[\d+\]\.id"),
        ("annotations", "image_id", "1000", r"1 of 3 image ids in the annotations .* first '1000'"),
        ("annotations", "image_id", 1.5, r"annotations\[\d+\]\.image_id"),
        ("images", "id", "100", r"images\[\d+\]\.id"),
        ("annotations", "iscrowd", 0.5, r"annotations\[\d+\]\.iscrowd"),
        ("annotations", "id", 9007199254740994.0, r"annotations\[\d+\]\.id"),
        ("annotations", "area", float("nan"), r"NaN at byte \d+ is not a number"),
    ]:
        truth = make_truth()
        truth[where][0][key] = value
        with table_row(where, key, value), pytest.raises(ConfigError, match=words) as refusal:
            coco.read_annotations(written(tmp_path, truth))
        assert "\n" not in str(refusal.value), f"{where!r}, {key!r}, {value!r}"


def test_whole_numbers_may_be_written_as_floats_and_crowds_as_booleans(tmp_path):
    """Some exporters write 1.0 for an id or a side, and true for iscrowd."""
    truth = make_truth(1)
    truth["images"][0].update(id=100.0, width=64.0)
    truth["categories"][0]["id"] = 7.0
    truth["annotations"][0].update(id=1.0, image_id=100.0, category_id=7.0, iscrowd=True)
    truth["annotations"][1]["iscrowd"] = False
    document = coco.read_annotations(written(tmp_path, truth))
    first, second = document.annotations
    assert (first.id, first.image_id, first.category_id, first.iscrowd, second.iscrowd) == (
        1,
        100,
        7,
        1,
        0,
    )
    numbers = (document.images[0].id, document.images[0].width, first.id, first.iscrowd)
    assert [type(number) for number in numbers] == [int] * 4


def many(read):
    """Return a truth of 25 boxes in one photograph of 100 x 80.

    Each is written as `read` makes it of x, y, width and height.
    """
    boxes = [[10 + k, 30, 40, 40] for k in range(25)]
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}],
        "annotations": [
            {"id": k, "image_id": 1, "category_id": 1, "bbox": read(*box), "area": 9}
            for k, box in enumerate(boxes)
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }


def test_a_truth_in_another_form_is_refused(tmp_path):
    """Corners or ratios would match nothing, and an AP near 0 would look like the model's."""
    assert (
        len(coco.read_annotations(written(tmp_path, many(lambda *box: list(box)))).annotations)
        == 25
    )
    for form, words in [
        (
            lambda x, y, w, h: [x, y, x + w, y + h],
            r"25 of 25 boxes leave their photograph, .* two corners",
        ),
        (
            lambda x, y, w, h: [x / 100, y / 80, w / 100, h / 80],
            r"the boxes of all 25 annotations are 0\.\.1: bbox is .* in pixels",
        ),
    ]:
        with table_row(words), pytest.raises(ConfigError, match=words):
            coco.read_annotations(written(tmp_path, many(form)))

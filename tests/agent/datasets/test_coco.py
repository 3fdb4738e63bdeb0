"""COCO's annotation documents and result files."""

import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import coco
from tests.fixtures.vision_factory import make_truth


def written(folder, content):
    """Return the path of a file with this content: text, or a document."""
    path = folder / "truth.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_coco_document_is_read(tmp_path):
    """Images, categories and boxes; what else stands there is passed over."""
    truth = make_truth()
    truth["info"] = {"year": 2017}
    truth["annotations"][0]["segmentation"] = [[0, 0, 1, 1, 2, 2]]
    document = coco.read_annotations(written(tmp_path, truth))
    assert [image.file_name for image in document.images] == ["photo_0.png", "photo_1.png"]
    assert document.annotations[1].bbox == (16, 8, 16, 16)
    assert [category.id for category in document.categories] == [7, 8]


def test_an_index_is_read(tmp_path):
    """File name to class, for classification."""
    assert coco.read_annotations(written(tmp_path, {"a.jpg": 0, "b.jpg": 999})) == {"a.jpg": 0, "b.jpg": 999}


@pytest.mark.parametrize(
    "content", ["", "no json", "[]", "[1, 2]", '"text"', '{"a.jpg": "cat"}', '{"a.jpg": -1}', '{"images": []}', "[" * 100_000]
)
def test_what_is_neither_is_refused(tmp_path, content):
    """Garbage, lists, names instead of numbers, a document without its other parts."""
    with pytest.raises(ConfigError, match=r"truth\.json.* neither COCO's .* nor an index"):
        coco.read_annotations(written(tmp_path, content))


@pytest.mark.parametrize(
    ("where", "key", "value", "said"),
    [
        ("annotations", "bbox", [1, 2, 3], r"annotations\[\d+\].bbox"),
        ("annotations", "bbox", "box", r"annotations\[\d+\].bbox"),
        ("annotations", "area", -1, r"annotations\[\d+\].area"),
        ("annotations", "iscrowd", 2, r"annotations\[\d+\].iscrowd"),
        ("annotations", "id", 2, "annotation id 2 is listed twice"),
        ("annotations", "image_id", 5, "annotation 1 is of image 5, which is not among the images"),
        ("annotations", "category_id", 5, "annotation 1 is of category 5, which is not among the categories"),
        ("images", "id", -1, r"images\[\d+\].id"),
        ("images", "id", 2**53 + 1, r"images\[\d+\].id"),
        ("images", "id", "100", r"images\[\d+\].id"),
        ("images", "id", 101, "image id 101 is listed twice"),
        ("images", "file_name", "photo_1.png", "file name 'photo_1.png' is listed twice"),
        ("images", "file_name", "../secret.png", "leads out of the image folder"),
        ("images", "file_name", "/etc/passwd", "leads out of the image folder"),
        ("categories", "id", 8, "category id 8 is listed twice"),
        ("categories", "name", None, r"categories\[\d+\].name"),
    ],
)
def test_a_garbled_document_says_where(tmp_path, where, key, value, said):
    """One wrong value anywhere ends in one line that names it."""
    truth = make_truth()
    truth[where][0][key] = value
    with pytest.raises(ConfigError, match=said) as caught:
        coco.read_annotations(written(tmp_path, truth))
    assert "\n" not in str(caught.value)


def test_whole_numbers_may_be_written_as_floats_and_crowds_as_booleans(tmp_path):
    """1.0 for an id or a side, true for iscrowd: exporters write them so."""
    truth = make_truth(1)
    truth["images"][0].update(id=100.0, width=64.0)
    truth["categories"][0]["id"] = 7.0
    truth["annotations"][0].update(id=1.0, image_id=100.0, category_id=7.0, iscrowd=True)
    truth["annotations"][1]["iscrowd"] = False
    document = coco.read_annotations(written(tmp_path, truth))
    first, second = document.annotations
    assert (first.id, first.image_id, first.category_id, first.iscrowd, second.iscrowd) == (1, 100, 7, 1, 0)
    numbers = (document.images[0].id, document.images[0].width, first.id, first.iscrowd)
    assert [type(number) for number in numbers] == [int] * 4


@pytest.mark.parametrize(("key", "value"), [("id", 1.5), ("id", True), ("image_id", "100"), ("iscrowd", 0.5), ("id", 9007199254740994.0)])
def test_fractions_and_other_kinds_are_no_ids(tmp_path, key, value):
    """A fraction, a boolean or a text is refused with its place."""
    truth = make_truth(1)
    truth["annotations"][0][key] = value
    with pytest.raises(ConfigError, match=rf"annotations\[\d+\]\.{key}"):
        coco.read_annotations(written(tmp_path, truth))


def test_an_annotation_id_of_0_is_warned_of(tmp_path):
    """The COCO API takes 0 for "not matched" and reports a lower AP than ours."""
    truth = make_truth(1)
    truth["annotations"][0]["id"] = 0
    (oddity,) = coco.annotation_oddities(coco.read_annotations(written(tmp_path, truth)))
    assert "an annotation has id 0" in oddity
    assert coco.annotation_oddities(coco.read_annotations(written(tmp_path, make_truth(1)))) == ()


def test_an_unreadable_file_is_named(tmp_path):
    """No such file, or a folder in its place."""
    with pytest.raises(ConfigError, match=r"cannot read the annotations .*absent\.json"):
        coco.read_annotations(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        coco.read_annotations(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    """A file in another encoding is one line, not a traceback."""
    path = tmp_path / "truth.json"
    path.write_bytes(b'{"\xff.jpg": 1}')
    with pytest.raises(ConfigError, match="neither COCO's"):
        coco.read_annotations(path)


def test_words_that_python_writes_for_numbers_are_named(tmp_path):
    """NaN is no JSON; where it stands helps more than "invalid character"."""
    truth = make_truth()
    truth["annotations"][0]["area"] = float("nan")
    with pytest.raises(ConfigError, match=r"NaN at byte \d+ is not a number"):
        coco.read_annotations(written(tmp_path, truth))


def test_groups_are_read_from_images_and_annotations(tmp_path):
    """Words, numbers, truth values; nothing where there is none."""
    truth = make_truth()
    truth["images"][0]["group"], truth["annotations"][0]["group"] = "night", 3
    document = coco.plain_document(coco.read_annotations(written(tmp_path, truth)))
    assert [image["group"] for image in document["images"]] == ["night", None]
    assert document["annotations"][0]["group"] == 3
    truth["images"][0]["group"] = ["night"]
    with pytest.raises(ConfigError, match=r"images\[\d+\].group"):
        coco.read_annotations(written(tmp_path, truth))


def test_a_truncated_document_is_refused(tmp_path):
    """Half a file is half of the objects."""
    text = json.dumps(make_truth())
    with pytest.raises(ConfigError, match="truncated"):
        coco.read_annotations(written(tmp_path, text[: len(text) // 2]))


def many(read):
    """Return a truth of 25 boxes in one photograph of 100 x 80, each written as `read` makes it of x, y, width, height."""
    boxes = [[10 + k, 30, 40, 40] for k in range(25)]
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}],
        "annotations": [{"id": k, "image_id": 1, "category_id": 1, "bbox": read(*box), "area": 9} for k, box in enumerate(boxes)],
        "categories": [{"id": 1, "name": "cat"}],
    }


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (lambda x, y, w, h: [x, y, x + w, y + h], r"25 of 25 boxes leave their photograph, .* two corners"),
        (lambda x, y, w, h: [x / 100, y / 80, w / 100, h / 80], r"the boxes of all 25 annotations are 0\.\.1: bbox is .* in pixels"),
    ],
)
def test_a_truth_in_another_form_is_refused(tmp_path, form, said):
    """Nothing would match corners or ratios: an AP near 0 that is the file's, not the model's."""
    assert len(coco.read_annotations(written(tmp_path, many(lambda *box: list(box)))).annotations) == 25
    with pytest.raises(ConfigError, match=said):
        coco.read_annotations(written(tmp_path, many(form)))


def test_objects_outside_their_photograph_are_counted_aloud(tmp_path):
    """They can be found by nothing, and lower every AP."""
    truth = make_truth()
    truth["annotations"][0]["bbox"] = [64, 8, 16, 16]
    (said,) = coco.annotation_oddities(coco.read_annotations(written(tmp_path, truth)))
    assert said.startswith("1 of 4 annotations lie outside their photograph (first: id 1)")


@pytest.fixture
def truth(tmp_path):
    """Return the document of two images of 64 x 64 (ids 100, 101) and categories 7 and 8."""
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(make_truth()))
    return coco.read_annotations(path)


def detection(**changes):
    """Return a detection that is in order."""
    return {"image_id": 100, "category_id": 7, "bbox": [0, 8, 16, 16], "score": 0.5, **changes}


def read(folder, truth, content):
    """Return the rows of a file with this content: text, or a document."""
    path = folder / "found.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return coco.read_results(path, truth)


def test_rows_hold_what_the_file_says(tmp_path, truth):
    """Image, box, score and category of every detection, in order; other keys are passed over."""
    rows = read(tmp_path, truth, [detection(area=1, id=3, segmentation=[]), detection(image_id=101, category_id=8, score=1e-9)])
    assert rows.tolist() == [[100, 0, 8, 16, 16, 0.5, 7], [101, 0, 8, 16, 16, 1e-9, 8]]


def test_the_list_may_stand_in_a_document(tmp_path, truth):
    """As some tools write it."""
    assert len(read(tmp_path, truth, {"info": {}, "annotations": [detection()]})) == 1


def test_whole_numbers_may_be_written_with_a_point(tmp_path, truth):
    """Tables turn ids into floats; 100.0 is image 100, and 100.5 is none."""
    assert read(tmp_path, truth, [detection(image_id=100.0, category_id=7.0)])[0, 0] == 100
    with pytest.raises(ConfigError, match=r"image 100\.5"):
        read(tmp_path, truth, [detection(image_id=100.5)])


def test_a_byte_order_mark_is_no_garbage(tmp_path, truth):
    """As some editors begin a file, of truth and of detections."""
    for name, document in (("truth.json", make_truth()), ("found.json", [detection()])):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
    assert coco.read_annotations(tmp_path / "truth.json") == truth
    assert len(coco.read_results(tmp_path / "found.json", truth)) == 1


def test_an_empty_list_is_no_error(tmp_path, truth):
    """A model may find nothing: shape [0, 7]."""
    assert read(tmp_path, truth, []).shape == (0, 7)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image_id": 5}, r"1 of 2 detections are of images that the annotations do not have \(first: number 1, image 5"),
        ({"category_id": 1}, r"1 of 2 detections are of categories that the annotations do not have \(1\).* not class indices"),
        ({"bbox": [20, 20, -10, 5]}, r"1 of 2 detections have a negative width or height .*bbox is x, y, width, height"),
        ({"score": "0.9"}, r"Expected `float`, got `str` - at `\$\[1\]\.score`"),
        ({"score": None}, r"Expected `float`, got `null`"),
        ({"score": float("nan")}, r"NaN at byte \d+ is not a number"),
        ({"score": float("inf")}, r"Infinity at byte \d+ is not a number"),
        ({"bbox": [1, 2, 3]}, r"at `\$\[1\]\.bbox`"),
        ({"image_id": "100"}, r"at `\$\[1\]\.image_id`"),
    ],
)
def test_what_cannot_be_scored_is_refused(tmp_path, truth, changes, said):
    """One wrong detection among others ends in one line that says which and how many."""
    with pytest.raises(ConfigError, match=said) as caught:
        read(tmp_path, truth, [detection(), detection(**changes)])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", '[{"image_id": 100', "[[1, 2]]", "3", '{"images": []}', "[" * 100_000, "null"])
def test_what_is_no_list_of_results_is_refused(tmp_path, truth, content):
    """Truncated, nested, or something else."""
    with pytest.raises(ConfigError, match="are not a list of COCO results"):
        read(tmp_path, truth, content)


def test_an_absent_file_is_named(tmp_path, truth):
    """One line with its path."""
    with pytest.raises(ConfigError, match=r"cannot read the detections .*absent\.json"):
        coco.read_results(tmp_path / "absent.json", truth)


def test_corners_in_place_of_sides_are_noticed(tmp_path, truth):
    """Boxes x1, y1, x2, y2 in the far half of the photograph: read as x, y, width, height all would leave it."""
    corners = [detection(bbox=[40 + i / 10, 40, 60, 60]) for i in range(20)]
    with pytest.raises(ConfigError, match=r"20 of 20 boxes leave their photograph.*two corners"):
        read(tmp_path, truth, corners)


def test_boxes_as_ratios_of_the_photograph_are_refused(tmp_path, truth):
    """They would overlap nothing: an AP of 0 that says nothing about the model."""
    with pytest.raises(ConfigError, match=r"the boxes of all 25 detections are 0\.\.1: bbox is .* in pixels"):
        read(tmp_path, truth, [detection(bbox=[0.1, 0.2, 0.3, 0.01 * k]) for k in range(25)])


def test_detections_that_stand_there_again_are_counted(tmp_path, truth):
    """Same box and score; another score is another detection."""
    rows = read(tmp_path, truth, [detection(), detection(score=0.25), *[detection()] * 2, detection(image_id=101)])
    assert coco.result_oddities(rows) == (
        "2 of 5 detections are repeated, with the same box and score: each counts as a false one, as in the COCO API",
    )
    assert coco.result_oddities(rows[:2]) == coco.result_oddities(rows[:0]) == ()


def test_boxes_that_leave_the_photograph_are_scored(tmp_path, truth):
    """Not every decoder clips: some boxes over the edge are no mistake of form."""
    boxes = [detection(bbox=[40, 40, 30, 30]) for _ in range(30)]
    assert len(read(tmp_path, truth, boxes)) == 30


def test_scores_that_say_little_are_told(tmp_path, truth):
    """All alike, the order in the file decides; beyond 0..1 they are in order and no probabilities."""
    alike = read(tmp_path, truth, [detection(bbox=[i, 8, 16, 16]) for i in range(20)])
    assert coco.result_oddities(alike) == ("all 20 scores are 0.5: the order in the file decides which come first",)
    percent = read(tmp_path, truth, [detection(score=50), detection(score=-3)])
    assert coco.result_oddities(percent) == ("scores go from -3 to 50, and COCO's are 0..1: only their order counts here",)

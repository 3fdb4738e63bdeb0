"""Facts about `edgemeter.agent.datasets.coco_results`: detections as COCO's results have them."""

import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import coco, coco_results
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth


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
    return coco_results.read_results(path, truth).rows


def test_rows_hold_what_the_file_holds(tmp_path, truth):
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
    assert len(coco_results.read_results(tmp_path / "found.json", truth).rows) == 1


def test_an_empty_list_is_no_error(tmp_path, truth):
    """A model may find nothing: shape [0, 7]."""
    assert read(tmp_path, truth, []).shape == (0, 7)


def test_what_cannot_be_scored_is_refused(tmp_path, truth):
    """One wrong detection among others ends in one line that says which and how many."""
    for changes, words in [
        ({"image_id": 5}, r"1 of 2 detections are of images that the annotations do not have \(first: number 1, image 5"),
        ({"category_id": 1}, r"1 of 2 detections are of categories that the annotations do not have \(1\).* not class indices"),
        ({"bbox": [20, 20, -10, 5]}, r"1 of 2 detections have a negative width or height .*bbox is x, y, width, height"),
        ({"score": "0.9"}, r"Expected `float`, got `str` - at `\$\[1\]\.score`"),
        ({"score": float("nan")}, r"NaN at byte \d+ is not a number"),
        ({"bbox": [1, 2, 3]}, r"at `\$\[1\]\.bbox`"),
    ]:
        with table_row(changes), pytest.raises(ConfigError, match=words) as refusal:
            read(tmp_path, truth, [detection(), detection(**changes)])
        assert "\n" not in str(refusal.value), f"{changes!r}"


def test_what_is_no_list_of_results_is_refused(tmp_path, truth):
    """Truncated, nested, or something else."""
    for content in ["", "{", '[{"image_id": 100', "[[1, 2]]", "3", '{"images": []}', "[" * 100_000, "null"]:
        with table_row(content[:20]), pytest.raises(ConfigError, match="are not a list of COCO results"):
            read(tmp_path, truth, content)


def test_an_absent_file_is_named(tmp_path, truth):
    """One line with its path."""
    with pytest.raises(ConfigError, match=r"cannot read the detections .*absent\.json"):
        coco_results.read_results(tmp_path / "absent.json", truth)


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
    assert coco_results.result_oddities(rows) == (
        "2 of 5 detections are repeated, with the same box and score: each counts as a false one, as in the COCO API",
    )
    assert coco_results.result_oddities(rows[:2]) == coco_results.result_oddities(rows[:0]) == ()


def test_boxes_that_leave_the_photograph_are_scored(tmp_path, truth):
    """Not every decoder clips: some boxes over the edge are no mistake of form."""
    boxes = [detection(bbox=[40, 40, 30, 30]) for _ in range(30)]
    assert len(read(tmp_path, truth, boxes)) == 30


def test_scores_that_order_nothing_are_reported(tmp_path, truth):
    """All alike, the order in the file decides; beyond 0..1 they are in order and no probabilities."""
    alike = read(tmp_path, truth, [detection(bbox=[i, 8, 16, 16]) for i in range(20)])
    assert coco_results.result_oddities(alike) == ("all 20 scores are 0.5: the order in the file decides which come first",)
    percent = read(tmp_path, truth, [detection(score=50), detection(score=-3)])
    assert coco_results.result_oddities(percent) == ("scores go from -3 to 50, and COCO's are 0..1: only their order counts here",)

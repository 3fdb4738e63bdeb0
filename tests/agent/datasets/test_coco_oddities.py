"""Facts about `edgemeter.agent.datasets.coco_oddities`: what is odd in annotations is counted, with how it is taken."""

import json

from edgemeter.agent.datasets.coco import read_annotations
from edgemeter.agent.datasets.coco_oddities import annotation_oddities
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth


def oddities(folder, truth):
    """Return the oddities of a document."""
    path = folder / "truth.json"
    path.write_text(json.dumps(truth))
    return annotation_oddities(read_annotations(path))


def test_an_annotation_id_of_0_is_warned_of(tmp_path):
    """The COCO API takes 0 for "not matched" and reports a lower AP than ours."""
    truth = make_truth(1)
    truth["annotations"][0]["id"] = 0
    (oddity,) = oddities(tmp_path, truth)
    assert "an annotation has id 0" in oddity
    assert oddities(tmp_path, make_truth(1)) == ()


def test_objects_outside_their_photograph_are_counted_aloud(tmp_path):
    """They can be found by nothing, and lower every AP."""
    truth = make_truth()
    truth["annotations"][0]["bbox"] = [64, 8, 16, 16]
    (oddity,) = oddities(tmp_path, truth)
    assert oddity.startswith("1 of 4 annotations lie outside their photograph (first: id 1)")


# A right triangle of 60 x 60 pixels, half of its box: medium.
TRIANGLE = {"bbox": [10, 10, 60, 60], "segmentation": [[10, 10, 70, 10, 10, 70]], "area": 1800}


def test_areas_that_make_an_object_of_another_size_are_counted(tmp_path):
    """Small, medium and large go by the stated area: one that is 0, of the box, in other pixels or ratios is named with the true one."""
    bare = {key: value for key, value in TRIANGLE.items() if key != "segmentation"}
    runs = {"size": [100, 100], "counts": [1000, 1500, 7500]}
    for annotation, words in [
        (TRIANGLE, None),
        ({**TRIANGLE, "area": 3600}, None),
        ({**TRIANGLE, "area": 0}, "1 of 1 annotations have area 0 (first: id 1): each counts as a small object"),
        ({**TRIANGLE, "area": 28800}, "(first: id 1, area 28800, outline 1800)"),
        ({**TRIANGLE, "segmentation": runs, "area": 800}, "(first: id 1, area 800, outline 1500)"),
        ({**TRIANGLE, "segmentation": runs, "area": 1400}, None),
        ({**TRIANGLE, "segmentation": {**runs, "counts": "abc"}}, None),
        ({**TRIANGLE, "iscrowd": 1, "area": 28800}, None),
        (bare, None),
        ({**bare, "area": 900}, None),
        ({**bare, "area": 100}, "(first: id 1, area 100, box 3600)"),
    ]:
        with table_row(annotation):
            document = {
                "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 100}],
                "annotations": [{"id": 1, "image_id": 1, "category_id": 1, **annotation}],
                "categories": [{"id": 1, "name": "cat"}],
            }
            odd = oddities(tmp_path, document)
            assert len(odd) == (words is not None)
            assert all(words in oddity for oddity in odd)

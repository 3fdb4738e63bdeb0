"""The detection task: from photographs and raw outputs to COCO AP."""

import json
from itertools import product

import msgspec
import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.recognition.recognise import recognise
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks.class_fit import category_ids, coco_class_names
from edgemeter.agent.tasks.detection import matched_ratio
from edgemeter.agent.vision.decoders import Detections
from tests.fixtures.rows import table_row
from tests.fixtures.task_data import scored_by_pycocotools
from tests.fixtures.vision_factory import (
    make_card,
    make_loaded,
    make_truth,
    open_with_truth,
    tensors,
)

# A YOLOv8 head on 64 x 64 with two classes.
HEAD = (1, 6, 84)
INPUT = TensorInfo("image", (1, 64, 64, 3), "float32")


@pytest.fixture
def folder(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for i in range(2):
        Image.new("RGB", (64, 64), (i, i, i)).save(images / f"photo_{i}.png")
    return images


def make_task(data, outputs=None, **output):
    card = make_card("yolov8", **{"classes": 2, "nms_iou": 0.7, **output})
    return tasks.create(card, make_loaded(outputs or tensors(HEAD), [INPUT]), data)


def perfect(scale=1.0):
    """Return the head's output that finds the cat at 0, 8 and the dog at 16, 8.

    Each is 16 pixels wide and high.
    """
    tensor = np.zeros(HEAD, np.float32)
    tensor[0, 0, -1] = 60
    tensor[0, :, 0] = [8, 16, 16, 16, 0.9, 0]
    tensor[0, :, 1] = [24, 16, 16, 16, 0, 0.8]
    tensor[0, :4] *= scale
    return tensor


def run(task, outputs):
    """Answer every photograph with the same outputs, and return the score."""
    for index in range(2):
        ((tensor,),) = [call.values() for call in task.prepare(index)]
        assert tensor.shape == INPUT.shape
        task.predict(index, [outputs])
    return task.score()


def test_a_perfect_model_scores_one(folder):
    """The metric has its name, images are counted, and the result has the data set's hash.

    A comparison keeps nothing for the score.
    """
    data = open_with_truth(folder, make_truth())
    task = make_task(data)
    score = run(task, [perfect()])
    assert (score.metric, score.images, score.dataset_sha256) == ("coco_ap", 2, data.sha256)
    assert score.value == pytest.approx(1, abs=1e-9)
    assert score.detail["ap50"] == pytest.approx(1, abs=1e-9)
    assert score.detail["ap_large"] is None
    assert "ap" not in score.detail
    lone = perfect()
    lone[0, 4, 0] = 0
    assert task.predict(0, [[perfect()]]).tolist() == pytest.approx([0.9, 0.8])
    assert task.same_predictions(0, [[perfect()]], [[perfect()]]) == 1.0
    assert task.same_predictions(0, [[perfect()]], [[lone]]) == pytest.approx(2 / 3)
    assert task.score() == score


def test_small_boxes_have_an_extent_and_noise_does_not_count(folder):
    """An object of 3 pixels of the input is small.

    Scores below 0.05 are what a good model gives a photograph without objects.
    """
    for name, sides, scores, expected in [
        ("as usual", (16, 16), (0.9, 0.8), (2, 0)),
        ("small", (3, 3), (0.9, 0.8), (2, 0)),
        ("a line", (30, 1), (0.9, 0.8), (2, 0)),
        ("without extent", (1, 1), (0.9, 0.8), (2, 2)),
        ("one of two", (1, 1), (0.9, 0.0), (2, 2)),
        ("noise", (1, 1), (0.04, 0.04), (0, 0)),
    ]:
        with table_row(name):
            tensor = perfect()
            tensor[0, 2:4, :2] = np.array(sides)[:, None]
            tensor[0, 4, 0], tensor[0, 5, 1] = scores
            task = make_task(open_with_truth(folder, make_truth()))
            run(task, [tensor])
            assert task.box_extents() == expected


def test_quantised_outputs_are_read_by_their_scale(folder):
    """An int8 head of 0..1 gives the same boxes."""
    info = TensorInfo("out", HEAD, "int8", 1 / 255, -128)
    quantised = np.clip(np.rint(perfect(1 / 64) * 255) - 128, -128, 127).astype(np.int8)
    quantised[0, 4:, :2] = [[100, -128], [-128, 90]]
    score = run(make_task(open_with_truth(folder, make_truth()), [info]), [quantised])
    assert score.detail["ap75"] == pytest.approx(1, abs=1e-9)


# On 640 x 640, 15 rows of 12 boxes of 20 pixels, each third of another class.
CROWD = [
    (50 * column + 10, 40 * row + 10, (row * 12 + column) % 3)
    for row in range(15)
    for column in range(12)
]


def crowd(folder, max_detections=None):
    """Return the task of a recognised model that found all 180 objects of a photograph.

    A card that keeps that many detections may be given.
    """
    (folder / "crowd").mkdir()
    Image.new("RGB", (640, 640)).save(folder / "crowd" / "photo_0.png")
    truth = make_truth(images=1, categories=("cat", "dog", "cow"), size_px=640)
    truth["annotations"] = [
        {
            "id": number,
            "image_id": 100,
            "category_id": 7 + kind,
            "bbox": [x, y, 20, 20],
            "area": 400,
            "iscrowd": 0,
        }
        for number, (x, y, kind) in enumerate(CROWD, 1)
    ]
    anchors = np.zeros((1, 7, 8400), np.float32)
    for index, (x, y, kind) in enumerate(CROWD):
        anchors[0, :4, index], anchors[0, 4 + kind, index] = (
            (x + 10, y + 10, 20, 20),
            0.9 - index / 1000,
        )
    data = open_with_truth(folder / "crowd", truth)
    loaded = make_loaded(tensors(anchors.shape), tensors((1, 3, 640, 640)))
    card, _ = recognise(folder / "yolov8n.onnx", loaded)
    if max_detections is not None:
        card = msgspec.structs.replace(
            card, output=msgspec.structs.replace(card.output, max_detections=max_detections)
        )
    task = tasks.create(card, loaded, data)
    task.prepare(0)
    task.predict(0, [[anchors]])
    return task


def test_a_hundred_detections_of_each_class_count(tmp_path):
    """COCO cuts by photograph and class, so of 180 objects of three classes none is lost."""
    score = crowd(tmp_path).score()
    assert (score.value, score.detail["ar_100"]) == (
        pytest.approx(1, abs=1e-9),
        pytest.approx(1, abs=1e-9),
    )
    assert score.warnings == ()


def test_a_card_that_cuts_earlier_is_named(tmp_path):
    """Cards with a limit of 100 detections a photograph lower AP.

    pycocotools finds the same AP, to the last digit.
    """
    task = crowd(tmp_path, max_detections=100)
    score = task.score()
    assert score.detail["ar_100"] < 0.6
    (warning,) = score.warnings
    assert warning.startswith(
        "AP may be too low: the card keeps 100 detections of a photograph, which 1 of 1 "
        "photographs have"
    )
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert (
        score.value
        == scored_by_pycocotools(truth, json.loads(json.dumps(task.results())), "bbox")[0]
    )


def test_classes_that_the_annotations_do_not_know_are_left_out(folder):
    """A model of cats and dogs on annotations of dogs is scored by its dogs."""
    truth = make_truth(categories=("cat", "dog"))
    truth["categories"] = truth["categories"][1:]
    truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] == 8]
    assert run(
        make_task(open_with_truth(folder, truth), labels=("cat", "dog")), [perfect()]
    ).value == pytest.approx(1, abs=1e-9)


def test_categories_in_another_order_with_one_that_groups_them_are_matched_by_name(folder):
    """Roboflow writes such categories; results and text have the annotations' ids."""
    truth = make_truth(categories=("dog", "cat"))
    truth["categories"] = [
        {**category, "supercategory": "pets"} for category in truth["categories"]
    ] + [{"id": 0, "name": "pets"}]
    for annotation in truth["annotations"]:
        annotation.update(
            category_id=15 - annotation["category_id"], image_id=str(annotation["image_id"])
        )
    for image in truth["images"]:
        image["id"] = str(image["id"])
    task = make_task(open_with_truth(folder, truth), labels=("cat", "dog"))
    score = run(task, [perfect()])
    assert (score.value, list(score.per_class)) == (pytest.approx(1, abs=1e-9), ["dog", "cat"])
    assert [(result["image_id"], result["category_id"]) for result in task.results()[:2]] == [
        ("100", 8),
        ("100", 7),
    ]
    assert scored_by_pycocotools(truth, task.results(), "bbox")[0] == pytest.approx(1, abs=1e-9)


def test_what_does_not_fit_the_model_is_an_error(folder):
    """A class beyond the card's, boxes of another size and classes alone are errors.

    A PostProcess model does not declare its classes. The boxes are the original's, the photograph
    is a thumbnail.
    """
    task = tasks.create(
        make_card("tflite-postprocess", classes=2),
        make_loaded(tensors((), (), (), ()), [INPUT]),
        open_with_truth(folder, make_truth()),
    )
    task.prepare(0)
    task.predict(
        0, [[np.array(part, np.float32) for part in ([[[0, 0, 1, 1]]], [[5]], [[0.5]], [1])]]
    )
    with pytest.raises(ConfigError, match="found class 5, its card has 2 classes"):
        task.score()
    task = make_task(open_with_truth(folder, make_truth(size_px=640)))
    with pytest.raises(ConfigError, match=r"'photo_0\.png' at 640 x 640, it is 64 x 64"):
        task.prepare(0)
    with pytest.raises(ConfigError, match=r"finds objects.*give COCO annotations"):
        make_task(open_with_truth(folder, {"photo_0.png": 1}))


# The 80 ids of COCO: 1..90 without these.
COCO_IDS = [i for i in range(1, 91) if i not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]
COCO = [{"id": i, "name": name} for i, name in zip(COCO_IDS, coco_class_names(80), strict=True)]


def of(categories, **output):
    return category_ids(make_card("yolov8", **output), categories)


def test_classes_are_cocos_by_their_number():
    """80 classes are COCO's in order, 90 are TensorFlow's, and 91 are DETR's.

    The 80 skip the gap at 12; the 90 are an id less one; the 91 are the ids themselves, 0 being
    nothing.
    """
    assert of(COCO, classes=80) == tuple(COCO_IDS)
    for classes, first, gap in ((90, 0, 11), (91, 1, 12)):
        ids = of(COCO, classes=classes)
        assert (ids[first], ids[gap], ids[-1]) == (1, None, 90)
        assert [i for i in ids if i is not None] == COCO_IDS


def test_categories_that_were_numbered_anew_are_cocos_by_name():
    """Many tools close the gaps in COCO's ids.

    Id 13 is then another thing than TensorFlow's class 12. A few of the categories are found too.
    """
    for classes, first in product([80, 90, 91], [0, 1]):
        with table_row(classes, first):
            anew = [
                {"id": first + index, "name": category["name"].upper()}
                for index, category in enumerate(COCO)
            ]
            ids = of(anew, classes=classes)
            assert [i for i in ids if i is not None] == [category["id"] for category in anew]
            assert ids[{80: 11, 90: 12, 91: 13}[classes]] == first + 11, "a stop sign"
    grouped = category_ids(
        make_card("yolov8", classes=3),
        [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
        (),
        [{"id": 0, "name": "g"}],
    )
    assert grouped == (None, 1, 2), "the class of a category that only groups others"
    ids = of([{"id": 1, "name": "dog"}, {"id": 2, "name": "car"}], classes=90)
    assert {index: number for index, number in enumerate(ids) if number is not None} == {
        2: 2,
        17: 1,
    }


def test_labels_win_over_order():
    """A model that orders its classes differently is matched by name, whatever the case."""
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert of(categories, classes=2, labels=("Dog ", "CAT")) == (2, 1)
    assert of(categories, classes=4, labels=("bird", "dog", "fish", "cat")) == (None, 2, None, 1)
    # A label file that begins with the background is one ahead of the classes.
    assert of(categories, classes=2, labels=("background", "dog", "cat"), label_offset=1) == (2, 1)
    assert of(categories, classes=3, labels=("dog", "cat"), label_offset=-1) == (None, 2, 1)
    # Other names for the same classes go by order, where the others stand where they should, and
    # two of one name do.
    assert of(
        [{"id": 1, "name": "airplane"}, {"id": 2, "name": "dog"}],
        classes=2,
        labels=("aeroplane", "dog"),
    ) == (1, 2)
    assert of(
        [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}], classes=2, labels=("cat", "lynx")
    ) == (1, 2)


def test_classes_that_do_not_match_are_an_error():
    """Another number, other numbering and other names are errors.

    So are labels that contradict the order. Three low ids are not COCO's merely for being low.
    """
    two, three = ({"a": 100, "b": 200}, {"screw": 1, "nut": 2, "car": 3})
    for names, output, words in [
        (two, {"classes": 3}, "3 classes, and 0 of its labels name one of the 2 categories"),
        (two, {"classes": 90}, "90 classes, and 0 of its labels name one of the 2 categories"),
        (two, {}, "an unknown number of classes, and 0 of"),
        (three, {"classes": 90}, "90 classes, and . of its labels name one of the 3 categories"),
        (
            {"cat": 1, "hound": 2},
            {"classes": 2, "labels": ("dog", "cat")},
            "2 classes, and 1 of its labels name one of the 2 categories",
        ),
    ]:
        with table_row(names, output), pytest.raises(ConfigError, match=words):
            of([{"id": number, "name": name} for name, number in names.items()], **output)


def test_the_error_about_classes_names_the_output_and_three_lines_for_the_card():
    """A file without a card may have been taken for another family.

    The error names the families that read as many classes, otherwise the class names of its own
    family.
    """
    outputs = (
        TensorInfo("boxes", (1, 500, 4), "float32"),
        TensorInfo("scores", (1, 500, 6), "float32"),
    )
    names = ("disc", "ring", "square", "star", "cross", "moon")
    for count, lines in [
        (
            6,
            (
                'family = "detr" or "boxes-scores", and under [output] classes = 6 and labels = '
                '["disc", "ring", "square", ...]'
            ),
        ),
        (
            3,
            (
                'family = "detr", and under [output] classes = 5 and labels = [a name for each, '
                '"disc", "ring", "square" among them]'
            ),
        ),
    ]:
        categories = [{"id": number, "name": name} for number, name in enumerate(names[:count])]
        with table_row(count), pytest.raises(ConfigError) as error:
            category_ids(make_card("detr", classes=5, labels=("disc",)), categories, outputs)
        assert (
            "with 5 classes (by output scores [1, 500, 6]), and 1 of its labels name one of "
            f"the {count} categories"
        ) in str(error.value)
        assert "(none names 'ring')" in str(error.value)
        assert lines in str(error.value)
        assert max(map(len, str(error.value).split(". "))) < 400


def detected(*rows):
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int32))


CAT, DOG = (10, 10, 50, 50, 0.9, 0), (60, 60, 90, 90, 0.8, 1)


def test_boxes_match_by_class_and_overlap_one_to_one():
    """Order and small moves do not matter, and an overlap just below the threshold counts.

    Another class or place, and a missing or doubled box, do matter.
    """
    for other, ratio in [
        (detected(CAT, DOG), 1.0),
        (detected(DOG, CAT), 1.0),
        (detected((12, 10, 52, 50, 0.6, 0), DOG), 1.0),
        (detected(CAT), 2 / 3),
        (detected(CAT, (60, 60, 90, 90, 0.8, 0)), 0.5),
        (detected(CAT, (75, 75, 105, 105, 0.8, 1)), 0.5),
        (detected(CAT, CAT, DOG), 4 / 5),
        (detected((10, 10, 50, 50, 0.2, 0), DOG), 1.0),
        (detected((10, 10, 50, 50, 0.1, 0), DOG), 2 / 3),
        (detected(), 0.0),
    ]:
        assert matched_ratio(detected(CAT, DOG), other) == pytest.approx(ratio), f"{other!r}"
        assert matched_ratio(other, detected(CAT, DOG)) == pytest.approx(ratio), f"{other!r}"


def test_two_predictions_without_boxes_prove_nothing():
    """Two empty predictions are no agreement.

    Otherwise a model that finds nothing would always agree with itself.
    """
    assert matched_ratio(detected(), detected()) is None
    assert matched_ratio(detected((1, 1, 2, 2, 0.2, 0)), detected()) is None

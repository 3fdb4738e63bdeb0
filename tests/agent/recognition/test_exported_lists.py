"""Detectors that suppress by themselves, as their exporters write them: recognised without a card, and scored in the photographs' pixels.

Each model finds the same three objects wherever it looks; where these lie in its input of 64 x 64 is worked out here by hand.
"""

import json

import numpy as np
import pytest

from edgemeter.agent.recognition.exported_lists import family_of_lists
from edgemeter.agent.recognition.metadata import read_self_description
from tests.fixtures.command import edgemeter
from tests.fixtures.onnx_factory import FLOAT, INT64, node, save
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_loaded, tensors

# Of a photograph of 128 x 96: corners in its pixels, and COCO's ids.
CORNERS = np.array([[8, 12, 40, 60], [64, 24, 120, 84], [20, 66, 52, 90]], np.float32)
IDS = (1, 3, 2)
SCORES = np.array([0.9, 0.8, 0.7], np.float32)
# Halved to 64 x 48, and then 8 rows down where the letterbox is centred; squeezed to 64 x 64.
TOP_LEFT, CENTRED, SQUEEZED = CORNERS / 2, CORNERS / 2 + [0, 8, 0, 8], CORNERS * [0.5, 2 / 3, 0.5, 2 / 3]
LABELS = np.array(IDS) - 1


def looking_at_the_picture(values):
    """Return the nodes that give an initializer as an output, once the picture was looked at."""
    return [node("ReduceMean", ["images"], ["mean"], keepdims=0), node("Mul", ["mean", "nothing"], ["zero"]), *values]


def rt_detr(path):
    """Boxes are 0..1 times the size that is asked for: width first."""
    nodes = looking_at_the_picture([
        node("Cast", ["orig_target_sizes"], ["size"], to=FLOAT),
        node("Concat", ["size", "size"], ["sides"], axis=1),
        node("Unsqueeze", ["sides", "axis"], ["by"]),
        node("Mul", ["unit", "by"], ["boxes"]),
        node("Identity", ["label"], ["labels"]),
        node("Add", ["score", "zero"], ["scores"]),
    ])  # fmt: skip
    return save(
        path,
        nodes,
        {"labels": (1, 3), "boxes": (1, 3, 4), "scores": (1, 3)},
        other_inputs={"orig_target_sizes": (INT64, (1, 2))},
        integers=("labels",),
        unit=(SQUEEZED / 64).astype(np.float32)[None],
        axis=np.array([1], np.int64),
        label=LABELS.astype(np.int64)[None],
        score=SCORES[None],
        nothing=np.float32(0),
    )


def rtmdet(path):
    """Of the two lists the first holds boxes with their scores; the fourth row fills it up."""
    rows = np.vstack([np.column_stack([TOP_LEFT, SCORES]), np.zeros(5)]).astype(np.float32)
    nodes = looking_at_the_picture([node("Add", ["row", "zero"], ["dets"]), node("Identity", ["label"], ["labels"])])
    label = np.array([*LABELS, -1], np.int64)[None]
    return save(
        path, nodes, {"dets": (1, 4, 5), "labels": (1, 4)}, integers=("labels",), row=rows[None], label=label, nothing=np.float32(0)
    )


def pp_yoloe(path):
    """The class comes first; boxes are divided by the scale that is asked for, y first."""
    nodes = looking_at_the_picture([
        node("Concat", ["nothing_and_one", "scale_factor"], ["y_x"], axis=1),
        node("Gather", ["y_x", "order"], ["by"], axis=1),
        node("Div", ["row", "by"], ["scaled"]),
        node("Add", ["scaled", "zero"], ["multiclass_nms3_0.tmp_0"]),
        node("Identity", ["count"], ["multiclass_nms3_0.tmp_2"]),
    ])  # fmt: skip
    return save(
        path,
        nodes,
        {"multiclass_nms3_0.tmp_0": (3, 6), "multiclass_nms3_0.tmp_2": (1,)},
        other_inputs={"scale_factor": (FLOAT, (1, 2))},
        integers=("multiclass_nms3_0.tmp_2",),
        row=np.column_stack([LABELS, SCORES, SQUEEZED]).astype(np.float32),
        nothing_and_one=np.array([[0, 1]], np.float32),
        order=np.array([1, 1, 3, 2, 3, 2], np.int64),
        count=np.array([3], np.int64),
        nothing=np.float32(0),
    )


def yolov7(path):
    """The first column is the image, the last the score."""
    row = np.column_stack([np.zeros(3), CENTRED, LABELS, SCORES]).astype(np.float32)
    return save(
        path, looking_at_the_picture([node("Add", ["row", "zero"], ["output"])]), {"output": (3, 7)}, row=row, nothing=np.float32(0)
    )


def detection_output(path):
    """Boxes are 0..1, classes COCO's ids; what follows an image of -1 is left from before."""
    row = np.column_stack([np.zeros(3), IDS, SCORES, SQUEEZED / 64])
    rows = np.vstack([row, [-1, 0, 0, 0, 0, 0, 0], [0, 1, 0.99, 0, 0, 1, 1]]).astype(np.float32)[None, None]
    nodes = looking_at_the_picture([node("Add", ["row", "zero"], ["detection_out"])])
    return save(path, nodes, {"detection_out": (1, 1, 5, 7)}, row=rows, nothing=np.float32(0))


MODELS = {
    "rtdetr_r18vd.onnx": (rt_detr, "detr-lists"),
    "rtmdet_tiny.onnx": (rtmdet, "mmdeploy"),
    "ppyoloe_plus_crn_s.onnx": (pp_yoloe, "paddle-rows"),
    "yolov7-tiny-end2end.onnx": (yolov7, "yolov7-rows"),
    "ssd_mobilenet_fp32.onnx": (detection_output, "openvino-rows"),
}


@pytest.fixture
def photographs(tmp_path):
    """Return a folder of two photographs, and their annotations beside it."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra `vision`")
    (tmp_path / "photos").mkdir()
    for number in (1, 2):
        image.new("RGB", (128, 96), (40 * number, 90, 160)).save(tmp_path / "photos" / f"{number}.png")
    sizes = CORNERS[:, 2:] - CORNERS[:, :2]
    boxes = [[*corner, *size] for corner, size in zip(CORNERS[:, :2].tolist(), sizes.tolist(), strict=True)]
    annotations = [
        {"id": 10 * number + i, "image_id": number, "category_id": IDS[i], "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
        for number in (1, 2)
        for i, box in enumerate(boxes)
    ]
    truth = {
        "images": [{"id": number, "file_name": f"{number}.png", "width": 128, "height": 96} for number in (1, 2)],
        "categories": [{"id": number, "name": name} for number, name in ((1, "person"), (2, "bicycle"), (3, "car"))],
        "annotations": annotations,
    }
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    return tmp_path / "photos"


@pytest.mark.parametrize("name", MODELS)
def test_what_exporters_write_is_recognised_and_lies_where_the_objects_are(name, photographs, tmp_path):
    """Wrong columns, a size with its sides exchanged, a class counted from 1 or a letterbox in another place would each cost all of it."""
    make, family = MODELS[name]
    model = make(tmp_path / name)
    scored = edgemeter("accuracy", "--model", model, "--data", photographs, "--annotations", tmp_path / "truth.json", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["ap"] == pytest.approx(1.0)
    assert f"family {family} from" in scored.stdout


def test_seven_classes_are_no_rows():
    """A classifier of emotions has seven classes: with an open batch, with axes of 1, or as maps they look much like rows."""
    for name, picture, output, family in (
        ("mobilenet_fer.onnx", (None, 3, 224, 224), (None, 7), None),
        ("mobilenet_fer.onnx", (1, 3, 224, 224), (1, 7), None),
        ("mobilenet_fer.onnx", (1, 3, 224, 224), (1, 1, 1, 7), None),
        ("unet.onnx", (1, 64, 64, 3), (1, 64, 64, 7), None),
        ("best.onnx", (1, 3, 640, 640), (None, 7), "yolov7-rows"),
        ("yolov7-tiny.onnx", (None, 3, 640, 640), (None, 7), "yolov7-rows"),
        ("ssd.xml", (1, 3, 300, 300), (1, 1, None, 7), "openvino-rows"),
        ("ssd.xml", (1, 3, 300, 300), (1, 1, 200, 7), "openvino-rows"),
    ):
        with table_row(name, picture, output):
            found_family = family_of_lists(make_loaded(tensors(output), tensors(picture)), name, read_self_description({}))
            assert (found_family and found_family.name) == family

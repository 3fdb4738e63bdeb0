"""AP of poses and masks equals that of pycocotools.

Keypoints and masks of each family lie in the photograph.
"""

import importlib
import json
from itertools import product

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.tasks import create
from edgemeter.agent.vision.decoders import PhotoFrame
from edgemeter.agent.vision.decoders import create as create_decoder
from edgemeter.agent.vision.decoders.masks import photo_mask
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.task_data import (
    outlined_photographs,
    photographed_people,
    scored_by_pycocotools,
)
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors

# Two thirds of its size on 64 x 64, with bars of 16 pixels.
LETTERBOXED = PhotoFrame(96, 48, 64, 64, 2 / 3, 2 / 3, 0.0, 16.0)


@pytest.mark.parametrize(
    ("card", "shape", "axes", "corners", "scores", "points_from"),
    [
        (
            make_card("yolo-pose", "pose", classes=1, nms_iou=0.7),
            (84, 56),
            (1, 0),
            (32, 32, 60, 32),
            (0.8,),
            5,
        ),
        (
            make_card("yolo26-pose", "pose", classes=1),
            (300, 57),
            (0, 1),
            (2, 16, 62, 48),
            (0.8, 0.7),
            6,
        ),
    ],
    ids=["yolo", "end to end"],
)
def test_keypoints_lie_where_the_photograph_has_them(
    card, shape, axes, corners, scores, points_from
):
    """Keypoints are pixels or 0..1, as the boxes are, and scores do not change.

    YOLO has a column for each candidate. An end-to-end row has corners, score, class and then the
    points, and nothing is suppressed.
    """
    points = np.stack(
        [np.linspace(4, 60, 17), np.linspace(18, 46, 17), np.linspace(0.1, 0.9, 17)], axis=1
    )
    expected = (points - [0, 16, 0]) * [1.5, 1.5, 1]
    for side in (1, 64):
        rows = np.zeros(shape, np.float32)
        for row, score in zip(rows[3:], scores, strict=False):
            row[:4], row[4] = np.array(corners) / side, score
            row[points_from:] = (points / [side, side, 1]).ravel()
        output = rows.transpose(axes)[np.newaxis]
        detections = create_decoder(card, make_loaded(tensors(output.shape))).decode(
            [output], LETTERBOXED
        )
        np.testing.assert_allclose(detections.boxes, [[3, 0, 93, 48]] * len(scores), atol=1e-3)
        np.testing.assert_allclose(detections.keypoints, [expected] * len(scores), atol=1e-3)


def drawn_segments(draw):
    """Return the outputs of a segmenter that finds one object of about the right place and size."""
    prototypes, rows = np.zeros((1, 32, 16, 16), np.float32), np.zeros((1, 37, 84), np.float32)
    prototypes[0, 0] = draw.normal(1.0, 0.5, (16, 16))
    rows[0, :6, 0] = (
        28 + draw.normal(0, 4),
        24 + draw.normal(0, 4),
        24,
        16,
        draw.uniform(0.1, 1),
        5.0,
    )
    return [rows, prototypes]


def drawn_people(draw):
    """Return the outputs of a model of poses that finds one person.

    All points are about where they are on the person.
    """
    score = draw.uniform(0.1, 1)
    points = np.stack(
        [draw.normal(0.31, 0.02, 17), draw.normal(0.43, 0.02, 17), np.full(17, score)], axis=1
    )
    rows = np.zeros((1, 300, 57), np.float32)
    rows[0, 0, :6], rows[0, 0, 6:] = (
        (*points[:, :2].min(axis=0), *points[:, :2].max(axis=0), score, 0),
        points.ravel(),
    )
    return [rows]


# pycocotools has not heard of numpy 2.
@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize(
    ("family", "task", "write", "outputs_of", "label", "kind"),
    [
        ("yolo-seg", "segmentation", outlined_photographs, drawn_segments, "box", "segm"),
        ("yolo26-pose", "pose", photographed_people, drawn_people, "person", "keypoints"),
    ],
)
def test_pycocotools_finds_the_same_ap_in_the_results(
    tmp_path, family, task, write, outputs_of, label, kind
):
    """AP agrees to the last digit for shapes that miss; other fields are those of the boxes."""
    truth, draw = write(tmp_path), np.random.default_rng(1)
    card = make_card(family, task, make_input(layout="NCHW"), classes=1, labels=(label,))
    loaded = make_loaded(
        tensors(*[output.shape for output in outputs_of(draw)]),
        tensors((1, 3, 64, 64), names=("images",)),
    )
    scored_task = create(card, loaded, open_folder(tmp_path / "images", truth))
    for index in range(24):
        scored_task.prepare(index)
        scored_task.predict(index, [outputs_of(draw)])
    results = json.loads(json.dumps(scored_task.results()))
    assert 0 < scored_task.score().value < 1
    assert (
        scored_task.score().value
        == scored_by_pycocotools(json.loads(truth.read_text()), results, kind)[0]
    )
    assert {tuple(result)[:4] for result in results} == {
        ("image_id", "category_id", "bbox", "score")
    }


@pytest.mark.torch
def test_a_mask_is_interpolated_as_pytorch_does():
    """Interpolation to the photograph's size is bilinear, without aligned corners.

    Logits are in cells of four pixels, and the bars are cut off.
    """
    torch = importlib.import_module("torch")
    logits = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
    interpolated = torch.nn.functional.interpolate(
        torch.from_numpy(logits[4:12])[None, None], (48, 96), mode="bilinear", align_corners=False
    )
    mask = photo_mask(logits, np.array([3.5, 8.0, 90.2, 40.0], np.float32), LETTERBOXED, 0.0)
    assert (mask.left, mask.top, mask.pixels.shape) == (4, 8, (32, 87))
    # At the bars PyTorch repeats the rim of what was cut; away from them both are the same.
    np.testing.assert_array_equal(mask.pixels, (interpolated[0, 0, 8:40, 4:91] > 0).numpy())


def known_outputs(*, is_tflite, is_end_to_end):
    """Return rows and prototypes of two objects: the left half of a box, and all of another."""
    prototypes = np.zeros((1, 32, 16, 16), np.float32)
    prototypes[0, 0], prototypes[0, 1, :, :8], prototypes[0, 1, :, 8:] = 1.0, 4.0, -4.0
    if is_end_to_end:
        rows = np.zeros((1, 300, 38), np.float32)
        rows[0, 0, :7], rows[0, 1, :8] = (
            (8, 24, 24, 40, 0.9, 0, 5.0),
            (24, 24, 40, 40, 0.8, 1, 0, 1.0),
        )
    else:
        rows = np.zeros((1, 38, 84), np.float32)
        rows[0, :7, 0], rows[0, :8, 1] = (
            (16, 32, 16, 16, 0.9, 0, 5.0),
            (32, 32, 16, 16, 0, 0.8, 0, 1.0),
        )
    if is_tflite:
        boxes = rows[0, :, :4] if is_end_to_end else rows[0, :4]
        boxes /= 64
        prototypes = prototypes.transpose(0, 2, 3, 1).copy()
    return rows, prototypes


def test_yolos_masks_are_found_in_every_layout():
    """Boxes are pixels or 0..1, prototypes have either layout, and outputs either order."""
    for is_swapped, is_tflite, family in product(
        [False, True], [False, True], ["yolo-seg", "yolo26-seg"]
    ):
        with table_row(family, is_tflite, is_swapped):
            outputs = known_outputs(is_tflite=is_tflite, is_end_to_end=family == "yolo26-seg")[
                :: -1 if is_swapped else 1
            ]
            card = make_card(family, "segmentation", classes=2, nms_iou=0.7)
            decoder = create_decoder(
                card, make_loaded(tensors(*[output.shape for output in outputs]))
            )
            detections = decoder.decode(outputs, PhotoFrame(64, 64, 64, 64, 1.0, 1.0, 0.0, 0.0))
            np.testing.assert_allclose(
                detections.boxes, [[8, 24, 24, 40], [24, 24, 40, 40]], atol=1e-4
            )
            assert [(mask.left, mask.top, mask.pixels.shape) for mask in detections.masks] == [
                (8, 24, (16, 16)),
                (24, 24, (16, 16)),
            ]
            assert detections.masks[0].pixels.all()
            np.testing.assert_array_equal(
                detections.masks[1].pixels, np.broadcast_to(np.arange(16) < 8, (16, 16))
            )


def test_masks_of_mask_rcnn_are_cut_at_a_half():
    """Each of torchvision's maps is in pixels of the input, a pixel wider than its box.

    The order of the boxes is that of the masks.
    """
    maps = np.zeros((3, 1, 64, 64), np.float32)
    maps[0, 0, 7:25, 7:16], maps[2, 0] = 0.51, 0.49
    lists = [
        np.array([[8, 8, 24, 24], [0, 0, 4, 4], [32, 32, 48, 48]], np.float32),
        np.array([1, 1, 2], np.float32),
    ]
    outputs = [*lists, np.array([0.5, 0.0, 0.9], np.float32), maps]
    card = make_card("torchvision", "segmentation", classes=2)
    infos = tensors(*[output.shape for output in outputs])
    detections = create_decoder(card, make_loaded(infos)).decode(
        outputs, PhotoFrame(64, 64, 64, 64, 1.0, 1.0, 0.0, 0.0)
    )
    assert [int(mask.pixels.sum()) for mask in detections.masks] == [0, 18 * 9]


def test_what_is_no_segmenter_is_refused():
    """The refusal comes at construction or at the first query."""
    for outputs, words in [
        ([(1, 38, 84)], "rows of three axes and prototypes of four"),
        ([(1, 38, 84), (1, 32, 15, 15)], "prototypes have the shape"),
        (
            [(1, 38, 84), (1, 31, 16, 16)],
            "family yolo-seg needs one output|an object has 32 coefficients for 31 prototypes",
        ),
    ]:
        arrays = [np.zeros(shape, np.float32) for shape in outputs]
        arrays[0][0, 4, 0] = 0.9
        with table_row(outputs), pytest.raises(ConfigError, match=words):
            create_decoder(
                make_card("yolo-seg", "segmentation", classes=2, nms_iou=0.7),
                make_loaded(tensors(*outputs)),
            ).decode(arrays, PhotoFrame(64, 64, 64, 64, 1.0, 1.0, 0.0, 0.0))


def test_garbled_shapes_end_in_one_line(tmp_path):
    """Masks and keypoints are checked before anything is run."""
    segments = (
        outlined_photographs,
        "yolo-seg",
        "segmentation",
        "segmentation",
        [(1, 37, 84), (1, 32, 16, 16)],
    )
    poses = (photographed_people, "yolo26-pose", "pose", "keypoints", [(1, 300, 57)])
    for folder, (write, family, task, key, outputs), value, words in in_folders(
        tmp_path,
        [
            (segments, None, "annotation 1 has no segmentation"),
            (segments, [], "the mask of annotation 1 cannot be read: it is empty"),
            (segments, [[1, 2, 3, 4]], "its segmentation is not polygons"),
            (segments, {"counts": "abc"}, "its segmentation is not polygons"),
            (poses, None, "annotation 1 has no keypoints"),
            (
                poses,
                [1, 2, 2],
                (
                    "annotation 1 has 3 numbers as keypoints, but COCO's poses have "
                    "17 keypoints of three"
                ),
            ),
            (poses, "many", "its keypoints is not x, y, visibility"),
        ],
    ):
        truth = write(folder, 1)
        document = json.loads(truth.read_text())
        document["annotations"][0][key] = value
        if value is None:
            del document["annotations"][0][key]
        truth.write_text(json.dumps(document))
        card = make_card(
            family,
            task,
            make_input(layout="NCHW"),
            classes=1,
            labels=(document["categories"][0]["name"],),
        )
        loaded = make_loaded(tensors(*outputs), tensors((1, 3, 64, 64), names=("images",)))
        with table_row(key, value), pytest.raises(ConfigError, match=words):
            create(card, loaded, open_folder(folder / "images", truth))


def test_a_family_without_masks_is_refused(tmp_path):
    """A detector's card may not state another task."""
    truth = outlined_photographs(tmp_path, 1)
    card = make_card(
        "yolov8", "segmentation", make_input(layout="NCHW"), classes=1, labels=("box",), nms_iou=0.7
    )
    task = create(
        card,
        make_loaded(tensors((1, 5, 84)), tensors((1, 3, 64, 64))),
        open_folder(tmp_path / "images", truth),
    )
    task.prepare(0)
    with pytest.raises(ConfigError, match="family 'yolov8' finds boxes without masks"):
        task.predict(0, [[np.zeros((1, 5, 84), np.float32)]])

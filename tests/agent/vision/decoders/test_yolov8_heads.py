"""YOLOv8's raw heads are recognised and decoded.

The maps are made from known boxes by the published definition: distances to the cell's centre.
"""

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.recognition.recognise import card_for
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision import decoders
from edgemeter.agent.vision.decoders.family import UnknownModel
from edgemeter.agent.vision.decoders.yolov8_heads import YoloV8Heads
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_loaded, same_size, tensors

HEIGHT, WIDTH, CLASSES = 96, 160, 5
# Corners in pixels, the class, and the stride whose cell finds the object.
OBJECTS = (([20, 12, 50, 40], 1, 8), ([60, 30, 150, 90], 4, 16), ([4, 2, 140, 94], 0, 32))
FOUND = [[20, 12, 50, 40], [60, 30, 150, 90], [4, 2, 140, 94]]
PICTURE = tensors((1, 3, HEIGHT, WIDTH))
LAYOUTS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1)}


def maps(*, steps=16, are_logits=False, classes=CLASSES):
    """Return for each stride the distances, the scores and their sum.

    Distances are [1, 4 x steps, rows, columns], scores [1, classes, rows, columns].
    """
    levels = []
    for stride in (8, 16, 32):
        rows, columns = HEIGHT // stride, WIDTH // stride
        distances = np.zeros((4, steps, rows, columns), np.float32)
        scores = np.full((classes, rows, columns), 1e-5, np.float32)
        for number, (box, label, of_stride) in enumerate(OBJECTS):
            if of_stride != stride:
                continue
            x, y = int((box[0] + box[2]) / 2 // stride), int((box[1] + box[3]) / 2 // stride)
            edges = np.array(
                [
                    x + 0.5 - box[0] / stride,
                    y + 0.5 - box[1] / stride,
                    box[2] / stride - x - 0.5,
                    box[3] / stride - y - 0.5,
                ]
            )
            distances[:, :, y, x] = -50
            for side, edge in enumerate(edges):
                # The mean of two neighbouring steps is the distance.
                step = int(edge)
                shares = (
                    (edge,)
                    if steps == 1
                    else (np.log(max(1 - edge + step, 1e-20)), np.log(max(edge - step, 1e-20)))
                )
                for further, share in enumerate(shares):
                    distances[side, further + (0 if steps == 1 else step), y, x] = share
            scores[label % classes, y, x] = 0.9 - 0.1 * number
        total = scores.sum(axis=0, keepdims=True).clip(0, 1)
        values = np.log(scores / (1 - scores)) if are_logits else scores
        levels.append(
            [tensor[None] for tensor in (distances.reshape(-1, rows, columns), values, total)]
        )
    return levels


def decoded(outputs, infos=None):
    loaded = make_loaded(infos or tensors(*(output.shape for output in outputs)), PICTURE)
    card, _ = card_for(Path("absent") / "best.onnx", loaded)
    return card, decoders.create(card, loaded).decode(outputs, same_size(WIDTH, HEIGHT))


def test_maps_of_each_stride_are_recognised_and_read():
    """Six or nine maps are read in any order, as probabilities or logits.

    Channels may be first or last, and cells in one axis or in two.
    """
    for order, layout, count, are_logits, is_flat in product(
        permutations(range(2)), LAYOUTS, (2, 3), (False, True), (False, True)
    ):
        levels = maps(are_logits=are_logits)
        picked = [
            level[k].transpose(LAYOUTS[layout])
            for level in levels[::-1]
            for k in (*order, 2)[:count]
        ]
        if is_flat:
            picked = [
                m.reshape(1, m.shape[1], -1) if layout == "NCHW" else m.reshape(1, -1, m.shape[3])
                for m in picked
            ]
        with table_row(order, layout, count, are_logits, is_flat):
            card, detections = decoded(picked)
            assert (card.family, card.output.classes, card.output.nms_iou, card.input.resize) == (
                "yolov8-heads",
                CLASSES,
                0.7,
                "letterbox",
            )
            assert (card.input.mean[0], card.input.sd[0]) == (0, 255)
            assert detections.boxes[:3] == pytest.approx(np.array(FOUND), abs=1e-3)
            assert (detections.classes.tolist()[:3], detections.scores.tolist()[:3]) == (
                [1, 4, 0],
                pytest.approx([0.9, 0.8, 0.7]),
            )
            assert len(detections.scores) == 3


def test_a_distance_may_be_one_value_and_a_map_may_hold_both():
    """YOLO26 has no distribution, which is reported as a guess.

    Maps as in training hold 64 distances and then the scores of 80 classes.
    """
    card, detections = decoded([part for level in maps(steps=1) for part in level[:2]])
    assert (card.family, card.output.classes) == ("yolov8-heads", CLASSES)
    assert detections.boxes == pytest.approx(np.array(FOUND), abs=1e-3)
    for steps in (16, 1):
        card, detections = decoded(
            [
                np.concatenate(level[:2], axis=1)
                for level in maps(steps=steps, classes=80, are_logits=True)
            ]
        )
        assert (card.family, card.output.classes) == ("yolov8-heads", 80)
        assert detections.boxes == pytest.approx(np.array(FOUND), abs=1e-3)


def test_one_class_is_told_from_its_sum():
    """Both have one channel and the same values."""
    card, detections = decoded([part for level in maps(classes=1) for part in level])
    assert (card.output.classes, len(detections.scores)) == (1, 3)


def test_quantised_maps_are_read_by_their_scales():
    """Each output has its own scale, of which a step moves an edge by a pixel at most."""
    outputs, infos = [], []
    for number, output in enumerate(part for level in maps() for part in level[:2]):
        scale, zero_point = (1 / 256, -128) if number % 2 else (0.2, 120)
        steps = np.clip(np.rint(np.maximum(output, -49) / scale) + zero_point, -128, 127)
        outputs.append(((steps - zero_point) * scale).astype(np.float32))
        infos.append(TensorInfo(f"map_{number}", output.shape, "int8", scale, zero_point))
    card, detections = decoded(outputs, infos)
    assert (card.family, card.precision) == ("yolov8-heads", "int8")
    assert detections.boxes == pytest.approx(np.array(FOUND), abs=1.0)


def test_maps_of_other_models_are_not_taken():
    """YOLOv5's maps hold three anchors and are not taken for YOLOv8's.

    A map without its stride's sides, or of other distances, is another model's.
    """
    for shapes in (
        [(1, 255, 12, 20), (1, 255, 6, 10), (1, 255, 3, 5)],
        [(1, 64, 12, 20), (1, 5, 12, 20), (1, 64, 6, 10), (1, 4, 6, 10)],
        [(1, 64, 12, 20), (1, 5, 12, 20)],
        [(1, 32, 12, 20), (1, 5, 12, 20), (1, 32, 6, 10), (1, 5, 6, 10)],
    ):
        facts = UnknownModel("best.onnx", PICTURE, tensors(*shapes), (HEIGHT, WIDTH))
        with table_row(shapes):
            assert YoloV8Heads.recognise(facts) is None

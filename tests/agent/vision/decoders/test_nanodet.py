"""The decoder of NanoDet and NanoDet-Plus, on heads made from boxes that are known."""

from itertools import permutations

import numpy as np
import pytest

from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, same_size, tensors

# 100 x 68 pixels: 13 x 9 cells of 8, 7 x 5 of 16, 4 x 3 of 32, 2 x 2 of 64; a started cell counts.
WIDTH, HEIGHT = 100, 68
SIDES = {8: (9, 13), 16: (5, 7), 32: (3, 4), 64: (2, 2)}
CLASSES = 4


def head(strides, objects, score=0.9, elsewhere=0.0):
    """Return scores and distributions by stride: `objects` are (stride, row, column, class, left, top, right, bottom in strides)."""
    scores = {stride: np.full((SIDES[stride][0] * SIDES[stride][1], CLASSES), elsewhere, np.float32) for stride in strides}
    distances = {stride: np.zeros((len(scores[stride]), 4, 8), np.float32) for stride in strides}
    for stride, row, column, label, *edges in objects:
        cell = row * SIDES[stride][1] + column
        scores[stride][cell, label] = score
        for side, edge in enumerate(edges):
            # All the weight on the two whole numbers beside the distance, in the ratio that gives it as their mean.
            low = int(edge)
            weights = np.full(8, 1e-30)
            weights[low], weights[min(low + 1, 7)] = max(1 - (edge - low), 1e-30), max(edge - low, 1e-30)
            distances[stride][cell, side] = np.log(weights)
    return scores, {stride: rows.reshape(len(rows), 32) for stride, rows in distances.items()}


def one_tensor(strides, objects, **settings):
    """Return the head as NanoDet-Plus gives it: [1, cells, classes + 32]."""
    scores, distances = head(strides, objects, **settings)
    return np.concatenate([np.concatenate([scores[s], distances[s]], axis=1) for s in strides])[None]


def decode(outputs, strides, **output):
    """Return the detections for a card with these strides."""
    card = make_card(
        "nanodet", image_input=make_input(height=HEIGHT, width=WIDTH), strides=strides, nms_iou=0.6, **{"classes": CLASSES, **output}
    )
    decoder = decoders.create(card, make_loaded(tensors(*(output.shape for output in outputs))))
    return decoder.decode(outputs, same_size(WIDTH, HEIGHT))


PLUS = (8, 16, 32, 64)
OLD = (8, 16, 32)
OBJECTS = [(8, 2, 3, 1, 1.5, 0.5, 2.25, 3), (32, 1, 2, 0, 1, 1, 1, 1)]


def test_plus_reaches_from_the_upper_left_corner_of_a_cell():
    """Cell 3, 2 of stride 8 lies at 24, 16; a distance is the mean of its distribution, in strides."""
    detections = decode([one_tensor(PLUS, OBJECTS)], PLUS)
    assert detections.boxes[np.argsort(detections.classes)] == pytest.approx(np.array([[32, 0, 96, 64], [12, 12, 42, 40]]), abs=1e-3)
    assert sorted(detections.classes) == [0, 1]
    assert detections.scores.tolist() == pytest.approx([0.9, 0.9])


def test_the_first_nanodet_reaches_from_the_middle_of_a_cell():
    """Three strides: half a stride further than Plus, cut at the edge of the input."""
    detections = decode([one_tensor(OLD, OBJECTS)], OLD)
    assert detections.boxes[np.argsort(detections.classes)] == pytest.approx(np.array([[48, 16, 100, 68], [16, 16, 46, 44]]), abs=1e-3)


def test_logits_go_through_the_sigmoid_and_probabilities_do_not():
    """Some exports leave it out of the graph: ln 9 is 0.9."""
    logits = decode([one_tensor(PLUS, OBJECTS, score=np.log(9), elsewhere=-9.0)], PLUS)
    assert logits.scores[:2].tolist() == pytest.approx([0.9, 0.9], abs=1e-6)
    assert decode([one_tensor(PLUS, OBJECTS)], PLUS).scores.tolist() == pytest.approx([0.9, 0.9])


def test_cells_may_be_the_last_axis_and_strides_may_come_apart():
    """Converters to TFLite exchange the axes; an output for each stride holds scores first, as the concatenated form does."""
    scores, distances = head(PLUS, OBJECTS)
    apart = [np.concatenate([scores[s], distances[s]], axis=1)[None] for s in PLUS]
    for outputs in ([one_tensor(PLUS, OBJECTS).transpose(0, 2, 1)], apart):
        assert sorted(decode(outputs, PLUS).classes) == [0, 1]


def layouts(rows, sides):
    """Return one stride's rows as rows, as a map with channels first, and as one with channels last."""
    planes = rows.T.reshape(1, -1, *sides)
    return rows[None], planes, np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def test_scores_and_distances_may_come_apart_in_any_order():
    """Six outputs, by stride or by kind, rows or maps: the same boxes."""
    for layout in range(3):
        with table_row(layout):
            scores, distances = head(OLD, OBJECTS)
            parts = [layouts(part[stride], SIDES[stride])[layout] for stride in OLD for part in (scores, distances)]
            expected = decode([one_tensor(OLD, OBJECTS)], OLD).boxes.tolist()
            for order in list(permutations(range(6)))[::97]:
                assert decode([parts[i] for i in order], OLD).boxes.tolist() == expected

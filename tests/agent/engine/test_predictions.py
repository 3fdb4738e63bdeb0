"""Facts about `edgemeter.agent.engine.predictions`: their summary, and the accuracy gate."""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.engine.job import Answers
from edgemeter.agent.engine.predictions import PredictionLog, with_needed_value
from tests.fixtures.record_factory import SHA_DATA, make_accuracy
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card


def arrays(*values):
    """Return one list of one float array for each value."""
    return [[np.array([float(value), 1.0], np.float32)] for value in values]


def logged(inputs, outputs, scores=None, objects=None):
    """Return the summary of these answers."""
    log = PredictionLog()
    for index, (model_inputs, other) in enumerate(zip(inputs, outputs, strict=True)):
        log.add(model_inputs, other, None if scores is None else np.array(scores[index], np.float32))
    return log.summary(objects)


def test_predictions_are_summarised():
    """What is alike, what is no number, and the scores of boxes."""
    nothing = [[np.zeros((0, 6), np.float32)]] * 3
    no_numbers = [[np.array([np.nan, np.inf])], [np.array([1.0, 2.0])], [np.array([-np.inf, 0.0])]]
    plain, boxes = {"inputs": 3, "alike": 0, "not_finite": 0}, {"objects": 9}
    for name, inputs, outputs, scores, expected in [
        ("a model that depends on its input", (1, 2, 3), arrays(4, 5, 6), None, plain),
        ("all but the first are alike", (1, 2, 3), arrays(7, 7, 7), None, plain | {"alike": 2}),
        ("the same input again is no wonder", (1, 1, 1), arrays(7, 7, 7), None, plain),
        ("nothing found is no cached output", (1, 2, 3), nothing, None, plain),
        ("an answer without numbers counts once, and spoils no score", (1, 2, 3), no_numbers, [[np.nan], [0.5], []],
         plain | boxes | {"not_finite": 2, "found": 1, "highest_score": 0.5, "distinct_scores": 1}),
        ("a detector that finds nothing has no score", (1, 2, 3), arrays(4, 5, 6), [[], [], []],
         plain | boxes | {"found": 0, "highest_score": None, "distinct_scores": 0}),
        ("scores are counted apart", (1, 2, 3), arrays(4, 5, 6), [[0.25, 0.5, 0.25], [0.5, 0.5], []],
         plain | boxes | {"found": 5, "highest_score": 0.5, "distinct_scores": 2}),
    ]:  # fmt: skip
        with table_row(name):
            assert logged(arrays(*inputs), outputs, scores, objects=9) == Answers(**expected)
    assert PredictionLog().summary(None) is None


def card(**accuracy):
    """Return a card that promises an accuracy."""
    return msgspec.structs.replace(make_card("yolov8"), accuracy=accuracy)


def test_a_card_counts_for_the_same_metric_and_data_only():
    """An AP on other photographs is no reference for these."""
    for card_accuracy, is_known in [
        ({"value": 0.6}, True),
        ({"value": 0.6, "metric": "coco_ap", "dataset_sha256": SHA_DATA, "images": 80}, True),
        ({"value": 0.6, "metric": "top1"}, False),
        ({"value": 0.6, "dataset_sha256": "0" * 64}, False),
        ({"value": 0.6, "images": 5000}, False),
        ({"value": "good"}, False),
        ({}, False),
    ]:
        with table_row(card_accuracy):
            accuracy = with_needed_value(make_accuracy(value=0.58), card(**card_accuracy))
            assert accuracy.needed_value == (pytest.approx(0.54) if is_known else None)
    assert with_needed_value(None, card(value=0.6)) is None
    assert with_needed_value(make_accuracy(), None) == make_accuracy()

"""Facts about `edgemeter.agent.engine.predictions`: their summary, and the accuracy gate."""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import suite
from edgemeter.agent.contract.record_accuracy import GATE_RATIO, Answers
from edgemeter.agent.engine.predictions import PredictionLog, accuracy_gate
from tests.fixtures.record_factory import SHA_DATA, make_accuracy
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case
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


def test_the_suites_value_comes_before_the_cards():
    """Whoever writes the suite knows which reference is meant."""
    gate = accuracy_gate(make_accuracy(value=0.02), card(value=0.02), 0.4, GATE_RATIO)
    assert gate.source == "suite"
    assert gate.reference_value == 0.4
    assert gate.needed_value == pytest.approx(0.36)
    assert gate.passed is False


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
        gate = accuracy_gate(make_accuracy(value=0.58), card(**card_accuracy), None, GATE_RATIO)
        assert (gate is not None) == is_known, f"{card_accuracy!r}"
        assert gate is None or (gate.source, gate.passed) == ("card", True), f"{card_accuracy!r}"


def test_without_an_accuracy_or_a_reference_there_is_no_gate():
    """Nothing is made up."""
    assert accuracy_gate(None, card(value=0.6), 0.4, GATE_RATIO) is None
    assert accuracy_gate(make_accuracy(), None, None, GATE_RATIO) is None


def test_the_suite_sets_gate_and_reference_or_the_defaults_hold():
    """Nine tenths and no reference value; agreement is compared once, but not in rapid, where it would take longer than the run."""
    usual, strict = one_case("m.onnx"), one_case("m.onnx", gate=0.99, reference_accuracy=0.37, agreement="every")
    assert (usual.gate, usual.reference_accuracy, usual.agreement) == (GATE_RATIO, None, "first")
    assert (strict.gate, strict.reference_accuracy, strict.agreement) == (0.99, 0.37, "every")
    assert one_case("m.onnx", mode="rapid").agreement == "never"
    assert one_case("m.onnx", mode="rapid", agreement="first").agreement == "first"


def test_a_gate_that_cannot_be_meant_is_refused(tmp_path):
    """A per cent where a ratio belongs would make every model fail, or pass."""
    for line in ["gate = 0", "gate = 1.1", "reference_accuracy = 37.0", 'agreement = "always"']:
        (tmp_path / "s.toml").write_text(f'name = "s"\n[[case]]\nmodel = "m.onnx"\n{line}\n')
        with table_row(line), pytest.raises(ConfigError, match=line.partition(" ")[0]):
            suite.read(tmp_path / "s.toml")

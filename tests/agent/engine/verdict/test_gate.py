"""Facts about `edgemeter.agent.engine.verdict.gate`: what a run has to reach."""

from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.engine import suites
from edgemeter.agent.engine.verdict.gate import gate
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import GATE_RATIO
from tests.fixtures.record_factory import SHA_DATA, make_accuracy
from tests.fixtures.vision_factory import make_card


def card(**accuracy):
    """Return a card that promises an accuracy."""
    return msgspec.structs.replace(make_card("yolov8"), accuracy=accuracy)


def test_the_suites_value_comes_before_the_cards():
    """Whoever writes the suite knows which reference is meant."""
    found = gate(make_accuracy(value=0.02), card(value=0.02), 0.4, GATE_RATIO)
    assert (found.source, found.reference_value, found.needed_value, found.passed) == ("suite", 0.4, pytest.approx(0.36), False)


def test_reaching_the_gate_passes():
    """Exactly what is needed is enough."""
    assert gate(make_accuracy(value=0.25), None, 0.5, 0.5).passed
    assert not gate(make_accuracy(value=0.2499), None, 0.5, 0.5).passed


@pytest.mark.parametrize(
    ("said", "is_known"),
    [
        ({"value": 0.6}, True),
        ({"value": 0.6, "metric": "coco_ap", "dataset_sha256": SHA_DATA, "images": 80}, True),
        ({"value": 0.6, "metric": "top1"}, False),
        ({"value": 0.6, "dataset_sha256": "0" * 64}, False),
        ({"value": 0.6, "images": 5000}, False),
        ({"value": "good"}, False),
        ({}, False),
    ],
)
def test_a_card_counts_for_the_same_metric_and_data_only(said, is_known):
    """An AP on other photographs is no reference for these."""
    found = gate(make_accuracy(value=0.58), card(**said), None, GATE_RATIO)
    assert (found is not None) == is_known
    assert found is None or (found.source, found.passed) == ("card", True)


def test_without_an_accuracy_or_a_reference_there_is_no_gate():
    """Nothing is made up."""
    assert gate(None, card(value=0.6), 0.4, GATE_RATIO) is None
    assert gate(make_accuracy(), None, None, GATE_RATIO) is None


def cases(**settings):
    """Return the one case of a suite with these settings."""
    (case,) = suites.expand(suites.SuiteFile(name="s", case=[suites.Settings(model="m.onnx", **settings)]), Path()).cases
    return case


def test_the_suite_says_gate_and_reference_or_the_usual_ones_hold():
    """Nine tenths and no reference value; agreement is compared once, but not in rapid, where it would take longer than the run."""
    usual, strict = cases(), cases(gate=0.99, reference_accuracy=0.37, agreement="every")
    assert (usual.gate, usual.reference_accuracy, usual.agreement) == (GATE_RATIO, None, "first")
    assert (strict.gate, strict.reference_accuracy, strict.agreement) == (0.99, 0.37, "every")
    assert cases(mode="rapid").agreement == "never"
    assert cases(mode="rapid", agreement="first").agreement == "first"


@pytest.mark.parametrize("line", ["gate = 0", "gate = 1.1", "reference_accuracy = 37.0", 'agreement = "always"'])
def test_a_gate_that_cannot_be_meant_is_refused(tmp_path, line):
    """A per cent where a ratio belongs would make every model fail, or pass."""
    (tmp_path / "s.toml").write_text(f'name = "s"\n[[case]]\nmodel = "m.onnx"\n{line}\n')
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        suites.read(tmp_path / "s.toml")

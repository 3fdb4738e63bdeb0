"""Which output is which, over files that the real runtimes run."""

import math
from pathlib import Path

import numpy as np

from edgemeter.agent import runtimes
from edgemeter.agent.base.progress import no_progress
from edgemeter.models.convert import parity
from edgemeter.models.convert.parity import noise_inputs


def test_outputs_in_another_order_are_matched_by_their_values():
    """Two outputs of one shape are matched by their values, though their names disagree.

    The shape decides before the values do.
    """
    ones, two, three = (np.full((1, 4), value, np.float32) for value in (1, 50, 900))
    assert parity._order([ones, two, three], [three, ones * 1.01, two]) == [1, 2, 0]
    boxes, scores = np.zeros((1, 5, 4), np.float32), np.zeros((1, 5, 6), np.float32)
    assert parity._order([boxes, scores], [scores, boxes]) == [1, 0]


def test_the_same_file_agrees_with_itself():
    """A tiny ONNX model agrees with itself on noise, by ONNX Runtime."""
    model = Path(__file__).parents[2] / "fixtures" / "runtimes" / "onnx.onnx"
    runtime = runtimes.create("onnx")
    loaded = runtime.load(model, runtimes.Options())
    runtime.close()
    inputs = noise_inputs(loaded, tuple(loaded.inputs[0].shape))
    with (
        parity.running(model, "onnx", inputs) as first,
        parity.running(model, "onnx", inputs) as second,
    ):
        comparison = parity.compare(first, second, inputs.count, "fp32", no_progress)
    assert (comparison.verdict.state, comparison.agreement.snr_db) == ("ok", math.inf)
    assert comparison.agreement.inputs == inputs.count

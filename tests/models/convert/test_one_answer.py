"""Tests of converted classifiers that give one answer whatever they see.

They are found without ground truth, and no good one is among them.
"""

from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.convert import parity, source
from edgemeter.models.convert.parity import image_inputs

pytestmark = [pytest.mark.convert, pytest.mark.nightly]

CARD = """name = "planted"
task = "classification"
family = "classifier"
precision = "fp32"
[input]
height = 16
width = 16
layout = "NCHW"
[output]
classes = 2
"""


def photographs(folder, brightness):
    """Return grey photographs with a spot, one for each of these brightnesses.

    The spot lies elsewhere in each.
    """
    folder.mkdir()
    draw = np.random.default_rng(5)
    for number, level in enumerate(brightness):
        pixels = draw.integers(60, 70, (16, 16, 3)).astype(np.uint8)
        row, column = draw.integers(0, 11, 2)
        pixels[row : row + 5, column : column + 5] = level
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return open_folder(folder)


def write(path, card, nodes, constants, shape):
    """Write a model with its card; `nodes` are (operator, inputs, output, attributes).

    They lead from `image` to `out`. One more, which nothing reads, lets the model pass for int8.
    """
    onnx = import_module("onnx")
    nodes, constants = (
        [*nodes, ("QuantizeLinear", ["image", "step"], "unread", {})],
        {**constants, "step": np.float32(1)},
    )
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [
            make.make_node(operator, inputs, [output], **attributes)
            for operator, inputs, output, attributes in nodes
        ],
        "planted",
        [make.make_tensor_value_info("image", kind, [1, 3, 16, 16])],
        [make.make_tensor_value_info("out", kind, shape)],
        [
            onnx.numpy_helper.from_array(np.asarray(value), name)
            for name, value in constants.items()
        ],
    )
    onnx.save(
        make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=10), str(path)
    )
    if card:
        path.with_name(path.name + ".toml").write_text(card)
    return path


def classifier(path, *, gain=1.0, noise=0.0):
    """Write a model.

    `gain` is how much of the photograph it sees, 0 for none; `noise` moves its values a little.

    Dark spots are of class 0, bright ones of class 1.
    """
    nodes = [
        ("Mul", ["image", "gain"], "seen", {}),
        ("ReduceMean", ["seen", "channels"], "grey", {"keepdims": 1}),
        ("ReduceMax", ["grey", "axes"], "top", {"keepdims": 0}),
        ("Sub", ["top", "half"], "bright", {}),
        ("Add", ["bright", "noise"], "score", {}),
        ("Neg", ["score"], "dark", {}),
        ("Concat", ["dark", "score"], "out", {"axis": 1}),
    ]
    axes = {"channels": np.int64([1]), "axes": np.int64([2, 3])}
    return write(
        path,
        CARD,
        nodes,
        {"gain": np.float32(gain), "noise": np.float32(noise), "half": np.float32([0.6]), **axes},
        [1, 2],
    )


def verdict(first, other, data):
    """Return the verdict on the second file as a conversion of the first, without ground truth."""
    origin = source.load_source(first)
    inputs = image_inputs(origin.about, data)
    with (
        parity.running(first, "onnx", inputs) as run,
        parity.running(other, "onnx", inputs) as other_run,
    ):
        return parity.compare(run, other_run, inputs.count, "int8", no_progress).verdict


def test_a_conversion_with_one_answer_for_all_photographs_is_ruined_and_a_good_one_is_not(tmp_path):
    """A conversion with one answer for all photographs is ruined, and a good one is not.

    Its values flicker, and it has 85% of the predictions in common, as most photographs have that
    answer.
    """
    # Three of twenty spots are bright.
    data = photographs(tmp_path / "d", [70] * 17 + [250] * 3)
    good, collapsed = (
        classifier(tmp_path / "good.onnx"),
        classifier(tmp_path / "collapsed.onnx", gain=0.05),
    )
    result = verdict(good, collapsed, data)
    assert (result.state, "one answer for all 20 inputs" in result.reason) == ("ruined", True), (
        result
    )
    # Off by a step of int8 and no more.
    assert (
        verdict(good, classifier(tmp_path / "rounded.onnx", gain=0.99, noise=0.004), data).state
        == "ok"
    )


def test_a_source_with_one_answer_for_these_photographs_proves_nothing(tmp_path):
    """Twenty photographs to which the source gives one answer prove neither good nor ruined."""
    data = photographs(tmp_path / "d", [65] * 20)
    good, collapsed = (
        classifier(tmp_path / "good.onnx", gain=1e-3),
        classifier(tmp_path / "collapsed.onnx", gain=0.0),
    )
    result = verdict(good, collapsed, data)
    assert (result.state, "tells nothing" in result.reason) == ("inconclusive", True), result

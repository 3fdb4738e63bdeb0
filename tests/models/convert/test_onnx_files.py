"""ONNX files in other precisions: small graphs made here, run by ONNX Runtime."""

from importlib import import_module

import numpy as np
import pytest

from edgemeter.agent.runtimes.onnx_file import read_onnx
from edgemeter.models.convert import onnx_precisions
from edgemeter.models.convert.formats import MakerInputs

pytestmark = [pytest.mark.convert, pytest.mark.nightly]

DRAW = np.random.default_rng(3)
IMAGES = [DRAW.random((1, 3, 8, 8), dtype=np.float32) for _ in range(6)]


@pytest.fixture
def joined(tmp_path):
    """Return a small detector with one output of boxes in pixels beside scores of 0..1.

    Boxes have values up to some hundreds.
    """
    onnx = import_module("onnx")
    make = onnx.helper
    weights = {
        "wb": DRAW.random((4, 3, 3, 3), dtype=np.float32) * 40,
        "ws": DRAW.standard_normal((2, 3, 3, 3)).astype(np.float32),
    }
    nodes = [
        make.make_node("Conv", ["image", "wb"], ["boxes"], name="box", pads=[1, 1, 1, 1]),
        make.make_node("Conv", ["image", "ws"], ["logits"], name="cls", pads=[1, 1, 1, 1]),
        make.make_node("Sigmoid", ["logits"], ["scores"], name="sigmoid"),
        make.make_node("Concat", ["boxes", "scores"], ["output"], name="join", axis=1),
    ]
    shape = onnx.TensorProto.FLOAT
    graph = make.make_graph(
        nodes,
        "joined",
        [make.make_tensor_value_info("image", shape, [1, 3, 8, 8])],
        [make.make_tensor_value_info("output", shape, [1, 6, 8, 8])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=10)
    path = tmp_path / "joined.onnx"
    onnx.save(model, str(path))
    return path


def run(path, image=IMAGES[0]):
    onnxruntime = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: image})[0]


def to_int8(source, target, *, is_symmetric=False):
    make = onnx_precisions.make_int8_symmetric if is_symmetric else onnx_precisions.make_int8
    return make(source, target, MakerInputs(lambda: IMAGES))


def test_scores_beside_pixels_survive_int8(joined, tmp_path):
    """Scores in one output with pixel coordinates survive int8.

    One scale for both would round every score to 0 or 1, so the operator that joins them stays
    float, and the facts say so.
    """
    target = tmp_path / "int8.onnx"
    assert to_int8(joined, target)["float_nodes"] == 2
    np.testing.assert_allclose(run(target)[0, 4:], run(joined)[0, 4:], atol=0.05)
    assert read_onnx(target).precision == "int8"


def test_an_old_operator_set_is_brought_up_to_date(joined, tmp_path):
    """A file with operator set 11 is converted to int8, and its values stay.

    Weights per channel need set 13; many published models have 11.
    """
    onnx = import_module("onnx")
    model = onnx.load(str(joined))
    model.opset_import[0].version = 11
    onnx.save(model, str(joined))
    target = tmp_path / "int8.onnx"
    to_int8(joined, target)
    np.testing.assert_allclose(run(target)[0, 4:], run(joined)[0, 4:], atol=0.05)


def test_symmetric_files_have_zero_points_of_zero(joined, tmp_path):
    """Every zero point in a symmetric file is 0, because TensorRT takes no other."""
    onnx = import_module("onnx")
    target = tmp_path / "int8.onnx"
    to_int8(joined, target, is_symmetric=True)
    graph = onnx.load(str(target)).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    zero_points = [
        constants[node.input[2]]
        for node in graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    ]
    assert zero_points
    assert not any(value.any() for value in zero_points)


def test_fp16_stays_close(joined, tmp_path):
    """Outputs in fp16 stay close, relative to the largest value of boxes and of scores.

    Input and output stay float32.
    """
    target = tmp_path / "fp16.onnx"
    onnx_precisions.make_fp16(joined, target, MakerInputs())
    expected, actual = run(joined)[0], run(target)[0]
    for rows in (slice(0, 4), slice(4, 6)):
        assert np.abs(expected[rows] - actual[rows]).max() <= 2e-3 * np.abs(expected[rows]).max()
    assert (read_onnx(joined).precision, read_onnx(target).precision) == ("fp32", "fp16")

"""Facts that hold for several runtimes alike: open dimensions, quantisation, outputs before the first call, kernels of reference."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.runtimes import dequantise

LIBRARIES = {
    "litert": "ai_edge_litert",
    "onnx": "onnxruntime",
    "openvino": "openvino",
    "ncnn": "ncnn",
    "pytorch": "torch",
    "executorch": "executorch.extension.pybindings._C",
}


def rows(*cases):
    """Return the cases as parameters, each with what its runtime (the first of it) needs."""
    marks = {"pytorch": [pytest.mark.torch], "executorch": [pytest.mark.torch]}
    return [pytest.param(*case, marks=marks.get(case[0], []), id=f"{case[0]}-{case[1]}") for case in cases]


def require(name):
    """Skip the test where the runtime's library is not installed."""
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")


@pytest.mark.parametrize(
    ("name", "model"),
    rows(("litert", "litert_open.tflite"), ("onnx", "onnx_open.onnx"), ("openvino", "openvino_open.xml"), ("pytorch", "pytorch_open.pt2")),
)
def test_an_open_dimension_takes_any_size(opened, x, name, model):
    """It is None in the declaration, and a batch may change from query to query."""
    require(name)
    runtime, loaded = opened(name, model)
    assert loaded.inputs[0].shape == (None, 4)
    for count in (3, 1, 2):
        if name != "pytorch" or count > 1:
            runtime.bind([np.repeat(x, count, axis=0)])()
            np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]] * count)


@pytest.mark.parametrize(
    ("name", "model"),
    rows(
        ("onnx", "onnx.onnx"),
        ("openvino", "openvino.xml"),
        ("ncnn", "ncnn.param"),
        ("pytorch", "pytorch.pt2"),
        ("executorch", "executorch.pte"),
        ("replay", "replay.replay.json"),
    ),
)
def test_outputs_before_the_first_call_are_refused(opened, x, name, model):
    """There is nothing that could be mistaken for a result, not even after a bind that follows a call."""
    if name != "replay":
        require(name)
    runtime, _ = opened(name, model)
    for _ in range(2):
        call = runtime.bind([x])
        with pytest.raises(MeasurementError):
            runtime.outputs()
        call()


@pytest.mark.parametrize("name", ["onnx", "openvino"])
@pytest.mark.parametrize(("dtype", "x_zero", "y_zero"), [("uint8", 2, 4), ("int8", -1, -5)])
def test_quantised_inputs_and_outputs_carry_their_scale(opened, name, dtype, x_zero, y_zero):
    """The scale and zero point of the quantising nodes at both ends make real values of integers."""
    require(name)
    runtime, loaded = opened(name, f"onnx_{dtype}.onnx")
    (image,), (output,) = loaded.inputs, loaded.outputs
    assert (image.dtype, image.scale, image.zero_point, output.zero_point) == (dtype, 0.5, x_zero, y_zero)
    runtime.bind([np.array([[x_zero, x_zero + 2, x_zero + 4, x_zero + 6]], dtype)])()
    np.testing.assert_allclose(dequantise(runtime.outputs()[0], output), [[1, 3, 5, 7]])


def test_litert_has_reference_kernels_and_names_them(opened, x):
    """No delegate takes part; the values are the model's."""
    require("litert")
    runtime, loaded = opened("litert", "litert.tflite", backend="reference")
    assert loaded.backend == "reference"
    runtime.bind([x])()
    assert runtime.outputs()[0].tolist() == [[1, 3, 5, 7]]


@pytest.mark.parametrize("level", ["none", "basic", "extended", "layout", "all"])
def test_onnx_runtime_optimises_as_configured(opened, x, level):
    """Every level loads and gives the model's values; an unknown one is refused before anything is loaded."""
    require("onnx")
    runtime, _ = opened("onnx", "onnx.onnx", extra={"graph_optimisation": level})
    names = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
    names |= {"layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL"}
    assert runtime._session.get_session_options().graph_optimization_level.name == names[level]
    runtime.bind([x])()
    assert runtime.outputs()[0].tolist() == [[1, 3, 5, 7]]
    with pytest.raises(ConfigError, match="'most': there are none, basic, extended, layout, all"):
        opened("onnx", "onnx.onnx", extra={"graph_optimisation": "most"})

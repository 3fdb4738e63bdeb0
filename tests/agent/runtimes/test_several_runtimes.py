"""Facts that hold for several runtimes alike: open dimensions, quantisation."""

import numpy as np
import pytest

from edgemeter.agent.runtimes import dequantise

# Requirements of a runtime beyond the extra `dev`.
NEEDS = {"openvino": pytest.mark.needs(module="openvino"), "pytorch": pytest.mark.torch}


def rows(*cases):
    """Return the cases as parameters; the first of each is its runtime."""
    return [pytest.param(*case, marks=NEEDS.get(case[0], ())) for case in cases]


@pytest.mark.parametrize(
    ("name", "model"),
    rows(
        ("litert", "litert_open.tflite"),
        ("onnx", "onnx_open.onnx"),
        ("openvino", "openvino_open.xml"),
        ("pytorch", "pytorch_open.pt2"),
    ),
)
def test_an_open_dimension_takes_any_size(opened, x, name, model):
    """The dimension is declared as None, and a batch may change from query to query."""
    runtime, loaded = opened(name, model)
    assert loaded.inputs[0].shape == (None, 4)
    for count in (3, 1, 2):
        if name != "pytorch" or count > 1:
            runtime.bind([np.repeat(x, count, axis=0)])()
            np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]] * count)


@pytest.mark.parametrize("name", rows(("onnx",), ("openvino",)))
def test_quantised_inputs_and_outputs_carry_their_scale(opened, name):
    """The quantising nodes at both ends give the scale and zero point.

    With them integers become real values.
    """
    for dtype, x_zero, y_zero in (("uint8", 2, 4), ("int8", -1, -5)):
        runtime, loaded = opened(name, f"onnx_{dtype}.onnx")
        (image,), (output,) = loaded.inputs, loaded.outputs
        assert (image.dtype, image.scale, image.zero_point, output.zero_point) == (
            dtype,
            0.5,
            x_zero,
            y_zero,
        )
        runtime.bind([np.array([[x_zero, x_zero + 2, x_zero + 4, x_zero + 6]], dtype)])()
        np.testing.assert_allclose(dequantise(runtime.outputs()[0], output), [[1, 3, 5, 7]])

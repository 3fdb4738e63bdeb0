"""LiteRT describes its model and names the backend that ran it.

Nothing of ours stands around the timed call.
"""

from importlib.metadata import version

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, dequantise
from edgemeter.agent.runtimes.litert import LiteRt

RUNTIME = LiteRt


def test_the_bare_call_is_invoke_itself(runtime, models, x):
    """The clock times the library's own method, with none of ours around it."""
    runtime.load(models / "litert.tflite", Options())
    call = runtime.bind([x])
    assert call.__self__ is runtime._interpreter
    assert call.__func__ is type(runtime._interpreter).invoke


def test_the_backend_is_named_for_what_ran_and_both_compute_the_same(runtime, models, x):
    """XNNPACK is the default; builtin and reference run without a delegate.

    The record names the library that did the work.
    """
    for backend in (None, "xnnpack", "builtin", "reference"):
        loaded = runtime.load(models / "litert.tflite", Options(backend=backend))
        assert loaded.backend == (backend or "xnnpack")
        assert loaded.version == version(loaded.package)
        runtime.bind([x])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_a_model_that_xnnpack_does_not_take_is_labelled_builtin(runtime, models, x):
    """XNNPACK has no int32 arithmetic, so the default must not claim it.

    If it is asked for by name, it is never replaced in silence.
    """
    loaded = runtime.load(models / "litert_int32.tflite", Options())
    assert loaded.backend == "builtin"
    runtime.bind([x.astype(np.int32)])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    with pytest.raises(UnavailableError, match="XNNPACK takes no operator"):
        runtime.load(models / "litert_int32.tflite", Options(backend="xnnpack"))


def test_a_quantised_model_holds_scale_and_zero_point(runtime, models):
    """Inputs and outputs carry the model's own quantisation, and outputs become real values."""
    loaded = runtime.load(models / "litert_int8.tflite", Options())
    assert (loaded.inputs[0].dtype, loaded.inputs[0].scale, loaded.inputs[0].zero_point) == (
        "int8",
        0.5,
        -1,
    )
    assert (loaded.outputs[0].dtype, loaded.outputs[0].scale, loaded.outputs[0].zero_point) == (
        "int8",
        0.25,
        -5,
    )
    runtime.bind([np.array([[-1, 1, 3, 5]], np.int8)])()
    np.testing.assert_allclose(dequantise(runtime.outputs()[0], loaded.outputs[0]), [[1, 3, 5, 7]])


def test_what_a_signature_and_metadata_state_is_read(runtime, models, x):
    """A signature's names replace the converter's, and labels and normalisation are read.

    A scale left on a tensor that holds real values again is not applied.
    """
    loaded = runtime.load(models / "litert_signed.tflite", Options())
    assert (loaded.inputs[0].name, loaded.outputs[0].name) == ("x", "y")
    assert (loaded.outputs[0].scale, loaded.outputs[0].zero_point) == (None, None)
    assert loaded.metadata["labels.txt"] == "cat\ndog\nowl\n"
    assert (
        loaded.metadata["input_mean"],
        loaded.metadata["input_sd"],
        loaded.metadata["output_names"],
    ) == ("127.5", "128", "score")
    runtime.bind([x])()
    np.testing.assert_array_equal(
        dequantise(runtime.outputs()[0], loaded.outputs[0]), [[1, 3, 5, 7]]
    )


def test_a_model_with_operators_that_nobody_has_is_named(runtime, models):
    """Loading fails in one line that names the missing operator.

    A model for the Edge TPU gets the runtime to use instead.
    """
    for name, words in (
        ("edgetpu", r"compiled for the Edge TPU \(custom op edgetpu-custom-op\)"),
        ("custom", "nobody-has-this"),
    ):
        with pytest.raises(ConfigError, match=words) as refusal:
            runtime.load(models / f"litert_{name}.tflite", Options())
        assert "\n" not in str(refusal.value)

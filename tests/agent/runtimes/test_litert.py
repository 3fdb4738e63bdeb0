"""LiteRT: what it says of a model, which backend ran it, and that nothing stands around the call."""

import importlib.util
from importlib.metadata import version

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, dequantise
from edgemeter.agent.runtimes.litert import LiteRt

LIBRARY = next((name for name in ("ai_edge_litert", "tflite_runtime") if importlib.util.find_spec(name)), None)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs ai-edge-litert or tflite-runtime")
RUNTIME = LiteRt


def test_the_bare_call_is_invoke_itself(runtime, models, x):
    """Between two clock reads stands the library's own method, not one of ours around it."""
    runtime.load(models / "litert.tflite", Options())
    call = runtime.bind([x])
    assert call.__self__ is runtime._interpreter
    assert call.__func__ is type(runtime._interpreter).invoke


def test_package_and_version_are_those_of_the_library_that_ran(runtime, models):
    """The record names what did the work."""
    loaded = runtime.load(models / "litert.tflite", Options())
    assert loaded.package.startswith(str(LIBRARY).replace("_", "-"))
    assert loaded.version == version(loaded.package)


@pytest.mark.parametrize("backend", [None, "xnnpack", "builtin"])
def test_the_backend_is_named_for_what_ran_and_both_compute_the_same(runtime, models, x, backend):
    """XNNPACK is the default; builtin runs without a delegate."""
    loaded = runtime.load(models / "litert.tflite", Options(backend=backend))
    assert loaded.backend == (backend or "xnnpack")
    runtime.bind([x])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_a_model_that_xnnpack_does_not_take_is_labelled_builtin(runtime, models, x):
    """XNNPACK has no int32 arithmetic: the default must not claim it."""
    loaded = runtime.load(models / "litert_int32.tflite", Options())
    assert loaded.backend == "builtin"
    runtime.bind([x.astype(np.int32)])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_xnnpack_asked_for_and_not_taking_part_is_an_error(runtime, models):
    """A backend asked for by name is never replaced in silence."""
    with pytest.raises(UnavailableError, match="XNNPACK takes no operator"):
        runtime.load(models / "litert_int32.tflite", Options(backend="xnnpack"))


def test_a_quantised_model_holds_scale_and_zero_point(runtime, models):
    """Input and output carry the model's own quantisation, and real values come out."""
    loaded = runtime.load(models / "litert_int8.tflite", Options())
    assert (loaded.inputs[0].dtype, loaded.inputs[0].scale, loaded.inputs[0].zero_point) == ("int8", 0.5, -1)
    assert (loaded.outputs[0].dtype, loaded.outputs[0].scale, loaded.outputs[0].zero_point) == ("int8", 0.25, -5)
    runtime.bind([np.array([[-1, 1, 3, 5]], np.int8)])()
    np.testing.assert_allclose(dequantise(runtime.outputs()[0], loaded.outputs[0]), [[1, 3, 5, 7]])


def test_a_float_output_that_kept_a_scale_is_not_dequantised(runtime, models, x):
    """Converters leave the scale on tensors that hold real values again."""
    loaded = runtime.load(models / "litert_signed.tflite", Options())
    assert (loaded.outputs[0].scale, loaded.outputs[0].zero_point) == (None, None)
    runtime.bind([x])()
    np.testing.assert_array_equal(dequantise(runtime.outputs()[0], loaded.outputs[0]), [[1, 3, 5, 7]])


def test_a_signature_names_what_a_converter_left_nameless(runtime, models):
    """Decoders find outputs by name: `y`, not `StatefulPartitionedCall:0`."""
    loaded = runtime.load(models / "litert_signed.tflite", Options())
    assert (loaded.inputs[0].name, loaded.outputs[0].name) == ("x", "y")


def test_metadata_and_labels_are_read(runtime, models):
    """What the file says of itself comes along as text."""
    metadata = runtime.load(models / "litert_signed.tflite", Options()).metadata
    assert metadata["labels.txt"] == "cat\ndog\nowl\n"
    assert (metadata["input_mean"], metadata["input_sd"], metadata["output_names"]) == ("127.5", "128", "score")


def test_an_edge_tpu_model_is_distinguished_from_a_broken_one(runtime, models):
    """The message names what the model is for and what to run instead."""
    with pytest.raises(ConfigError, match=r"compiled for the Edge TPU \(custom op edgetpu-custom-op\); run the CPU version"):
        runtime.load(models / "litert_edgetpu.tflite", Options())


def test_a_custom_operator_is_named(runtime, models):
    """A model that needs an operator nobody has fails at load in one line, with the operator's name."""
    with pytest.raises(ConfigError, match="nobody-has-this") as refusal:
        runtime.load(models / "litert_custom.tflite", Options())
    assert "\n" not in str(refusal.value)

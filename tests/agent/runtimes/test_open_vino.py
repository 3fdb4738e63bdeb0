"""OpenVINO: devices and precisions as asked, both formats, errors in one line."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime
from edgemeter.agent.runtimes.open_vino import OpenVino
from tests.fixtures.rows import table_row

openvino = pytest.importorskip("openvino")
RUNTIME = OpenVino


def test_both_formats_give_the_same(runtime, models, x):
    """OpenVINO's own and ONNX, whose properties come along."""
    for file, metadata in (("openvino.xml", {"labels": "cat dog"}), ("onnx.onnx", {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"})):
        loaded = runtime.load(models / file, Options())
        runtime.bind([x])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
        assert (loaded.package, loaded.backend, dict(loaded.metadata)) == ("openvino", "cpu", metadata)


def test_it_computes_in_the_precision_of_the_file_unless_configured(runtime, models):
    """Left to itself OpenVINO takes bfloat16 where the processor has it."""
    loaded = runtime.load(models / "openvino.xml", Options())
    assert (loaded.backend, loaded.facts) == ("cpu", {"computed_in": "f32"})


def test_left_to_itself_it_is_named_for_what_it_took(runtime, models):
    """`auto` is the library's choice, which the record holds."""
    usual = openvino.Core().compile_model(str(models / "openvino.xml"), "CPU").get_property("INFERENCE_PRECISION_HINT").get_type_name()
    loaded = runtime.load(models / "openvino.xml", Options(extra={"precision": "auto"}))
    assert loaded.facts == {"computed_in": usual}
    assert loaded.backend == ("cpu" if usual == "f32" else f"cpu,{usual}")


def test_a_precision_that_the_processor_lacks_is_an_error(runtime, models):
    """OpenVINO would take another and not say so."""
    for precision in ("f16", "bf16"):
        try:
            assert runtime.load(models / "openvino.xml", Options(extra={"precision": precision})).backend == f"cpu,{precision}"
        except UnavailableError as error:
            assert f"not in {precision!r}" in str(error)  # noqa: PT017 - which of the two depends on the processor


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_what_was_asked(runtime, models, threads):
    """One stream has them all."""
    runtime.load(models / "openvino.xml", Options(threads=threads))
    compiled = runtime._request.get_compiled_model()
    assert (compiled.get_property("INFERENCE_NUM_THREADS"), compiled.get_property("NUM_STREAMS")) == (threads, 1)


def test_properties_are_passed_on(runtime, models):
    """By their own names; one that is unknown is an error."""
    runtime.load(models / "openvino.xml", Options(extra={"ENABLE_CPU_PINNING": "NO"}))
    assert runtime._request.get_compiled_model().get_property("ENABLE_CPU_PINNING") is False
    with pytest.raises(ConfigError, match="Unsupported property NOBODYS") as refusal:
        runtime.load(models / "openvino.xml", Options(extra={"NOBODYS": "1"}))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("backend", ["gpu", "npu", "auto", "hetero:gpu,cpu"])
def test_a_device_that_is_not_here_is_unavailable_and_those_here_are_named(runtime, models, backend):
    """With AUTO nobody knows what ran."""
    if backend.upper() in str(openvino.Core().available_devices):
        pytest.skip(f"{backend} is here")
    with pytest.raises(UnavailableError, match="it has cpu"):
        runtime.load(models / "openvino.xml", Options(backend=backend))


@pytest.mark.parametrize(("file", "dtype"), [("openvino_int32.xml", "int32"), ("onnx_float16.onnx", "float16")])
def test_other_types_go_in_and_come_out(runtime, models, x, file, dtype):
    """As the model declares them."""
    loaded = runtime.load(models / file, Options())
    assert (loaded.inputs[0].dtype, loaded.outputs[0].dtype) == (dtype, dtype)
    runtime.bind([x.astype(dtype)])()
    np.testing.assert_array_equal(runtime.outputs()[0], np.array([[1, 3, 5, 7]], dtype))


@pytest.mark.parametrize(
    ("size", "words"), [(None, "Empty weights data in bin file or bin file cannot be found"), (4, "Incorrect weights in bin file")]
)
def test_missing_or_short_weights_are_reported(runtime, models, tmp_path, size, words):
    """They lie in a second file."""
    (tmp_path / "m.xml").write_bytes((models / "openvino.xml").read_bytes())
    if size is not None:
        (tmp_path / "m.bin").write_bytes((models / "openvino.bin").read_bytes()[:size])
    with pytest.raises(ConfigError, match=words) as refusal:
        runtime.load(tmp_path / "m.xml", Options())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "words"), [("onnx_unknown", "nobody.NobodyHasThis"), ("onnx_external", "onnx_external.bin")])
def test_what_the_library_cannot_run_is_one_line(runtime, models, name, words):
    """The reason stands in the message, the chain of places in the library does not."""
    with pytest.raises(ConfigError, match=words) as refusal:
        runtime.load(models / f"{name}.onnx", Options())
    assert "\n" not in str(refusal.value)
    assert "Exception from" not in str(refusal.value)


def test_other_formats_are_not_tried(runtime, models):
    """OpenVINO reads more formats than two; which one a file is must not be its guess."""
    with pytest.raises(ConfigError, match="neither an OpenVINO model"):
        runtime.load(models / "litert.tflite", Options())


def test_a_precision_that_cannot_be_meant_is_refused(runtime, models):
    """The words are named."""
    for precision in ["fp32", "int8", ""]:
        with table_row(precision), pytest.raises(ConfigError, match=r"[Tt]here are f32, f16, bf16, auto"):
            runtime.load(models / "openvino.xml", Options(extra={"precision": precision}))


@pytest.mark.realdata
@pytest.mark.parametrize(("file", "scale"), [("yolov8n.onnx", 1.0), ("yolox_nano.onnx", 255.0)])
def test_a_real_model_gives_what_onnx_runtime_gives(realdata, runtime, file, scale):
    """Same file, same input: boxes to a fiftieth of a pixel of 640, scores to 1e-4; in bfloat16 they would be off by tens of pixels."""
    pytest.importorskip("onnxruntime")
    other = OnnxRuntime()
    answers = []
    for candidate in (other, runtime):
        (info,) = candidate.load(realdata / "models" / file, Options()).inputs
        image = np.random.default_rng(0).random(info.shape, np.float32) * np.float32(scale)
        candidate.bind([image])()
        answers.append(candidate.outputs()[0])
    other.close()
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-4, atol=0.02)
    if file.startswith("yolov8"):
        np.testing.assert_allclose(answers[1][:, 4:], answers[0][:, 4:], atol=1e-4)

"""OpenVINO: devices and precisions as asked, both formats, errors in one line."""

import importlib

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.open_vino import OpenVino
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs(module="openvino")
RUNTIME = OpenVino


def test_both_formats_give_the_same(runtime, models, x):
    """OpenVINO's own format and ONNX agree, and ONNX's properties are kept."""
    for file, metadata in (
        ("openvino.xml", {"labels": "cat dog"}),
        ("onnx.onnx", {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"}),
    ):
        loaded = runtime.load(models / file, Options())
        runtime.bind([x])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
        assert (loaded.package, loaded.backend, dict(loaded.metadata)) == (
            "openvino",
            "cpu",
            metadata,
        )


def test_it_computes_in_the_precision_of_the_file_unless_configured(runtime, models):
    """By default OpenVINO would take bfloat16 where the processor has it.

    `auto` is named for the precision that it took.
    """
    loaded = runtime.load(models / "openvino.xml", Options())
    assert (loaded.backend, loaded.facts) == ("cpu", {"computed_in": "f32"})
    compiled = (
        importlib.import_module("openvino")
        .Core()
        .compile_model(str(models / "openvino.xml"), "CPU")
    )
    usual = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    loaded = runtime.load(models / "openvino.xml", Options(extra={"precision": "auto"}))
    assert loaded.facts == {"computed_in": usual}
    assert loaded.backend == ("cpu" if usual == "f32" else f"cpu,{usual}")
    with pytest.raises(ConfigError, match=r"[Tt]here are f32, f16, bf16, auto"):
        runtime.load(models / "openvino.xml", Options(extra={"precision": "int8"}))


def test_a_precision_that_the_processor_lacks_is_an_error(runtime, models):
    """OpenVINO would take another precision without saying so."""
    for precision in ("f16", "bf16"):
        try:
            assert (
                runtime.load(
                    models / "openvino.xml", Options(extra={"precision": precision})
                ).backend
                == f"cpu,{precision}"
            )
        except UnavailableError as error:
            # Which of the two happens depends on the processor.
            assert f"not in {precision!r}" in str(error)  # noqa: PT017


def test_threads_and_properties_reach_the_library(runtime, models):
    """One stream has all threads, and properties go by their own names.

    An unknown property is an error.
    """
    runtime.load(models / "openvino.xml", Options(threads=2, extra={"ENABLE_CPU_PINNING": "NO"}))
    properties = ("INFERENCE_NUM_THREADS", "NUM_STREAMS", "ENABLE_CPU_PINNING")
    assert [runtime._request.get_compiled_model().get_property(name) for name in properties] == [
        2,
        1,
        False,
    ]
    with pytest.raises(ConfigError, match="Unsupported property NOBODYS") as refusal:
        runtime.load(models / "openvino.xml", Options(extra={"NOBODYS": "1"}))
    assert "\n" not in str(refusal.value)


def test_a_device_that_is_not_here_is_unavailable_and_those_here_are_named(runtime, models):
    """AUTO is refused, since nobody would know which device ran."""
    for backend in ("npu.7", "auto", "hetero:gpu.7,cpu"):
        with table_row(backend), pytest.raises(UnavailableError, match="it has cpu"):
            runtime.load(models / "openvino.xml", Options(backend=backend))


def test_other_types_go_in_and_come_out(runtime, models, x):
    """Inputs and outputs have the types that the model declares."""
    for file, dtype in (("openvino_int32.xml", "int32"), ("onnx_float16.onnx", "float16")):
        loaded = runtime.load(models / file, Options())
        assert (loaded.inputs[0].dtype, loaded.outputs[0].dtype) == (dtype, dtype)
        runtime.bind([x.astype(dtype)])()
        np.testing.assert_array_equal(runtime.outputs()[0], np.array([[1, 3, 5, 7]], dtype))


def test_what_the_library_cannot_run_is_one_line(runtime, models, tmp_path):
    """The message holds the reason without the library's chain of source locations.

    Missing or cut weights in a second file, and unknown operators, are tested.
    """
    for name, content in (("absent", None), ("cut", (models / "openvino.bin").read_bytes()[:4])):
        (tmp_path / f"{name}.xml").write_bytes((models / "openvino.xml").read_bytes())
        if content is not None:
            (tmp_path / f"{name}.bin").write_bytes(content)
    for model, words in [
        (tmp_path / "absent.xml", "Empty weights data in bin file or bin file cannot be found"),
        (tmp_path / "cut.xml", "Incorrect weights in bin file"),
        (models / "onnx_unknown.onnx", "nobody.NobodyHasThis"),
        (models / "onnx_external.onnx", "onnx_external.bin"),
    ]:
        with table_row(model.name), pytest.raises(ConfigError, match=words) as refusal:
            runtime.load(model, Options())
        assert "\n" not in str(refusal.value)
        assert "Exception from" not in str(refusal.value)

"""LiteRT's CompiledModel gives the interpreter's outputs.

Nothing that was asked for on a GPU or NPU runs on the CPU.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, dequantise, litert_compiled
from edgemeter.agent.runtimes.litert import LiteRt
from edgemeter.agent.runtimes.litert_compiled import gpu_facts, gpu_names
from tests.fixtures.rows import table_row
from tests.requirements import software_gpu

RUNTIME = LiteRt
SHIPPED = Path(__file__).resolve().parents[3] / "models" / "shipped"


def models_of(fixtures):
    """Return models that the CPU and a GPU take whole."""
    names = ("litert", "litert_int8", "litert_int32", "litert_open", "litert_signed")
    return [
        *(fixtures / f"{name}.tflite" for name in names),
        *(SHIPPED / f"edgemeter-shapes_{kind}.tflite" for kind in ("fp32", "int8")),
    ]


@pytest.fixture
def gpu(monkeypatch):
    """Make Vulkan show the software GPU alone."""
    monkeypatch.setenv("VK_ICD_FILENAMES", str(software_gpu()))


def outputs_of(opened, model, values=None, **options):
    """Return what was loaded, and the real values of the outputs for these inputs, or for noise."""
    runtime, loaded = opened("litert", model, **options)
    noise = np.random.default_rng(0)
    values = values or [
        noise.random([size or 1 for size in info.shape]).astype(info.dtype)
        if info.dtype == "float32"
        else noise.integers(
            -100 if info.dtype == "int8" else 0, 100, [size or 1 for size in info.shape]
        ).astype(info.dtype)
        for info in loaded.inputs
    ]
    runtime.bind(values)()
    return (
        loaded,
        values,
        [
            dequantise(array, info)
            for array, info in zip(runtime.outputs(), loaded.outputs, strict=True)
        ],
    )


def test_on_the_cpu_outputs_and_tensors_are_those_of_the_interpreter(opened, models):
    """Order, names, dtypes and quantisation are equal, and the record has the backend."""
    for model in models_of(models):
        loaded, values, outputs = outputs_of(opened, model, backend="cpu-compiled")
        plain, _, expected = outputs_of(opened, model, values)
        with table_row(model.name):
            assert (loaded.backend, loaded.facts, loaded.precision) == (
                "cpu-compiled",
                {},
                plain.precision,
            )
            assert (loaded.inputs, loaded.outputs) == (plain.inputs, plain.outputs)
            for output, reference in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(output, reference)


def test_another_shape_is_taken_where_the_model_leaves_it_open(runtime, models):
    """The buffers follow each shape and return to the first one."""
    runtime.load(models / "litert_open.tflite", Options(backend="cpu-compiled"))
    for rows in (3, 1):
        runtime.bind([np.full((rows, 4), 2, np.float32)])()
        np.testing.assert_array_equal(runtime.outputs()[0], np.full((rows, 4), 5, np.float32))


def test_an_npu_that_nobody_brings_is_no_cpu(runtime, models):
    """A model for an absent NPU is refused whether or not the CPU is allowed.

    The library would run all of it on the CPU, and in some releases counts it as accelerated.
    """
    for backend in ("npu", "npu,cpu"):
        with pytest.raises(
            UnavailableError, match=r"no NPU takes any of .*: install the package of its vendor"
        ) as refusal:
            runtime.load(models / "litert.tflite", Options(backend=backend))
        assert "\n" not in str(refusal.value)


@pytest.mark.services
def test_a_gpu_that_is_not_there_is_refused_in_one_line(models):
    """The model does not run on the CPU, even if that is allowed.

    The test has its own process, because the library looks for a GPU only once.
    """
    code = (
        "import sys; from pathlib import Path; from edgemeter.agent.runtimes "
        "import Options, litert\n"
        "litert.LiteRt().load(Path(sys.argv[1]), Options(backend=sys.argv[2]))"
    )
    for backend in ("gpu", "gpu,cpu"):
        command = [sys.executable, "-c", code, models / "litert.tflite", backend]
        environment = {**os.environ, "VK_ICD_FILENAMES": "/nowhere.json"}
        completed = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 1
        assert (
            "UnavailableError: LiteRT finds no GPU that it can use (Vulkan shows "
            "no GPU): install its"
        ) in completed.stderr


def test_settings_of_a_gpu_are_the_gpus(runtime, models):
    """The settings would have no effect on another device."""
    with pytest.raises(ConfigError, match="has no setting 'precision'"):
        runtime.load(
            models / "litert.tflite", Options(backend="cpu-compiled", extra={"precision": "f32"})
        )


def test_a_gpu_computes_in_f32_unless_the_record_states_otherwise():
    """The library prefers fp16 on a GPU, which is never published as fp32.

    An NPU chooses its precision by itself.
    """
    module = import_module("ai_edge_litert.compiled_model")
    for backend, precision, recorded, enforces_f32 in [
        ("gpu", None, "gpu", True),
        ("gpu", "f32", "gpu", True),
        ("gpu,cpu", "auto", "gpu,cpu,auto", False),
        ("npu,cpu", None, "npu,cpu,auto", False),
        ("cpu-compiled", None, "cpu-compiled", True),
    ]:
        options = Options(backend=backend, extra={"precision": precision} if precision else {})
        with table_row(backend, precision):
            assert (
                litert_compiled.library_options(module, options).gpu_options.enforce_f32
                is enforces_f32
            )
            assert litert_compiled.recorded_backend(options) == recorded


@pytest.mark.software_gpu
@pytest.mark.usefixtures("gpu")
def test_a_model_that_a_gpu_takes_whole_gives_what_the_interpreter_gives(opened, models):
    """On a software GPU, f32 outputs agree to rounding.

    8-bit outputs agree to what arithmetic in floats changes. The count of operators is the
    library's.
    """
    for model in models_of(models):
        loaded, values, outputs = outputs_of(opened, model, backend="gpu")
        _, _, expected = outputs_of(opened, model, values)
        with table_row(model.name):
            assert loaded.backend == "gpu"
            assert (
                loaded.facts.get("fully_accelerated") == "yes"
                or int(loaded.facts["operators_on_gpu"]) >= 2
            )
            assert "operators_on_cpu" not in loaded.facts
            assert "(software)" in loaded.facts["gpu"]
            for output, reference in zip(outputs, expected, strict=True):
                if model.stem == "edgemeter-shapes_int8":
                    assert np.corrcoef(output.ravel(), reference.ravel())[0, 1] > 0.98
                else:
                    np.testing.assert_allclose(
                        output, reference, atol=1e-4 * np.abs(reference).max()
                    )


@pytest.mark.software_gpu
@pytest.mark.usefixtures("gpu")
def test_a_model_that_a_gpu_takes_in_part_is_refused_or_counted(opened, models, x):
    """Without the CPU as second choice the model is refused.

    With it the record has the numbers and the operator.
    """
    with pytest.raises(
        ConfigError,
        match=r"1 of 3 operators of .* would run on the CPU \(RELU_0_TO_1\): "
        r"choose --backend gpu,cpu",
    ):
        opened("litert", models / "litert_partly_gpu.tflite", backend="gpu")
    loaded, _, outputs = outputs_of(
        opened, models / "litert_partly_gpu.tflite", [x / 4 - 0.5], backend="gpu,cpu"
    )
    assert loaded.backend == "gpu,cpu"
    counts = {
        name: loaded.facts[name] for name in ("operators_on_gpu", "operators_on_cpu", "left_to_cpu")
    }
    assert counts == {
        "operators_on_gpu": "2",
        "operators_on_cpu": "1",
        "left_to_cpu": "RELU_0_TO_1",
    }
    np.testing.assert_array_equal(outputs[0], [[0, 0.5, 1, 1]])


@pytest.mark.software_gpu
@pytest.mark.usefixtures("gpu")
def test_a_model_that_a_gpu_does_not_take_at_all_is_an_error(runtime, models):
    """Even if the CPU is allowed, nothing of the GPU would be measured."""
    with pytest.raises(UnavailableError, match="the gpu takes no operator of"):
        runtime.load(models / "litert_beyond_gpu.tflite", Options(backend="gpu,cpu"))


@pytest.mark.software_gpu
def test_a_processor_that_plays_a_gpu_is_marked(monkeypatch):
    """The type that the driver states decides, whatever the name."""
    monkeypatch.setenv("VK_ICD_FILENAMES", str(software_gpu()))
    (name,) = gpu_names()
    assert name.endswith(" (software)")


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    """Without Vulkan there is none either, which gives neither an error nor a name."""
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    assert (gpu_names(), gpu_facts()) == ([], {})


def test_of_several_gpus_none_is_named_as_the_one_that_computes(monkeypatch):
    """The library does not name its choice, and software beside hardware may be it."""
    for names, facts in (
        (["Mali"], {"gpu": "Mali"}),
        (["Mali", "llvmpipe (software)"], {"gpus_present": "Mali; llvmpipe (software)"}),
    ):
        monkeypatch.setattr(litert_compiled, "gpu_names", lambda names=names: names)
        assert gpu_facts() == facts

"""ONNX Runtime: providers without silent fallback, threads as told, errors in one line."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, onnx_runtime
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime
from tests.fixtures.rows import table_row

onnxruntime = pytest.importorskip("onnxruntime")
RUNTIME = OnnxRuntime


def test_package_backend_and_metadata_are_reported(runtime, models):
    """The record names the library; metadata_props come as they are."""
    loaded = runtime.load(models / "onnx.onnx", Options())
    assert loaded.package.startswith("onnxruntime")
    assert loaded.version == importlib.metadata.version(loaded.package)
    assert loaded.backend == "cpu"
    assert loaded.metadata == {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"}


def test_the_library_keeps_and_sends_no_telemetry(models, tmp_path):
    """Version 1.31 would keep a database in the home, and its uploader would wake in the process that is measured."""
    code = (
        "from pathlib import Path; import sys; from edgemeter.agent import runtimes\n"
        "runtimes.create('onnx').load(Path(sys.argv[1]), runtimes.Options())"
    )
    subprocess.run([sys.executable, "-c", code, models / "onnx.onnx"], env={**os.environ, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_what_was_asked(runtime, models, threads):
    """One pool of that size, no second one between operators."""
    runtime.load(models / "onnx.onnx", Options(threads=threads))
    options = runtime._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (threads, 1)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL


def test_queries_read_from_the_same_memory_and_outputs_are_let_go_before_them(runtime, models, x):
    """A loop on one input has that too: new addresses cost it 2.4% with OpenVINO, of 1 ms."""
    runtime.load(models / "onnx_open.onnx", Options())
    run, addresses = runtime._session.run, []
    runtime._session = SimpleNamespace(
        run=lambda names, feeds: [addresses.append((runtime._last, *(array.ctypes.data for array in feeds.values()))), *run(names, feeds)][
            1:
        ]
    )
    for rows in (1, 1, 3, 1):
        call = runtime.bind([np.repeat(x, rows, axis=0)])
        call()
        call()
        assert runtime.outputs()[0].shape[0] == rows
    assert len(set(addresses[:4])) == 1
    assert {entry[0] for entry in addresses} == {None}


def test_an_array_of_the_other_byte_order_is_read_by_its_values(runtime, models, x):
    """It is of the model's type, and may be the first whose memory later ones are copied to."""
    runtime.load(models / "onnx.onnx", Options())
    for array in (x.astype(x.dtype.newbyteorder()), x):
        runtime.bind([array])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


@pytest.mark.parametrize("backend", ["cuda", "cuda,cpu", "nowhere", ","])
def test_an_absent_provider_is_unavailable_and_those_here_are_named(runtime, models, backend):
    """ONNX Runtime alone would warn and take the CPU."""
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("CUDA is here")
    with pytest.raises(
        UnavailableError,
        match=r"choose --backend (\w+, )*cpu(, [\w-]+)*, or install (onnxruntime-gpu|a build that brings it) in place of onnxruntime",
    ):
        runtime.load(models / "onnx.onnx", Options(backend=backend))


def test_a_provider_that_drops_out_is_an_error(runtime, models, monkeypatch):
    """A provider of the build that cannot start here leaves only the CPU in the session: that is no measurement of it."""
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda _: ["SomethingElse"])
    with pytest.raises(UnavailableError, match="dropped CPUExecutionProvider"):
        runtime.load(models / "onnx.onnx", Options())


def test_session_settings_are_passed_on(runtime, models):
    """`session.*` reaches the library, which keeps idle threads from spinning."""
    runtime.load(models / "onnx.onnx", Options(extra={"session.intra_op.allow_spinning": "0"}))
    assert runtime._session.get_session_options().get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_outputs_may_change_their_size_from_call_to_call(runtime, models, x):
    """A detector with its own NMS gives as many rows as it finds."""
    runtime.load(models / "onnx_by_content.onnx", Options())
    for array, count in ((x, 3), (np.zeros_like(x), 0), (x + 1, 4)):
        runtime.bind([array])()
        assert runtime.outputs()[0].shape == (2, count)


def test_what_the_library_cannot_run_is_one_line(runtime, models):
    """The reason stands in the message, the library's noise around it does not."""
    for name, words in [
        ("onnx_opset99", "it needs opset 99, this version knows up to"),
        ("onnx_ir99", "Unsupported model IR version: 99"),
        ("onnx_external", "onnx_external.bin"),
        ("onnx_unknown", "NobodyHasThis"),
        ("onnx_sequence", r"of type seq\(tensor\(float\)\), not a tensor"),
    ]:
        with table_row(name), pytest.raises(ConfigError, match=words) as refusal:
            runtime.load(models / f"{name}.onnx", Options())
        assert "\n" not in str(refusal.value), f"{name!r}"
        assert "[ONNXRuntimeError]" not in str(refusal.value), f"{name!r}"


def test_a_provider_that_takes_no_operator_is_an_error(runtime, models):
    """Azure's is in every build and computes nothing itself: ONNX Runtime runs all on the CPU under its name."""
    if not hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        pytest.skip("this version does not tell what a provider took")
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build has only one provider")
    with pytest.raises(UnavailableError, match=r"AzureExecutionProvider takes no operator of .*: choose cpu"):
        runtime.load(models / "onnx.onnx", Options(backend="AzureExecutionProvider,cpu"))


def test_what_is_left_to_the_cpu_is_recorded(runtime, models, monkeypatch):
    """The library tells which operators went where; the numbers are in the record."""
    on_azure = [
        SimpleNamespace(
            ep_name="AzureExecutionProvider", get_nodes=lambda: [SimpleNamespace(op_type=kind) for kind in ("Conv", "Conv", "Add")]
        )
    ]
    on_cpu = [SimpleNamespace(ep_name="CPUExecutionProvider", get_nodes=lambda: [SimpleNamespace(op_type="Softmax")])]
    tells = "get_provider_graph_assignment_info"
    monkeypatch.setattr(onnxruntime.InferenceSession, tells, lambda _: [*on_azure, *on_cpu, *on_cpu], raising=False)
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build has only one provider")
    loaded = runtime.load(models / "onnx.onnx", Options(backend="AzureExecutionProvider"))
    # Nobody knows what a provider computes in that is none of those described, nor with how many threads.
    assert (loaded.backend, loaded.precision, loaded.threads_reason is None) == ("AzureExecutionProvider,auto", "unknown", False)
    assert loaded.facts == {"operators_on_AzureExecutionProvider": "3", "operators_on_cpu": "2", "left_to_cpu": "Softmax 2"}


@pytest.mark.parametrize(
    ("provider", "has_fallback", "facts"),
    [
        ("CUDA", True, {"fully_accelerated": "not reported"}),
        ("CUDA", False, {"fully_accelerated": "yes"}),
        ("CPU", True, {}),
    ],
)
def test_a_version_that_reports_nothing_is_not_taken_for_a_clean_one(provider, has_fallback, facts):
    """Before 1.24 an accelerator that took nothing would look like one that took all; refusing the CPU settles it."""
    names = {f"{provider}ExecutionProvider": provider.lower()}
    assert onnx_runtime._taken(Path("m.onnx"), SimpleNamespace(), names, has_fallback=has_fallback) == facts


def test_a_providers_own_options_reach_it_and_no_other(runtime, models):
    """OpenVINO's build of ONNX Runtime, where it is installed; an unknown option is an error."""
    if "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs onnxruntime-openvino")
    facts = runtime.load(models / "onnx.onnx", Options(backend="openvino", extra={"openvino.device_type": "CPU"})).facts
    assert facts == {"operators_on_openvino": "2"}
    with pytest.raises(ConfigError, match="Invalid OpenVINO EP option: nobodys"):
        runtime.load(models / "onnx.onnx", Options(backend="openvino", extra={"openvino.nobodys": "1"}))


def test_an_option_of_a_provider_that_was_not_asked_for_is_refused(runtime, models):
    """It would have no effect."""
    for setting in ["cuda.arena_extend_strategy", "tensorrt.trt_fp16_enable", "nobody.knows"]:
        with table_row(setting), pytest.raises(ConfigError, match=setting):
            runtime.load(models / "onnx.onnx", Options(extra={setting: "1"}))

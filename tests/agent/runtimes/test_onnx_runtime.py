"""ONNX Runtime: providers without silent fallback, threads as told, errors in one line."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, onnx_runtime
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime
from tests.fixtures.rows import table_row

RUNTIME = OnnxRuntime


def test_package_backend_and_metadata_are_reported(runtime, models):
    """The record names the library, and metadata_props are passed on unchanged."""
    loaded = runtime.load(models / "onnx.onnx", Options())
    assert loaded.package.startswith("onnxruntime")
    assert loaded.version == importlib.metadata.version(loaded.package)
    assert loaded.backend == "cpu"
    assert loaded.metadata == {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"}


@pytest.mark.services
def test_the_library_keeps_and_sends_no_telemetry(models, tmp_path):
    """Version 1.31 would keep a database in the home and run an uploader.

    The uploader would wake in the process that is measured.
    """
    code = (
        "from pathlib import Path; import sys; from edgemeter.agent import runtimes\n"
        "runtimes.create('onnx').load(Path(sys.argv[1]), runtimes.Options())"
    )
    subprocess.run(
        [sys.executable, "-c", code, models / "onnx.onnx"],
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
    )
    assert list(tmp_path.rglob("*")) == []


def test_settings_reach_the_session(runtime, models, x):
    """There is one thread pool, without a second one between operators.

    `session.*` settings and every optimisation level are set, which changes no value.
    """
    runtime.load(
        models / "onnx.onnx", Options(threads=2, extra={"session.intra_op.allow_spinning": "0"})
    )
    options = runtime.session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    names = {
        "none": "ORT_DISABLE_ALL",
        "basic": "ORT_ENABLE_BASIC",
        "extended": "ORT_ENABLE_EXTENDED",
    }
    for level, name in (names | {"layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL"}).items():
        runtime.load(models / "onnx.onnx", Options(extra={"graph_optimisation": level}))
        assert runtime.session.get_session_options().graph_optimization_level.name == name
        runtime.bind([x])()
        assert runtime.outputs()[0].tolist() == [[1, 3, 5, 7]]
    with pytest.raises(ConfigError, match="'most': there are none, basic, extended, layout, all"):
        runtime.load(models / "onnx.onnx", Options(extra={"graph_optimisation": "most"}))


def test_an_array_of_the_other_byte_order_is_read_by_its_values(runtime, models, x):
    """The array has the model's type, and later ones may be copied to its memory."""
    runtime.load(models / "onnx.onnx", Options())
    for array in (x.astype(x.dtype.newbyteorder()), x):
        runtime.bind([array])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_an_absent_provider_is_unavailable_and_those_here_are_named(runtime, models, monkeypatch):
    """ONNX Runtime alone would warn and use the CPU."""
    monkeypatch.setattr(
        onnxruntime,
        "get_available_providers",
        lambda: ["AzureExecutionProvider", "CPUExecutionProvider"],
    )
    for backend in ("cuda,cpu", "nowhere", ","):
        with (
            table_row(backend),
            pytest.raises(
                UnavailableError, match="choose --backend cpu, or install a build that brings it"
            ),
        ):
            runtime.load(models / "onnx.onnx", Options(backend=backend))


def test_a_provider_that_drops_out_is_an_error(runtime, models, monkeypatch):
    """A provider that cannot start leaves only the CPU, which does not measure the provider."""
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda _: ["SomethingElse"])
    with pytest.raises(UnavailableError, match="dropped CPUExecutionProvider"):
        runtime.load(models / "onnx.onnx", Options())


def test_outputs_may_change_their_size_from_call_to_call(runtime, models, x):
    """A detector with its own NMS gives as many rows as it finds."""
    runtime.load(models / "onnx_by_content.onnx", Options())
    for array, count in ((x, 3), (np.zeros_like(x), 0), (x + 1, 4)):
        runtime.bind([array])()
        assert runtime.outputs()[0].shape == (2, count)


def test_what_the_library_cannot_run_is_one_line(runtime, models):
    """The message holds the reason without the library's noise around it."""
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


def test_what_is_left_to_the_cpu_is_recorded(runtime, models, monkeypatch):
    """Azure's provider is in every build and computes nothing itself.

    All of it would run on the CPU under the provider's name. The last version for Python 3.10
    reports no operators.
    """
    azure = Options(backend="AzureExecutionProvider,cpu")
    if hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        with pytest.raises(
            UnavailableError, match=r"AzureExecutionProvider takes no operator of .*: choose cpu"
        ):
            runtime.load(models / "onnx.onnx", azure)
    else:
        assert runtime.load(models / "onnx.onnx", azure).facts == {
            "fully_accelerated": "not reported"
        }
    parts = [
        SimpleNamespace(
            ep_name=f"{name}ExecutionProvider",
            get_nodes=lambda kinds=kinds: [SimpleNamespace(op_type=kind) for kind in kinds],
        )
        for name, kinds in (
            ("Azure", ("Conv", "Conv", "Add")),
            ("CPU", ("Softmax",)),
            ("CPU", ("Softmax",)),
        )
    ]
    monkeypatch.setattr(
        onnxruntime.InferenceSession,
        "get_provider_graph_assignment_info",
        lambda _: parts,
        raising=False,
    )
    loaded = runtime.load(models / "onnx.onnx", azure)
    # Nobody knows what a provider computes in that is none of those described, nor with how many
    # threads.
    assert (loaded.backend, loaded.precision, loaded.threads_reason is None) == (
        "AzureExecutionProvider,auto",
        "unknown",
        False,
    )
    assert loaded.facts == {
        "operators_on_AzureExecutionProvider": "3",
        "operators_on_cpu": "2",
        "left_to_cpu": "Softmax 2",
    }


def test_a_version_that_reports_nothing_is_not_taken_for_a_clean_one():
    """Before 1.24 an accelerator that took nothing would look like one that took all.

    Refusing the CPU settles it.
    """
    for provider, has_fallback, facts in [
        ("CUDA", True, {"fully_accelerated": "not reported"}),
        ("CUDA", False, {"fully_accelerated": "yes"}),
        ("CPU", True, {}),
    ]:
        providers = [f"{provider}ExecutionProvider"]
        assert (
            onnx_runtime._taken(
                Path("m.onnx"), SimpleNamespace(), providers, has_fallback=has_fallback
            )
            == facts
        )


def test_an_option_of_a_provider_that_was_not_asked_for_is_refused(runtime, models):
    """The option would have no effect."""
    for setting in ["cuda.arena_extend_strategy", "tensorrt.trt_fp16_enable", "nobody.knows"]:
        with table_row(setting), pytest.raises(ConfigError, match=setting):
            runtime.load(models / "onnx.onnx", Options(extra={setting: "1"}))

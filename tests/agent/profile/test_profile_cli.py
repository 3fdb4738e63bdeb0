"""Facts about `edgemeter models profile`, with the libraries' own profilers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import software_gpu

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes"
SHIPPED = (
    Path(__file__).resolve().parents[3] / "models" / "shipped" / "edgemeter-shapes_fp32.tflite"
)
QUERIES = 10


def edgemeter(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**os.environ, "COLUMNS": "140", **environment},
    )


def profiled(*arguments):
    result = edgemeter("models", "profile", *arguments, "--queries", QUERIES, "--format", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.services
def test_every_operator_ran_once_an_inference():
    """All queries are counted, no operator is lost, and coverage is a ratio of timed work.

    The queries are the plain and the profiled ones.
    """
    document = profiled(FIXTURES / "onnx.onnx")
    assert (document["queries"], document["package"]) == (QUERIES, "onnxruntime")
    assert [row["calls"] for row in document["operators"]] == [QUERIES, QUERIES]
    assert 0 < document["coverage_ratio"] <= 1
    assert sum(row["share_ratio"] for row in document["operators"]) == pytest.approx(
        document["coverage_ratio"]
    )
    assert document["slowdown_ratio"] == pytest.approx(
        document["profiled_p50_ms"] / document["plain_p50_ms"] - 1
    )


@pytest.mark.realdata
def test_litert_names_each_operator_of_a_real_model(realdata):
    """MobileNet v1's 31 operators are listed as in its graph with the builtin kernels.

    With XNNPACK its kernels are listed.
    """
    model = realdata / "models" / "mobilenet_v1_0.25_128_quant.tflite"
    document = profiled(model, "--backend", "builtin", "--by", "type")
    calls = {row["type"]: row["calls"] / QUERIES for row in document["operators"]}
    assert calls == {
        "CONV_2D": 15,
        "DEPTHWISE_CONV_2D": 13,
        "AVERAGE_POOL_2D": 1,
        "RESHAPE": 1,
        "SOFTMAX": 1,
    }
    document = profiled(model)
    assert document["backend"] == "xnnpack"
    assert (
        sum(row["calls"] for row in document["operators"] if "QU8" in row["type"]) == 28 * QUERIES
    )


@pytest.mark.services
@pytest.mark.parametrize("backend", ["xnnpack", "cpu-compiled"])
def test_a_litert_model_with_a_signature_has_each_operator_once_an_inference(backend):
    """The library writes no interpreter events for such a model.

    All inferences used to be counted as one, so that operators took thousands of percent.
    """
    document = profiled(SHIPPED, "--backend", backend)
    assert {row["calls"] for row in document["operators"]} == {QUERIES}
    assert document["coverage_ratio"] <= 1


@pytest.mark.software_gpu
def test_an_accelerator_that_the_profiler_does_not_see_is_refused():
    """LiteRT's profiler compiles for the CPU, so its operators are not a GPU's."""
    result = edgemeter(
        "models", "profile", SHIPPED, "--backend", "gpu,cpu", VK_ICD_FILENAMES=str(software_gpu())
    )
    assert result.returncode == 1
    assert (
        "LiteRT's profiler sees the CPU only, not gpu,cpu: profile with --backend cpu-compiled"
        in result.stderr
    )


@pytest.mark.services
def test_what_cannot_be_profiled_is_one_line(tmp_path):
    """The exit status distinguishes wrong usage from a failure.

    If the library crashes, the profiling process is reported by its signal.
    """
    for name, status, message in (
        ("replay.replay.json", 1, "'replay'"),
        ("onnx_opset99.onnx", 2, "opset 99"),
    ):
        result = edgemeter("models", "profile", FIXTURES / name)
        assert (result.returncode, "Traceback" in result.stderr) == (status, False)
        assert message in result.stderr
    (tmp_path / "onnxruntime.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    result = edgemeter("models", "profile", FIXTURES / "onnx.onnx", PYTHONPATH=str(tmp_path))
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert "SIGSEGV" in result.stderr

"""Facts about `docs/examples/`: each runs as it stands, and is short enough to read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import edgemeter
from edgemeter.agent.contract import suite
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.record_factory import STARTED_AT_NS

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
INT8, FP32 = "edgemeter-shapes_int8.tflite", "edgemeter-shapes_fp32.tflite"
WEEK_NS = 7 * 86_400 * 10**9


def run(name, *arguments, home):
    """Return what `python docs/examples/NAME ARGUMENTS` prints."""
    environment = os.environ | {"EDGEMETER_HOME": str(home)}
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd=home)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_each_example_is_short():
    """At most 80 lines: it is read before it is run."""
    assert {path.name for path in EXAMPLES.rglob("*.py") if len(path.read_text().splitlines()) > 80} == set()


@pytest.mark.slow
def test_one_model_is_measured(tmp_path):
    """Latency and accuracy of a shipped model on the shipped scenes; no sensor is here."""
    scenes = SHIPPED_FOLDER.parent / "scenes"
    printed = run("measure_one.py", INT8, scenes / "images", scenes / "annotations.json", home=tmp_path)
    assert "latency p50: " in printed
    assert "accuracy: 0.738 coco_ap on 112 images" in printed


@pytest.mark.long
@pytest.mark.slow
def test_two_models_are_compared(tmp_path):
    """A sentence, the reason for what it leaves out, and a bar for each run."""
    printed = run("compare_two.py", FP32, INT8, 2, home=tmp_path)
    assert "no accuracy: no photographs were given" in printed
    assert printed.count(" ms\n") == 4


def test_a_trend_is_fitted_to_a_ledger(tmp_path):
    """Eight weeks of runs that slow down by 2% a week."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        for week in range(8):
            p50_ms = 10.0 * 1.02**week * (1.001 if week % 2 else 0.999)
            when = {"started_at_ns": STARTED_AT_NS + week * WEEK_NS, "session": 1, "seq": week + 1}
            ledger.keep_own(make_run(p50_ms=p50_ms, **when), 1 << 30)
    assert run("fit_trend.py", home=tmp_path).startswith("pi-1 tiny-detector fp32 onnx: +1.9")


@pytest.mark.slow
@pytest.mark.needs(module="onnx")
def test_deepbenchs_operators_are_models_like_any(tmp_path):
    """27 of them and their suite; one is measured."""
    run("operator_models.py", tmp_path / "operators", home=tmp_path)
    cases = suite.read(tmp_path / "operators" / "operators.toml").cases
    assert len({case.model for case in cases}) == 27
    (small,) = (case.model for case in cases if "MatMul_1x128_by_128x3072" in case.model)
    assert edgemeter.measure(small, mode="rapid").latency.p50_ms > 0


FRAMEWORKS = {
    "torch_eager": ("torch", "callable,cpu", pytest.mark.torch),
    "torch_compiled": ("torch", "compile,cpu", pytest.mark.torch),
    "jax_jit": ("jax", "jit", pytest.mark.needs(module="jax")),
    "tensorflow_function": ("tensorflow", "function,cpu", pytest.mark.needs(module="tensorflow")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, (_, _, mark) in FRAMEWORKS.items()])
def test_a_model_of_a_framework_is_measured(name):
    """By its factory, in a few lines; the record names the framework."""
    record = edgemeter.measure(f"{EXAMPLES / name}.py:make", mode="rapid")
    assert (record.runtime.package, record.runtime.backend) == FRAMEWORKS[name][:2]
    assert record.latency.p50_ms > 0

"""Facts about the doctor's bounds: measured once, by all cores, twice each; a run in progress is left alone."""

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract.record_conditions import MachineBounds
from edgemeter.agent.doctor import check_bounds, measure_bounds
from edgemeter.agent.machine import roof
from edgemeter.agent.runtimes import Options
from tests.fixtures.record_factory import make_environment

BOUNDS = MachineBounds(memory_gbyte_per_s=31.25, int8_gop_per_s=840.0, reasons=("float32: disturbed",), measured_at_ns=0, took_s=2.0)


@pytest.fixture
def measurements(monkeypatch):
    """Return how often the bounds were measured, which takes no time here."""
    calls: list[int] = []
    monkeypatch.setattr(check_bounds, "measure_in_child", lambda: (calls.append(1), BOUNDS)[1])
    return calls


def test_bounds_are_measured_once(tmp_path, measurements):
    """Only where it was asked for; then the file is read."""
    absent = check_bounds.check_bounds(tmp_path, measures=False)
    assert (absent.state, measurements) == ("absent", [])
    assert "edgemeter doctor" in absent.remedy
    findings = [check_bounds.check_bounds(tmp_path, measures=measures) for measures in (True, True, False)]
    assert measurements == [1]
    assert {finding.state for finding in findings} == {"ok"}
    assert findings[0].what == "at most 31.2 GB/s from memory, 840 int8, float32: disturbed (measured on 1970-01-01, in 2.0 s)"


def test_what_other_work_disturbed_is_measured_again(tmp_path, monkeypatch):
    """Kept, it would be missing until the kernel changes."""
    busy = MachineBounds(reasons=tuple(roof.unsteady([20.0, 30.0], "GB/s")), measured_at_ns=0, took_s=2.0)
    measured = [BOUNDS, busy]
    monkeypatch.setattr(check_bounds, "measure_in_child", measured.pop)
    finding = check_bounds.check_bounds(tmp_path, measures=True)
    assert (finding.state, "other work disturbed it" in finding.what) == ("warn", True)
    assert check_bounds.check_bounds(tmp_path, measures=True).state == "ok"


def test_a_run_in_progress_is_not_disturbed(tmp_path, measurements):
    """Two at once would measure each other."""
    lock = RunLock(tmp_path)
    assert lock.take("a run")
    assert check_bounds.check_bounds(tmp_path, measures=True).state == "absent"
    lock.release()
    assert measurements == []


def test_each_bound_is_measured_twice_and_what_differs_is_none(monkeypatch):
    """The higher of two counts; without ONNX Runtime, or memory for the array, there is a reason."""
    speeds = {"float32_gop_per_s": [100.0, 110.0], "read_gbyte_per_s": [30.0, 20.0]}
    monkeypatch.setattr(roof, "float32_gop_per_s", speeds["float32_gop_per_s"].pop)
    monkeypatch.setattr(roof, "read_gbyte_per_s", lambda *_: speeds["read_gbyte_per_s"].pop())

    def none(*_):
        raise UnavailableError("no runtime")

    monkeypatch.setattr(measure_bounds, "int8_product", none)
    bounds = measure_bounds.measure(make_environment(), 8000.0)
    assert (bounds.float32_gop_per_s, bounds.memory_gbyte_per_s, bounds.int8_gop_per_s) == (110.0, None, None)
    assert [reason.split(":")[0] for reason in bounds.reasons] == ["int8", "20 and 30 memory_gbyte_per_s"]
    monkeypatch.setattr(roof, "float32_gop_per_s", lambda: 100.0)
    assert "does not fit" in measure_bounds.measure(make_environment(), 100.0).reasons[0]


def test_the_product_is_a_model_that_multiplies(tmp_path):
    """By the checker of the package onnx, and by numpy's product of the same numbers."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    (tmp_path / "product.onnx").write_bytes(measure_bounds.product_model(300))
    onnx.checker.check_model(str(tmp_path / "product.onnx"), full_check=True)
    runtime = runtimes.create("onnx")
    runtime.load(tmp_path / "product.onnx", Options(backend="cpu"))
    draw = np.random.default_rng(1)
    first, second = draw.integers(0, 255, (300, 300), np.uint8), draw.integers(-127, 127, (300, 300), np.int8)
    runtime.bind([first, second])()
    assert (runtime.outputs()[0] == first.astype(np.int32) @ second.astype(np.int32)).all()
    runtime.close()


@pytest.mark.slow
def test_a_machine_has_bounds_within_the_possible():
    """By a process of its own; no machine reads at less than 0.1 GB/s, or above 3.3 TB/s."""
    bounds = check_bounds.measure_in_child()
    assert bounds.memory_gbyte_per_s is None or 0.1 < bounds.memory_gbyte_per_s < 3300

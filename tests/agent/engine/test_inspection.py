"""Facts about `edgemeter.agent.engine.inspection`.

A model is opened once before it is measured, where that disturbs nobody.
"""

from pathlib import Path

import pytest

from edgemeter.agent.base.errors import (
    ConfigError,
    MeasurementError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.engine import inspection
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case

MODELS = Path(__file__).parents[2] / "fixtures/runtimes"


@pytest.fixture
def ways(monkeypatch):
    """Return how models are opened, without opening them."""
    names = []
    monkeypatch.setattr(inspection, "_ask", lambda _case, how, *_: names.append(how))
    return names


@pytest.mark.services
def test_a_sound_model_is_not_refused_and_a_truncated_one_is(tmp_path):
    """The model is loaded in a process of its own."""
    assert inspection.why_not(one_case(MODELS / "litert.tflite")) is None
    model = tmp_path / "m.tflite"
    model.write_bytes((MODELS / "litert.tflite").read_bytes()[:500])
    assert str(model) in str(inspection.why_not(one_case(model)))


def test_an_accelerator_is_not_opened(ways):
    """Another run may be using it, so only the library's list of backends is read."""
    for model, settings, how in [
        ("litert.tflite", {}, ["load"]),
        ("litert.tflite", {"backend": "reference"}, ["load"]),
        ("onnx.onnx", {"backend": "cuda"}, ["check"]),
        ("edgetpu.tflite", {"runtime": "edgetpu"}, []),
    ]:
        with table_row(model, settings):
            ways.clear()
            inspection.why_not(one_case(MODELS / model, **settings))
            assert ways == how


def test_a_large_model_is_not_loaded_in_vain(monkeypatch, ways, tmp_path):
    """Its load takes much time and memory, so only the head of the file is read."""
    monkeypatch.setattr(inspection, "TRIED_BYTES", 1000)
    for size in (1000, 1001):
        (tmp_path / "m.onnx").write_bytes(bytes(size))
        inspection.why_not(one_case(tmp_path / "m.onnx"))
    assert ways == ["load", "check"]


def test_a_crash_or_a_long_load_is_left_to_the_first_run(monkeypatch):
    """Memory that another run takes, or a slow disk, is no reason to refuse a model."""
    for error, is_refused in [
        (ConfigError, True),
        (UnavailableError, True),
        (MeasurementError, False),
        (TransientError, False),
    ]:
        with table_row(error):

            def fail(*_, error=error):
                raise error("no")

            monkeypatch.setattr(inspection, "_ask", fail)
            assert (
                inspection.why_not(one_case(MODELS / "litert.tflite")) is not None
            ) == is_refused

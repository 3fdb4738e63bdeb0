"""Facts about functions measured from Python.

They are kept like every run, marked in comparisons, and can be decorated.
"""

import time

import pytest

import edgemeter
from edgemeter.agent.bundle.recompute import recompute

SHORT = {"mode": "rapid", "power": "none"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", "run.lock")


def pause(seconds, *, result=None):
    time.sleep(seconds)
    return result


@pytest.mark.services
def test_a_function_is_measured_and_kept():
    """A function is measured by one call of `measure`, and every view says so.

    The record tells that it ran in this process.
    """
    record = edgemeter.measure(pause, 0.002, **SHORT)
    assert record.model.name.endswith("pause")
    assert record.latency.p50_ms >= 2.0
    assert record.case == edgemeter.measure(pause, 0.002, save=False, **SHORT).case
    columns = edgemeter.load(columns=["model", "runtime", "backend"])
    assert [values.tolist() for name, values in columns.items() if name != "started_at"] == [
        [record.model.name],
        ["python"],
        ["in-process"],
    ]
    assert [condition.when for condition in record.conditions] == ["before", "during", "after"]


@pytest.mark.services
def test_the_throughput_of_a_function_is_that_of_its_calls():
    """The throughput of a function is that of its calls, and figures follow from the samples.

    A query of a quick function is many calls, one of which takes 1 / throughput.
    """
    record = edgemeter.measure(abs, -1, save=False, **SHORT)
    assert record.load.samples > 100 * record.latency.count
    assert record.throughput_per_s * record.latency.mean_ms == pytest.approx(1000, rel=0.05)
    assert recompute(record)[1] == ()


def test_settings_of_models_are_refused_for_functions():
    """Settings of models for functions, and inputs for models, are a TypeError."""
    for keyword in ({"data": "x"}, {"threads": 4}, {"runtime": "onnx"}):
        with pytest.raises(
            TypeError, match=f"unexpected keyword argument '{next(iter(keyword))}' for a function"
        ):
            edgemeter.measure(pause, 0.001, **keyword)
    with pytest.raises(
        TypeError, match="measure takes one model: give its data as data=FOLDER, or compare two"
    ):
        edgemeter.measure("model.onnx", "other.onnx")
    with pytest.raises(TypeError, match="measured takes a function, not 'model"):
        edgemeter.measured("model.onnx")


@pytest.mark.nightly
def test_a_decorated_function_is_measured_at_its_first_call():
    """A decorated function is measured at its first call, and has the record.

    It returns what it did before, and keeps its name.
    """
    decorated = edgemeter.measured(save=False, **SHORT)(pause)
    assert (decorated.record, decorated.__name__) == (None, "pause")
    assert decorated(0.001, result=7) == 7
    record = decorated.record
    assert record.latency.p50_ms >= 1.0
    assert decorated(0.001) is None
    assert decorated.record is record
    assert edgemeter.measured(pause).record is None

"""Facts about the settings by which a runtime runs a reference: plain kernels, and named for it."""

from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Options

MODELS = Path(__file__).parents[2] / "fixtures" / "runtimes"
X = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)


@pytest.fixture
def opened():
    """Return a function that loads a model in a runtime, which is closed at the end."""
    made = []

    def load(name, model, **options):
        made.append(runtimes.create(name))
        return made[-1], made[-1].load(MODELS / model, Options(**options))

    yield load
    for runtime in made:
        runtime.close()


def answer(runtime):
    """Return the output for 1, 2, 3, 4."""
    runtime.bind([X])()
    return runtime.outputs()[0].tolist()


def test_litert_has_reference_kernels_and_names_them(opened):
    """No delegate takes part; the values are the model's."""
    runtime, loaded = opened("litert", "litert.tflite", backend="reference")
    assert loaded.backend == "reference"
    assert answer(runtime) == [[3.0, 5.0, 7.0, 9.0]]


@pytest.mark.parametrize("level", ["none", "basic", "extended", "layout", "all"])
def test_onnx_runtime_optimises_as_configured(opened, level):
    """Every level loads and gives the model's values."""
    runtime, _ = opened("onnx", "onnx.onnx", extra={"graph_optimisation": level})
    names = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
    names |= {"layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL"}
    assert runtime._session.get_session_options().graph_optimization_level.name == names[level]
    assert answer(runtime) == [[3.0, 5.0, 7.0, 9.0]]


def test_an_unknown_level_is_refused_before_anything_is_loaded(opened):
    """It says what there is."""
    with pytest.raises(ConfigError, match="'most': choose one of none, basic, extended, layout, all"):
        opened("onnx", "onnx.onnx", extra={"graph_optimisation": "most"})


@pytest.mark.slow
@pytest.mark.torch
def test_pytorch_does_without_onednn(opened):
    """The setting holds for the process; the values are the model's; another word is refused."""
    torch = pytest.importorskip("torch", reason="no torch is installed")
    try:
        runtime, _ = opened("pytorch", "pytorch.pt2", extra={"onednn": "off"})
        assert not torch.backends.mkldnn.enabled
        assert answer(runtime) == [[3.0, 5.0, 7.0, 9.0]]
        with pytest.raises(ConfigError, match="'maybe': choose on or off"):
            opened("pytorch", "pytorch.pt2", extra={"onednn": "maybe"})
    finally:
        torch.backends.mkldnn.set_flags(_enabled=True)

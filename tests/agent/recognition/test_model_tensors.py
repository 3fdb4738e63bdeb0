"""The input that takes the photograph, and the outputs' real values."""

import numpy as np
import pytest

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition.model_tensors import input_of, real_values
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors


def test_the_declared_input_is_taken():
    """Open dimensions fit; the batch may be open or absent too."""
    for shape in ((1, 64, 64, 3), (None, None, None, 3), (64, 64, 3)):
        assert input_of(make_card("yolov8"), make_loaded(inputs=tensors(shape))).shape == shape
    card = make_card("yolov8", wanted=make_input(layout="NCHW"))
    assert input_of(card, make_loaded(inputs=tensors((1, 3, 64, 64)))).shape == (1, 3, 64, 64)


def test_an_undeclared_input_is_float32():
    """TorchScript says nothing of its input."""
    assert input_of(make_card("yolov5"), make_loaded()).dtype == "float32"


@pytest.mark.parametrize("shape", [(1, 3, 64, 64), (1, 32, 64, 3), (8, 64, 64, 3), (1, 64, 64, 1), (64, 3), (64, 32, 3)])
def test_another_shape_than_the_cards_is_refused(shape):
    """Layout, size, batch, channels, rank: both are named."""
    with pytest.raises(ConfigError, match=r"its card says \[1, 64, 64, 3\] \(NHWC\)"):
        input_of(make_card("yolov8"), make_loaded(inputs=tensors(shape)))


def test_several_inputs_are_refused():
    """A photograph fills one."""
    with pytest.raises(ConfigError, match="takes 2 inputs"):
        input_of(make_card("yolov8"), make_loaded(inputs=tensors((1, 64, 64, 3), (1, 2))))


def test_outputs_become_real_by_their_own_scale():
    """Each by its own; without declared outputs they are only converted."""
    infos = [TensorInfo("a", (2,), "int8", 0.5, -2), TensorInfo("b", (1,), "float32")]
    outputs = [np.array([-2, 4], np.int8), np.array([1.5], np.float32)]
    first, second = real_values(outputs, make_loaded(infos))
    assert (first.tolist(), second.tolist(), first.dtype) == ([0, 3], [1.5], np.float32)
    assert real_values([np.array([1], np.float16)], make_loaded())[0].dtype == np.float32

"""What a runtime is asked for: arrays against declarations."""

import numpy as np
import pytest

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import TensorInfo, request


def test_an_open_dimension_takes_any_size():
    """None stands for a size that the model leaves open."""
    declared = TensorInfo("images", (None, 3, None, 8), "uint8")
    request.check_inputs([np.zeros((2, 3, 5, 8), np.uint8)], [declared])
    with pytest.raises(ConfigError):
        request.check_inputs([np.zeros((2, 4, 5, 8), np.uint8)], [declared])


def test_the_message_says_what_is_wanted_and_what_was_given():
    """Both in the same words."""
    with pytest.raises(ConfigError, match=r"input 'images' takes uint8 \[\?, 8\], got float32 \[2, 8\]"):
        request.check_inputs([np.zeros((2, 8), np.float32)], [TensorInfo("images", (None, 8), "uint8")])


def test_no_input_for_a_model_without_inputs():
    """A model may take none."""
    request.check_inputs([], [])

"""Facts about what the record holds of model and data as they were loaded."""

import numpy as np

from edgemeter.agent.engine.loading import describe_outputs
from edgemeter.agent.runtimes import TensorInfo


def test_a_tensor_has_its_declared_quantisation_and_the_shape_that_it_had():
    """Names and steps come from the model, and shape and type from the run."""
    declared = TensorInfo("boxes", (None, 4), "int8", 0.6, -128)
    (tensor,) = describe_outputs([declared], [np.zeros((2, 4), np.int8)])
    assert (tensor.name, tensor.shape, tensor.dtype, tensor.scale, tensor.zero_point) == (
        "boxes",
        (2, 4),
        "int8",
        0.6,
        -128,
    )

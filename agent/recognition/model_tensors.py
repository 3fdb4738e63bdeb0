"""A vision model's tensors as its runtime found them: the one input that takes a photograph, and what its outputs really say."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import Loaded, TensorInfo, dequantise
from edgemeter.agent.runtimes.request import describe, fits

# TorchScript declares no inputs; what is traced or scripted takes float32.
_UNDECLARED = TensorInfo("input", (), "float32")


def input_of(model: card.Card, loaded: Loaded) -> TensorInfo:
    """Return the input that takes the photograph.

    Raises:
        ConfigError: there are several inputs, or it has another shape than the card says.
    """
    if not loaded.inputs:
        return _UNDECLARED
    if len(loaded.inputs) > 1:
        names = ", ".join(repr(info.name) for info in loaded.inputs)
        message = f"model {model.name!r} takes {len(loaded.inputs)} inputs ({names}), a photograph fills one: export it with the image only"
        raise ConfigError(message)
    info, wanted = loaded.inputs[0], model.input
    size = (wanted.height, wanted.width)
    shape = (1, *size, 3) if wanted.layout == "NHWC" else (1, 3, *size)
    # torchvision's detectors take a picture without a batch axis.
    if not fits(shape, info.shape) and not fits(shape[1:], info.shape):
        message = (
            f"model {model.name!r} takes {describe(info.dtype, info.shape)}, its card says {list(shape)} ({wanted.layout}): "
            "correct height, width or layout in the card, or export the model with batch 1"
        )
        raise ConfigError(message)
    return info


def real_values(outputs: Sequence[NDArray[Any]], loaded: Loaded) -> list[NDArray[np.float32]]:
    """Return the outputs as float32, dequantised by the scale and zero point that the model declares for each."""
    if not loaded.outputs:
        return [output.astype(np.float32, copy=False) for output in outputs]
    return [dequantise(output, info) for output, info in zip(outputs, loaded.outputs, strict=True)]

"""Inputs that ask for a size beside the photograph, as DETRs and Paddle's detectors are exported.

They get the size of the input and a scale of 1: so the boxes come back in pixels of the input, as those of any other family.
Source: lyuwenyu/RT-DETR `rtdetrv2_pytorch/tools/export_onnx.py`; PaddleDetection `deploy/third_engine/onnx/preprocess.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.runtimes import TensorInfo

_NAMES = frozenset({"orig_target_sizes", "im_shape", "scale_factor"})


def size_input_names(inputs: Sequence[TensorInfo]) -> frozenset[str]:
    """Return the names of the inputs that ask for a size."""
    return frozenset(info.name for info in inputs if info.name in _NAMES and info.shape[-1:] in ((2,), (None,)))


def pictures_of(inputs: Sequence[TensorInfo]) -> list[TensorInfo]:
    """Return the inputs that ask for no size."""
    names = size_input_names(inputs)
    return [info for info in inputs if info.name not in names]


def size_values(inputs: Sequence[TensorInfo], height: int, width: int) -> dict[str, NDArray[Any]]:
    """Return the value of each input that asks for a size, [1, 2] in its dtype, of an input of this height and width in pixels."""
    values = {"orig_target_sizes": (width, height), "im_shape": (height, width), "scale_factor": (1, 1)}
    names = size_input_names(inputs)
    return {info.name: np.array([values[info.name]], info.dtype) for info in inputs if info.name in names}

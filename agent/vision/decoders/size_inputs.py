"""The second input of RT-DETR and its successors, which asks for a size.

It gets the size of the input, so the boxes come back in pixels of the input, like those of any
other family.
Source: lyuwenyu/RT-DETR `rtdetrv2_pytorch/tools/export_onnx.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.runtimes import TensorInfo

_NAME = "orig_target_sizes"


def size_input_names(inputs: Sequence[TensorInfo]) -> frozenset[str]:
    return frozenset(
        info.name for info in inputs if info.name == _NAME and info.shape[-1:] in ((2,), (None,))
    )


def pictures_of(inputs: Sequence[TensorInfo]) -> list[TensorInfo]:
    names = size_input_names(inputs)
    return [info for info in inputs if info.name not in names]


def size_values(inputs: Sequence[TensorInfo], height: int, width: int) -> dict[str, NDArray[Any]]:
    """Return the value of each input for a size, [1, 2] in its dtype.

    The size is this height and width of the input, in pixels.
    """
    names = size_input_names(inputs)
    return {
        info.name: np.array([(width, height)], info.dtype) for info in inputs if info.name in names
    }

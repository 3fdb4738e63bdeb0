"""Lists of boxes, labels and scores from detectors that suppress by themselves.

The functions find which output is which.
"""

from collections.abc import Collection, Sequence

import numpy as np

from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders import Floats, Shape


def labelled_lists(shapes: Sequence[Shape]) -> tuple[int, tuple[int, int]] | None:
    """Return the indices of boxes and of two lists; None for other outputs.

    Boxes are [n, 4] or [1, n, 4], lists are [n] or [1, n].
    """
    at = next(
        (index for index, shape in enumerate(shapes) if len(shape) in (2, 3) and shape[-1] == 4),
        None,
    )
    if at is None:
        return None
    lists = [
        index for index, shape in enumerate(shapes) if index != at and _fits(shape, shapes[at][:-1])
    ]
    return (at, (lists[0], lists[1])) if len(lists) == 2 else None


def _fits(shape: Shape, other: Shape) -> bool:
    """Return whether the shapes are the same, apart from open sizes."""
    return len(shape) == len(other) and all(
        size == side or None in (size, side) for size, side in zip(shape, other, strict=True)
    )


def whole_outputs(infos: Sequence[TensorInfo]) -> frozenset[int]:
    """Return the indices of outputs that the file declares as integers."""
    return frozenset(
        index
        for index, info in enumerate(infos)
        if info.dtype.startswith(("int", "uint")) and info.scale is None
    )


def labels_and_scores(
    outputs: Sequence[Floats], lists: tuple[int, int], integers: Collection[int]
) -> tuple[Floats, Floats]:
    """Return labels and scores, float32 [n] each.

    Labels are declared as integers, or exceed 1, or are whole, or come first.
    """
    first, second = (outputs[index].ravel() for index in lists)
    if not set(lists) & set(integers):
        beyond = [bool(np.any(values > 1)) for values in (first, second)]
        are_whole = [np.array_equal(values, np.rint(values)) for values in (first, second)]
        is_second = beyond[1] > beyond[0] or (
            beyond[0] == beyond[1] and are_whole[1] > are_whole[0]
        )
    else:
        is_second = lists[1] in integers
    return (second, first) if is_second else (first, second)

"""Whether timed outputs are the same as those of the same input run again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.runtimes import Array

# The difference that rounding explains: float kernels may sum in another order (threads, atomics on a GPU, fp16 inside).
SAME_RATIO = 1e-3

# Outputs that differ in order or number only (suppression inside the model, near a threshold) must hold the same predictions.
SAME_PREDICTION_RATIO = 0.99

# A channel whose values are all smaller than this share of the tensor's largest is noise beside the others.
_FLOOR_RATIO = 1e-3


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far two sets of outputs for one input are apart.

    `ratio` is None where they cannot be subtracted: other number, shape or places of NaN. `common_ratio` is the share of common
    predictions, where it is known.
    """

    ratio: float | None
    common_ratio: float | None = None

    @property
    def is_rounding(self) -> bool:
        """Whether rounding explains it."""
        return self.ratio is not None and self.ratio <= SAME_RATIO

    @property
    def is_same(self) -> bool:
        """Whether both are the same: within rounding, or else in the predictions decoded from them."""
        return self.is_rounding or (self.common_ratio is not None and self.common_ratio >= SAME_PREDICTION_RATIO)


def output_difference(outputs: Sequence[Array], other: Sequence[Array]) -> OutputDifference:
    """Return how far two sets of outputs are apart, relative to the largest value of each channel."""
    if len(outputs) != len(other):
        return OutputDifference(None)
    ratios = [_ratio(a, b) for a, b in zip(outputs, other, strict=True)]
    comparable = [ratio for ratio in ratios if ratio is not None]
    return OutputDifference(max(comparable, default=0.0) if len(comparable) == len(ratios) else None)


def summarise_check(compared: Sequence[OutputDifference]) -> OutputCheck:
    """Return the check of all outputs that were kept."""
    return OutputCheck(
        compared=len(compared),
        differing=sum(not difference.is_same for difference in compared),
    )


def arrays_equal(array: Array, other: Array) -> bool:
    """Return whether dtype and values are the same; NaN equals NaN."""
    return array.dtype == other.dtype and np.array_equal(array, other, equal_nan=array.dtype.kind in "fc")


def _ratio(array: Array, other: Array) -> float | None:
    """Return the largest difference of two values over the largest of their channel; None where values cannot be subtracted."""
    if array.shape != other.shape or array.dtype.kind not in "biuf" or other.dtype.kind not in "biuf":
        return 0.0 if arrays_equal(array, other) else None
    if array.size == 0 or arrays_equal(array, other):
        return 0.0
    a, b = array.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return None
    apart = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), 0.0)
    largest = _largest(np.where(finite, np.abs(a), 0.0))
    if not largest.any():
        return None
    return float((apart / largest).max())


def _largest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest value of each channel, to be broadcast against `values`.

    Boxes in pixels and scores of 0..1 may share a tensor: relative to the overall largest, a wrong score would be rounding. Channels
    lie along the shortest axis; a tensor of fewer than three dimensions has none.
    """
    overall = values.max()
    sides = [(size, axis) for axis, size in enumerate(values.shape) if size > 1]
    if values.ndim < 3 or len(sides) < 2:
        return np.asarray(overall)
    channel = min(sides)[1]
    other_axes = tuple(axis for axis in range(values.ndim) if axis != channel)
    largest: NDArray[np.float64] = np.maximum(values.max(axis=other_axes, keepdims=True), _FLOOR_RATIO * overall)
    return largest

"""Are these the same outputs? What the timed part gave against what the same input gives later, with an eye for what rounding may do."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.records import OutputCheck
from edgemeter.agent.runtimes import Array

# What a value may differ by: float kernels may sum in another order (threads, atomics on a GPU, fp16 inside), nothing more.
SAME_RATIO = 1e-3
# Outputs that differ in order or number only (suppression inside the model, near a threshold) must still say the same.
SAME_ANSWER_RATIO = 0.99
# A channel whose values are all smaller than this share of the tensor's largest is noise beside the others.
_FLOOR_RATIO = 1e-3


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two sets of outputs are apart; `ratio` is None where they cannot be subtracted: another number, shape or place of NaN."""

    is_identical: bool
    ratio: float | None

    @property
    def is_rounding(self) -> bool:
        """Whether nothing but rounding can have made it."""
        return self.ratio is not None and self.ratio <= SAME_RATIO


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sets of outputs for one input: how far their values are apart, and the share of answers that both have, where that is known."""

    values: Difference
    answers_ratio: float | None

    @property
    def is_same(self) -> bool:
        """Whether both say the same: within rounding, or else in the answers that are decoded from them."""
        return self.values.is_rounding or (self.answers_ratio is not None and self.answers_ratio >= SAME_ANSWER_RATIO)


def difference(one: Sequence[Array], other: Sequence[Array]) -> Difference:
    """Return how far two sets of outputs are apart, relative to the largest value of each channel."""
    if len(one) != len(other):
        return Difference(is_identical=False, ratio=None)
    ratios = [_ratio(a, b) for a, b in zip(one, other, strict=True)]
    known = [ratio for ratio in ratios if ratio is not None]
    identical = all(_is_equal(a, b) for a, b in zip(one, other, strict=True))
    return Difference(identical, max(known, default=0.0) if len(known) == len(ratios) else None)


def summarise(compared: Sequence[Compared]) -> OutputCheck:
    """Return the check of all outputs that were kept."""
    ratios = [one.values.ratio for one in compared if one.values.ratio is not None]
    return OutputCheck(
        compared=len(compared),
        identical=sum(one.values.is_identical for one in compared),
        worst_ratio=max(ratios, default=None),
        differing=sum(not one.is_same for one in compared),
    )


def _is_equal(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _ratio(one: Array, other: Array) -> float | None:
    """Return the largest difference of two values over the largest of their channel; None where values cannot be subtracted."""
    if one.shape != other.shape or one.dtype.kind not in "biuf" or other.dtype.kind not in "biuf":
        return 0.0 if _is_equal(one, other) else None
    if one.size == 0 or _is_equal(one, other):
        return 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
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

    Boxes in pixels stand beside scores of 0..1 in one tensor: measured by the largest of all, a wrong score would be rounding. Channels
    lie along the shortest axis; a tensor of fewer than three dimensions has none.
    """
    overall = values.max()
    sides = [(size, axis) for axis, size in enumerate(values.shape) if size > 1]
    if values.ndim < 3 or len(sides) < 2:
        return np.asarray(overall)
    channel = min(sides)[1]
    others = tuple(axis for axis in range(values.ndim) if axis != channel)
    largest: NDArray[np.float64] = np.maximum(values.max(axis=others, keepdims=True), _FLOOR_RATIO * overall)
    return largest

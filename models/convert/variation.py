"""Whether a conversion's answers follow its inputs, told without ground truth: a collapsed one gives the same answer for all of them.

The answers of a known task decide. Where they are not known, or neither file's differ, the values of the outputs do: those that move by
a visible part in the source must move in the conversion, too.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# It follows; it gives one answer where the source gives different ones; or the source gives one itself.
Variation = Literal["follows", "collapsed", "unseen"]
# One answer is wrong for at least so many inputs, and this share of them: good conversions differ for a few.
_WRONG_LEAST = 3
_WRONG_RATIO = 0.05
_DIFFERENT = 0.99
# Of the source's movement.
_VANISHED_RATIO = 0.1


class OutputSpread:
    """How far each value of one output moves over the inputs, in the source and in the conversion."""

    def __init__(self, visible: float) -> None:
        """Take the share of the output's largest value that counts as movement."""
        self._visible = visible
        self._ends: list[tuple[Floats, Floats]] | None = None
        self._is_comparable = True

    def add(self, output: Floats, other: Floats) -> None:
        """Take the output for one input, and the conversion's."""
        shapes = (output.shape, other.shape, output.shape if self._ends is None else self._ends[0][0].shape)
        if not self._is_comparable or len(set(shapes)) > 1 or not (np.isfinite(output).all() and np.isfinite(other).all()):
            self._is_comparable = False
        elif self._ends is None:
            self._ends = [(output, output), (other, other)]
        else:
            self._ends = [
                (np.minimum(low, value), np.maximum(high, value)) for (low, high), value in zip(self._ends, (output, other), strict=True)
            ]

    def variation(self) -> Variation:
        """Return whether the conversion's values move where the source's do."""
        if not self._is_comparable or self._ends is None or not self._ends[0][0].size:
            return "unseen"
        (low, high), (other_low, other_high) = self._ends
        largest = max(float(high.max() - low.min()), float(np.abs(low).max()), float(np.abs(high).max()))
        moves, other_moves = high - low, other_high - other_low
        is_seen = moves > self._visible * largest
        if is_seen.any():
            return "collapsed" if other_moves[is_seen].mean() < _VANISHED_RATIO * moves[is_seen].mean() else "follows"
        return "follows" if 0 < moves.mean() <= 2 * other_moves.mean() else "unseen"


def variation_of(repeats: Sequence[bool | None], same_answers: Sequence[float], spreads: Sequence[OutputSpread]) -> Variation:
    """Return it for all outputs.

    Args:
        repeats: for each input, whether the conversion's answer is its first one; None where unknown.
        same_answers: the share of each answer that source and conversion have in common.
        spreads: the outputs' values.
    """
    if False in repeats:
        return "follows"
    wrong = sum(same < _DIFFERENT for same in same_answers)
    if None not in repeats and wrong >= max(_WRONG_LEAST, _WRONG_RATIO * len(repeats)):
        return "collapsed"
    kinds = {spread.variation() for spread in spreads}
    return "collapsed" if "collapsed" in kinds else "follows" if "follows" in kinds else "unseen"

"""How far each board lies from its type over all of its cases: the board effects of Tukey's median polish."""

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 20
_CLOSE = 1e-9


def board_effects(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effect of each row (board) of `table` [boards, cases]; NaN where it has no value at all. Missing cells are NaN."""
    there = np.isfinite(table)
    left = table.copy()
    effect = np.where(there.any(axis=1), 0.0, np.nan)
    for _ in range(_ROUNDS):
        column = _medians(left, there, axis=0)
        left = left - column[None, :]
        row = _medians(left, there, axis=1)
        left = left - row[:, None]
        effect = effect + row
        if max(np.abs(column).max(initial=0.0), np.abs(row).max(initial=0.0)) < _CLOSE:
            break
    centre = np.nanmedian(effect) if np.isfinite(effect).any() else 0.0
    return np.asarray(effect - centre)


def _medians(values: NDArray[np.float64], there: NDArray[np.bool_], axis: int) -> NDArray[np.float64]:
    lines, masks = (values, there) if axis == 1 else (values.T, there.T)
    return np.array([np.median(line[mask]) if mask.any() else 0.0 for line, mask in zip(lines, masks, strict=True)])

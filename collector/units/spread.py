"""How far the boards of a type spread, and which of them are outliers.

Variance components of one case (boards, days of a board, runs of a day); board effects over all cases by Tukey's median polish;
outlying boards by the generalised extreme studentised deviate of Rosner (1983), with a floor below which boards always spread.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.statistics import student_quantile

MOST_BOARDS = 10_000


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Standard deviations between boards, days and runs, in the unit of x; None if not distinguishable from the level below.

    `mean` is the mean of the boards with its 95% interval, None for one board: a single board does not describe its type.
    """

    mean: float
    low: float | None
    high: float | None
    between_boards: float | None
    between_days: float | None
    between_runs: float | None
    boards: int
    days: int
    runs: int


def variance_components(board: NDArray[np.int64], day: NDArray[np.int64], x: NDArray[np.float64]) -> VarianceComponents:
    """Return the components of `x` [runs, at least one], each measured on a `board` on a `day`."""
    boards, of_board = np.unique(board, return_inverse=True)
    cells, of_cell = np.unique(np.stack([of_board, day]), axis=1, return_inverse=True)
    runs = np.bincount(of_cell).astype(np.float64)
    cell_mean = np.bincount(of_cell, x) / runs
    board_of_cell = cells[0].astype(np.intp)
    board_runs = np.bincount(board_of_cell, runs)
    board_mean = np.bincount(board_of_cell, runs * cell_mean) / board_runs
    total, n_cells, n_boards = float(runs.sum()), len(runs), len(boards)
    square_in_board = np.bincount(board_of_cell, runs**2) / board_runs
    within = _mean_square(float(((x - cell_mean[of_cell]) ** 2).sum()), total - n_cells)
    between_days = _mean_square(float((runs * (cell_mean - board_mean[board_of_cell]) ** 2).sum()), n_cells - n_boards)
    between_boards = _mean_square(float((board_runs * (board_mean - (board_runs * board_mean).sum() / total) ** 2).sum()), n_boards - 1)
    run_variance = within or 0.0
    day_variance = None
    if between_days is not None:
        share = (total - float(square_in_board.sum())) / (n_cells - n_boards)
        day_variance = max(0.0, (between_days - run_variance) / share)
    board_variance = None
    if between_boards is not None:
        of_days = (float(square_in_board.sum()) - float((runs**2).sum()) / total) / (n_boards - 1)
        of_boards = (total - float((board_runs**2).sum()) / total) / (n_boards - 1)
        board_variance = max(0.0, (between_boards - run_variance - of_days * (day_variance or 0.0)) / of_boards)
    mean = float(board_mean.mean())
    reach = None
    if n_boards > 1:
        reach = student_quantile(0.95, n_boards - 1) * float(board_mean.std(ddof=1)) / math.sqrt(n_boards)
    return VarianceComponents(
        mean=mean,
        low=None if reach is None else mean - reach,
        high=None if reach is None else mean + reach,
        between_boards=_root(board_variance),
        between_days=_root(day_variance),
        between_runs=_root(within),
        boards=n_boards,
        days=n_cells,
        runs=int(total),
    )


def boards_needed(spread: float, within: float) -> int:
    """Return how many boards a type's mean needs for its 95% interval to be +-`within`, where boards spread by `spread`."""
    counts = range(2, MOST_BOARDS)
    index = bisect_left(counts, True, key=lambda count: student_quantile(0.95, count - 1) * spread / math.sqrt(count) <= within)
    return counts[index] if index < len(counts) else MOST_BOARDS


def _mean_square(total: float, freedom: float) -> float | None:
    return total / freedom if freedom > 0 else None


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


_ROUNDS = 20
_CLOSE = 1e-9


def board_effects(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effect of each row (board) of `table` [boards, cases]; NaN where it has no value at all. Missing cells are NaN."""
    is_present = np.isfinite(table)
    residuals = table.copy()
    effect = np.where(is_present.any(axis=1), 0.0, np.nan)
    for _ in range(_ROUNDS):
        column = _medians(residuals, is_present, axis=0)
        residuals = residuals - column[None, :]
        row = _medians(residuals, is_present, axis=1)
        residuals = residuals - row[:, None]
        effect = effect + row
        if max(np.abs(column).max(initial=0.0), np.abs(row).max(initial=0.0)) < _CLOSE:
            break
    centre = np.nanmedian(effect) if np.isfinite(effect).any() else 0.0
    return np.asarray(effect - centre)


def _medians(values: NDArray[np.float64], is_present: NDArray[np.bool_], axis: int) -> NDArray[np.float64]:
    lines, masks = (values, is_present) if axis == 1 else (values.T, is_present.T)
    return np.array([np.median(line[mask]) if mask.any() else 0.0 for line, mask in zip(lines, masks, strict=True)])


FEWEST = 6
FALSE_ACCUSATIONS = 0.04

# The least spread assumed between boards of one type (per cent, one standard deviation).
FLOOR = 1.5
MOST_OUTLYING_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class OutlyingBoard:
    """An outlying board: its index among the values, its distance from the mean of the others, and its score."""

    place: int
    distance: float
    score: float
    limit: float


def outlying_boards(values: Sequence[float], floor: float = FLOOR) -> list[OutlyingBoard] | None:
    """Return the outliers among one value a board, the worst first; None if there are too few boards to judge."""
    if len(values) < FEWEST:
        return None
    x = np.asarray(values, dtype=np.float64)
    remaining = list(range(len(x)))
    tested: list[tuple[int, float, float]] = []
    outlying = 0
    for _ in range(max(1, int(len(x) * MOST_OUTLYING_RATIO))):
        farthest = remaining[int(np.argmax(np.abs(x[remaining] - x[remaining].mean())))]
        peers = x[[index for index in remaining if index != farthest]]
        spread = max(float(peers.std(ddof=1)), floor) * math.sqrt(1 + 1 / len(peers))
        score = abs(float(x[farthest] - peers.mean())) / spread
        limit = student_quantile(1 - FALSE_ACCUSATIONS / len(remaining), len(remaining) - 2)
        tested.append((farthest, score, limit))
        # All up to the last one beyond its limit: what deviates more than an outlier is one too.
        if score > limit:
            outlying = len(tested)
        remaining.remove(farthest)
    apart = {index for index, _, _ in tested[:outlying]}
    healthy = float(np.mean([value for index, value in enumerate(x) if index not in apart]))
    outliers = [OutlyingBoard(index, float(x[index]) - healthy, score, limit) for index, score, limit in tested[:outlying]]
    return sorted(outliers, key=lambda board: -abs(board.distance))

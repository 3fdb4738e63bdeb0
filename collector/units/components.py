"""Variance components of one case on the boards of a type: how far boards, days of a board, and runs of a day lie apart.

Method of moments (nested analysis of variance), which needs no balance: boards may have any number of days and runs.
Source: Searle, Casella, McCulloch, Variance Components, 1992, chapter 3.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.units import student

MOST_BOARDS = 10_000


@dataclass(frozen=True, slots=True)
class Components:
    """Standard deviations between boards, days and runs, in the unit of x; None where they cannot be told apart from the level below.

    `mean` is the mean of the boards with its 95 % interval, None for one board: one board supports nothing about its type.
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


def components(board: NDArray[np.int64], day: NDArray[np.int64], x: NDArray[np.float64]) -> Components:
    """Return the components of `x` [runs], of which each was measured on a `board` on a `day`; there is at least one."""
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
        reach = student.two_sided_95(n_boards - 1) * float(board_mean.std(ddof=1)) / math.sqrt(n_boards)
    return Components(
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
    """Return how many boards a type's mean needs for its 95 % interval to be +-`within`, where boards spread by `spread`."""
    for count in range(2, MOST_BOARDS):
        if student.two_sided_95(count - 1) * spread / math.sqrt(count) <= within:
            return count
    return MOST_BOARDS


def _mean_square(total: float, freedom: float) -> float | None:
    return total / freedom if freedom > 0 else None


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)

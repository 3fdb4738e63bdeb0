import numpy as np
import pytest

from edgemeter.collector.units import spread
from edgemeter.collector.units.spread import boards_needed, variance_components
from tests.fixtures.rows import table_row


def simulated(draw, boards=12, days=6, runs=5, sd=(3.0, 1.0, 0.8), kept_ratio=0.8):
    """Return board, day and x of runs that spread by `sd` between boards, days and runs, some of them missing."""
    board, day, _ = (part.ravel() for part in np.meshgrid(np.arange(boards), np.arange(days), np.arange(runs), indexing="ij"))
    x = (
        100
        + sd[0] * draw.normal(size=boards)[board]
        + sd[1] * draw.normal(size=(boards, days))[board, day]
        + sd[2] * draw.normal(size=len(board))
    )
    is_kept = draw.random(len(x)) < kept_ratio
    return board[is_kept], day[is_kept], x[is_kept]


def test_what_was_put_in_comes_out():
    """Over 300 fleets of unequal numbers: variances of 9, 1 and 0.64 without a bias."""
    draw = np.random.default_rng(1)
    components = [variance_components(*simulated(draw)) for _ in range(300)]
    assert np.mean([component.between_boards**2 for component in components]) == pytest.approx(9.0, rel=0.06)
    assert np.mean([component.between_days**2 for component in components]) == pytest.approx(1.0, rel=0.06)
    assert np.mean([component.between_runs**2 for component in components]) == pytest.approx(0.64, rel=0.03)


def test_the_interval_of_a_type_holds_its_mean():
    """In about 95 of 100 fleets."""
    draw = np.random.default_rng(2)
    components = [variance_components(*simulated(draw)) for _ in range(400)]
    assert 0.92 < np.mean([component.low <= 100 <= component.high for component in components]) < 0.98


def test_one_board_supports_nothing_about_its_type():
    """No interval, no spread of boards; days and runs are shown."""
    components = variance_components(*simulated(np.random.default_rng(3), boards=1))
    assert components.low is components.high is components.between_boards is None
    assert components.boards == 1
    assert components.between_days is not None


def test_one_run_a_day_does_not_separate_days_from_runs():
    """What runs scatter is not known then; nothing is divided by nought."""
    components = variance_components(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 5.0, 6.0]))
    assert components.between_runs is None
    assert components.between_days == pytest.approx(np.sqrt(0.5))
    assert variance_components(np.array([0]), np.array([0]), np.array([1.0])).mean == 1.0


def test_how_many_boards_a_mean_needs():
    """The figures that t-quantiles give; boards that spread too far need the most that are counted."""
    rows = ((1, 1, 7), (1, 2, 4), (2, 1, 18), (2, 2, 7), (2, 3, 5), (3, 2, 12), (5, 2, 27), (1e6, 1.0, spread.MOST_BOARDS))
    for between_boards, within, boards in rows:
        assert boards_needed(between_boards, within) == boards, (between_boards, within)


def test_the_interval_of_few_boards_is_that_of_the_tables_of_t():
    """Student's t of boards - 1 degrees of freedom, not an approximation that is too narrow at four boards."""
    for boards, t in ((2, 12.7062), (3, 4.3027), (4, 3.1824), (5, 2.7764), (6, 2.5706), (7, 2.4469), (11, 2.2281)):
        with table_row(boards):
            x = np.arange(boards, dtype=float)
            components = variance_components(np.arange(boards), np.zeros(boards, int), x)
            assert components.high - components.mean == pytest.approx(t * x.std(ddof=1) / np.sqrt(boards), rel=2e-4)

import numpy as np
import pytest

from edgemeter.collector.units import student
from edgemeter.collector.units.components import boards_needed, components


def drawn(draw, boards=12, days=6, runs=5, sd=(3.0, 1.0, 0.8), kept_ratio=0.8):
    """Return board, day and x of runs that spread by `sd` between boards, days and runs, some of them missing."""
    board, day, _ = (part.ravel() for part in np.meshgrid(np.arange(boards), np.arange(days), np.arange(runs), indexing="ij"))
    x = (
        100
        + sd[0] * draw.normal(size=boards)[board]
        + sd[1] * draw.normal(size=(boards, days))[board, day]
        + sd[2] * draw.normal(size=len(board))
    )
    kept = draw.random(len(x)) < kept_ratio
    return board[kept], day[kept], x[kept]


def test_what_was_put_in_comes_out():
    """Over 300 fleets of unequal numbers: variances of 9, 1 and 0.64 without a bias."""
    draw = np.random.default_rng(1)
    found = [components(*drawn(draw)) for _ in range(300)]
    assert np.mean([one.between_boards**2 for one in found]) == pytest.approx(9.0, rel=0.06)
    assert np.mean([one.between_days**2 for one in found]) == pytest.approx(1.0, rel=0.06)
    assert np.mean([one.between_runs**2 for one in found]) == pytest.approx(0.64, rel=0.03)


def test_the_interval_of_a_type_holds_its_mean():
    """In about 95 of 100 fleets."""
    draw = np.random.default_rng(2)
    found = [components(*drawn(draw)) for _ in range(400)]
    assert 0.92 < np.mean([one.low <= 100 <= one.high for one in found]) < 0.98


def test_one_board_supports_nothing_about_its_type():
    """No interval, no spread of boards; days and runs are told."""
    found = components(*drawn(np.random.default_rng(3), boards=1))
    assert (found.low, found.high, found.between_boards, found.boards) == (None, None, None, 1)
    assert found.between_days is not None


def test_one_run_a_day_does_not_tell_days_from_runs():
    """What runs scatter is not known then; nothing is divided by nought."""
    found = components(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 5.0, 6.0]))
    assert found.between_runs is None
    assert found.between_days == pytest.approx(np.sqrt(0.5))
    assert components(np.array([0]), np.array([0]), np.array([1.0])).mean == 1.0


@pytest.mark.parametrize(("spread", "within", "boards"), [(1, 1, 7), (1, 2, 4), (2, 1, 18), (2, 2, 7), (2, 3, 5), (3, 2, 12), (5, 2, 27)])
def test_how_many_boards_a_mean_needs(spread, within, boards):
    """The figures that t-quantiles give."""
    assert boards_needed(spread, within) == boards


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (2, 4.303), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)])
def test_quantiles_of_t_are_those_of_the_tables(freedom, t):
    """To half a per cent."""
    assert student.two_sided_95(freedom) == pytest.approx(t, rel=0.005)

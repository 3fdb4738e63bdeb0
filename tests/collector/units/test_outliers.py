import numpy as np
import pytest

from edgemeter.collector.units.spread import board_effects, outlying_boards
from tests.fixtures.rows import table_row


def test_a_board_ten_per_cent_off_is_found_and_healthy_fleets_are_hardly_accused():
    """Twenty boards that spread by 2%: found in 80 of 100 fleets and more, healthy fleets accused in 5 at most."""
    draw = np.random.default_rng(1)
    healthy = [2 * draw.normal(size=20) for _ in range(1500)]
    sick = [np.concatenate([[values[0] + 10], values[1:]]) for values in healthy]
    assert np.mean([bool(outlying_boards(values)) for values in healthy]) <= 0.05
    assert np.mean([0 in {outlier.place for outlier in outlying_boards(values) or ()} for values in sick]) >= 0.80


def test_two_boards_with_an_issue_do_not_hide_each_other():
    """Both are off by 10% among twenty."""
    draw = np.random.default_rng(2)
    are_both = []
    for _ in range(400):
        values = 2 * draw.normal(size=20)
        values[:2] += 10
        are_both.append({0, 1} <= {outlier.place for outlier in outlying_boards(values) or ()})
    assert np.mean(are_both) > 0.65


def test_below_six_boards_nobody_is_judged():
    """Five boards, one of them at twice the energy: too few; with six it is named."""
    assert outlying_boards([0.0, 1.0, 0.0, -1.0, 100.0]) is None
    (outlier,) = outlying_boards([0.0, 1.0, 0.0, -1.0, 0.5, 100.0])
    assert outlier.place == 5
    assert outlier.distance == pytest.approx(99.9, abs=0.1)


def test_boards_that_are_all_alike_accuse_none_for_a_trifle():
    """One per cent off among boards alike to a tenth: less than what boards of one type always spread."""
    assert outlying_boards([0.0, 0.1, -0.1, 0.05, 0.0, -0.05, 0.1, 1.0]) == []


def test_a_board_lies_apart_over_all_of_its_cases_and_gaps_do_not_matter():
    """Cases of very different levels; the board measured only two of three."""
    table = np.array([[10.0, 200.0, 3000.0]] * 7) + np.arange(7)[:, None] * 0.1
    table[3] += 12
    table[3, 1] = np.nan
    effects = board_effects(table)
    assert effects[3] == pytest.approx(12.0, abs=0.5)
    assert np.argmax(effects) == 3
    assert np.isnan(board_effects(np.array([[np.nan, np.nan], [1.0, 2.0]]))[0])


def test_the_limit_is_the_quantile_of_t_for_so_many_boards():
    """4% of false accusations shared by all boards, both sides, boards - 2 degrees of freedom; checked by integrating the density."""
    for boards, t in ((6, 5.1668), (10, 3.9910), (20, 3.6105)):
        with table_row(boards):
            (outlier,) = outlying_boards([0.0] * (boards - 1) + [100.0])
            assert outlier.limit == pytest.approx(t, rel=1e-3)

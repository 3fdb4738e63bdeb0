import numpy as np
import pytest
from msgspec.structs import replace

from edgemeter.collector.compare.odd_boards import board_types, scores
from edgemeter.collector.trend import watch
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.series_factory import make_days, noisy


def fleet(boards=10, *, odd=None, ratio=1.1, precisions=("fp32", "int8"), seed=1):
    """Return runs of boards that spread by 2%, two cases each.

    The `odd` one draws more by `ratio`.
    """
    draw = np.random.default_rng(seed)
    runs = []
    for unit in range(boards):
        factor = 1 + 0.02 * draw.normal()
        for index, precision in enumerate(precisions):
            values = (
                np.array(noisy(100 / (1 + index), 20, seed=1000 * unit + index))
                * factor
                * (ratio if unit == odd else 1.0)
            )
            runs += make_days(values, device=f"pi-{unit:02}", precision=precision, seq=100 * index)
    return runs


def judged(runs, metric="energy_gross_mj"):
    """Return the one board type of `runs`."""
    history = history_of(runs)
    (board_type,) = board_types(history, metric, list(history.series()))
    return board_type


def test_a_board_with_an_issue_is_named_over_all_of_its_cases():
    """The result has by how much it differs, and over how many cases."""
    board_type = judged(fleet(20, odd=7, ratio=1.15))
    (outlier,) = board_type.odd
    assert (outlier.device, outlier.cases) == ("pi-07", 2)
    assert outlier.apart == pytest.approx(15, abs=5)
    assert board_type.boards == 20


def test_a_healthy_fleet_is_not_accused_and_a_small_one_not_judged():
    """None of twelve boards is odd, and five are too few to judge."""
    assert judged(fleet(12)).odd == ()
    assert judged(fleet(5, odd=1)).odd == ()


def test_another_meter_scope_gives_no_board_an_issue():
    """The energies of a board measured at the wall are left out, not accused.

    A reference stands apart by nature.
    """
    runs = [
        replace(run, energy=replace(run.energy, scope="wall-ac")) if run.device == "pi-02" else run
        for run in fleet(8, odd=2, ratio=1.5)
    ]
    board_type = judged(runs)
    assert board_type.boards == 7
    assert board_type.odd == ()
    runs = fleet(8) + make_days(noisy(10, 20), device="server", role="reference")
    assert judged(runs).boards == 8


def test_boards_that_do_not_report_their_type_accuse_nobody():
    """Ten PCs whose board is not known are ten types.

    So it is no issue that one draws three times as much.
    """
    runs = [
        replace(run, environment=replace(run.environment, board=None))
        for run in fleet(10, odd=3, ratio=3.0)
    ]
    history = history_of(runs)
    spreads = board_types(history, "energy_gross_mj", list(history.series()))
    assert [(spread.board, spread.boards, spread.odd) for spread in spreads] == [
        (f"pi-{unit:02}, unknown board", 1, ()) for unit in range(10)
    ]
    assert watch.trends_of(history, (), ("energy_gross_mj",), by_type=True) == []


def test_a_board_far_away_widens_no_spread_and_a_trifle_is_none():
    """Two boards do not hide each other; where all are alike the least spread holds."""
    effects = {
        str(board): effect for board, effect in enumerate([20.0, 0.1, -1.0, 1.5, 0.4, -0.7, 19.0])
    }
    assert [board for board, _, score in scores(effects, 1.5) if score > 3.6] == ["0", "6"]
    assert scores({"a": 1.0, "b": 0.0, "c": 0.0}, 1.5)[0] == ("a", 1.0, pytest.approx(1 / 1.5))

import numpy as np
import pytest
from msgspec.structs import replace

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.units.board_types import board_types
from tests.fixtures.series_factory import make_days, noisy


def fleet(boards=10, *, sick=None, firmware=None, ratio=1.1, precisions=("fp32", "int8"), seed=1):
    """Return runs of boards that spread by 2%, two cases each; the `sick` one draws more by `ratio`."""
    draw = np.random.default_rng(seed)
    runs = []
    for unit in range(boards):
        factor = 1 + 0.02 * draw.normal()
        for index, precision in enumerate(precisions):
            values = np.array(noisy(100 / (1 + index), 20, seed=1000 * unit + index)) * factor * (ratio if unit == sick else 1.0)
            marks = [firmware if unit == sick and firmware else "2026-01"] * 20
            runs += make_days(values, device=f"pi-{unit:02}", precision=precision, firmwares=marks, seq=100 * index)
    return runs


def judged(runs, metric="energy"):
    """Return the one board type of `runs`."""
    history = RunHistory(runs)
    (board_type,) = board_types(history, metric, list(history.series()))
    return board_type


def test_a_board_with_an_issue_is_named_over_all_of_its_cases():
    """By how much, on how many cases, and what to check first."""
    board_type = judged(fleet(20, sick=7, ratio=1.15))
    (outlier,) = board_type.sick
    assert (outlier.device, outlier.cases) == ("pi-07", 2)
    assert outlier.apart == pytest.approx(15, abs=5)
    assert "power supply" in outlier.look_at[0]
    assert board_type.boards == 20


def test_what_differs_on_the_board_itself_is_checked_first():
    """Another firmware than all the others, throttling, heat, and under-voltage, before what is usual."""
    runs = fleet(12, sick=3, firmware="2025-03", ratio=1.3)
    hot = Condition(when="before", temperatures_c={"cpu": 80.0}, throttled_now=True, under_voltage_now=True)
    cool = Condition(when="before", temperatures_c={"cpu": 50.0}, throttled_now=False, under_voltage_now=False)
    runs = [replace(run, conditions=(hot if run.device == "pi-03" else cool,)) for run in runs]
    (outlier,) = judged(runs).sick
    text = "; ".join(outlier.look_at[:4])
    assert "under-voltage in 100%" in text.replace("100%", "100%")
    assert "throttled in 100%" in text
    assert "80 °C, the other boards 50 °C" in text
    assert "firmware: 2025-03, 11 of 11 others have 2026-01" in text


def test_a_healthy_fleet_is_not_accused_and_a_small_one_not_judged():
    """None among twelve; five are too few to judge."""
    assert judged(fleet(12)).sick == ()
    assert judged(fleet(5, sick=1)).sick is None


def test_a_case_states_on_how_many_boards_its_figure_rests():
    """The mean with its interval, the spread of the boards, and how many it takes for 2%."""
    (fp32, _) = judged(fleet(16)).cases
    assert fp32.spread.boards == 16
    assert fp32.low < 100 < fp32.high
    assert fp32.spread.between_boards == pytest.approx(2.0, abs=1.0)
    assert 3 <= fp32.needed <= 20


def test_another_meter_scope_gives_no_board_an_issue():
    """One board is measured at the wall: its energies are left out, not accused."""
    runs = [
        replace(run, energy=replace(run.energy, scope="wall-ac")) if run.device == "pi-02" else run for run in fleet(8, sick=2, ratio=1.5)
    ]
    board_type = judged(runs)
    assert board_type.boards == 7
    assert board_type.sick == ()


def test_servers_are_no_boards():
    """A reference stands apart by nature."""
    runs = fleet(8) + make_days(noisy(10, 20), device="server", role="reference")
    assert judged(runs).boards == 8


def test_boards_that_do_not_report_their_type_accuse_nobody():
    """Ten PCs whose board is not known are ten types: that one draws three times as much is no issue."""
    runs = [replace(run, environment=replace(run.environment, board=None)) for run in fleet(10, sick=3, ratio=3.0)]
    history = RunHistory(runs)
    spreads = board_types(history, "energy", list(history.series()))
    assert [(spread.board, spread.boards, spread.sick) for spread in spreads] == [
        (f"pi-{unit:02}, unknown board", 1, None) for unit in range(10)
    ]
    assert watch.trends_of(history, (), ("energy",), by_type=True) == []

import numpy as np
import pytest

from tests.fixtures.comparison_factory import summarised
from tests.fixtures.level_factory import level_runs, stepped_ms


def test_after_a_confirmed_step_the_interval_holds_the_level_that_the_board_has_now():
    """After sixty days at 10 ms and forty at 10.8 only the runs since the step count.

    All of them count where all days are asked for.
    """
    runs = level_runs(stepped_ms(100, 60, 1.08))
    (now,), (all_days,) = summarised(runs), summarised(runs, "all")
    assert now.p50_ms.low < 10.8 < now.p50_ms.high
    assert all_days.p50_ms.value == pytest.approx(10 * 1.08**0.4, rel=0.005)
    assert (len(now.runs), now.segment.earlier, now.segment.words[:16]) == (
        40,
        60,
        "since 2024-12-03",
    )
    assert len(now.left_out) == 60
    assert all_days.segment is None


def test_a_change_of_firmware_that_carries_the_step_is_its_reason():
    """Runs before the firmware change do not count, even those of the same day."""
    values = np.repeat(stepped_ms(60, 60, 1.0), 2)
    firmwares = ["1.2" if index < 81 else "1.3" for index in range(120)]
    (case,) = summarised(
        level_runs(
            [value * (1 + 0.06 * (index >= 81)) for index, value in enumerate(values)],
            [index // 2 for index in range(120)],
            firmwares=firmwares,
        )
    )
    assert case.segment.reason.startswith("firmware 1.2 to 1.3 (p50 +")
    assert case.segment.earlier in (81, 82)


def test_two_days_of_runs_are_enough_where_the_firmware_changed_between_them():
    """Five runs each day are too few days for the trend."""
    values = [10.0, 10.02, 9.99, 10.01, 10.0, 10.9, 10.92, 10.88, 10.9, 10.91]
    days = [0] * 5 + [1] * 5
    (changed,) = summarised(level_runs(values, days, firmwares=["a"] * 5 + ["b"] * 5))
    (unchanged,) = summarised(level_runs(values, days))
    assert changed.segment.earlier == 5
    assert changed.p50_ms.value == pytest.approx(10.902, abs=0.001)
    assert unchanged.segment is None


def test_a_change_of_firmware_that_carries_nothing_leaves_all_runs():
    """The level is the same before and after."""
    (case,) = summarised(level_runs(stepped_ms(40, 0, 1.0), firmwares=["a"] * 20 + ["b"] * 20))
    assert case.segment is None
    assert len(case.runs) == 40


@pytest.mark.nightly
@pytest.mark.parametrize(("at", "ratio"), [(60, 1.04), (92, 1.08)])
def test_in_simulation_the_interval_holds_the_level_now_as_often_as_stated(at, ratio):
    """Two hundred boards run for a hundred days, with 1% from day to day."""
    runs = [
        run
        for seed in range(200)
        for run in level_runs(
            stepped_ms(100, at, ratio, seed=seed), device=f"pi-{seed}", seq=1000 * seed
        )
    ]
    holds = [
        summary.p50_ms.low <= 10 * ratio <= summary.p50_ms.high for summary in summarised(runs)
    ]
    assert np.mean(holds) >= 0.9

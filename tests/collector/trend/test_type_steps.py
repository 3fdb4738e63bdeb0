"""A board type has the steps that more than one of its boards shows."""

import numpy as np
import pytest

from edgemeter.collector.trend import days
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.watch import trends_of
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.series_factory import FIRST_DAY, make_days, noisy


def of_type(*ratios):
    """Return the trend of a board type whose boards each step by a ratio on day 50 of 70.

    A board that steps has other firmware from that day.
    """
    runs = [
        run
        for unit, ratio in enumerate(ratios)
        for run in make_days(
            noisy(100, 70, seed=unit, step_at=50, step_ratio=ratio),
            device=f"pi-{unit}",
            firmwares=["a"] * 50 + ["a" if ratio == 1.0 else "b"] * 20,
        )
    ]
    (trend,) = trends_of(history_of(runs), (), ["energy_gross_mj"], by_type=True)
    return trend


def test_what_two_boards_show_is_a_step_of_their_type_and_what_one_shows_is_none():
    """The step of one board moves the mean of two or three by 5 and 7%.

    That of two counts also where a third has none.
    """
    for ratios in ((1.1, 1.0), (1.2, 1.0, 1.0)):
        assert of_type(*ratios).steps == (), ratios
    for ratios in ((1.08, 1.08), (1.1, 1.06, 1.0)):
        (step,) = of_type(*ratios).steps
        assert step.day == pytest.approx(FIRST_DAY + 50, abs=1), ratios
        assert step.candidates == (f"firmware a to b on 2 of {len(ratios)} devices",)


def test_a_day_of_a_type_is_the_mean_of_the_devices_that_ran():
    """Each device counts from its own level, and one without a run that day does not count."""

    def device(ran_on, levels):
        size = len(ran_on)
        return days.Days(
            METRICS["energy_gross_mj"],
            np.array(ran_on),
            np.array(levels),
            np.ones(size),
            np.ones(size, np.int64),
            np.full(size, np.nan),
            {},
            0.1,
        )

    both = days.of_type([device([1, 2, 3], [10.0, 10.0, 16.0]), device([1, 2], [20.0, 20.0])])
    assert both.x.tolist() == [15.0, 15.0, 21.0]
    assert both.known.tolist() == [0.5, 0.5, 1.0]

"""Levels that come and go: one for each boot, two that alternate, two hot weeks.

None of them is a step, and a real step is still one.
"""

import numpy as np
import pytest

from edgemeter.collector.trend.series_trend import is_event
from tests.collector.trend.worlds import DAYS, findings, reported, world

SERIES = 40


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("boots 3 of 10 days", 2),
        ("boots 3 of 20 days", 4),
        ("boots 5 of 30 days", 4),
        ("modes 5 of 40 days", 4),
    ],
)
def test_levels_that_come_and_go_are_neither_steps_nor_drifts(name, limit):
    """When each day counted, 24 to 37 of forty series with a level for each boot had a step.

    Of those that alternate 9 had one.
    """
    trends = findings(world(name, "all", SERIES))
    assert sum(bool(reported(trend)) for trend in trends) <= limit


@pytest.mark.parametrize("name", ["hot 14 days", "hot 14 days, unread"])
def test_two_hot_weeks_are_no_step(name):
    """A room twelve degrees warmer raises the figure by six per cent.

    This holds with a thermometer and without.
    """
    assert sum(bool(reported(trend)) for trend in findings(world(name, "all", SERIES))) <= 1


def test_a_step_among_levels_that_come_and_go_is_found():
    """The step is ten per cent; boots differ by two per cent, or two levels by five.

    It was a month ago.
    """
    for name in ("step 10 in boots 2 of 10 days", "step 10 in modes 5 of 6 days"):
        trends = findings(world(name, "all", SERIES))
        days = [
            [step.day - 20_000 for step in trend.steps if is_event("latency_p50_ms", step)]
            for trend in trends
        ]
        assert (
            np.mean([any(abs(day - 370) <= 7 for day in of_series) for of_series in days]) >= 0.85
        )


def test_the_level_now_is_the_mean_of_those_that_come_and_go():
    """A series of many boots has one level since its first day.

    The level of its last boot is one sample of it.
    """
    trends = [
        trend for trend in findings(world("boots 3 of 10 days", "white", SERIES)) if not trend.steps
    ]
    assert all(trend.last_day - trend.begin_day >= DAYS - 10 for trend in trends)
    assert np.mean([abs(np.log(trend.level / 20)) for trend in trends]) < 0.01

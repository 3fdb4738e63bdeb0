"""Two modes: what goes back and forth is no regression."""

import numpy as np
import pytest

from edgemeter.collector.trend.change_points import change_points
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.modes import two_modes
from edgemeter.collector.trend.series_trend import is_event
from edgemeter.collector.trend.trend_text import finding_lines
from tests.collector.trend.worlds import findings, world


def test_a_series_that_alternates_for_days_has_two_modes_and_no_step():
    """The result has both levels, the share of each and how often the level changed."""
    trends = findings(world("modes 5 of 6 days", "all", 4))
    assert sum(trend.modes is not None for trend in trends) >= 3
    assert not any(is_event("latency_p50_ms", step) for trend in trends for step in trend.steps)
    modes = trends[0].modes
    assert modes.size == pytest.approx(5.1, abs=0.6)
    assert 0.2 < modes.high_ratio < 0.8
    assert modes.changes >= 10
    ((kind, _),) = finding_lines(trends[0], trends[0].last_day)
    assert kind == "two modes"


def test_what_does_not_return_again_and_again_has_no_modes():
    """Noise, drifts, steps and an episode have no modes.

    A level that stays after the modes or after two high days has none either.
    """
    for name in ("flat", "drift 2.0", "steps 4 at 100 200 300", "season 2", "episode 20"):
        assert not any(
            two_modes(days.x, 2.7) for noise in ("ar .6", "heavy") for days in world(name, noise, 4)
        ), name
    draw = np.random.default_rng(3)
    x = 5.0 * (np.arange(300) // 5 % 2) + 0.8 * draw.normal(size=300)
    assert two_modes(x, 2.7).changes == 59
    assert two_modes(np.concatenate([x, 5.0 + 0.8 * draw.normal(size=100)]), 2.7) is None
    x = np.random.default_rng(5).normal(size=80)
    x[[34, 35]] += 4.5
    x[60:] += 4.5
    assert two_modes(x, 2.7) is None


def in_a_room(x, temperatures_c):
    """Return the change points of boards (rows) whose figures in per cent are `x`.

    Their thermometer shows these temperatures.
    """
    size, metric = x.shape[1], METRICS["latency_p50_ms"]
    boards = [
        Days(
            metric,
            np.arange(size),
            row,
            np.full(size, 0.01),
            np.ones(size, np.int64),
            temperature_c,
            {},
            0.05,
        )
        for row, temperature_c in zip(x, temperatures_c, strict=True)
    ]
    return change_points(boards)


def test_a_step_in_a_season_that_grows_warmer_has_no_modes():
    """A temperature that rises on the same days does not turn a step into two levels.

    The figure goes up by 6% once, to stay.
    """
    draw = np.random.default_rng(7)
    temperatures_c = (
        50 + 4 * np.sin(2 * np.pi * np.arange(90) / 365) + draw.normal(0, 0.8, (60, 90))
    )
    x = 0.8 * draw.normal(size=(60, 90))
    x[:, 60:] += 6.0
    results = in_a_room(x, temperatures_c)
    assert sum(changes.modes is not None for changes in results) <= 1
    assert (
        sum(any(abs(step.place - 60) <= 2 for step in changes.breaks) for changes in results) >= 59
    )


def test_modes_are_seen_through_a_season_and_not_where_the_temperature_makes_them():
    """The figure follows the room by 1% a degree.

    A figure that alternates beside that has modes, one that alternates with a heating has none.
    """
    draw = np.random.default_rng(7)
    season = 50 + 4 * np.sin(2 * np.pi * np.arange(90) / 365)
    alternates = 5.0 * (np.arange(90) // 5 % 2)
    room = season + draw.normal(0, 0.8, (10, 90))
    assert all(
        changes.modes
        for changes in in_a_room(room + alternates + 0.8 * draw.normal(size=(10, 90)), room)
    )
    heated = season + alternates + draw.normal(0, 0.3, (10, 90))
    assert not any(
        changes.modes for changes in in_a_room(heated + 0.8 * draw.normal(size=(10, 90)), heated)
    )

"""Test the temperature as a regressor.

An exchanged sensor confirms no step, a board that got warmer is explained, and misread days do
nothing.
"""

import numpy as np
import pytest

from edgemeter.collector.trend.change_points import change_points
from edgemeter.collector.trend.covariate import regressor, without_jump
from edgemeter.collector.trend.days import days_of_series
from edgemeter.collector.trend.metrics import METRICS
from tests.collector.trend.worlds import METRIC, Noise, columns, weather
from tests.fixtures.comparison_factory import figures_of
from tests.fixtures.series_factory import make_days, noisy
from tests.fixtures.trend_columns import days_of


@pytest.mark.nightly
@pytest.mark.parametrize(("slope", "jump_c"), [(0.25, 3), (0.5, -8), (0.5, 20)])
def test_an_exchanged_sensor_confirms_a_step_in_at_most_one_stable_series_of_25(slope, jump_c):
    """The readings jump and the metric does not.

    It was 36 to 96 of 100 series when each reading was believed (18 to 22 at 3 degrees).
    """
    draw = np.random.default_rng(1)
    days = days_of_series(
        METRICS[METRIC], columns(weather(slope, jump_c), Noise(day=1.0, run=0.0), draw, 100)
    )
    assert np.mean([bool(changes.breaks) for changes in change_points(days, stride=2)]) <= 0.04


def test_a_jump_is_taken_out_at_the_place_and_of_the_sign_that_are_asked_for():
    """Without the three degrees up on day 20 the level is that of the days after.

    There is no jump down.
    """
    heat = 45 + np.repeat([0.0, 3.0], 20)
    assert without_jump(heat, range(10, 30), 1.0) == pytest.approx(np.full(40, 48.0))
    assert without_jump(heat, range(10, 30), -1.0) == pytest.approx(heat)
    assert without_jump(heat, range(0), 1.0) == pytest.approx(heat)


def test_a_board_that_did_get_warmer_keeps_its_readings():
    """Nothing is removed and no step remains, since the metric moves with the readings.

    It moves by half a per cent a degree.
    """
    draw = np.random.default_rng(5)
    warmth = 45 + 4 * np.sin(np.arange(120) / 40) + 0.5 * draw.normal(size=120)
    warmth[70:] += 8
    x = 0.5 * warmth + 0.5 * draw.normal(size=120)
    assert regressor(warmth, x) == pytest.approx(warmth, abs=0.5)


def test_the_readings_before_an_exchange_become_those_of_the_newest_sensor():
    """The jump is eight degrees, known to a degree; days without a reading stay without one."""
    draw = np.random.default_rng(6)
    warmth = 45 + 4 * np.sin(np.arange(120) / 40) + 0.5 * draw.normal(size=120)
    x = 0.5 * warmth + 0.3 * draw.normal(size=120)
    read = warmth.copy()
    read[70:] += 8
    read[20] = np.nan
    adjusted = regressor(read, x)
    is_known = np.isfinite(read)
    assert adjusted[70:] == pytest.approx(read[70:])
    assert adjusted[:70][is_known[:70]] == pytest.approx(warmth[:70][is_known[:70]] + 8, abs=1)
    assert np.isnan(adjusted[20])


def test_few_or_no_temperatures_are_left_as_they_are():
    """The cases are no temperature, one, and a constant one."""
    x = np.arange(5.0)
    for temperature_c in (
        np.full(5, np.nan),
        np.array([np.nan, 40, np.nan, np.nan, np.nan]),
        np.full(5, 40.0),
    ):
        assert regressor(temperature_c, x) == pytest.approx(temperature_c, nan_ok=True)


def test_a_step_on_another_day_than_the_exchange_is_still_found():
    """The step is five per cent on day 90, and the sensor was exchanged on day 60."""
    draw = np.random.default_rng(7)
    warmth = 45 + 4 * np.sin(np.arange(120) / 40) + 0.5 * draw.normal(size=120)
    values = np.array(noisy(100, 120, seed=8, step_at=90, step_ratio=1.05)) * np.exp(0.005 * warmth)
    warmth[60:] += 8
    points = [figures_of(run) for run in make_days(values, temperatures_c=warmth)]
    days = days_of(METRICS["energy_gross_mj"], points)
    (changes,) = change_points([days])
    assert [abs(step.place - 90) <= 1 for step in changes.breaks] == [True]

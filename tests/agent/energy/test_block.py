"""Facts about `edgemeter.agent.energy.block`.

Power that a sensor shows late belongs to the block, and power that runs on after it does not.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.per_inference import EnergyRun
from edgemeter.agent.energy.queries import Queries
from tests.fixtures.power_traces import AFTER, BEFORE, TIMED, S, assess, energy_of, make_trace
from tests.fixtures.rows import table_row


def lagged(rise_s, fall_s=None, high_w=5.0):
    """Return how a first-order lag shows a load from 2 W to `high_w` between 20 s and 50 s.

    The function gives W at seconds.
    """
    fall_s = fall_s or rise_s

    def power(t):
        if t < 20:
            return 2.0
        if t < 50:
            return high_w - (high_w - 2) * math.exp(-(t - 20) / rise_s)
        return 2 + (high_w - 2) * math.exp(-(t - 50) / fall_s)

    return power


def mean_of(window_s):
    """Return how a sensor that averages over a window shows the same load."""

    def power(t):
        return 2 + 3 * (min(max(t, 20), 50) - min(max(t - window_s, 20), 50)) / window_s

    return power


def test_a_sensor_that_shows_power_late_loses_none_of_it():
    """150 mJ gross and 90 mJ net lie within the interval for every kind of delay.

    The kinds are a lag, a mean over a window, a late value, and a value that is held for seconds.
    """
    for name, power, period_ms in [
        ("lag .5 s", lagged(0.5), 100.0),
        ("lag 3 s", lagged(3.0), 100.0),
        ("lag 2 s at 1 Hz", lagged(2.0), 1000.0),
        ("mean of 2 s", mean_of(2.0), 100.0),
        ("2 s late", lambda t: 5.0 if 22 <= t < 52 else 2.0, 100.0),
        ("held for 2 s", lambda t: 5.0 if 20 <= t // 2 * 2 < 50 else 2.0, 100.0),
    ]:
        with table_row(name):
            energy = energy_of(make_trace(power, 70, seed=2, period_ms=period_ms))
            assert abs(energy.gross_mj - 150) <= max(energy.gross_u_mj, 0.1)
            assert abs(energy.net_mj - 90) <= max(energy.net_u_mj, 0.1)
            assert energy.gross_u_mj < 15
            assert energy.after_load_mj is None


def test_a_fan_that_runs_on_is_stated_apart():
    """The load has the 37.5 J that the fan takes in its time, and 12 J come after it.

    The fan takes 1.5 W from 5 s into the load to 8 s after it.
    """
    for period_ms in (10.0, 100.0, 250.0):
        for lag_s in (0.0, 0.3):

            def power(t, lag_s=lag_s):
                return (lagged(lag_s)(t) if lag_s else 5.0 if 20 <= t < 50 else 2.0) + 1.5 * (
                    25 <= t < 58
                )

            with table_row(period_ms, lag_s):
                energy = energy_of(make_trace(power, 70, seed=2, period_ms=period_ms))
                assert abs(energy.gross_mj - 187.5) <= energy.gross_u_mj < 12
                assert energy.after_load_mj == pytest.approx(12_000, rel=0.1)


def test_what_begins_after_the_load_is_stated_apart():
    """A flush of 2 W for 4 s, which begins a second after the load, is 8 J after it."""
    for period_ms in (20.0, 100.0):
        with table_row(period_ms):
            energy = energy_of(
                make_trace(
                    lambda t: 2 + 3 * (20 <= t < 50) + 2 * (51 <= t < 55),
                    70,
                    seed=2,
                    period_ms=period_ms,
                )
            )
            assert abs(energy.gross_mj - 150) <= energy.gross_u_mj < 5
            assert energy.after_load_mj == pytest.approx(8_000, rel=0.05)


def test_a_load_that_ends_at_low_power_is_no_fan():
    """The power that a lagging sensor shows late is the load's.

    The load takes 8 W and 3 W in turn, for a second each.
    """
    powers_w = np.empty(7000)
    now_w = 2.0
    for index in range(7000):
        t = index / 100
        true_w = 2.0 if not 20 <= t < 50 else 8.0 if (t - 20) % 2 < 1 else 3.0
        now_w += (true_w - now_w) * 0.01 / 0.6
        powers_w[index] = now_w
    starts_ns = np.arange(20, 50, 2, dtype=np.int64) * S
    run = EnergyRun(TIMED, BEFORE, AFTER, 15, Queries(starts_ns, np.full(15, 2 * S - 1), 50 * S))
    energy, _ = per_inference.assess(
        make_trace(lambda t: powers_w[min(int(t * 100), 6999)], 70, seed=2), run
    )
    assert abs(energy.gross_mj - 11_000) <= energy.gross_u_mj
    assert energy.after_load_mj is None


def test_an_idle_stretch_that_still_shows_the_load_gives_no_energy():
    """With a lag of 4 s a twenty-eighth of the load is left after 13 s and hides the idle power."""
    _, reason = assess(make_trace(lagged(4.0), 70, seed=3), TIMED, BEFORE, AFTER, 1000)
    assert "still shows the load" in reason
    assert "idle for longer" in reason


def test_an_idle_stretch_in_which_the_sensor_stops_is_not_known():
    """The sensor saw two of 20 s, so the idle power is known on one side only."""
    trace = make_trace(lambda t: 2 + 3 * (20 <= t < 50), 70, seed=3)
    energy = energy_of(
        replace(
            trace,
            readings=tuple(reading for reading in trace.readings if reading.taken_ns < 52 * S),
        )
    )
    assert (energy.idle_before_w, energy.idle_after_w) == (pytest.approx(2), None)
    assert energy.net_u_mj is None


def test_a_sensor_that_is_slower_one_way_gives_no_energy():
    """It shows too much of each burst, while one that is as slow both ways does not."""
    for rise_s, fall_s, is_refused in [
        (0.05, 0.5, True),
        (0.4, 0.8, True),
        (0.8, 0.4, True),
        (0.5, 0.5, False),
        (0.02, 0.02, False),
    ]:
        with table_row(rise_s, fall_s):
            energy, reason = assess(
                make_trace(lagged(rise_s, fall_s), 70, seed=3), TIMED, BEFORE, AFTER, 1000
            )
            assert (energy is None) == is_refused
            assert not is_refused or "slower one way" in reason


def test_what_ran_before_is_not_idle_power():
    """A warm-up that ends at 0 s must not raise the idle power before the load above 2 W.

    The sensor lags by 2 s. The idle power after the load is 2 W too.
    """

    def power(t):
        return lagged(2.0)(t) + 3 * math.exp(-t / 2)

    energy = energy_of(make_trace(power, 70, seed=4))
    assert (energy.idle_before_w, energy.idle_after_w) == (
        pytest.approx(2, rel=0.02),
        pytest.approx(2, rel=0.02),
    )
    assert abs(energy.net_mj - 90) <= energy.net_u_mj


def test_without_idle_a_stated_delay_widens_the_interval():
    """Without idle readings nothing shows how late the sensor is.

    For a possible delay of a second, the energy is known to about a thirtieth of the load.
    """
    trace, late = (
        make_trace(load := (lambda _: 5.0), 70, seed=1),
        make_trace(load, 70, seed=1, delay_ms=1000.0),
    )
    prompt_u_mj, late_u_mj = (
        energy_of(each, before=None, after=None).gross_u_mj for each in (trace, late)
    )
    assert prompt_u_mj < late_u_mj / 3
    assert late_u_mj == pytest.approx(2 * 5 / math.sqrt(3), rel=0.05)

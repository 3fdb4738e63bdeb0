"""Facts about `edgemeter.agent.energy.settling`: sensors that lag, average or hold their value."""

import math

import numpy as np
import pytest

from edgemeter.agent.energy.curve import PowerCurve
from edgemeter.agent.energy.per_inference import assess
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.settling import settling_after
from edgemeter.agent.energy.window import Window
from tests.fixtures.power_traces import S, budget_of, make_trace
from tests.fixtures.rows import table_row

BEFORE, TIMED, AFTER = Window(0, 30 * S), Window(30 * S, 60 * S), Window(60 * S, 90 * S)


def lagged(lag_s):
    """Return what a first-order lag shows of 2 W, 5 W from 30 s to 60 s, and 2 W."""

    def power(t):
        if t < 30:
            return 2.0
        risen = 1 - math.exp(-(min(t, 60) - 30) / lag_s)
        return 2 + 3 * risen * (math.exp(-(t - 60) / lag_s) if t > 60 else 1)

    return power


def averaged(window_s):
    """Return what the mean over the last `window_s` shows of the same."""
    return lambda t: 2 + 3 * max(0.0, min(t, 60) - max(t - window_s, 30)) / window_s


def test_a_sensor_that_shows_power_late_loses_none_of_it():
    """5 W over 30 s and 1,000 inferences are 150 mJ gross and 90 mJ net, whatever the sensor's response: readings alone lose up to 10%."""
    for response, time_s in [(lagged, 0.5), (lagged, 1.0), (lagged, 3.0), (averaged, 1.0), (averaged, 4.0)]:
        with table_row(response.__name__, time_s):
            trace, run = make_trace(response(time_s), 90, seed=2, gain_u_ratio=0.1), EnergyRun(TIMED, BEFORE, AFTER, 1000)
            energy, reason = assess(trace, run)
            assert reason is None
            assert budget_of(trace, run)["gain"].u_mj == pytest.approx(0.1 * energy.gross_mj)
            assert energy.gross_mj == pytest.approx(150, rel=1e-3)
            assert energy.net_mj == pytest.approx(90, rel=2e-3)
            assert energy.mean_power_w == pytest.approx(5, rel=1e-3)
            assert energy.gross_u_mj < 0.22 * energy.gross_mj


def test_the_delay_is_what_the_readings_show():
    """The time constant of a lag, half of a window."""
    for power, delay_s in [(lagged(0.5), 0.5), (lagged(3.0), 3.0), (averaged(4.0), 2.0)]:
        trace = make_trace(power, 90, seed=2)
        settling = settling_after(PowerCurve(trace.readings, trace.description), TIMED, AFTER)
        assert settling.delay_s == pytest.approx(delay_s, rel=0.05), f"{delay_s!r}"
        assert settling.settles_s >= 3 * delay_s, f"{delay_s!r}"


def test_a_sensor_that_shows_power_at_once_has_no_delay_and_stays_as_certain():
    """Sharp edges: nothing is added to the energy, and the budget's new term is nothing."""
    trace = make_trace(lambda t: 5.0 if 30 <= t < 60 else 2.0, 90, seed=2)
    settling = settling_after(PowerCurve(trace.readings, trace.description), TIMED, AFTER)
    assert (settling.delay_s, settling.late_mj, settling.u_mj) == (0, pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))


def test_a_load_that_went_on_before_the_timed_part_is_not_counted_twice():
    """A warm-up drew the same 5 W until the first timed query: what the sensor shows late at the end it showed late at the beginning."""

    def power(t):
        return 5.0 if t < 60 else 2 + 3 * math.exp(-(t - 60) / 3.0)

    energy, _ = assess(make_trace(power, 90, seed=2), EnergyRun(TIMED, None, AFTER, 1000))
    assert energy.gross_mj == pytest.approx(150, rel=2e-3)


def test_a_sensor_that_has_not_settled_when_idle_ends_gives_no_energy_but_how_long_it_takes():
    """A lag of 20 s and 30 s of idle: what is missing cannot be known; with the idle that is asked for it can."""
    trace = make_trace(lagged(20.0), 400, seed=2)
    energy, reason = assess(trace, EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert energy is None
    asked_s = float(reason.split("at least ")[1].split(" s")[0])
    assert 60 <= asked_s < 340
    longer, reason = assess(trace, EnergyRun(TIMED, BEFORE, Window(60 * S, round((60 + 2 * asked_s) * S)), 1000))
    assert reason is None
    assert longer.gross_mj == pytest.approx(150, rel=0.02)


@pytest.mark.parametrize("idle_after", [AFTER, None])
def test_a_period_is_open_at_the_edges_only_where_nothing_shows_how_late_the_readings_are(idle_after):
    """With the idle after it what the readings lack is added, and how well that is known; without, a reading may be late by a period."""
    terms = budget_of(make_trace(lagged(0.5), 90, seed=2), EnergyRun(TIMED, BEFORE, idle_after, 1000))
    assert (terms["edges"].u_mj > 0) is (idle_after is None)


def read_by(power, *, seed, noise_w=0.0, **changes):
    """Return the readings of `power` for 90 s, each with an error of its own."""
    errors_w = np.random.default_rng(seed)
    return make_trace(lambda t: power(t) + noise_w * errors_w.standard_normal(), 90, seed=seed, **changes)


def integral_j(power, begin_s, end_s):
    """Return the energy by a sum over a thousand midpoints, with nothing of the agent."""
    edges_s = np.linspace(begin_s, end_s, 1001)
    return sum(power(t) for t in (edges_s[1:] + edges_s[:-1]) / 2) * (end_s - begin_s) / 1000


def test_a_load_whose_idle_power_rises_is_not_corrected_for_its_slope():
    """3 W more for 30 s, above an idle power that rises or falls by .02 W a second."""
    for slope in (-0.02, 0.02):
        with table_row(slope):

            def power(t, slope=slope):
                return 3 + slope * t + (3 if 30 <= t < 60 else 0)

            energy, reason = assess(read_by(power, seed=2), EnergyRun(TIMED, BEFORE, AFTER, 1000))
            assert reason is None
            assert energy.gross_mj == pytest.approx(integral_j(power, 30, 60), rel=0.003)

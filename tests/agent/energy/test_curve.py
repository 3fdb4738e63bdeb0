"""Facts about `edgemeter.agent.energy.curve`: idle power whose neighbouring moments are not independent."""

import random
import statistics

from edgemeter.agent.energy.curve import PowerCurve, mean_w, stretch_means
from edgemeter.agent.energy.per_inference import assess
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import Window
from tests.fixtures.power_traces import S, budget_of, make_trace

STRETCHES = [Window(0, 30 * S), Window(90 * S, 120 * S)]


def process(correlation, seed):
    """Return a power around 2 W that scatters by 0.2 W; each reading is correlated with the one before."""
    draw = random.Random(seed)  # noqa: S311 - repeatable
    state = draw.gauss(0, 0.2)

    def power(_):
        nonlocal state
        state = correlation * state + draw.gauss(0, 0.2 * (1 - correlation**2) ** 0.5)
        return 2 + state

    return power


def means_and_error(correlation, seed):
    """Return the found uncertainty of the stretches' mean, and its true error."""
    trace = make_trace(process(correlation, seed), 120)
    curve = PowerCurve(trace.readings, trace.description)
    return stretch_means(curve, STRETCHES), statistics.fmean(mean_w(curve, stretch) for stretch in STRETCHES) - 2


def test_the_uncertainty_of_a_mean_is_what_its_errors_scatter():
    """Of readings with a correlation time of 1 s, in stretches of 30 s."""
    outcomes = [means_and_error(0.9, seed) for seed in range(40)]
    errors = statistics.pstdev(error for _, error in outcomes)
    median_u_w = statistics.median(means.u_w for means, _ in outcomes)
    assert 0.8 * errors < median_u_w < 1.8 * errors


def test_independent_readings_do_not_wander():
    """Over another stretch nothing is added, to a tenth of what the scatter itself costs."""
    added = [means_and_error(0.0, seed)[0] for seed in range(20)]
    assert statistics.median(means.wander_u_w(60e9) for means in added) < 0.5 * statistics.median(means.u_w for means in added)


def test_the_budget_holds_what_idle_power_did_unseen():
    """While the load ran, idle power wandered too: a term of its own, in the net energy only."""
    trace, run = make_trace(process(0.98, 1), 120), EnergyRun(Window(30 * S, 90 * S), STRETCHES[0], STRETCHES[1], 1000)
    energy, _ = assess(trace, run)
    wander_mj = budget_of(trace, run)["idle_wander"].u_mj
    assert wander_mj > 0
    assert energy.net_u_mj > 2 * wander_mj
    assert energy.gross_u_mj < wander_mj

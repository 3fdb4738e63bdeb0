"""Facts about `edgemeter.agent.energy.short_block`."""

from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.energy.per_inference import assess
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description, Reading
from edgemeter.agent.power.values import Averaging
from tests.fixtures.sensor_worlds import World, coverage, draw_trial


def block(block_s, **changes):
    """Return the world of a command of so many seconds, whose work begins and ends some ms off its bounds, with real edges."""
    work = {"fps": 1 / block_s, "jitter": 0.0, "duty": 1 - 0.03 / block_s, "work_s": 0.01, "edge_s": 0.002}
    fields = work | {"low_w": 3.0, "noise_w": 0.02, "idle_s": 10.0, "knows_queries": False, "counts_inferences": False} | changes
    return World(timed_s=block_s, **fields)


@pytest.mark.parametrize("lag_s", [0.0, 0.5])
def test_the_interval_of_a_short_block_holds_its_energy(lag_s):
    """Two seconds of work with real edges at 10 Hz, by a sensor without delay and by one that lags; narrower than the energy itself."""
    result = coverage(block(2.0, lag_s=lag_s), 20)
    assert (result.refusals, result.gross >= 0.93, result.net >= 0.93) == ((), True, True), result
    # Of 6 W above idle.
    assert result.net_u_w < 0.25 * 6


@pytest.mark.nightly
@pytest.mark.parametrize("rate", [10, 100])
@pytest.mark.parametrize("block_s", [0.3, 5.0])
def test_bursts_own_clocks_and_means_are_within_the_interval_too(rate, block_s):
    """Or the block is refused, with the length that would do."""
    for fields in ({"fps": 10.0, "duty": 0.5}, {"update_s": (0.2, 0.6)}, {"window_s": 1.0}, {"step_w": 0.1}, {"lag_s": 1.0}):
        result = coverage(block(block_s, rate=rate, **fields), 40)
        assert result.gross is None or result.gross >= 0.9, (fields, result)


def test_a_block_between_two_readings_is_refused_with_the_length_that_would_do():
    """A third of a second at 1 Hz."""
    (reason,) = coverage(block(0.3, rate=1, idle_s=14), 1).refusals
    assert "show no energy: watch at least 5 s of it (repeat the work)" in reason


def test_a_counter_knows_a_short_block_to_its_step():
    """Half a second at 9 W above 3 W of idle, counted in steps of 0.1 J."""
    description = Description("counter", "board-input", (), "energy", 10.0, 0.0, 0.01, 100.0)
    moments = np.arange(0, 20.5, 0.01)
    joules = 3 * moments + 6 * np.clip(moments - 10, 0, 0.5)
    readings = tuple(Reading(int(t * 1e9), energy_mj=100.0 * round(1000 * e / 100)) for t, e in zip(moments, joules, strict=True))
    trial = draw_trial(block(0.5), np.random.default_rng(2), 0.0)
    counted = replace(trial.trace, description=description, readings=readings)
    timed = Window(int(10e9), int(10.5e9))
    energy, reason = assess(counted, replace(trial.run, timed=timed, idle_after=Window(timed.end_ns, int(20.4e9))))
    assert energy is not None, reason
    assert abs(energy.gross_mj - 4500) < energy.gross_u_mj < 1000


def test_a_described_clock_counts():
    """Coarse readings that repeat: by a described clock of 0.1 s a block of a second has ten of them, by one of 1 s it has one."""
    trial = draw_trial(block(1.0), np.random.default_rng(2), 0.0)
    readings = tuple(replace(r, power_w=3.0 if r.power_w < 6 else 9.0) for r in trial.trace.readings)
    for clock_s, is_given in ((0.1, True), (1.0, False)):
        description = replace(trial.trace.description, averaging=Averaging(update_interval_s=clock_s), resolution_w=1.0)
        energy, reason = assess(replace(trial.trace, readings=readings, description=description), trial.run)
        assert (energy is not None) is is_given, reason
        assert energy is None or abs(energy.gross_mj / 1000 - trial.gross_w) < energy.gross_u_mj / 1000

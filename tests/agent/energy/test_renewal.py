"""Facts about `edgemeter.agent.energy.renewal`: sensors that renew their value by their own clock."""

import dataclasses

import numpy as np
import pytest

from edgemeter.agent.energy.curve import PowerCurve
from edgemeter.agent.energy.per_inference import assess
from edgemeter.agent.energy.renewal import keeps_step, may_keep_step, renewal_of, unseen_phases_ns
from edgemeter.agent.power.values import Averaging
from tests.fixtures.power_traces import budget_of
from tests.fixtures.sensor_worlds import World, draw_trial


def renewal_in(world, seed=3):
    """Return one draw, and what its readings show of the sensor's clock."""
    trial = draw_trial(world, np.random.default_rng(seed))
    curve = PowerCurve(trial.trace.readings, trial.trace.description)
    times, powers = curve.readings(trial.run.timed)
    return trial, renewal_of(times, powers, 1e9 / world.rate, 1e9 / world.fps)


def test_repeated_readings_show_how_often_a_sensor_renews_its_value():
    """A clock of its own, regular or not, read as often as it ticks or far more often."""
    for world, interval_s in [
        (World(update_s=(1.0, 1.0)), 1.0),
        (World(update_s=(0.1, 0.1), seen=0.25), 0.1),
        (World(rate=100, timed_s=30, update_s=(0.1, 0.1)), 0.1),
        (World(rate=1, timed_s=300, update_s=(3, 6)), 4.5),
    ]:
        _, renewal = renewal_in(world)
        assert renewal.interval_ns / 1e9 == pytest.approx(interval_s, rel=0.07), f"{world!r}"
        assert abs(renewal.interval_ns / 1e9 - interval_s) < 4 * renewal.u_ratio * interval_s, f"{world!r}"


def test_a_sensor_that_replies_when_it_is_read_has_no_clock_of_its_own():
    """Nor do readings that were delivered twice, or coarse ones that are equal by chance, make it one."""
    for world in [
        World(),
        World(rate=1),
        World(lost=0.1, late=0.1, duplicated=0.1),
        World(rate=100, step_w=1.0),
    ]:
        assert renewal_in(world)[1] is None, f"{world!r}"


def test_a_sensor_in_step_with_the_queries_gives_no_energy_but_what_would_give_one():
    """25 ms of each 100 ms, and three queries of exactly the same length in each: it may see the same part of all."""
    trial, renewal = renewal_in(World(update_s=(0.1, 0.1), seen=0.25, jitter=0))
    assert keeps_step(trial.run.queries, renewal)
    energy, reason = assess(trial.trace, trial.run)
    assert energy is None
    assert "renews its value every 100 ms by its own clock, in step with queries every 33.3 ms" in reason
    assert "scenario poisson" in reason


def test_frames_in_step_get_the_nearest_rate_that_is_not():
    """15 frames a second and ten looks at the power: three frames between two of them; at 14.85 the energy is given, and right."""
    camera = World(update_s=(0.1, 0.1), seen=0.25, jitter=0, fps=15, low_w=3.0)
    trial, _ = renewal_in(camera)
    reason = assess(trial.trace, dataclasses.replace(trial.run, frames_per_s=15.0))[1]
    assert "in step with queries every 66.7 ms: it may see the same part of each; at 14.85 frames a second it sees all parts" in reason
    trial, _ = renewal_in(dataclasses.replace(camera, fps=14.85))
    energy, _ = assess(trial.trace, trial.run)
    assert abs(energy.mean_power_w - trial.gross_w) < energy.gross_u_mj / energy.gross_mj * trial.gross_w


# Its clock ticks between every two readings, as one in fourteen does whose phase is left to chance.
UNSEEN = World(rate=1, update_s=(1.0, 1.0), span_spread=0.0)
UNSEEN_SEED = 15


def test_a_clock_that_ticks_between_all_readings_shows_in_what_they_follow():
    """No value repeats; they follow the part of a query that a tick fell on, and the load is in step with the ticks."""
    trial, renewal = renewal_in(UNSEEN, UNSEEN_SEED)
    assert renewal is None
    assert "it renews its value every 1000 ms by its own clock, in step with queries" in assess(trial.trace, trial.run)[1]


def test_a_clock_that_nothing_shows_nor_rules_out_gives_no_energy_in_step():
    """Each tick sees the same part of a query, so all readings agree; a sensor that describes its mean over a period is believed."""
    trial, renewal = renewal_in(World(update_s=(0.1, 0.1), seen=0.25, jitter=0, span_spread=0.0), 38)
    assert renewal is None
    reason = assess(trial.trace, trial.run)[1]
    assert "it may renew its value every 100 ms by a clock that readings as far apart do not show, in step with queries" in reason
    assert described(trial, window_s=0.1)[1] is None


def test_readings_that_are_not_a_whole_period_apart_rule_out_every_clock_of_that_period():
    """At whatever phase, it would have repeated a value: so a mean of 100 ms gives an energy in step as out of it."""
    for world in [World(), World(rate=1), World(lag_s=1), World(window_s=0.1, jitter=0)]:
        trial, _ = renewal_in(world)
        curve = PowerCurve(trial.trace.readings, trial.trace.description)
        times, powers = curve.readings(trial.run.timed)
        assert unseen_phases_ns(times, powers, 1e9 / world.rate) == [], f"{world!r}"
        assert assess(trial.trace, trial.run)[1] is None, f"{world!r}"


def test_a_sensor_that_is_later_than_its_clock_averages_and_is_never_in_step():
    """The mean of 2 s, renewed every second, and 30 queries in each: what is 1.5 s late covered all of them."""
    trial, renewal = renewal_in(World(window_s=2.0, update_s=(1.0, 1.0), jitter=0))
    assert keeps_step(trial.run.queries, renewal)
    energy, reason = assess(trial.trace, trial.run)
    assert reason is None
    assert abs(energy.mean_power_w - trial.gross_w) < energy.gross_u_mj / energy.gross_mj * trial.gross_w
    assert renewal.interval_ns == pytest.approx(1e9, rel=0.02)


def test_too_few_renewals_give_no_energy():
    """Ten values at least: 20 s hold four of a plug that renews its value every 5 s."""
    trial, _ = renewal_in(World(rate=10, timed_s=20, update_s=(5, 5), seen=0.5))
    _, reason = assess(trial.trace, trial.run)
    assert 30 < float(reason.split("time at least ")[1].split(" s")[0]) < 60


def described_trace(trial, **averaging):
    """Return the trace of a sensor that describes its averaging so."""
    description = dataclasses.replace(trial.trace.description, averaging=Averaging(**averaging))
    return dataclasses.replace(trial.trace, description=description)


def described(trial, **averaging):
    """Return the energy or the reason, of such a sensor."""
    return assess(described_trace(trial, **averaging), trial.run)


def test_a_described_share_of_the_time_is_refused_in_step_where_readings_cannot_show_it():
    """Read once a second, a sensor of 25 in 100 ms never repeats a value; its description shows what the readings do not."""
    trial, renewal = renewal_in(World(rate=1, update_s=(0.1, 0.1), seen=0.25, jitter=0))
    assert renewal is None
    assert "in step with queries" in described(trial, update_interval_s=0.1, seen_ratio=0.25)[1]


def test_a_sensor_that_is_known_to_see_all_of_the_time_is_never_in_step():
    """The mean of the whole interval, or all of it seen: three queries in each are what it measures."""
    trial, _ = renewal_in(World(update_s=(0.1, 0.1), window_s=0.1, jitter=0))
    for facts in ({"window_s": 0.1}, {"seen_ratio": 1.0}):
        energy, reason = described(trial, update_interval_s=0.1, **facts)
        assert reason is None
        assert abs(energy.mean_power_w - trial.gross_w) < 0.02 * trial.gross_w
    assert described(trial, seen_ratio=1.0)[1] is None
    assert described(trial, update_interval_s=0.1)[0] is None


def test_a_delay_that_is_known_and_not_seen_is_bounded():
    """Without idle after the load nothing shows it: a mean of 3 s that is described so leaves a term in the budget."""
    trial, _ = renewal_in(World(window_s=3.0))
    trial = dataclasses.replace(trial, run=dataclasses.replace(trial.run, idle_after=None))
    terms = [budget_of(described_trace(trial, **facts), trial.run)["averaging"].u_mj for facts in ({}, {"window_s": 3.0})]
    assert terms[0] == 0
    assert terms[1] > 0


def test_the_energy_of_an_inference_leaves_pauses_out():
    """Pauses of a known power are no part of it; what is not known of their power is a term of the budget."""
    trial = draw_trial(World(lag_s=0.5, pauses=True, closed=True), np.random.default_rng(2), gain_z=0.0)
    energy, _ = assess(trial.trace, trial.run)
    paused_ratio = trial.run.queries.paused_ns / trial.run.timed.length_ns
    assert 0.003 < paused_ratio < 0.008
    timed_ms = trial.run.timed.length_ns / 1e6
    assert energy.window_ms == pytest.approx(timed_ms * (1 - paused_ratio))
    assert energy.gross_mj * trial.run.inferences == pytest.approx(trial.gross_w * timed_ms, rel=0.002)
    u_mj = budget_of(trial.trace, trial.run)["between"].u_mj
    assert u_mj == pytest.approx(paused_ratio * 3 / 12**0.5 * energy.window_ms / trial.run.inferences, rel=0.1)


def test_pauses_are_made_for_sensors_that_may_keep_step():
    """Not for a counter, nor for a sensor that is known to look at the power all the time."""
    described_power = draw_trial(World(timed_s=10, idle_s=1), np.random.default_rng(1)).trace.description
    whole_time = dataclasses.replace(described_power, averaging=Averaging(seen_ratio=1.0))
    quarter = dataclasses.replace(described_power, kind="energy", averaging=Averaging(update_interval_s=0.1, seen_ratio=0.25))
    assert may_keep_step(described_power)
    assert may_keep_step(quarter)
    assert not may_keep_step(whole_time)
    assert not may_keep_step(dataclasses.replace(described_power, kind="energy"))

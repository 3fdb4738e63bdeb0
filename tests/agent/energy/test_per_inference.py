"""Facts about `edgemeter.agent.energy.per_inference`, the curves and the uncertainty budget behind it."""

import dataclasses
import math
import random

import pytest

from edgemeter.agent.energy.curve import PowerCurve
from edgemeter.agent.energy.per_inference import energies_of
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Reading
from tests.fixtures.power_traces import (
    AFTER,
    BEFORE,
    TIMED,
    S,
    assess,
    budget_of,
    energy_of,
    load_step,
    make_counter,
    make_description,
    make_trace,
)


def test_the_trapezoid_is_exact_on_a_ramp():
    """P = 1 + 0.25 t: the energy between moments that fall between readings is the integral."""
    trace = make_trace(lambda t: 1 + 0.25 * t, 30, seed=3)
    curve = PowerCurve(trace.readings, trace.description)
    begin, end = 3.123456789, 27.987654321
    exact_j = (end - begin) + 0.125 * (end**2 - begin**2)
    assert curve.energy_mj(Window(int(begin * S), int(end * S))) == pytest.approx(exact_j * 1000, rel=1e-9)


def test_a_constant_power_gives_power_times_time():
    """7 W over 30 s and 1,000 inferences: 210 mJ each, certain but for gain and steps, which are none here."""
    energy = energy_of(make_trace(lambda _: 7.0, 70))
    assert energy.gross_mj == pytest.approx(210)
    assert energy.mean_power_w == pytest.approx(7)
    assert energy.gross_u_mj == pytest.approx(0, abs=1e-9)
    assert energy.window_ms == 30_000


def test_net_is_gross_without_idle():
    """5 W against 2 W idle: 150 mJ gross and 90 mJ net an inference, within the stated uncertainty."""
    energy = energy_of(make_trace(load_step, 70, seed=1))
    assert abs(energy.gross_mj - 150) <= energy.gross_u_mj
    assert abs(energy.net_mj - 90) <= energy.net_u_mj
    assert energy.net_state == "resolved"
    assert (energy.idle_before_w, energy.idle_after_w) == (pytest.approx(2), pytest.approx(2))
    assert energy.gross_u_mj < 0.01 * energy.gross_mj


def test_each_term_of_the_budget_follows_the_method():
    """Gain 2%, steps of 0.1 W, idle that moves from 2 W to 2.2 W, a step of 3 W and 2.8 W at the edges."""

    def power(t):
        return 5.0 if 20 <= t < 50 else 2.0 if t < 20 else 2.2

    trace = make_trace(power, 70, gain_u_ratio=0.02, resolution_w=0.1)
    energy = energy_of(trace)
    per_w = 30.0  # mJ an inference for a watt over 30 s and 1,000 inferences
    terms = {name: term.u_mj for name, term in budget_of(trace).items()}
    assert terms["gain"] == pytest.approx(0.02 * energy.gross_mj)
    assert terms["offset"] == pytest.approx(0.1 / math.sqrt(3) * per_w)
    # One value inside the window, and one that slipped in right at its end.
    assert terms["quantisation"] == pytest.approx(0.1 / math.sqrt(12) * per_w, rel=0.01)
    assert terms["idle_drift"] == pytest.approx(0.2 / math.sqrt(12) * per_w, rel=1e-6)
    # The idle after it shows that nothing is late.
    assert (terms["edges"], terms["averaging"]) == (0.0, pytest.approx(0.0, abs=1e-6))
    gross = [terms[name] for name in ("gain", "offset", "quantisation", "sampling", "edges")]
    assert energy.gross_u_mj == pytest.approx(2 * math.hypot(*gross))
    # In the net energy the gain acts on the difference only, and the offset cancels.
    other_terms = [terms[name] for name in ("quantisation", "sampling", "edges", "idle_sampling", "idle_quantisation", "idle_drift")]
    assert energy.net_u_mj == pytest.approx(2 * math.hypot(terms["gain"] * energy.net_mj / energy.gross_mj, *other_terms))


def test_readings_that_a_sensor_repeats_do_not_count_as_many():
    """A meter that updates once a second, read ten times a second, is no more certain than read once a second."""
    noise = [random.Random(second).gauss(5, 0.5) for second in range(71)]  # noqa: S311 - repeatable
    repeated = budget_of(make_trace(lambda t: noise[int(t)], 70))["sampling"].u_mj
    assert repeated == pytest.approx(0.5 / math.sqrt(30) * 30, rel=0.5)


def test_an_unknown_gain_makes_the_uncertainty_unknown():
    """Null, not zero; the other terms are still listed."""
    trace = make_trace(load_step, 70, gain_u_ratio=None, resolution_w=0.01)
    energy = energy_of(trace)
    assert (energy.gross_u_mj, energy.net_u_mj) == (None, None)
    assert budget_of(trace)["gain"].u_mj is None
    assert budget_of(trace)["offset"].u_mj > 0


def test_a_load_lost_in_the_idle_power_is_not_resolvable():
    """Idle that differs by 1 W before and after hides a load of 0.5 W: gross stays, net is withheld, its uncertainty is stated."""

    def power(t):
        return 2.5 if t < 20 else 3.5

    energy = energy_of(make_trace(power, 70))
    assert (energy.net_state, energy.net_mj) == ("not_resolvable", None)
    assert energy.net_u_mj > 0
    assert energy.gross_mj == pytest.approx(105, rel=0.01)


def test_without_idle_there_is_no_net():
    """No stretch at all, one too short, and one without readings: net is null, with the reason."""
    trace = make_trace(load_step, 70)
    for before, after in ((None, None), (Window(19 * S, 20 * S), None), (None, Window(200 * S, 230 * S))):
        energy = energy_of(trace, before=before, after=after)
        assert (energy.net_mj, energy.net_u_mj, energy.net_state) == (None, None, "no_idle")
        assert (energy.idle_before_w, energy.idle_after_w) == (None, None)


def test_with_idle_on_one_side_only_the_drift_is_unknown():
    """Net is there, its uncertainty is not."""
    energy = energy_of(make_trace(load_step, 70), before=None)
    assert energy.net_mj == pytest.approx(90, rel=0.01)
    assert (energy.net_u_mj, energy.idle_before_w, energy.idle_after_w) == (None, None, pytest.approx(2))


def test_a_slow_counter_is_interpolated_between_its_moves():
    """One that moves once a second: the edges lie between two moves, and reading it at its old value costs nothing."""
    trace = make_counter(6.0, 90, moves_ms=1000.0)
    energy = energy_of(trace, timed=Window(20 * S + S // 3, 80 * S + S // 3))
    assert energy.gross_mj == pytest.approx(360, rel=1e-6)
    _, reason = assess(trace, TIMED, None, None, 1000)
    assert "one step of the energy counter is 6 J" in reason


def test_a_counter_goes_on_counting_while_nobody_reads():
    """A pause of 3 s inside the window loses nothing; one at its edge does."""
    trace = make_counter(6.0, 70)

    def without(begin_s, end_s):
        return dataclasses.replace(trace, readings=tuple(r for r in trace.readings if not begin_s * S < r.taken_ns < end_s * S))

    assert energy_of(without(30, 33)).gross_mj == pytest.approx(180, rel=1e-6)
    assert "missing" in assess(without(48, 52), TIMED, None, None, 1000)[1]


def test_the_widest_scope_that_supports_an_energy_is_taken_and_the_others_stand_beside_it():
    """A wall plug that is too slow gives way to the board's own sensor; without any, all reasons are stated."""
    plug = dataclasses.replace(make_trace(load_step, 70, scope="wall-ac", period_ms=1000.0), name="plug")
    board = dataclasses.replace(make_trace(load_step, 70, scope="soc-rails"), name="board")
    energies = energies_of([board, plug], EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert (energies.energy.scope, energies.others) == ("soc-rails", ())
    assert energies.refused[0].startswith("plug: 1000 inferences in 30 s are too few")
    faster = dataclasses.replace(make_trace(load_step, 70, scope="wall-ac"), name="plug")
    energies = energies_of([board, faster], EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert (energies.energy.scope, [other.scope for other in energies.others]) == ("wall-ac", ["soc-rails"])
    assert (energies.reason, energies.refused) == (None, ())
    energies = energies_of([board, plug], EnergyRun(TIMED, BEFORE, AFTER, 10))
    assert energies.energy is None
    assert "plug: " in energies.reason
    assert "; board: " in energies.reason


def test_a_replayed_sensor_does_not_stand_before_a_measuring_one():
    """A recording says nothing of this run, however wide its scope."""
    board = dataclasses.replace(make_trace(load_step, 70, scope="soc-rails"), name="board")
    recording = dataclasses.replace(make_trace(load_step, 70, scope="wall-ac", id="replay:demo"), name="replay")
    energies = energies_of([recording, board], EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert (energies.energy.scope, [other.sensor for other in energies.others]) == ("soc-rails", ["replay:demo"])


def test_a_counter_that_hardly_moves_while_idle_gives_no_idle_power():
    """Steps of 1 J at 50 mW: what lies between two moves 20 s apart would be taken for the load's power."""
    readings = []
    for tick in range(700):
        energy_j = 0.05 * min(tick, 200) / 10 + 8.0 * min(max(tick - 200, 0), 300) / 10 + 0.05 * max(tick - 500, 0) / 10
        readings.append(Reading(taken_ns=tick * S // 10, energy_mj=math.floor(energy_j) * 1000.0))
    trace = SensorTrace("counter", make_description(kind="energy", resolution_w=None, offset_u_w=0.0), tuple(readings))
    energy = energy_of(trace)
    assert (energy.net_state, energy.idle_before_w, energy.idle_after_w) == ("no_idle", None, None)
    assert abs(energy.gross_mj - 240) <= energy.gross_u_mj


def test_the_rounding_of_sums_is_no_net_energy():
    """Readings that never differ, at odd moments: whatever the sum leaves over idle, no length shows a load."""
    for seed in range(10):
        trace = make_trace(lambda _: 5.1, 70, seed=seed, resolution_w=None, gain_u_ratio=None)
        energy = energy_of(trace, timed=Window(20 * S + 1234567 * seed, 50 * S - 7654321 * seed))
        assert (energy.net_state, energy.net_mj) == ("not_resolvable", None), seed


def test_a_step_at_the_edges_is_not_smeared_by_a_line_across_it():
    """A slow sensor, ideal steps: the energy is exact, where lines across the edges would lose a third of a period's load."""
    trace = make_trace(load_step, 140, seed=3, period_ms=500.0)
    assert energy_of(trace).gross_mj == pytest.approx(150, rel=1e-9)


def test_a_fast_counter_is_not_smeared_by_a_line_across_a_step():
    """Read every 500 ms across steps from 2 W to 5 W and back: exact, at either edge."""

    def energy_mj(t):
        return 1000 * (2 * t + 3 * (min(max(t, 20), 50) - 20))

    readings = tuple(Reading(int(t * S), energy_mj=energy_mj(t)) for t in (0.21 + 0.5 * n for n in range(139)))
    description = make_description(kind="energy", period_ms=500.0, resolution_w=None, resolution_mj=0.0)
    assert energy_of(SensorTrace("counter", description, readings)).gross_mj == pytest.approx(150, rel=1e-9)


def test_the_factor_k_grows_where_little_scatter_was_seen():
    """Fifty noisy readings: k follows Student's t; a budget without scatter keeps 2."""
    noise = random.Random(4)  # noqa: S311 - repeatable
    few = make_trace(lambda _: 5 + noise.gauss(0, 1), 70, period_ms=600.0)
    certain = make_trace(lambda _: 7.0, 70, gain_u_ratio=0.01)
    for trace, low, high in ((few, 2.1, 2.5), (certain, 1.999, 2.001)):
        terms = [term.u_mj for term in budget_of(trace).values() if not term.term.startswith("idle_")]
        assert low < energy_of(trace).gross_u_mj / math.hypot(*terms) < high
    assert budget_of(few)["sampling"].degrees_of_freedom > 5
    assert budget_of(few)["gain"].degrees_of_freedom is None


def test_a_calibrated_zero_takes_the_place_of_the_converters_step():
    """0.03 W over 30 s and 1,000 inferences are 0.9 mJ; without a known zero half a step either way, as before."""
    assert budget_of(make_trace(lambda _: 7.0, 70, resolution_w=0.3, offset_u_w=0.03))["offset"].u_mj == pytest.approx(0.9)
    assert budget_of(make_trace(lambda _: 7.0, 70, resolution_w=0.3))["offset"].u_mj == pytest.approx(9 / math.sqrt(3))

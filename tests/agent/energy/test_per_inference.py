"""Facts about `edgemeter.agent.energy.per_inference`.

They also cover the curves and the uncertainty budget behind it.
"""

import dataclasses
import math
import random

import numpy as np
import pytest

from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.per_inference import EnergyRun, energies_of
from edgemeter.agent.energy.per_inference import assess as assess_run
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Reading
from tests.fixtures.power_traces import (
    AFTER,
    BEFORE,
    TIMED,
    S,
    assess,
    energy_of,
    load_step,
    make_counter,
    make_description,
    make_trace,
)
from tests.fixtures.rows import table_row


def even(power_w):
    """Return a power that never repeats exactly, as a sensor that hangs does."""
    return lambda t: power_w + 1e-6 * math.sin(7 * t)


def test_the_trapezoid_is_exact_on_a_ramp():
    """For P = 1 + 0.25 t the energy between any two moments is the integral."""
    trace = make_trace(lambda t: 1 + 0.25 * t, 30, seed=3)
    curve = Curve(trace.readings, trace.description)
    begin, end = 3.123456789, 27.987654321
    exact_j = (end - begin) + 0.125 * (end**2 - begin**2)
    assert curve.energy_mj(Window(int(begin * S), int(end * S))) == pytest.approx(
        exact_j * 1000, rel=1e-6
    )


def test_a_constant_power_gives_power_times_time():
    """7 W over 30 s and 1,000 inferences are 210 mJ each.

    The figure is certain but for gain and steps, which are none here.
    """
    energy = energy_of(make_trace(even(7.0), 70))
    assert energy.gross_mj == pytest.approx(210)
    assert energy.mean_power_w == pytest.approx(7)
    assert energy.gross_u_mj == pytest.approx(0, abs=0.01)
    assert energy.window_ms == 30_000


def test_net_is_gross_without_idle():
    """5 W against 2 W idle are 150 mJ gross and 90 mJ net an inference.

    Both lie within the stated uncertainty.
    """
    energy = energy_of(make_trace(load_step, 70, seed=1))
    assert abs(energy.gross_mj - 150) <= energy.gross_u_mj
    assert abs(energy.net_mj - 90) <= energy.net_u_mj
    assert energy.net_state == "resolved"
    assert (energy.idle_before_w, energy.idle_after_w) == (pytest.approx(2), pytest.approx(2))
    assert energy.gross_u_mj < 0.01 * energy.gross_mj


def test_each_term_widens_the_interval_by_what_it_is():
    """Each term of the budget is checked by itself at 7 W over 30 s and 1,000 inferences.

    The terms are the gain and its drift, the zero, the steps and noise (k = 2, mJ).
    """
    for changes, u_mj in [
        ({"gain_u_ratio": 0.02}, 2 * 0.02 * 210),
        ({"gain_drift_ratio": 0.01}, 2 * 0.01 / math.sqrt(3) * 210),
        ({"offset_u_w": 0.03}, 2 * 0.03 * 30),
        ({"resolution_w": 0.3}, 2 * 0.3 / math.sqrt(3) * 30),
    ]:
        with table_row(changes):
            assert energy_of(make_trace(even(7.0), 70, **changes)).gross_u_mj == pytest.approx(
                u_mj, rel=0.01
            )


def test_in_the_net_energy_the_gain_acts_on_the_difference_and_the_zero_cancels():
    """A gain of 2% is 6 mJ of 150 mJ gross and 3.6 mJ of 90 mJ net, for 5 W against 2 W.

    A zero that is off moves both powers alike.
    """
    energy = energy_of(make_trace(load_step, 70, seed=1, gain_u_ratio=0.02))
    assert energy.net_u_mj < energy.gross_u_mj
    sure, off = (
        energy_of(make_trace(load_step, 70, seed=1, offset_u_w=offset_u_w))
        for offset_u_w in (0.0, 0.5)
    )
    assert off.gross_u_mj > sure.gross_u_mj + 10
    assert off.net_u_mj == pytest.approx(sure.net_u_mj)


def test_idle_power_that_moved_widens_the_net_energy_by_as_much():
    """Idle power of 2 W before and 2.2 W after may have been either during the load."""
    energy = energy_of(
        make_trace(lambda t: 5.0 if 20 <= t < 50 else 2.0 if t < 20 else 2.2, 70, seed=1)
    )
    assert abs(energy.net_mj - 90) <= energy.net_u_mj
    assert abs(energy.net_mj - 84) <= energy.net_u_mj < 20


def test_readings_that_a_sensor_repeats_do_not_count_as_many():
    """Reading a meter faster than it updates makes its energy no more certain.

    The meter updates once a second and is read ten times a second.
    """
    noise = [random.Random(second).gauss(5, 0.5) for second in range(71)]  # noqa: S311 - repeatable
    energy = energy_of(make_trace(lambda t: noise[int(t)], 70))
    assert energy.gross_u_mj == pytest.approx(2 * 0.5 / math.sqrt(30) * 30, rel=0.6)


def test_an_unknown_gain_makes_the_uncertainty_unknown():
    """The uncertainty is null and not zero, with the remedy."""
    trace = make_trace(load_step, 70, gain_u_ratio=None, resolution_w=0.01)
    energy = energy_of(trace)
    assert (energy.gross_u_mj, energy.net_u_mj) == (None, None)
    assert "gain_u_ratio" in energy.interval_reason


def test_a_load_lost_in_the_idle_power_is_not_resolvable():
    """Idle power that differs by 1 W before and after hides a load of 0.5 W.

    The gross energy stays, the net one is withheld, and its uncertainty is stated.
    """

    def power(t):
        return even(2.5 if t < 20 else 3.5)(t)

    energy = energy_of(make_trace(power, 70))
    assert (energy.net_state, energy.net_mj) == ("not_resolvable", None)
    assert energy.net_u_mj > 0
    assert abs(energy.gross_mj - 105) <= energy.gross_u_mj


def test_without_idle_there_is_no_net():
    """The net energy is null, with a reason, without a long enough idle stretch with readings."""
    trace = make_trace(load_step, 70)
    for before, after in (
        (None, None),
        (Window(20 * S - S // 2, 20 * S), None),
        (None, Window(200 * S, 230 * S)),
    ):
        energy = energy_of(trace, before=before, after=after)
        assert (energy.net_mj, energy.net_u_mj, energy.net_state) == (None, None, "no_idle")
        assert (energy.idle_before_w, energy.idle_after_w) == (None, None)


def test_with_idle_on_one_side_only_the_drift_is_unknown():
    """The net energy is stated, and its uncertainty is not."""
    energy = energy_of(make_trace(load_step, 70), before=None)
    assert energy.net_mj == pytest.approx(90, rel=0.01)
    assert (energy.net_u_mj, energy.idle_before_w, energy.idle_after_w) == (
        None,
        None,
        pytest.approx(2),
    )


def test_a_slow_counter_is_interpolated_between_its_moves():
    """The edges lie between two moves of a counter that moves once a second.

    Reading it at its old value costs nothing.
    """
    trace = make_counter(6.0, 90, moves_ms=1000.0)
    energy = energy_of(
        trace, timed=Window(20 * S + S // 3, 80 * S + S // 3), after=Window(80 * S + S // 3, 90 * S)
    )
    assert energy.gross_mj == pytest.approx(360, rel=1e-6)


def test_a_counter_goes_on_counting_while_nobody_reads():
    """A pause of 3 s within the window loses nothing.

    One that reaches over its end, or a counter that is gone, does.
    """
    trace = make_counter(6.0, 70)

    def without(begin_s, end_s):
        return dataclasses.replace(
            trace,
            readings=tuple(r for r in trace.readings if not begin_s * S < r.taken_ns < end_s * S),
        )

    assert energy_of(without(30, 33)).gross_mj == pytest.approx(180, rel=1e-6)
    for lost in (without(45, 52), without(35, 99)):
        assert "missing" in assess(lost, TIMED, None, None, 1000)[1]


def test_the_widest_scope_that_supports_an_energy_is_taken_and_the_others_stand_beside_it():
    """A wall plug that is too slow gives way to the board's own sensor.

    Without any usable sensor, all reasons are stated.
    """
    plug = dataclasses.replace(
        make_trace(load_step, 70, scope="wall-ac", period_ms=5000.0), name="plug"
    )
    board = dataclasses.replace(make_trace(load_step, 70, scope="soc-rails"), name="board")
    energies = energies_of([board, plug], EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert (energies.energy.scope, energies.others) == ("soc-rails", ())
    assert energies.refused[0].startswith(
        "plug: it gave 6 new values in 30 s, but an energy needs 10"
    )
    faster = dataclasses.replace(make_trace(load_step, 70, scope="wall-ac"), name="plug")
    energies = energies_of([board, faster], EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert (energies.energy.scope, [other.scope for other in energies.others]) == (
        "wall-ac",
        ["soc-rails"],
    )
    assert (energies.reason, energies.refused) == (None, ())
    energies = energies_of(
        [board, plug], EnergyRun(Window(20 * S, 20 * S + S // 2), BEFORE, AFTER, 10)
    )
    assert energies.energy is None
    assert "plug: " in energies.reason
    assert "; board: " in energies.reason


def test_a_replayed_sensor_does_not_stand_before_a_measuring_one():
    """A recording says nothing about this run, however wide its scope."""
    board = dataclasses.replace(make_trace(load_step, 70, scope="soc-rails"), name="board")
    recording = dataclasses.replace(
        make_trace(load_step, 70, scope="wall-ac", id="replay:demo"), name="replay"
    )
    energies = energies_of([recording, board], EnergyRun(TIMED, BEFORE, AFTER, 1000))
    assert (energies.energy.scope, [other.sensor for other in energies.others]) == (
        "soc-rails",
        ["replay:demo"],
    )


def test_a_counter_that_hardly_moves_while_idle_gives_no_idle_power():
    """A load's energy could lie between two moves that are 20 s apart.

    The counter has steps of 1 J, and the idle power is 50 mW.
    """
    readings = []
    for tick in range(700):
        energy_j = (
            0.05 * min(tick, 200) / 10
            + 8.0 * min(max(tick - 200, 0), 300) / 10
            + 0.05 * max(tick - 500, 0) / 10
        )
        readings.append(Reading(taken_ns=tick * S // 10, energy_mj=math.floor(energy_j) * 1000.0))
    trace = SensorTrace(
        "counter",
        make_description(kind="energy", resolution_w=None, offset_u_w=0.0),
        tuple(readings),
    )
    energy = energy_of(trace)
    assert (energy.net_state, energy.idle_before_w, energy.idle_after_w) == ("no_idle", None, None)
    assert abs(energy.gross_mj - 240) <= energy.gross_u_mj


def test_gaps_that_may_hold_all_of_the_energy_leave_none_to_the_queries():
    """A negative energy of the queries is refused with its reason.

    There is a peak of 100 W between answers of a language model that take a tenth of the time.
    """
    starts_ns = np.arange(20 * S, 50 * S, S)
    queries = Queries(starts_ns, np.full(starts_ns.size, S // 10), 50 * S)
    run = EnergyRun(TIMED, BEFORE, AFTER, starts_ns.size, queries, counts_inferences=False)
    peaks = make_trace(lambda t: even(5.0)(t) + 95 * (35 <= t < 35.3), 70)
    assert assess_run(peaks, run)[1] == (
        "bench: its readings leave no energy to the queries: they are too short beside the "
        "gaps between them"
    )
    assert assess_run(make_trace(even(5.0), 70), run)[0].gross_mj == pytest.approx(500, rel=0.01)


def test_a_step_at_the_edges_lies_within_the_interval():
    """The interval covers that a sensor of 2 Hz does not show where a step fell."""
    for seed in range(8):
        energy = energy_of(make_trace(load_step, 140, seed=seed, period_ms=500.0))
        assert abs(energy.gross_mj - 150) <= energy.gross_u_mj < 6, seed
